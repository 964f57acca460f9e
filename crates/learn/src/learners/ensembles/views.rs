//! Rows as a member sees them. A table is read-only and shared, so a member that is to see other weights, labels,
//! columns or another encoding gets a copy of the worker's rows. Members that see the same features share one copy, of
//! which only weights and labels are written anew for each; it is kept as scratch from step to step.

use super::conversion::Conversion;
use crate::Memory;
use starlings_core::{Model, Shard};
use starlings_data::{Batch, Features, Picked, Row, Slice, Table};
use std::collections::BTreeMap;

/// A copy of rows.
pub(super) struct View {
    /// The rows; weights and labels are a member's to change.
    pub(super) table: Table,
    /// Whose shards they are.
    pub(super) slices: Vec<Slice>,
    /// How much each row counts by the job.
    pub(super) weights: Vec<f32>,
    /// The labels of the job.
    pub(super) labels: Vec<f32>,
    rows_step: u64,
}

impl View {
    /// A copy of a batch's rows.
    pub(super) fn of(batch: &Batch<'_>, conversion: Option<&Conversion>) -> View {
        let mut features = match conversion {
            Some(conversion) => conversion.empty(&batch.table.features),
            None => empty_like(&batch.table.features),
        };
        let mut room = Vec::new();
        for row in batch.rows() {
            match conversion {
                Some(conversion) => conversion.add(batch.table.row(row), &mut room, &mut features),
                None => add(batch.table.row(row), &mut features),
            }
        }
        View::with(batch, features)
    }

    /// The rows of a batch with other features.
    pub(super) fn with(batch: &Batch<'_>, features: Features) -> View {
        let weights: Vec<f32> = batch.rows().map(|row| batch.table.weight(row) as f32).collect();
        let labelled = !batch.table.labels.is_empty();
        let labels: Vec<f32> =
            batch.rows().filter(|_| labelled).map(|row| batch.table.labels[row]).collect();
        let mut start = 0;
        let slice = |slice: &Slice| {
            let from = start;
            start += slice.len();
            Slice { start: from, picked: Picked::All(slice.len()), ..slice.clone() }
        };
        let slices = batch.slices.iter().map(slice).collect();
        let mut table = Table::new(features, labels.clone());
        table.weights.clone_from(&weights);
        if !batch.table.groups.is_empty() {
            table.groups = batch.rows().map(|row| batch.table.groups[row]).collect();
        }
        View { table, slices, weights, labels, rows_step: batch.rows_step }
    }

    /// The rows as a batch.
    pub(super) fn batch(&self) -> Batch<'_> {
        Batch { table: &self.table, slices: self.slices.clone(), rows_step: self.rows_step }
    }

    /// All numbers, row after row.
    pub(super) fn dense(&self) -> Vec<f32> {
        let width = self.table.width();
        let mut all = Vec::with_capacity(self.table.rows() * width);
        for row in 0..self.table.rows() {
            match self.table.row(row) {
                Row::Dense(numbers) => all.extend_from_slice(numbers),
                Row::Sparse(entries, numbers) => {
                    let from = all.len();
                    all.resize(from + width, 0.0);
                    let entries = entries.iter().zip(numbers);
                    entries.for_each(|(&at, &x)| all[from + at as usize] = x);
                }
            }
        }
        all
    }

    /// Every row of the data set that is here, in order, by its global number.
    pub(super) fn globals(&self) -> impl Iterator<Item = u64> + '_ {
        self.slices.iter().flat_map(|slice| (0..slice.len() as u64).map(|at| slice.origin + at))
    }

    /// Sets the weights: those of the job times what is said of each row's global number.
    pub(super) fn weigh(&mut self, mut times: impl FnMut(u64) -> f32) {
        let mut weights = std::mem::take(&mut self.table.weights);
        weights.clear();
        weights.extend(self.globals().zip(&self.weights).map(|(row, weight)| weight * times(row)));
        self.table.weights = weights;
    }

    /// Weights and labels as the job has them.
    pub(super) fn reset(&mut self) {
        self.table.weights.clone_from(&self.weights);
        self.table.labels.clone_from(&self.labels);
    }
}

fn empty_like<F, C>(features: &Features<F, C>) -> Features {
    match features {
        Features::Dense { width, .. } => Features::Dense { width: *width, values: vec![] },
        Features::Sparse { width, .. } => {
            Features::Sparse { width: *width, starts: vec![0], columns: vec![], values: vec![] }
        }
    }
}

fn add(row: Row<'_>, into: &mut Features) {
    match (row, into) {
        (Row::Dense(numbers), Features::Dense { values, .. }) => values.extend_from_slice(numbers),
        (Row::Sparse(entries, numbers), Features::Sparse { starts, columns, values, .. }) => {
            columns.extend_from_slice(entries);
            values.extend_from_slice(numbers);
            starts.push(columns.len());
        }
        _ => unreachable!("rows are of the kind of their table"),
    }
}

/// The views of one batch.
#[derive(Default)]
pub(super) struct Views {
    shape: Vec<(Shard, usize)>,
    kept: BTreeMap<String, View>,
}

impl Views {
    /// Those that were left by the last step, if they are of the same rows.
    pub(super) fn take(memory: &mut Memory, batch: &Batch<'_>) -> Views {
        let shape: Vec<(Shard, usize)> =
            batch.slices.iter().map(|slice| (slice.shard, slice.len())).collect();
        let left = batch.slices.first().and_then(|first| memory.take_scratch::<Views>(first.shard));
        match left {
            Some(views) if views.shape == shape => *views,
            _ => Views { shape, kept: BTreeMap::new() },
        }
    }

    /// Leaves them to the next step.
    pub(super) fn leave(self, memory: &mut Memory) {
        if let Some((first, _)) = self.shape.first().copied() {
            memory.leave_scratch(first, Box::new(self));
        }
    }

    /// The view of this name, made if it is not there.
    pub(super) fn get(&mut self, name: &str, make: impl FnOnce() -> View) -> &mut View {
        if !self.kept.contains_key(name) {
            self.kept.insert(name.to_string(), make());
        }
        self.kept.get_mut(name).expect("just made")
    }

    /// The rows as the conversion of this name in the model shows them.
    pub(super) fn converted(&mut self, name: &str, model: &Model, batch: &Batch<'_>) -> &mut View {
        self.get(name, || View::of(batch, Conversion::load(name, model).as_ref()))
    }

    /// Whether there is a view of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.kept.contains_key(name)
    }

    /// The view of this name, which was made before.
    pub(super) fn known(&self, name: &str) -> &View {
        self.kept.get(name).expect("made before it is looked at")
    }

    /// Forgets the views whose names are not wanted any more.
    pub(super) fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.kept.retain(|name, _| wanted(name));
    }
}
