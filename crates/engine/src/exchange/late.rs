//! What a shard remembers of its readers: how old the model is that a worker's next contribution will come
//! from, the rows it has read where a temper compares them with those of today, and which rows it reads at all.

use super::pick::pick;
use super::served::{Office, Wanted, WantedRows};
use starlings_consistency::{Blending, Late, Temper};
use starlings_core::{Block, Body, Kind, Model, Rows, Seat, Tensor, Update, Values};
use starlings_learn::Moment;
use std::collections::{BTreeMap, BTreeSet};

/// What is remembered of all readers.
#[derive(Default)]
pub(super) struct Reads {
    /// Contributions applied so far.
    applied: u64,
    readers: BTreeMap<Seat, Reader>,
    remembers: bool,
    /// Running mean squares of gradients, row by row, where the temper wants them.
    squares: BTreeMap<String, BTreeMap<u32, Vec<f64>>>,
}

#[derive(Default)]
struct Reader {
    /// Contributions applied when this worker last read.
    read_at: u64,
    /// The rows as it read them, each in the kind of number that its tensor has.
    rows: BTreeMap<String, BTreeMap<u32, Values>>,
    /// All rows that it has ever wanted.
    wants: BTreeMap<String, Wants>,
}

enum Wants {
    All,
    Some(BTreeSet<u32>),
}

fn temper(blending: &Blending) -> Option<&dyn Temper> {
    match blending {
        Blending::Tempered(temper) => Some(&**temper),
        _ => None,
    }
}

impl Reads {
    pub(super) fn new(blending: &Blending) -> Reads {
        let remembers = temper(blending).is_some_and(Temper::remembers);
        Reads { remembers, ..Reads::default() }
    }

    /// A contribution was applied, or a part of one.
    pub(super) fn applied(&mut self, last: bool) {
        self.applied += u64::from(last);
    }

    /// A worker reads rows now. `wanted` names what it will want to hear of from now on.
    pub(super) fn read(&mut self, by: Seat, blocks: &[Block], wanted: Option<&Wanted>) {
        let reader = self.readers.entry(by).or_default();
        reader.read_at = self.applied;
        for (name, rows) in wanted.into_iter().flatten() {
            let wants = reader.wants.entry(name.clone()).or_insert(Wants::Some(BTreeSet::new()));
            match (wants, rows) {
                (wants, WantedRows::Owned) => *wants = Wants::All,
                (Wants::Some(some), WantedRows::These(rows)) => some.extend(rows),
                (Wants::All, WantedRows::These(_)) => {}
            }
        }
        if self.remembers {
            for block in blocks {
                let Body::Rows(rows) = &block.body else { continue };
                // Integers are counts, not weights.
                if rows.values.kind() == Kind::I64 {
                    continue;
                }
                let (kept, width) =
                    (reader.rows.entry(block.name.clone()).or_default(), rows.width);
                for (at, &row) in rows.index.iter().enumerate() {
                    let from = at * width as usize;
                    kept.insert(row, rows.values.slice(from, from + width as usize));
                }
            }
        }
    }

    /// Those of the changed rows that a worker reads, in order; none where it never reads the tensor.
    pub(super) fn readable(
        &self,
        by: Seat,
        name: &str,
        changed: &BTreeSet<u32>,
    ) -> Option<Vec<u32>> {
        match self.readers.get(&by)?.wants.get(name)? {
            Wants::All => Some(changed.iter().copied().collect()),
            Wants::Some(some) => Some(changed.intersection(some).copied().collect()),
        }
    }

    /// A contribution as it should be applied, given how late it is.
    pub(super) fn temper(
        &mut self,
        office: &Office,
        (from, moment): (Seat, &Moment),
        mut update: Update,
        model: &Model,
    ) -> Update {
        let Some(temper) = temper(&office.blending) else { return update };
        let reader = self.readers.get(&from);
        let read_at = reader.map_or(0, |reader| reader.read_at);
        let staleness = self.applied - read_at;
        let world = office.pushers.len() as u32;
        for block in &mut update.blocks {
            let Body::Rows(rows) = &mut block.body else { continue };
            let Some(tensor) = model.get(&block.name) else { continue };
            let now = self.remembers.then(|| pick(tensor, rows.index.clone()));
            let read = now.as_ref().map(|now| self.as_read(reader, &block.name, now, tensor));
            let share = moment.rows.div_ceil(u64::from(world)).max(1);
            let decay = temper.decay();
            let kept = decay.map(|decay| {
                let table = self.squares.entry(block.name.clone()).or_default();
                mean_squares(table, rows, (decay, share as f64))
            });
            let (read, now, squares) = (read.as_ref(), now.as_ref(), kept.as_ref());
            let late = Late { staleness, world, share, read, now, squares };
            temper.temper(rows, &late);
        }
        update
    }

    /// The same rows as the worker read them; rows that it never read are taken as they are.
    fn as_read(&self, reader: Option<&Reader>, name: &str, now: &Rows, tensor: &Tensor) -> Rows {
        let mut read = now.clone();
        let kept = reader.and_then(|reader| reader.rows.get(name));
        let kept = |row| kept.and_then(|kept| kept.get(row));
        for (at, row) in now.index.iter().enumerate() {
            if let Some(values) = kept(row) {
                let same = "a tensor keeps its width and its kind of number";
                read.values.copy_at(at * tensor.width(), values).expect(same);
            }
        }
        read
    }
}

/// Takes a contribution of so many rows of data into the mean squares of its gradients, and gives those of its rows.
fn mean_squares(
    table: &mut BTreeMap<u32, Vec<f64>>,
    rows: &Rows,
    (decay, share): (f64, f64),
) -> Rows {
    let width = rows.width as usize;
    let mut sums: Vec<f64> = match &rows.values {
        Values::F64(values) => values.clone(),
        Values::F32(values) => values.iter().map(|&value| f64::from(value)).collect(),
        Values::I64(values) => vec![0.0; values.len()],
    };
    for (row, sums) in rows.index.iter().zip(sums.chunks_mut(width.max(1))) {
        let kept = table.entry(*row).or_insert_with(|| vec![0.0; width]);
        for (kept, sum) in kept.iter_mut().zip(sums) {
            let gradient = *sum / share;
            *kept = decay * *kept + (1.0 - decay) * gradient * gradient;
            *sum = *kept;
        }
    }
    Rows { values: Values::F64(sums), ..rows.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_squares_run_row_by_row() {
        let rows = |index: Vec<u32>, sums: Vec<f64>| Rows {
            total: 9,
            width: 2,
            index,
            values: Values::F64(sums),
        };
        let mut table = BTreeMap::new();
        let first = mean_squares(&mut table, &rows(vec![3], vec![4.0, -8.0]), (0.75, 2.0));
        assert_eq!(first, rows(vec![3], vec![1.0, 4.0]));
        let sums = rows(vec![3, 5], vec![0.0, 4.0, 2.0, 0.0]);
        let second = mean_squares(&mut table, &sums, (0.75, 2.0));
        assert_eq!(second, rows(vec![3, 5], vec![0.75, 4.0, 0.25, 0.0]));
    }
}
