//! Where training stands, as the model holds it: the phase, what is needed of earlier phases, and a digest of the
//! way here, by which a worker knows whether its scratch belongs to this model.

use super::losses::Loss;
use super::options::{GradientBits, Options};
use crate::trees::columns::whole;
use crate::trees::fixed;
use crate::trees::histogram::{Form, GRADIENT_MAX, HESSIAN_MAX, wide_scales};
use crate::trees::split::Rules;
use crate::trees::tree;
use starlings_core::{Model, Role, Tensor};

/// From so many rows on gradients are rounded to few bits.
const FEW_BITS_ROWS: u64 = 50_000;

/// What the next step does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Gathers a sample of rows, from which bins are made.
    Sample,
    /// Sums labels, from which scores begin.
    Prior,
    /// Gathers the scores of all rows; only for ranking.
    Scores,
    /// Counts how large gradients are.
    Scale,
    /// Sums histograms.
    Grow,
    /// Elects features, with voting.
    Vote,
    /// Sums what the values of leaves are made of.
    Renew,
    /// Gathers all rows as bins, where features are dealt.
    Gather,
}

const PHASES: [Phase; 8] = [
    Phase::Sample,
    Phase::Prior,
    Phase::Scores,
    Phase::Scale,
    Phase::Grow,
    Phase::Vote,
    Phase::Renew,
    Phase::Gather,
];

/// Where training stands.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Clock {
    pub(super) phase: Phase,
    /// How far a descent over digits has come.
    pub(super) level: usize,
    /// Iterations to do.
    pub(super) iterations: usize,
    /// Training rows: neither held out nor without weight.
    pub(super) rows: u64,
    /// The iterations after which the held-out loss was least, and that loss.
    pub(super) best: usize,
    pub(super) best_loss: f64,
    /// Digests of the way to this step and to the one before.
    pub(super) lineage: [i64; 2],
}

impl Clock {
    /// Before the first step.
    pub(super) fn start(iterations: usize, seed: u64) -> Clock {
        let lineage = fixed::key(seed, "lineage", &[]) as i64;
        Clock {
            phase: Phase::Sample,
            level: 0,
            iterations,
            rows: 0,
            best: 0,
            best_loss: f64::INFINITY,
            lineage: [lineage; 2],
        }
    }

    pub(super) fn load(model: &Model) -> Clock {
        let words = model.i64("clock");
        Clock {
            phase: PHASES[words[0] as usize],
            level: words[1] as usize,
            iterations: words[2] as usize,
            rows: words[3] as u64,
            best: words[4] as usize,
            best_loss: f64::from_bits(words[5] as u64),
            lineage: [words[6], words[7]],
        }
    }

    pub(super) fn save(&self, model: &mut Model) {
        let phase = PHASES.iter().position(|&phase| phase == self.phase).expect("all are listed");
        let words = vec![
            phase as i64,
            self.level as i64,
            self.iterations as i64,
            self.rows as i64,
            self.best as i64,
            self.best_loss.to_bits() as i64,
            self.lineage[0],
            self.lineage[1],
        ];
        model.set("clock", whole(words, Role::State));
    }

    /// One step further on the way; `what` tells this step's outcome from others it could have had.
    pub(super) fn tick(&mut self, what: u64) {
        let next = fixed::mix(self.lineage[1] as u64, what ^ ((self.phase as u64) << 56)) as i64;
        self.lineage = [self.lineage[1], next];
    }
}

/// What the parameters and the model together say.
pub(super) struct Setup<'a> {
    pub(super) options: &'a Options,
    pub(super) loss: Loss,
    /// Scores of a row.
    pub(super) outputs: usize,
}

impl<'a> Setup<'a> {
    pub(super) fn new(options: &'a Options, model: &Model) -> Setup<'a> {
        let outputs = model.f64("base").len();
        Setup { options, loss: options.loss(outputs.max(2)), outputs }
    }

    /// The iteration being grown, from 0.
    pub(super) fn iteration(&self, model: &Model) -> usize {
        tree::count(model) / self.outputs
    }

    /// Whether gradients are rounded to few bits.
    pub(super) fn is_narrow(&self, rows: u64) -> bool {
        match self.options.gradient_bits {
            GradientBits::Auto => rows >= FEW_BITS_ROWS,
            GradientBits::Few => true,
            GradientBits::All => false,
        }
    }

    /// The form in which the histogram of a node of so many rows travels, of so many rows in training.
    pub(super) fn form(&self, node: i64, rows: u64) -> Form {
        if self.is_narrow(rows) { Form::narrow(node) } else { Form::wide(rows) }
    }

    /// Whether the values of leaves take further steps.
    pub(super) fn renews(&self, rows: u64) -> bool {
        self.loss.quantile().is_some() || self.is_narrow(rows)
    }

    /// How much of a kept row's gradient counts, with goss, if it is not one of the largest.
    pub(super) fn amplification(&self) -> f64 {
        self.options.goss.map_or(1.0, |[top, other]| (1.0 - top) / other)
    }

    /// The scales of gradients and second derivatives of histograms, for these bounds.
    pub(super) fn scales(&self, bounds: [f64; 2], rows: u64) -> [f64; 2] {
        let bounds = bounds.map(|bound| bound * self.amplification().max(1.0));
        match self.is_narrow(rows) {
            true => [(GRADIENT_MAX + 1.0) / bounds[0], (HESSIAN_MAX + 1.0) / bounds[1]],
            false => wide_scales(bounds, rows),
        }
    }

    /// The rules of splits for the tree that grows.
    pub(super) fn rules(&self, model: &Model, rows: u64) -> Rules {
        let scales = self.scales(bounds(model), rows);
        let monotone = model.i64("monotone").iter().map(|&direction| direction as i8).collect();
        Rules { units: scales.map(|scale| 1.0 / scale), monotone, ..self.options.rules.clone() }
    }
}

/// Powers of two above all gradients and second derivatives of the tree that grows.
pub(super) fn bounds(model: &Model) -> [f64; 2] {
    let bounds = model.f64("bounds");
    [bounds[0], bounds[1]]
}

/// The gradient from which on a row is one of the largest, with goss.
pub(super) fn threshold(model: &Model) -> f64 {
    model.f64("bounds")[2]
}

/// Writes what [`bounds`] and [`threshold`] read.
pub(super) fn set_bounds(model: &mut Model, bounds: [f64; 2], threshold: f64) {
    let values = vec![bounds[0], bounds[1], threshold];
    model.set("bounds", Tensor::of(&[3], values, Role::State));
}
