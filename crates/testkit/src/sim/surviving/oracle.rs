//! What a run showed, and whether it should have.

use super::scenario::{CALM_AFTER_MS, Scenario};
use super::tallying::{Contribution, Results};
use starlings_core::Seat;
use std::collections::BTreeMap;

/// Once nothing fails any more a job is over within this time.
const ENDS_WITHIN_MS: u64 = 60_000;

/// What a run showed.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Whether the job completed, and when.
    pub ended: Option<(bool, u64)>,
    /// Epochs that were announced.
    pub epochs: u32,
    /// How often everyone who had a model was gone, and those who were left began anew.
    pub restarts: u32,
    /// Coordinators that took over from another, and when the last of them did.
    pub followed: (u32, u64),
    /// The models of all who finished.
    pub models: Vec<Results>,
    /// What was reported as done, by step.
    pub reported: BTreeMap<u64, Contribution>,
    /// Whether a member that counts has finished: the rest may be brought to its end by fewer than the job needs.
    pub(super) is_done: bool,
    /// Whether the model has come home.
    pub(super) delivered: bool,
    /// The last epoch that was announced.
    pub(super) announced: Option<u32>,
    /// Members by epoch.
    pub(super) rosters: BTreeMap<u32, u64>,
    /// How often each member was told that it is over; only those who came in time are here.
    pub(super) told: BTreeMap<Seat, u32>,
    /// What the coordinators heard and did, if somebody wants to know.
    pub(super) story: Option<Vec<String>>,
    /// The first thing that must not happen and did.
    pub(super) broken: Option<String>,
}

impl Outcome {
    /// Adds a line to the story, if it is told.
    pub(super) fn tell(&mut self, now: u64, what: &dyn std::fmt::Debug) {
        if let Some(story) = &mut self.story {
            story.push(format!("{now} ms: {what:?}"));
        }
    }

    /// Notes something that must not happen.
    pub(super) fn breaks(&mut self, why: String) {
        self.broken.get_or_insert(why);
    }

    /// A member reports that a step is done.
    pub(super) fn report(&mut self, step: u64, sum: Contribution) {
        let known = self.reported.entry(step).or_insert_with(|| sum.clone());
        if *known != sum {
            self.breaks(format!("I4: step {step} was reported twice with different sums"));
        }
    }

    /// The coordinator announces an epoch.
    pub(super) fn announce(&mut self, scenario: &Scenario, epoch: u32, seats: &[Seat]) {
        self.epochs += 1;
        if self.announced.replace(epoch).is_some_and(|last| last >= epoch) {
            self.breaks(format!("I5: epoch {epoch} is announced after a later one"));
        }
        self.check_enough(scenario, seats.len());
        self.note(epoch, seats);
    }

    /// The coordinator has written down an epoch, or announces it: a number has one meaning, whoever coordinates.
    pub(super) fn note(&mut self, epoch: u32, seats: &[Seat]) {
        let members = seats.iter().fold(0u64, |members, seat| members | (1 << seat.0));
        if members.count_ones() as usize != seats.len() {
            self.breaks(format!("I5: somebody has two seats in epoch {epoch}"));
        }
        if *self.rosters.entry(epoch).or_insert(members) != members {
            self.breaks(format!("I5: two lineups are called epoch {epoch}"));
        }
    }

    /// I8: so many are told to go on.
    pub(super) fn check_enough(&mut self, scenario: &Scenario, count: usize) {
        if (count as u32) < scenario.least && !self.is_done {
            self.breaks(format!("I8: {count} go on, {} are needed", scenario.least));
        }
    }

    /// The coordinator says that a member failed.
    pub(super) fn blame(&mut self, scenario: &Scenario, seat: Seat) {
        if !scenario.may_be_blamed(seat) {
            self.breaks(format!("I6: member {} is taken for dead and was not", seat.0));
        }
    }

    /// Checks every invariant.
    pub(super) fn check(&self, scenario: &Scenario) -> Result<(), String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        let (complete, time) = self.ended.ok_or("I3: the job hangs")?;
        let calm = scenario.failures.iter().map(|(_, _, time)| *time).max().unwrap_or(0);
        // A coordinator that takes over is the last thing that is not calm.
        if time > calm.max(CALM_AFTER_MS).max(self.followed.1) + ENDS_WITHIN_MS {
            return Err("I3: the job ends late".to_string());
        }
        // A leaver, a killed or a cut member is gone; whoever is neither can bring the job to its end.
        // A job cannot begin without all whom it asked for. One coordinator finds them before anything befalls them; where
        // another has to find them again, one may be gone.
        let begun = !self.rosters.is_empty() || self.followed.0 == 0;
        if !complete && !scenario.can_fall_short() && (begun || scenario.is_unharmed()) {
            return Err("I3: the job is given up".to_string());
        }
        for (seat, &count) in &self.told {
            let harmed = scenario.fates(*seat).next().is_some();
            if count > 1 || (count == 0 && !harmed) {
                return Err(format!("I7: member {} was told {count} times", seat.0));
            }
        }
        self.check_models(scenario)
    }

    fn check_models(&self, scenario: &Scenario) -> Result<(), String> {
        if self.restarts > 0 && !scenario.can_lose_all() {
            return Err("I4: some who had a model were left".to_string());
        }
        let Some(first) = self.models.first() else { return Ok(()) };
        let same = |other: &Results| other.sums == first.sums && other.owed() == first.owed();
        if !self.models.iter().all(same) {
            return Err("I1: models differ".to_string());
        }
        for (step, sum) in &self.reported {
            if first.sums.get(*step as usize) != Some(sum) {
                return Err(format!("I4: step {step} was reported and is not in the model"));
            }
        }
        let mut rows = vec![0; scenario.shards as usize];
        for (step, sum) in first.sums.iter().enumerate() {
            let roster = self.rosters.get(&(sum.epoch as u32));
            if roster.is_none_or(|members| *members != sum.who) {
                return Err(format!("I2: step {step} has the contributions of {:b}", sum.who));
            }
            rows.iter_mut().zip(&sum.rows).for_each(|(total, count)| *total += count);
            if !scenario.reweighs && sum.rows.iter().any(|&count| count != 1) {
                return Err(format!("I2: rows of step {step}: {:?}", sum.rows));
            }
        }
        for (shard, owed) in &first.owed() {
            rows[*shard as usize] += *owed as i64;
        }
        match rows.iter().all(|&count| count == scenario.steps as i64) {
            true => Ok(()),
            false => Err(format!("I2: rows are used {rows:?} times in {} steps", scenario.steps)),
        }
    }
}
