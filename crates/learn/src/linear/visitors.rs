//! What a pass over features computes at each row: loss and residuals, the curvature along a direction, or only
//! the scores themselves.

use super::full_pass::state::CLASS_WEIGHTS;
use super::losses::{RowLoss, Told};
use super::pass::Visitor;
use starlings_core::Model;
use starlings_data::{Batch, Table};

/// Labels and weights of rows, class weights included.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) table: &'a Table,
    /// How much each class counts; empty when all count one.
    pub(crate) classes: &'a [f64],
}

/// Labels and weights of a batch's rows, as a model counts them.
pub(crate) fn rows<'a>(model: &'a Model, batch: &Batch<'a>) -> Rows<'a> {
    let classes = if model.get(CLASS_WEIGHTS).is_some() { model.f64(CLASS_WEIGHTS) } else { &[] };
    Rows { table: batch.table, classes }
}

impl Rows<'_> {
    /// How much a row counts.
    pub(crate) fn weight(&self, row: usize) -> f64 {
        self.told([row]).weights[0]
    }

    #[inline(always)]
    pub(crate) fn told<const N: usize>(&self, rows: [usize; N]) -> Told<N> {
        let labels = rows.map(|row| f64::from(self.table.labels[row]));
        let mut weights = [1.0; N];
        if !self.table.weights.is_empty() {
            weights = rows.map(|row| f64::from(self.table.weights[row]));
        }
        if !self.classes.is_empty() {
            for (weight, label) in weights.iter_mut().zip(labels) {
                *weight *= self.classes[label as usize];
            }
        }
        Told { labels, weights }
    }
}

/// Adds up the loss; multipliers are residuals. Scores are kept where there is room for them.
pub(crate) struct Evaluate<'a, L> {
    pub(crate) criterion: L,
    pub(crate) rows: Rows<'a>,
    /// One row's scores after another; empty when nobody wants them.
    pub(crate) kept: &'a mut [f64],
    pub(crate) loss: f64,
}

impl<L: RowLoss> Visitor for Evaluate<'_, L> {
    #[inline(always)]
    fn visit<const N: usize>(&mut self, rows: [usize; N], at: usize, scores: &mut [f64]) {
        keep::<N>(self.kept, at, scores);
        self.loss += self.criterion.residuals(scores, self.rows.told(rows));
    }
}

/// Multipliers are the curvature times the scores, at the scores remembered.
pub(crate) struct Curve<'a, L> {
    pub(crate) criterion: L,
    pub(crate) rows: Rows<'a>,
    /// One row's scores after another.
    pub(crate) base: &'a [f64],
    /// Room for the scores of four rows.
    pub(crate) room: Vec<f64>,
}

impl<L: RowLoss> Visitor for Curve<'_, L> {
    #[inline(always)]
    fn visit<const N: usize>(&mut self, rows: [usize; N], at: usize, scores: &mut [f64]) {
        let width = scores.len() / N;
        let base = &mut self.room[..scores.len()];
        for (score, base) in base.chunks_exact_mut(N).enumerate() {
            for (n, base) in base.iter_mut().enumerate() {
                *base = self.base[(at + n) * width + score];
            }
        }
        self.criterion.bend(base, scores, self.rows.told(rows));
    }
}

/// Only keeps the scores, one row's after another.
pub(crate) struct Keep<'a>(pub(crate) &'a mut [f64]);

impl Visitor for Keep<'_> {
    #[inline(always)]
    fn visit<const N: usize>(&mut self, _: [usize; N], at: usize, scores: &mut [f64]) {
        keep::<N>(self.0, at, scores);
    }
}

#[inline(always)]
fn keep<const N: usize>(kept: &mut [f64], at: usize, scores: &[f64]) {
    if kept.is_empty() {
        return;
    }
    let width = scores.len() / N;
    if width == 1 {
        kept[at..at + N].copy_from_slice(scores);
        return;
    }
    for (score, of_rows) in scores.chunks_exact(N).enumerate() {
        for (n, value) in of_rows.iter().enumerate() {
            kept[(at + n) * width + score] = *value;
        }
    }
}
