//! The blocking shells of the served exchange: the thread that runs this seat's server shard, and the client
//! through which the worker pushes and pulls.

use crate::choices::Carriage;
use crate::exchange::columns::widened;
use crate::exchange::ownership::Ownership;
use crate::exchange::packet::Losses;
use crate::exchange::rows_wire::{Glasses, Pen, read, write};
use crate::exchange::served::{Asks, Command, Event, News, Shard, WantedRows, place};
use crate::net::{Arrival, Net};
use crate::own_steps::OwnSteps;
use crate::rules::Rule;
use serde::{Deserialize, Serialize};
use starlings_codec::{Codec, Compressor, Residuals};
use starlings_consistency::Gate;
use starlings_core::{Block, Body, Deadline, Fault, Model, Result, Rng, Role, Seat, Step, Update};
use starlings_learn::{Moment, Needs};
use starlings_transport::{Header, Lane};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const PUSH: u8 = 1;
const PULL: u8 = 2;
const FINISHED: u8 = 3;
const ANSWER: u8 = 4;
const FRESH: u8 = 5;
const MIRROR: u8 = 6;
const MIRRORED: u8 = 7;

#[derive(Serialize, Deserialize)]
struct PushMeta {
    pass: u64,
    seed: u64,
    rows: u64,
    last: bool,
}

#[derive(Serialize, Deserialize)]
struct PullMeta {
    due: Vec<u64>,
    stop: bool,
    cut: bool,
    after: u64,
    wanted: Vec<(String, Option<Vec<u32>>)>,
}

/// How rows travel between workers and owners, and who the owners are.
#[derive(Clone)]
pub struct Service {
    /// For contributions: each number by itself, or compressed.
    pub push: Carriage,
    /// For the model's rows: exact.
    pub pull: Arc<dyn Codec>,
    /// Who owns what.
    pub owners: Arc<Ownership>,
    /// When pulls are answered.
    pub gate: Arc<dyn Gate>,
    /// How long to wait for a peer that is alive but silent.
    pub patience: Duration,
}

impl Service {
    fn compressor(&self) -> Option<&dyn Compressor> {
        match &self.push {
            Carriage::Contributions(compressor) => Some(&**compressor),
            _ => None,
        }
    }

    fn push_codec(&self) -> &dyn Codec {
        match &self.push {
            Carriage::Numbers(codec) => &**codec,
            _ => &*self.pull,
        }
    }
}

/// What a shard's thread tells the rest of its worker.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The largest lead it has allowed.
    pub lead_max: AtomicU64,
    /// Contributions that came too late.
    pub dropped: AtomicU64,
    /// Bytes that the rows sent to the backup have in memory.
    pub mirrored: AtomicU64,
}

/// Starts the thread that runs this seat's shard. It ends when the net closes, and gives the shard back.
///
/// # Errors
/// When the thread cannot be started.
pub fn start(
    net: Arc<Net>,
    mut shard: Shard,
    service: Service,
    ledger: Arc<Ledger>,
) -> Result<JoinHandle<Shard>> {
    let serve = move || {
        let _alarm = Alarm(net.clone());
        let mut commands = Vec::new();
        // It ends with the net: closed, aborted, or a peer lost, which the client reports.
        while let Some(arrival) = next_request(&net) {
            let from = arrival.from;
            match decode(arrival, &service, net.seat()) {
                Ok(event) => shard.on(event, &mut commands),
                Err(why) => commands.push(Command::Fail(format!("{from} sent {why}"))),
            }
            ledger.lead_max.store(shard.lead_max(), Ordering::Relaxed);
            ledger.dropped.store(shard.dropped(), Ordering::Relaxed);
            for command in commands.drain(..) {
                if let Command::Mirror { rows, .. } = &command {
                    let bytes = rows.iter().map(|block| block.bytes() as u64).sum();
                    ledger.mirrored.fetch_add(bytes, Ordering::Relaxed);
                }
                if let Err(fault) = perform(&net, command, &service) {
                    net.abort(fault);
                }
            }
        }
        shard
    };
    Ok(std::thread::Builder::new().name("server shard".to_string()).spawn(serve)?)
}

/// A server that panics must not leave the workers waiting for its answers.
struct Alarm(Arc<Net>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = format!("the server shard of {} panicked", self.0.seat());
            self.0.abort(Fault::machine(what).hint("this is a bug: please report it"));
        }
    }
}

fn next_request(net: &Net) -> Option<Arrival> {
    net.next(Lane::Request, |_| true, Deadline::after(Duration::from_secs(3600 * 24))).ok()
}

fn decode(arrival: Arrival, service: &Service, owner: Seat) -> Result<Event, &'static str> {
    let (from, step) = (arrival.from, arrival.header.step);
    match arrival.header.kind {
        PUSH => {
            let glasses = Glasses {
                codec: service.push_codec(),
                compressor: service.compressor(),
                owners: &service.owners,
                owner,
            };
            let (meta, update) = read::<PushMeta>(&arrival.payload, glasses)?;
            let PushMeta { pass, seed, rows, last } = meta;
            Ok(Event::Push { from, moment: Moment { step, pass, seed, rows }, update, last })
        }
        PULL => {
            let meta: PullMeta = postcard::from_bytes(&arrival.payload)
                .map_err(|_| "a request that cannot be read")?;
            let wanted = meta
                .wanted
                .into_iter()
                .map(|(name, rows)| (name, rows.map_or(WantedRows::Owned, WantedRows::These)));
            let PullMeta { due, stop, cut, after, .. } = meta;
            let asks = Asks { stop, cut, after };
            Ok(Event::Pull { from, step, wanted: wanted.collect(), asks, due })
        }
        FINISHED => Ok(Event::Finished { from }),
        MIRROR => {
            let (codec, owners) = (&*service.pull, &*service.owners);
            let glasses = Glasses { codec, compressor: None, owners, owner: from };
            let ((), update) = read::<()>(&arrival.payload, glasses)?;
            Ok(Event::Mirror { from, number: step.0, rows: update.blocks })
        }
        MIRRORED => Ok(Event::Mirrored { from, number: step.0 }),
        _ => Err("an unknown request"),
    }
}

fn perform(net: &Net, command: Command, service: &Service) -> Result<()> {
    let place = (&*service.owners, net.seat());
    let mut pen = Pen::Codec(&*service.pull);
    let (to, lane, kind, step, payload) = match command {
        Command::Answer { to, step, rows, news } => {
            (to, Lane::Answer, ANSWER, step, write(news, &rows, &mut pen, place))
        }
        Command::Fresh { to, rows, news } => {
            let step = Step(news.slowest);
            (to, Lane::Answer, FRESH, step, write(news, &rows, &mut pen, place))
        }
        Command::Mirror { to, number, rows } => {
            (to, Lane::Request, MIRROR, Step(number), write((), &rows, &mut pen, place))
        }
        Command::Mirrored { to, number } => (to, Lane::Request, MIRRORED, Step(number), Vec::new()),
        Command::Fail(why) => {
            return Err(Fault::caller(why).during("the server shard stopped"));
        }
    };
    let header = Header { lane, kind, step, tag: 0 };
    // A worker that is gone is reported by whoever waits for it, not by its server.
    let _ = net.send(to, header, &payload, Deadline::after_ms(60_000));
    Ok(())
}

/// The worker's side: pushes contributions to the owners of their rows, pulls rows from them.
pub struct Client {
    net: Arc<Net>,
    service: Service,
    residuals: Residuals,
    seed: u64,
    bytes_raw: u64,
    /// What is known of each owner.
    known: Vec<Known>,
    /// What all have agreed on, as the first seat's shard last told.
    news: News,
    parting: Parting,
    /// Where owners send rows by themselves: this worker's steps that they may miss.
    own_steps: Option<OwnSteps>,
}

/// How far a worker is with leaving.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Parting {
    /// It stays.
    #[default]
    Stays,
    /// What it has held back goes with its next push.
    Asked,
    /// It was pushed.
    Pushed,
    /// All owners have answered since: they have it.
    Parted,
}

/// What a client knows of an owner that sends fresh rows by itself.
#[derive(Clone, Debug, Default)]
struct Known {
    slowest: u64,
    asked: BTreeMap<String, BTreeSet<u32>>,
    asked_all: bool,
}

impl Client {
    /// A client on a net whose every seat runs a shard.
    #[must_use]
    pub fn new(net: Arc<Net>, service: Service, seed: u64) -> Client {
        let known = vec![Known::default(); net.world() as usize];
        let (residuals, news) = (Residuals::default(), News::default());
        let (parting, own_steps) = (Parting::default(), None);
        Client { net, service, residuals, seed, bytes_raw: 0, known, news, parting, own_steps }
    }

    /// Where owners send rows by themselves, what is pushed also enters the own copy at once, by the rule of the owners.
    /// Without it all owners are asked before every step, and answer when they have what was pushed.
    #[must_use]
    pub fn seeing_its_own(mut self, rule: Arc<dyn Rule>) -> Client {
        let world = self.net.world();
        self.own_steps = self.service.gate.pushes().then(|| OwnSteps::new(rule, world));
        self
    }

    /// Whether contributions enter the own copy at once.
    #[must_use]
    pub fn sees_its_own(&self) -> bool {
        self.own_steps.is_some()
    }

    /// A contribution that is about to be pushed enters the own copy, where it does so at once.
    ///
    /// # Errors
    /// When it does not fit the model.
    pub fn step(&mut self, moment: &Moment, update: &Update, model: &mut Model) -> Result<()> {
        let Some(own_steps) = &mut self.own_steps else { return Ok(()) };
        own_steps.take((moment, update), &self.service.owners, model)
    }

    /// The slowest worker has done so many steps already: owners that are asked for nothing tell only of more.
    #[must_use]
    pub fn begun(mut self, slowest: u64) -> Client {
        self.known.iter_mut().for_each(|known| known.slowest = slowest);
        self
    }

    /// Bytes that everything pushed and pulled has in memory.
    #[must_use]
    pub fn bytes_raw(&self) -> u64 {
        self.bytes_raw
    }

    /// Whether a block of this name goes to owners.
    #[must_use]
    pub fn owns(&self, name: &str) -> bool {
        self.service.owners.knows(name)
    }

    /// What was lost in pushes so far, by names that stay the same.
    #[must_use]
    pub fn losses(&self) -> Losses {
        self.residuals.save()
    }

    /// Whether pushes hold something back that later ones bring.
    #[must_use]
    pub fn holds_back(&self) -> bool {
        self.service.compressor().is_some_and(|compressor| compressor.feedback().is_some())
    }

    /// This worker is about to leave: its next push brings all that was held back, and from now on nothing is.
    pub fn part(&mut self) {
        if self.parting == Parting::Stays {
            self.parting = Parting::Asked;
        }
    }

    /// Whether this worker is about to leave.
    #[must_use]
    pub fn parts(&self) -> bool {
        self.parting != Parting::Stays
    }

    /// All owners have answered: what was pushed before has arrived.
    pub fn pulled(&mut self) {
        if self.parting == Parting::Pushed {
            self.parting = Parting::Parted;
        }
    }

    /// Whether the owners have all that was held back.
    #[must_use]
    pub fn parted(&self) -> bool {
        self.parting == Parting::Parted
    }

    /// What was lost in pushes so far.
    pub fn residuals(&mut self) -> &mut Residuals {
        &mut self.residuals
    }

    /// Pushes a contribution, or with `last` unset a part of one. Blocks that name no tensor of the model stay
    /// here: they are statistics.
    ///
    /// # Errors
    /// A lost peer.
    pub fn push(&mut self, moment: &Moment, update: &Update, last: bool) -> Result<()> {
        let by = Deadline::after(self.service.patience);
        let header = Header { lane: Lane::Request, kind: PUSH, step: moment.step, tag: 0 };
        for owner in (0..self.net.world()).map(Seat) {
            let owners = &self.service.owners;
            let parts = update.blocks.iter().filter_map(|block| owners.restrict(block, owner));
            let mut parts: Vec<Block> = parts.collect();
            if self.parting != Parting::Stays {
                parts.iter_mut().for_each(|part| release(&mut self.residuals, part, owners, owner));
            }
            if owner != self.net.seat() {
                self.bytes_raw += parts.iter().map(|block| block.bytes() as u64).sum::<u64>();
            }
            let meta = PushMeta { pass: moment.pass, seed: moment.seed, rows: moment.rows, last };
            let key = [moment.step.0, u64::from(self.net.seat().0), u64::from(owner.0)];
            let mut noise = Rng::named(self.seed, "push", &key);
            let mut pen = match &self.service.push {
                Carriage::Contributions(_) if self.parting != Parting::Stays => {
                    Pen::Codec(&*self.service.pull)
                }
                Carriage::Contributions(compressor) => {
                    Pen::Compressor(&**compressor, &mut self.residuals, &mut noise)
                }
                _ => Pen::Codec(self.service.push_codec()),
            };
            let payload = write(meta, &parts, &mut pen, (owners, owner));
            self.net.send(owner, header, &payload, by)?;
        }
        if last && self.parting == Parting::Asked {
            self.parting = Parting::Pushed;
        }
        Ok(())
    }

    /// Pulls what is needed into the model. Waits until the owners' gates admit the step. Owners that send
    /// fresh rows by themselves are asked for a row only once.
    ///
    /// # Errors
    /// A lost peer, an abort or the deadline.
    pub fn pull(
        &mut self,
        step: Step,
        needs: &Needs,
        asks: Asks,
        model: &mut Model,
    ) -> Result<News> {
        self.request(step, needs, (asks, Vec::new()), model)
    }

    /// Pulls everything, optimiser state included, as it is when each seat has pushed the steps that are due.
    ///
    /// # Errors
    /// A lost peer, an abort or the deadline.
    pub fn pull_all(&mut self, step: Step, due: Vec<u64>, model: &mut Model) -> Result<News> {
        self.request(step, &Needs::All, (Asks::default(), due), model)
    }

    fn request(
        &mut self,
        step: Step,
        needs: &Needs,
        (asks, due): (Asks, Vec<u64>),
        model: &mut Model,
    ) -> Result<News> {
        let by = Deadline::after(self.service.patience);
        let mut answers = 0;
        let strict = !due.is_empty();
        let silent = self.own_steps.is_some() && !strict && !asks.stop && !asks.cut;
        // Whoever is about to leave wants to know that its last push has arrived.
        let silent = silent && self.parting == Parting::Stays;
        for owner in (0..self.net.world()).map(Seat) {
            let wanted = self.wanted(needs, strict, model, owner);
            if silent && self.known[owner.index()].covers(&wanted) {
                continue;
            }
            self.known[owner.index()].ask(&wanted);
            answers += 1;
            let Asks { stop, cut, after } = asks;
            let meta = PullMeta { due: due.clone(), stop, cut, after, wanted };
            let payload = postcard::to_stdvec(&meta).expect("plain data serialises");
            let header = Header { lane: Lane::Request, kind: PULL, step, tag: 0 };
            self.net.send(owner, header, &payload, by)?;
        }
        // Fresh rows come before the answers that were written after them: in the order of arrival.
        let mine = |arrival: &Arrival| {
            arrival.header.kind == FRESH
                || (arrival.header.kind == ANSWER && arrival.header.step == step)
        };
        while let Some(arrival) = self.net.try_next(Lane::Answer, mine)? {
            self.take(&arrival, &mut answers, model)?;
        }
        while answers > 0 || (silent && !self.fresh(step)) {
            let arrival = self.net.next(Lane::Answer, mine, by)?;
            self.take(&arrival, &mut answers, model)?;
        }
        Ok(self.news)
    }

    fn fresh(&self, step: Step) -> bool {
        self.known.iter().all(|known| self.service.gate.fresh(step, known.slowest))
    }

    /// Puts the rows of an answer into the model. `answers` is how many are awaited.
    fn take(&mut self, arrival: &Arrival, answers: &mut u32, model: &mut Model) -> Result<()> {
        let from = arrival.from;
        let host = self.net.host(from).to_string();
        let broken =
            |why: &str| Fault::peer(Some(from), format!("{from} on {host} answered with {why}"));
        if arrival.header.kind == ANSWER {
            *answers = answers.checked_sub(1).ok_or_else(|| broken("what nobody asked for"))?;
        }
        let glasses = Glasses {
            codec: &*self.service.pull,
            compressor: None,
            owners: &self.service.owners,
            owner: from,
        };
        let (news, rows) = read::<News>(&arrival.payload, glasses).map_err(broken)?;
        if from != self.net.seat() {
            self.bytes_raw += rows.bytes() as u64;
        }
        for block in &rows.blocks {
            let tensor = model.get_mut(&block.name).ok_or_else(|| broken("an unknown tensor"))?;
            let Body::Rows(rows) = &block.body else { return Err(broken("a dense block")) };
            if !place(tensor, rows) {
                return Err(broken("rows of another table"));
            }
        }
        if let Some(own_steps) = &mut self.own_steps {
            own_steps.again((from, news.own), &rows.blocks, model)?;
        }
        let known = &mut self.known[from.index()];
        known.slowest = known.slowest.max(news.slowest);
        // One shard decides for all where to stop and cut.
        if from == Seat(0) {
            self.news = news;
        }
        Ok(())
    }

    /// Tells all shards that this worker pushes no more.
    ///
    /// # Errors
    /// A lost peer.
    pub fn finished(&self, step: Step) -> Result<()> {
        let by = Deadline::after(self.service.patience);
        let header = Header { lane: Lane::Request, kind: FINISHED, step, tag: 0 };
        (0..self.net.world()).try_for_each(|owner| self.net.send(Seat(owner), header, &[], by))
    }

    /// What to want from an owner. A strict pull wants everything, optimiser state included.
    fn wanted(
        &self,
        needs: &Needs,
        everything: bool,
        model: &Model,
        owner: Seat,
    ) -> Vec<(String, Option<Vec<u32>>)> {
        match needs {
            Needs::Rows(rows) if !everything => rows
                .iter()
                .map(|(name, rows)| {
                    (name.clone(), Some(self.service.owners.among(name, owner, rows)))
                })
                .collect(),
            _ => model
                .iter()
                .filter(|(_, tensor)| everything || tensor.role == Role::Weight)
                .map(|(name, _)| (name.to_string(), None))
                .collect(),
        }
    }
}

/// Adds what was held back of an owner's rows to what is pushed to it.
fn release(residuals: &mut Residuals, part: &mut Block, owners: &Ownership, owner: Seat) {
    let Body::Rows(rows) = &mut part.body else { return };
    let owned = |row: u32| owners.among(&part.name, owner, &[row]) == [row];
    if let Some(held) = residuals.release_rows(&part.name, owned) {
        rows.fold(&widened(held, rows.width)).expect("what is held has the shape of its table");
    }
}

impl Known {
    /// Whether all of this has been asked for before.
    fn covers(&self, wanted: &[(String, Option<Vec<u32>>)]) -> bool {
        let asked = |(name, rows): &(String, Option<Vec<u32>>)| match (rows, self.asked.get(name)) {
            (Some(rows), Some(asked)) => rows.iter().all(|row| asked.contains(row)),
            (Some(rows), None) => rows.is_empty(),
            (None, _) => false,
        };
        self.asked_all || wanted.iter().all(asked)
    }

    fn ask(&mut self, wanted: &[(String, Option<Vec<u32>>)]) {
        for (name, rows) in wanted {
            match rows {
                None => self.asked_all = true,
                Some(rows) => self.asked.entry(name.clone()).or_default().extend(rows),
            }
        }
    }
}
