//! Which rows of a pass are still to be used. Normally those of the steps to come; when a worker is lost, the rows
//! of its shards in the step that the others finish without it are owed, and are dealt with the next step in
//! which somebody has them: a row is used once a pass, or it is reported.

use crate::walk::Walk;
use serde::{Deserialize, Serialize};
use starlings_core::{Shard, Step, planted};
use starlings_data::{Batch, Dealer, Picked};
use std::collections::BTreeMap;

/// What is owed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Leases {
    /// Shards whose rows of a step nobody has used, by step.
    owed: Vec<(u64, Vec<u32>)>,
    /// Shards whose rows nobody has at the moment.
    missing: Vec<u32>,
}

impl Leases {
    /// Whether everything is as if nobody had ever been lost.
    #[must_use]
    pub fn is_even(&self) -> bool {
        self.owed.is_empty() && self.missing.is_empty()
    }

    /// From now on nobody has the rows of these shards.
    pub fn lack(&mut self, missing: Vec<u32>) {
        if planted!("lack-piles-up") && !missing.is_empty() {
            return self.missing.extend(missing);
        }
        self.missing = missing;
    }

    /// For how many earlier steps the rows of a shard are owed and can be used now.
    #[must_use]
    pub fn due(&self, shard: u32) -> usize {
        let owed = self.owed.iter().filter(|(_, shards)| shards.contains(&shard)).count();
        if self.missing.contains(&shard) { 0 } else { owed }
    }

    /// The shards whose rows are owed, and for how many steps.
    #[must_use]
    pub fn owed_shards(&self) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        for shard in self.owed.iter().flat_map(|(_, shards)| shards) {
            *counts.entry(*shard).or_default() += 1;
        }
        counts
    }

    /// This worker's rows of a step of mini-batches, with what is owed to earlier ones.
    pub fn batch<'a>(&self, dealer: &'a mut Dealer, walk: &Walk, step: Step) -> Batch<'a> {
        let (pass, within) = (walk.pass(step), walk.step_in_pass(step));
        if self.is_even() {
            return dealer.deal(pass, within);
        }
        let has = |shard: &u32| !self.missing.contains(shard);
        let mut rows = 0;
        let mut late: BTreeMap<Shard, Vec<u32>> = BTreeMap::new();
        for (owed, shards) in &self.owed {
            let (pass, within) = (walk.pass(Step(*owed)), walk.step_in_pass(Step(*owed)));
            let due: Vec<Shard> =
                shards.iter().filter(|shard| has(shard)).map(|&shard| Shard(shard)).collect();
            rows += due.iter().map(|&shard| dealer.rows_of(pass, within, shard)).sum::<u64>();
            for slice in dealer.deal(pass, within).slices {
                if let (true, Picked::Some(picked)) = (due.contains(&slice.shard), slice.picked) {
                    late.entry(slice.shard).or_default().extend(picked);
                }
            }
        }
        let present = (0..dealer.holding().shards).filter(has).map(Shard);
        rows += present.map(|shard| dealer.rows_of(pass, within, shard)).sum::<u64>();
        let mut batch = dealer.deal(pass, within);
        for slice in &mut batch.slices {
            if let (Some(late), Picked::Some(picked)) =
                (late.remove(&slice.shard), &mut slice.picked)
            {
                picked.splice(0..0, late);
            }
        }
        batch.rows_step = rows;
        batch
    }

    /// A step is done: what was owed to it and could be used is used.
    pub fn done(&mut self, step: Step) {
        let missing = &self.missing;
        for (_, shards) in &mut self.owed {
            shards.retain(|shard| missing.contains(shard) || planted!("owed-dealt-twice"));
        }
        self.owed.retain(|(_, shards)| !shards.is_empty());
        if !self.missing.is_empty() && !planted!("owed-forgotten") {
            self.owed.push((step.0, self.missing.clone()));
        }
    }

    /// A step was done without this worker: what nobody had is owed to it.
    pub fn skipped(&mut self, step: Step) {
        if !self.missing.is_empty() {
            self.owed.push((step.0, self.missing.clone()));
        }
    }

    /// Rows that are owed.
    #[must_use]
    pub fn rows_owed(&self, dealer: &Dealer, walk: &Walk) -> u64 {
        let of = |(step, shards): &(u64, Vec<u32>)| {
            let (pass, within) = (walk.pass(Step(*step)), walk.step_in_pass(Step(*step)));
            shards.iter().map(|&shard| dealer.rows_of(pass, within, Shard(shard))).sum::<u64>()
        };
        self.owed.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;
    use starlings_data::{Features, Holding, Table};
    use starlings_learn::Outcome;
    use std::sync::Arc;

    const SHARDS: u32 = 8;

    fn whole(rows: usize) -> Holding {
        let values = (0..rows).map(|row| row as f32).collect();
        let table = Table::new(Features::Dense { width: 1, values }, vec![]);
        Holding::whole(Arc::new(table), SHARDS)
    }

    /// Three workers, of whom some are lost at random steps: every row of every pass is used exactly once.
    #[test]
    fn every_row_is_used_once_a_pass_whoever_is_lost_when() {
        for seed in 0..200 {
            let mut rng = Rng::named(seed, "leases", &[]);
            let rows = 20 + rng.below(200) as usize;
            let (holding, batch) = (whole(rows), 1 + rng.below(40));
            let passes = 2;
            let mut walk = Walk::new(Step(0), None, (rows as u64).div_ceil(batch));
            let mut hands: Vec<Vec<u32>> =
                (0..3).map(|w| (0..SHARDS).filter(|s| s % 3 == w).collect()).collect();
            let mut leases = Leases::default();
            let mut used = vec![vec![0u32; rows]; passes];
            let mut orphans: Vec<u32> = Vec::new();
            while walk.steps() < passes as u64 * (rows as u64).div_ceil(batch) {
                let step = Step(walk.steps());
                if hands.len() > 1 && rng.below(4) == 0 {
                    orphans = hands.remove(rng.below(hands.len() as u64) as usize);
                    leases.lack(orphans.clone());
                }
                let mut sum = 0;
                let mut claimed = 0;
                for hand in &hands {
                    let mine: Vec<Shard> = hand.iter().map(|&shard| Shard(shard)).collect();
                    let mut dealer = Dealer::new(holding.only(&mine), 3, batch);
                    let batch = leases.batch(&mut dealer, &walk, step);
                    sum += batch.len() as u64;
                    claimed = batch.rows_step;
                    // Rows owed to the pass before may be used in the first step of this one.
                    batch.rows().for_each(|row| used[walk.pass(step) as usize][row] += 1);
                }
                assert_eq!(sum, claimed, "seed {seed} {step}: all know how many rows a step has");
                leases.done(step);
                walk.done(step, sum, &Outcome::default());
                leases.lack(vec![]);
                hands[0].append(&mut orphans);
            }
            let dealer = Dealer::new(holding.clone(), 3, batch);
            let owed = leases.rows_owed(&dealer, &walk);
            let total: u64 = used.iter().flatten().map(|&count| u64::from(count)).sum();
            assert_eq!(total + owed, (passes * rows) as u64, "seed {seed}");
            let over = used.iter().flatten().filter(|&&count| count > 2).count();
            assert_eq!(over, 0, "seed {seed}: used more than once in two passes' time");
        }
    }
}
