//! Groups around owners (Mamidala et al., 2018: MXNet-MPI; MXNet's KVStore merges so within a machine): contributions
//! are summed inside a group; its first seat pushes the sum to the owners of the rows and pulls the model,
//! which the group shares. Inside a group there is a barrier; between groups the gate decides. Towards the owners a group is
//! what a worker is by itself: with a cadence it pushes and fetches now and then and steps on its own copy between, and one
//! that is late is left out where others are not waited for.

use super::rhythm::{Accrued, Habits, Opening};
use super::{
    Agreed, Exchange, HandedIn, agreed, asks_block, latest, local_loss, steps_of_all, sum,
};
use crate::exchange::model_wire::{all_weights, put, zeros_like};
use crate::exchange::packet::Losses;
use crate::exchange::served::{Asks, News};
use crate::merge::Merger;
use crate::net::Net;
use crate::serve::Client;
use starlings_core::{Block, Body, Model, Result, Step, Update, Values};
use starlings_learn::{Moment, Needs, Outcome};
use std::sync::Arc;

/// The block that carries what a group's first seat has heard.
const NEWS: &str = "starlings.news";

/// The block that carries how many rows a seat had in a step.
const ROWS: &str = "starlings.rows";

/// A seat of a group.
pub struct Grouped {
    /// Only the first seat of a group has one.
    client: Option<Client>,
    /// Sums of contributions inside the group.
    group: Merger,
    /// Exact sums inside the group.
    within: Merger,
    exact: Merger,
    net: Arc<Net>,
    habits: Habits,
    accrued: Accrued,
    asks: Asks,
    /// What the group wished at the end of its last step.
    votes: Agreed,
    cut_at: u64,
}

impl Grouped {
    /// From the client of a group's first seat, and mergers: of contributions inside the group, exact ones
    /// inside the group, and exact ones of all.
    #[must_use]
    pub fn new(
        client: Option<Client>,
        mergers: [Merger; 3],
        habits: Habits,
        net: Arc<Net>,
    ) -> Grouped {
        let (asks, votes, accrued) = (Asks::default(), Agreed::default(), Accrued::default());
        let [group, within, exact] = mergers;
        Grouped { client, group, within, exact, net, habits, accrued, asks, votes, cut_at: 0 }
    }

    /// The first seat's model and news become the group's. The others contribute zeros.
    fn share(&mut self, news: News, model: &mut Model) -> Result<News> {
        let own = all_weights(model);
        let mut update = if self.client.is_some() { own } else { zeros_like(&own) };
        let word = |at: Option<u64>| at.map_or(0, |at| at as i64 + 1);
        let words = match self.client {
            // Where everyone has finished there is no slowest.
            Some(_) => {
                let slowest = Some(news.slowest).filter(|&slowest| slowest != u64::MAX);
                vec![word(news.stop_at), word(news.cut_at), word(slowest)]
            }
            None => vec![0; 3],
        };
        update.blocks.push(Block::counts(NEWS, words));
        let merged = self.within.merge(update)?;
        put(model, &merged);
        let at = |word: i64| (word > 0).then(|| word as u64 - 1);
        let words = merged.i64(NEWS);
        let slowest = at(words[2]).unwrap_or(u64::MAX);
        Ok(News { stop_at: at(words[0]), cut_at: at(words[1]), slowest, ..news })
    }

    /// The group's step enters its own copy of the model, alike on all its seats.
    fn step_alone(&self, moment: &Moment, merged: &mut Update, model: &mut Model) -> Result<()> {
        let rows = merged.blocks.pop_if(|block| block.name == ROWS);
        let rows = rows.map_or(0, |block| match block.body {
            Body::Dense(Values::I64(rows)) => rows.iter().sum::<i64>().unsigned_abs(),
            _ => 0,
        });
        if let Some(learner) = &self.habits.echo {
            let own = Moment { rows: rows.max(1), ..*moment };
            learner.apply(model, merged, &own)?;
        }
        Ok(())
    }
}

impl Exchange for Grouped {
    fn open(&mut self, step: Step, _: &Needs, asks: Asks, model: &mut Model) -> Result<Agreed> {
        self.asks = asks;
        // All seats of a group must come to the same, so what one of them wishes counts when all know of it.
        let wished = self.votes.stop || self.votes.cut || self.votes.part;
        match self.habits.opening(step, wished) {
            Opening::Skip(later) => {
                return Ok(Agreed { skip_to: Some(later), ..Agreed::default() });
            }
            Opening::Go => return Ok(Agreed::default()),
            Opening::Fetch => {}
        }
        let mut news = News::default();
        if let Some(client) = &mut self.client {
            // What the members of the group wished after their last step, the first seat asks for.
            let asks = Asks {
                stop: asks.stop || self.votes.stop,
                cut: asks.cut || self.votes.cut,
                ..asks
            };
            news = client.pull(step, &Needs::All, self.habits.asks(step, asks), model)?;
            client.pulled();
        }
        let News { stop_at, cut_at, slowest, .. } = self.share(news, model)?;
        let reached = |at: Option<u64>| at.is_some_and(|at| at <= step.0);
        let cut = reached(cut_at.filter(|&at| at > self.cut_at));
        let skip_to = self.habits.late(step, slowest);
        Ok(Agreed { stop: reached(stop_at), cut, skip_to, part: false })
    }

    fn finish(&mut self, handed: HandedIn, model: &mut Model) -> Result<Outcome> {
        let objective = local_loss(&handed.update);
        let HandedIn { moment, own_rows, mut update, .. } = handed;
        let cadence = self.habits.cadence;
        if cadence.is_some() {
            update.blocks.push(Block::counts(ROWS, vec![own_rows as i64]));
        }
        let parts = self.client.as_ref().is_some_and(Client::parts);
        update.blocks.push(asks_block(self.asks, parts));
        let mut merged = self.group.merge(update)?;
        self.votes = agreed(merged.blocks.pop());
        if cadence.is_some() {
            self.step_alone(&moment, &mut merged, model)?;
        }
        if let Some(client) = &mut self.client {
            // The others of the group see it when the first seat shares its model.
            client.step(&moment, &merged, model)?;
            self.accrued.take(client, cadence, (moment, merged), self.votes.part)?;
        }
        Ok(Outcome { objective, ..Outcome::default() })
    }

    fn cut(&mut self, step: Step, model: &mut Model) -> Result<Step> {
        if let Some(client) = &mut self.client {
            self.accrued.flush(client)?;
        }
        let latest = latest(&mut self.exact, &self.net, step)?;
        let due = steps_of_all(&mut self.exact, &self.net, self.accrued.pushed())?;
        if let Some(client) = &mut self.client {
            client.pull_all(latest, due, model)?;
        }
        self.share(News::default(), model)?;
        self.cut_at = self.cut_at.max(latest.0);
        self.sum(vec![]).map(|_| latest)
    }

    fn sum(&mut self, numbers: Vec<f64>) -> Result<Vec<f64>> {
        sum(&mut self.exact, numbers)
    }

    fn close(&mut self, step: Step) -> Result<()> {
        let Some(client) = &mut self.client else { return Ok(()) };
        self.accrued.flush(client)?;
        client.finished(step)
    }

    fn bytes_raw(&self) -> u64 {
        let pushed = self.client.as_ref().map_or(0, Client::bytes_raw);
        let mergers = [&self.group, &self.within, &self.exact];
        pushed + mergers.iter().map(|merger| merger.bytes_raw()).sum::<u64>()
    }

    fn losses(&self) -> Losses {
        self.client.as_ref().map_or(Losses::new(), |client| client.losses())
    }

    fn restore(&mut self, losses: Losses, _: bool) {
        if let Some(client) = &mut self.client {
            client.residuals().add(losses);
        }
    }

    fn holds_back(&self) -> bool {
        self.client.as_ref().is_some_and(Client::holds_back)
    }

    fn part(&mut self) {
        if let Some(client) = &mut self.client {
            client.part();
        }
    }

    fn parted(&self) -> bool {
        self.client.as_ref().is_none_or(Client::parted)
    }

    fn replicated(&self) -> bool {
        false
    }
}
