//! Groups of rows that belong together (a query's documents, a session's events). A group is never cut: shards are made
//! of whole groups, each boundary at the group's beginning that is nearest to where rows alone would be cut, and a
//! mini-batch takes whole groups.
//!
//! In a pass each shard's groups are shuffled, and the shards take turns: first group of shard 0, of shard 1, …, second
//! group of shard 0, … Step t begins with the group in which row t·B of this procession lies, and ends before the
//! group in which row (t+1)·B lies; a group larger than a batch comes in every step that it reaches over. So each row
//! comes once a pass where no group is larger than a batch, and what a step uses does not depend on the workers.

use crate::chunk::{Chunk, Dictionary};
use crate::learning::sorted;
use crate::shard_start;
use starlings_core::{Fault, Result, Rng, Shard};
use std::collections::HashSet;
use std::ops::Range;

/// The groups of a data set, in the order of rows, and which shard has which.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Groups {
    /// The first row of each group, and the number of rows at the end.
    starts: Vec<u64>,
    /// The first group of each shard, and the number of groups at the end.
    bounds: Vec<usize>,
}

impl Groups {
    /// From the number of rows of each group; `None` where there are no groups.
    pub(crate) fn new(sizes: &[u32], shards: u32) -> Option<Groups> {
        if sizes.is_empty() {
            return None;
        }
        let mut starts = Vec::with_capacity(sizes.len() + 1);
        let mut rows = 0;
        for size in sizes {
            starts.push(rows);
            rows += u64::from(*size);
        }
        starts.push(rows);
        let nearest = |row: u64| {
            let after = starts.partition_point(|start| *start < row);
            match after.checked_sub(1) {
                Some(before) if row - starts[before] < starts[after] - row => before,
                _ => after,
            }
        };
        let mut bounds: Vec<usize> =
            (0..shards).map(|shard| nearest(shard_start(rows, shards, Shard(shard)))).collect();
        bounds.push(sizes.len());
        Some(Groups { starts, bounds })
    }

    /// From the group of each row.
    pub(crate) fn of_table(groups: &[u32], shards: u32) -> Option<Groups> {
        let sizes: Vec<u32> = groups.chunk_by(|a, b| a == b).map(|run| run.len() as u32).collect();
        Groups::new(&sizes, shards)
    }

    /// The rows of a shard.
    pub(crate) fn shard(&self, shard: Shard) -> Range<u64> {
        let at = shard.0 as usize;
        self.starts[self.bounds[at]]..self.starts[self.bounds[at + 1]]
    }

    /// The shard that has a group.
    pub(crate) fn shard_of_group(&self, group: usize) -> usize {
        self.bounds[1..self.bounds.len() - 1].partition_point(|bound| *bound <= group)
    }

    /// The group of a row.
    pub(crate) fn of_row(&self, row: u64) -> usize {
        self.starts.partition_point(|start| *start <= row) - 1
    }

    /// The rows of a group.
    fn rows(&self, group: usize) -> Range<u64> {
        self.starts[group]..self.starts[group + 1]
    }

    /// The order of groups in a pass.
    pub(crate) fn shuffled(&self, seed: u64, pass: u64) -> Procession {
        let shards = self.bounds.len() - 1;
        let mut orders: Vec<_> = (0..shards)
            .map(|shard| {
                let mut order: Vec<usize> = (self.bounds[shard]..self.bounds[shard + 1]).collect();
                Rng::named(seed, "group order", &[pass, shard as u64]).shuffle(&mut order);
                order.into_iter()
            })
            .collect();
        let count = self.starts.len() - 1;
        let mut procession = Procession { order: Vec::with_capacity(count), starts: vec![0] };
        let mut rows = 0;
        while procession.order.len() < count {
            for (shard, order) in orders.iter_mut().enumerate() {
                if let Some(group) = order.next() {
                    rows += self.starts[group + 1] - self.starts[group];
                    procession.order.push((Shard(shard as u32), group));
                    procession.starts.push(rows);
                }
            }
        }
        procession
    }
}

/// The groups of all shards in the order in which a pass uses them.
#[derive(Clone, Debug)]
pub(crate) struct Procession {
    order: Vec<(Shard, usize)>,
    /// Rows before each group, and all rows at the end.
    starts: Vec<u64>,
}

impl Procession {
    /// The groups of a step, as their shard and global rows.
    pub(crate) fn step<'a>(
        &'a self,
        groups: &'a Groups,
        step: u64,
        batch: u64,
    ) -> impl Iterator<Item = (Shard, Range<u64>)> + 'a {
        let rows = self.starts[self.order.len()];
        let holding = |row: u64| self.starts.partition_point(|start| *start <= row) - 1;
        let (from, to) = (step.saturating_mul(batch), (step + 1).saturating_mul(batch));
        let first = if from < rows { holding(from) } else { self.order.len() };
        let last = if to < rows { holding(to) } else { self.order.len() };
        let run = first..last.max((first + 1).min(self.order.len()));
        self.order[run].iter().map(|&(shard, group)| (shard, groups.rows(group)))
    }
}

/// Learns groups from rows as they pass.
#[derive(Debug, Default)]
pub(crate) struct Grouping {
    /// Rows of a group may stand anywhere: groups are then numbered by their keys, see [`Grouping::finish`].
    scattered: Option<Dictionary>,
    seen: HashSet<String>,
    last: Option<String>,
    rows: u64,
    /// Rows of each group.
    pub(crate) sizes: Vec<u32>,
}

impl Grouping {
    /// Of rows that stand anywhere.
    pub(crate) fn scattered() -> Grouping {
        Grouping { scattered: Some(Dictionary::default()), ..Grouping::default() }
    }

    /// Rows of each group; and the keys, where rows stand anywhere, in whose order groups then are.
    pub(crate) fn finish(self) -> (Vec<u32>, Option<Vec<String>>) {
        let Some(keys) = self.scattered else { return (self.sizes, None) };
        let (texts, places) = sorted(keys.texts());
        let mut sizes = vec![0; texts.len()];
        self.sizes.iter().zip(places).for_each(|(size, place)| sizes[place as usize] = *size);
        (sizes, Some(texts))
    }

    /// Takes the next rows of the file called `name`; their groups, numbered over all rows.
    pub(crate) fn add(&mut self, name: &str, chunk: &Chunk) -> Result<Vec<u32>> {
        let texts = chunk.group_keys.texts();
        if let Some(keys) = &mut self.scattered {
            let codes: Vec<u32> =
                texts.iter().map(|text| keys.code(text)).collect::<Result<_>>()?;
            self.sizes.resize(keys.texts().len(), 0);
            let numbers: Vec<u32> = chunk.groups.iter().map(|it| codes[*it as usize]).collect();
            for number in &numbers {
                let size = &mut self.sizes[*number as usize];
                *size = size.saturating_add(1);
            }
            return Ok(numbers);
        }
        let mut numbers = Vec::with_capacity(chunk.groups.len());
        for run in chunk.groups.chunk_by(|a, b| a == b) {
            let key = &texts[run[0] as usize];
            if self.last.as_ref() != Some(key) {
                if !self.seen.insert(key.clone()) {
                    return Err(scattered(name, key, self.rows));
                }
                self.last = Some(key.clone());
                self.sizes.push(0);
            }
            let size = self.sizes.last_mut().expect("a group was begun");
            *size = size.saturating_add(run.len() as u32);
            numbers.resize(numbers.len() + run.len(), self.sizes.len() as u32 - 1);
            self.rows += run.len() as u64;
        }
        Ok(numbers)
    }
}

fn scattered(name: &str, key: &str, row: u64) -> Fault {
    Fault::caller(format!(
        "{name}, row {row} (from 0, over all files): group '{key}' comes again after another one"
    ))
    .hint("rows of a group must stand together: sort the file, or say partition = { key = \"…\" }")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dealer, Features, Holding, Table};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn table(sizes: &[u32]) -> Arc<Table> {
        let groups: Vec<u32> = sizes
            .iter()
            .enumerate()
            .flat_map(|(group, size)| vec![group as u32; *size as usize])
            .collect();
        let values = (0..groups.len()).map(|row| row as f32).collect();
        let mut table = Table::new(Features::Dense { width: 1, values }, vec![]);
        table.groups = groups;
        Arc::new(table)
    }

    fn steps(workers: u32, sizes: &[u32], batch: u64, pass: u64) -> Vec<Vec<usize>> {
        let whole = Holding::whole(table(sizes), 8);
        let steps = whole.rows_total.div_ceil(batch);
        let mut all = vec![Vec::new(); steps as usize];
        for worker in 0..workers {
            let mine: Vec<Shard> = (0..8).filter(|s| s % workers == worker).map(Shard).collect();
            let mut dealer = Dealer::new(whole.only(&mine), 3, batch);
            assert_eq!(dealer.steps_a_pass(), steps);
            for (step, rows) in all.iter_mut().enumerate() {
                rows.extend(dealer.deal(pass, step as u64).rows());
            }
        }
        all.iter_mut().for_each(|rows| rows.sort_unstable());
        all
    }

    const SIZES: [u32; 17] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2];

    #[test]
    fn no_shard_and_no_step_cuts_a_group() {
        let whole = Holding::whole(table(&SIZES), 8);
        let mut next = 0;
        for shard in (0..8).map(Shard) {
            assert_eq!(whole.shard_start(shard), next);
            next += whole.shard_rows(shard);
            let groups = &whole.table.groups;
            assert!(next == whole.rows_total || groups[next as usize - 1] != groups[next as usize]);
        }
        assert_eq!(next, whole.rows_total);
        for rows in steps(1, &SIZES, 12, 0) {
            let mut used: BTreeMap<u32, u32> = BTreeMap::new();
            for row in rows {
                *used.entry(whole.table.groups[row]).or_default() += 1;
            }
            assert!(!used.is_empty());
            assert!(used.iter().all(|(group, rows)| SIZES[*group as usize] == *rows));
        }
    }

    #[test]
    fn steps_of_groups_do_not_depend_on_workers_and_use_each_row_once() {
        for batch in [9, 12, 40, 1000] {
            let alone = steps(1, &SIZES, batch, 1);
            for workers in [2, 3, 8] {
                assert_eq!(alone, steps(workers, &SIZES, batch, 1));
            }
            let mut rows = alone.concat();
            rows.sort_unstable();
            assert_eq!(rows, (0..82).collect::<Vec<_>>());
        }
        assert_ne!(steps(1, &SIZES, 12, 1), steps(1, &SIZES, 12, 2));
    }

    #[test]
    fn a_group_larger_than_a_batch_fills_every_step_it_reaches_over() {
        let steps = steps(2, &[2, 10, 3], 4, 0);
        assert!(steps.iter().all(|rows| !rows.is_empty()), "{steps:?}");
    }
}
