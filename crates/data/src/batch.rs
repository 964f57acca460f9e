//! Which rows a step uses. Rows are leased by virtual shard; the rows of a step are a function of
//! (seed, pass, step) alone, and each row is used exactly once a pass whatever the number of workers.
//!
//! Global position g of a pass belongs to shard g mod V, at place g div V of that shard's own shuffled
//! order. Step t takes the positions t·B … (t+1)·B − 1: exactly B rows, spread evenly over the shards.
//! Shard v itself is a range of consecutive rows of the data set, so that a worker reads only its own.
//!
//! Where rows belong to groups, shards and steps are made of whole groups, see [`Groups`].

use crate::Table;
use crate::groups::{Groups, Procession};
use starlings_core::{Rng, Shard};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many rows shard `shard` of `shards` has when there are `rows` in all.
#[must_use]
pub fn shard_rows(rows: u64, shards: u32, shard: Shard) -> u64 {
    let (rows, shards, shard) = (rows, u64::from(shards), u64::from(shard.0));
    rows / shards + u64::from(shard < rows % shards)
}

/// The global number of a shard's first row.
#[must_use]
pub fn shard_start(rows: u64, shards: u32, shard: Shard) -> u64 {
    let (shards, shard) = (u64::from(shards), u64::from(shard.0));
    shard * (rows / shards) + shard.min(rows % shards)
}

/// The rows of some shards, in memory. `ranges` says where in the table each shard begins.
#[derive(Clone, Debug)]
pub struct Holding {
    /// The rows.
    pub table: Arc<Table>,
    /// Shard → first row in `table`.
    pub starts: BTreeMap<Shard, usize>,
    /// Rows of the whole data set.
    pub rows_total: u64,
    /// Virtual shards of the whole data set.
    pub shards: u32,
    /// The groups of the whole data set, where rows belong to groups.
    pub(crate) groups: Option<Arc<Groups>>,
}

impl Holding {
    /// A whole data set in one table.
    #[must_use]
    pub fn whole(table: Arc<Table>, shards: u32) -> Holding {
        let rows_total = table.rows() as u64;
        let groups = Groups::of_table(&table.groups, shards).map(Arc::new);
        let mut whole = Holding { table, starts: BTreeMap::new(), rows_total, shards, groups };
        whole.starts = (0..shards).map(Shard).map(|s| (s, whole.shard_start(s) as usize)).collect();
        whole
    }

    /// The same rows, seen as only these shards.
    #[must_use]
    pub fn only(&self, keep: &[Shard]) -> Holding {
        let starts =
            self.starts.iter().filter(|(s, _)| keep.contains(s)).map(|(s, at)| (*s, *at)).collect();
        Holding { starts, ..self.clone() }
    }

    /// How many rows these shards have.
    #[must_use]
    pub fn rows_held(&self) -> u64 {
        self.starts.keys().map(|&s| self.shard_rows(s)).sum()
    }

    /// How many rows a shard of the data set has.
    #[must_use]
    pub fn shard_rows(&self, shard: Shard) -> u64 {
        match &self.groups {
            None => shard_rows(self.rows_total, self.shards, shard),
            Some(groups) => groups.shard(shard).end - groups.shard(shard).start,
        }
    }

    /// The global number of a shard's first row.
    #[must_use]
    pub fn shard_start(&self, shard: Shard) -> u64 {
        match &self.groups {
            None => shard_start(self.rows_total, self.shards, shard),
            Some(groups) => groups.shard(shard).start,
        }
    }
}

/// The rows of one shard in a step.
#[derive(Clone, PartialEq, Debug)]
pub struct Slice {
    /// Which shard.
    pub shard: Shard,
    /// Where the shard begins in the table.
    pub start: usize,
    /// The global number of the shard's first row.
    pub origin: u64,
    /// Which of its rows.
    pub picked: Picked,
}

/// Which rows of a shard, counted from its first.
#[derive(Clone, PartialEq, Debug)]
pub enum Picked {
    /// All of them, this many.
    All(usize),
    /// These, in this order.
    Some(Vec<u32>),
}

impl Slice {
    /// How many rows.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.picked {
            Picked::All(len) => *len,
            Picked::Some(rows) => rows.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows as numbers in the table, in order.
    pub fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        let (all, some) = match &self.picked {
            Picked::All(len) => (*len, &[][..]),
            Picked::Some(rows) => (0, rows.as_slice()),
        };
        (0..all).chain(some.iter().map(|&row| row as usize)).map(|row| self.start + row)
    }
}

/// The rows a worker uses in one step.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    /// Where the rows are.
    pub table: &'a Table,
    /// The rows, shard by shard, in the order of shards.
    pub slices: Vec<Slice>,
    /// Rows of this step, all workers together.
    pub rows_step: u64,
}

impl Batch<'_> {
    /// How many rows this worker uses.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slices.iter().map(Slice::len).sum()
    }

    /// Whether this worker uses none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows as numbers in the table, shard by shard.
    pub fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        self.slices.iter().flat_map(Slice::rows)
    }
}

/// Deals the rows of each step from a holding.
#[derive(Clone, Debug)]
pub struct Dealer {
    holding: Holding,
    seed: u64,
    batch: u64,
    order: Option<(u64, Order)>,
}

/// The order of rows in one pass.
#[derive(Clone, Debug)]
enum Order {
    /// Each shard's own rows.
    Rows(BTreeMap<Shard, Vec<u32>>),
    /// All groups of the data set.
    Groups(Procession),
}

impl Dealer {
    /// A dealer of mini-batches of `batch` rows (all workers together).
    #[must_use]
    pub fn new(holding: Holding, seed: u64, batch: u64) -> Dealer {
        Dealer { holding, seed, batch: batch.max(1), order: None }
    }

    /// A dealer of the same mini-batches from other shards.
    #[must_use]
    pub fn with(&self, holding: Holding) -> Dealer {
        Dealer { holding, seed: self.seed, batch: self.batch, order: None }
    }

    /// What it deals from.
    #[must_use]
    pub fn holding(&self) -> &Holding {
        &self.holding
    }

    /// Steps in one pass.
    #[must_use]
    pub fn steps_a_pass(&self) -> u64 {
        self.holding.rows_total.div_ceil(self.batch).max(1)
    }

    /// All rows held, for learners that pass over everything.
    #[must_use]
    pub fn everything(&self) -> Batch<'_> {
        let slices = self
            .holding
            .starts
            .iter()
            .map(|(&shard, &start)| {
                self.slice(shard, start, Picked::All(self.holding.shard_rows(shard) as usize))
            })
            .collect();
        Batch { table: &self.holding.table, slices, rows_step: self.holding.rows_total }
    }

    /// The rows of step `step` (counted within the pass) of pass `pass`.
    pub fn deal(&mut self, pass: u64, step: u64) -> Batch<'_> {
        self.shuffle(pass);
        let (rows, shards) = (self.holding.rows_total, u64::from(self.holding.shards));
        let (from, to) = ((step * self.batch).min(rows), ((step + 1) * self.batch).min(rows));
        let order = match &self.order {
            Some((_, Order::Rows(order))) => order,
            Some((_, Order::Groups(procession))) => return self.deal_groups(procession, step),
            None => unreachable!("shuffled above"),
        };
        let mut slices = Vec::with_capacity(order.len());
        for (&shard, shuffled) in order {
            // Place j of this shard is global position j·V + v.
            let place = |position: u64| (position + shards - 1 - u64::from(shard.0)) / shards;
            let picked = shuffled[place(from) as usize..place(to) as usize].to_vec();
            slices.push(self.slice(shard, self.holding.starts[&shard], Picked::Some(picked)));
        }
        Batch { table: &self.holding.table, slices, rows_step: to - from }
    }

    /// How many rows of a shard step `step` (counted within the pass) of pass `pass` takes, whoever holds it.
    #[must_use]
    pub fn rows_of(&self, pass: u64, step: u64, shard: Shard) -> u64 {
        if let Some(groups) = &self.holding.groups {
            let procession = groups.shuffled(self.seed, pass);
            let dealt = procession.step(groups, step, self.batch);
            let mine = dealt.into_iter().filter(|(of, _)| *of == shard);
            return mine.map(|(_, rows)| rows.end - rows.start).sum();
        }
        let (rows, shards) = (self.holding.rows_total, u64::from(self.holding.shards));
        let place = |position: u64| (position.min(rows) + shards - 1 - u64::from(shard.0)) / shards;
        place((step + 1) * self.batch) - place(step * self.batch)
    }

    fn deal_groups(&self, procession: &Procession, step: u64) -> Batch<'_> {
        let groups = self.holding.groups.as_ref().expect("a procession is made of groups");
        let mut picked: BTreeMap<Shard, Vec<u32>> =
            self.holding.starts.keys().map(|&shard| (shard, Vec::new())).collect();
        let mut rows_step = 0;
        for (shard, rows) in procession.step(groups, step, self.batch) {
            rows_step += rows.end - rows.start;
            if let Some(picked) = picked.get_mut(&shard) {
                let origin = self.holding.shard_start(shard);
                picked.extend(rows.map(|row| (row - origin) as u32));
            }
        }
        let slices = picked.into_iter().map(|(shard, picked)| {
            self.slice(shard, self.holding.starts[&shard], Picked::Some(picked))
        });
        Batch { table: &self.holding.table, slices: slices.collect(), rows_step }
    }

    fn slice(&self, shard: Shard, start: usize, picked: Picked) -> Slice {
        let origin = self.holding.shard_start(shard);
        Slice { shard, start, origin, picked }
    }

    fn shuffle(&mut self, pass: u64) {
        if self.order.as_ref().is_some_and(|(done, _)| *done == pass) {
            return;
        }
        if let Some(groups) = &self.holding.groups {
            let procession = groups.shuffled(self.seed, pass);
            self.order = Some((pass, Order::Groups(procession)));
            return;
        }
        let orders = self.holding.starts.keys().map(|&shard| {
            let len = self.holding.shard_rows(shard);
            let mut order: Vec<u32> = (0..len as u32).collect();
            Rng::named(self.seed, "row order", &[pass, u64::from(shard.0)]).shuffle(&mut order);
            (shard, order)
        });
        self.order = Some((pass, Order::Rows(orders.collect())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Features;

    fn table(rows: usize) -> Arc<Table> {
        let values = (0..rows).map(|r| r as f32).collect();
        Arc::new(Table::new(Features::Dense { width: 1, values }, vec![]))
    }

    fn rows_of_step(workers: u32, rows: usize, batch: u64, pass: u64, step: u64) -> Vec<usize> {
        let whole = Holding::whole(table(rows), 16);
        let mut all = Vec::new();
        for worker in 0..workers {
            let mine: Vec<Shard> = (0..16).filter(|s| s % workers == worker).map(Shard).collect();
            let mut dealer = Dealer::new(whole.only(&mine), 5, batch);
            all.extend(dealer.deal(pass, step).rows());
        }
        all.sort_unstable();
        all
    }

    #[test]
    fn rows_of_a_step_do_not_depend_on_the_number_of_workers() {
        for (rows, batch) in [(1000, 64), (37, 5), (16, 16), (3, 10), (1, 1)] {
            for step in 0..(rows as u64).div_ceil(batch) {
                let alone = rows_of_step(1, rows, batch, 2, step);
                assert_eq!(alone.len() as u64, batch.min(rows as u64 - step * batch));
                for workers in [2, 3, 4, 7] {
                    assert_eq!(alone, rows_of_step(workers, rows, batch, 2, step));
                }
            }
        }
    }

    #[test]
    fn each_row_comes_once_a_pass_and_passes_differ() {
        let pass = |pass| -> Vec<Vec<usize>> {
            (0..16).map(|step| rows_of_step(3, 1000, 64, pass, step)).collect()
        };
        let mut all: Vec<usize> = pass(0).concat();
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
        assert_ne!(pass(0), pass(1));
    }

    #[test]
    fn shards_tile_the_rows() {
        for rows in [0u64, 1, 15, 16, 17, 1000] {
            let mut next = 0;
            for s in 0..16 {
                assert_eq!(shard_start(rows, 16, Shard(s)), next);
                next += shard_rows(rows, 16, Shard(s));
            }
            assert_eq!(next, rows);
        }
    }
}
