//! What a worker contributes to a step: sums over its rows, one block a parameter, emitted from the last layer to the
//! first, each as soon as it is complete.

use crate::factors::Terms;
use crate::goal::Told;
use crate::pass::{Pass, Weights};
use crate::stage::{Care, Parameter};
use burn_tensor::Gradients;
use starlings_core::{Block, Body, Update, Values};
use starlings_learn::{Moment, Outbox};
use std::collections::BTreeMap;
use std::ops::Range;

/// Loss and weight of the rows of a step, and how many there are, those of weight zero counted.
pub(crate) const LOSS: &str = "loss";

/// Sums over rows.
pub(crate) struct Sums {
    pub(crate) loss: f64,
    pub(crate) weight: f64,
    pub(crate) rows: f64,
    /// One for each parameter; empty until rows have been seen.
    blocks: Vec<Vec<f32>>,
    /// Matrices that leave as factors, by parameter.
    pub(crate) factors: BTreeMap<usize, Terms>,
}

impl Sums {
    /// Of no rows, for so many parameters.
    pub(crate) fn new(parameters: usize) -> Sums {
        let (blocks, factors) = (vec![Vec::new(); parameters], BTreeMap::new());
        Sums { loss: 0.0, weight: 0.0, rows: 0.0, blocks, factors }
    }

    /// Counts rows and what was lost on them.
    pub(crate) fn count(&mut self, told: &Told, loss: f64) {
        self.loss += loss;
        self.weight += told.weights.iter().map(|&weight| f64::from(weight)).sum::<f64>();
        self.rows += told.weights.len() as f64;
    }

    /// Adds what a backward pass gave for some parameters.
    pub(crate) fn add(
        &mut self,
        (parameters, some): (&[Parameter], Range<usize>),
        (weights, pass): (&Weights<'_>, &mut Pass<'_>),
        mut gradients: Option<Gradients>,
    ) {
        for index in some {
            if self.factors.contains_key(&index) {
                continue;
            }
            let parameter = &parameters[index];
            let part = match (parameter.care, &mut gradients) {
                (Care::Tracked | Care::Moved, _) => {
                    pass.tracked.remove(&parameter.name).unwrap_or_default()
                }
                (_, Some(gradients)) => weights.gradient(parameter, gradients),
                (_, None) => continue,
            };
            self.add_numbers(index, part);
        }
    }

    /// Adds numbers for one parameter.
    pub(crate) fn add_numbers(&mut self, index: usize, part: Vec<f32>) {
        let sum = &mut self.blocks[index];
        match sum.is_empty() {
            true => *sum = part,
            false => sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part),
        }
    }
}

/// Emits what is complete, link by link from the top.
pub(crate) struct Emission<'a> {
    /// All parameters of the network.
    pub(crate) parameters: &'a [Parameter],
    /// Which of them each link has, the lowest link first; what has been emitted is gone.
    pub(crate) links: Vec<Range<usize>>,
    /// Where to.
    pub(crate) outbox: &'a mut Outbox,
}

impl Emission<'_> {
    /// Emits the topmost link that is left.
    pub(crate) fn emit(&mut self, sums: &mut Sums) {
        let Some(link) = self.links.pop() else { return };
        for index in link.rev() {
            let parameter = &self.parameters[index];
            let body = match sums.factors.remove(&index) {
                Some(terms) => terms.body(&parameter.shape),
                None => {
                    let mut sum = std::mem::take(&mut sums.blocks[index]);
                    sum.resize(parameter.len(), 0.0);
                    Body::Dense(Values::F32(sum))
                }
            };
            self.outbox.emit(Block { name: parameter.block().into_owned(), body });
        }
        if !self.links.is_empty() {
            self.outbox.pause();
        }
    }
}

/// What sums over rows are multiplied by to make them means: by the sum of weights, as if a row of weight two were there
/// twice. Where nobody is told the weights of a step, which is at owners, by how many rows there are.
pub(crate) fn share_of_a_row(update: &Update, moment: &Moment) -> f64 {
    let a_row = 1.0 / moment.rows.max(1) as f64;
    match update.get(LOSS).map(Block::f64s) {
        Some([_, weight, rows]) if *weight > 0.0 => a_row * (rows / weight),
        _ => a_row,
    }
}
