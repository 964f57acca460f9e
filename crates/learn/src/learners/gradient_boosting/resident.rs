//! What a worker keeps of its rows from step to step: bins, scores, gradients, and which node each row is in. All of
//! it is scratch, made of the model and the rows; `refresh` brings it up to the model, from nothing if need be.

use super::feature_parallel;
use super::growing::Growing;
use super::losses::{self, Loss};
use super::ranking;
use super::state::{self, Clock, Phase, Setup};
use crate::trees::columns::Columns;
use crate::trees::dealing;
use crate::trees::fixed;
use crate::trees::histogram::{Bench, GRADIENT_MAX, Gradients, HESSIAN_MAX, Sums, pack};
use crate::trees::partition::Partition;
use crate::trees::store::{Segment, Store, each_row, segments};
use crate::trees::tree::{self, Router};
use starlings_core::{Model, Shard};
use starlings_data::Batch;
use std::collections::BTreeMap;

/// A worker's rows.
pub(super) struct Resident {
    /// The rows that are known here.
    pub(super) segments: Vec<Segment>,
    /// The rows of the worker's batch: the same, unless all rows are known everywhere.
    batch: Vec<Segment>,
    /// Where all rows are known everywhere, whether this worker is the one who counts a row; else empty.
    mine: Vec<bool>,
    pub(super) columns: Columns,
    pub(super) store: Store,
    pub(super) labels: Vec<f32>,
    pub(super) weights: Vec<f32>,
    /// Whether each row is trained on, or held out, or has no weight.
    pub(super) parts: Vec<Part>,
    /// All rows' scores of the first output, then of the second …
    pub(super) scores: Vec<f64>,
    /// First and second derivatives, in the same order.
    pub(super) gradients: Vec<[f32; 2]>,
    pub(super) grid: Gradients,
    pub(super) partition: Partition,
    /// Rows that the growing tree does not see.
    outside: Vec<u32>,
    /// How much each row counts in the growing tree beside its weight; empty when all count one.
    bag: Vec<f32>,
    pub(super) bench: Bench,
    /// Histograms of nodes of the growing tree, where features are dealt.
    pub(super) kept: BTreeMap<usize, Vec<Sums>>,
    seed: u64,
    lineage: i64,
    trees: usize,
    gradients_of: Option<usize>,
    partition_of: Option<usize>,
}

/// What a row is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Train,
    HeldOut,
    /// It weighs nothing.
    Mute,
}

impl Resident {
    /// The rows of a batch, brought up to the model: from what was kept, if that belongs to them.
    pub(super) fn refresh(
        kept: Option<Box<Resident>>,
        setup: &Setup<'_>,
        model: &Model,
        batch: &Batch<'_>,
        seed: u64,
    ) -> Box<Resident> {
        let clock = Clock::load(model);
        let segments = segments(batch);
        let mut resident = kept
            .filter(|kept| kept.batch == segments && clock.lineage.contains(&kept.lineage))
            .unwrap_or_else(|| Box::new(Resident::new(setup, model, (batch, segments), seed)));
        resident.catch_up(setup, model, &clock);
        resident.lineage = clock.lineage[1];
        resident
    }

    fn new(
        setup: &Setup<'_>,
        model: &Model,
        (batch, segments): (&Batch<'_>, Vec<Segment>),
        seed: u64,
    ) -> Resident {
        let columns = Columns::load(model);
        let known = match feature_parallel::deals(setup) {
            true => Known::everywhere(model, &columns, &segments),
            false => Known::here(&columns, (batch, &segments)),
        };
        let Known { held, store, labels, weights, mine } = known;
        let rows = store.rows();
        let weigh = |row: usize| weights.get(row).map_or(1.0, |&weight| f64::from(weight));
        let parts = parts(setup, model, (&held, &weigh), seed);
        let base = model.f64("base");
        Resident {
            labels,
            weights,
            parts,
            scores: base.iter().flat_map(|&score| std::iter::repeat_n(score, rows)).collect(),
            gradients: Vec::new(),
            grid: Gradients::Wide(Vec::new()),
            partition: Partition::default(),
            outside: Vec::new(),
            bag: Vec::new(),
            bench: Bench::default(),
            seed,
            lineage: 0,
            trees: 0,
            gradients_of: None,
            partition_of: None,
            kept: BTreeMap::new(),
            segments: held,
            batch: segments,
            mine,
            columns,
            store,
        }
    }

    /// Whether this worker is the one who counts a row.
    pub(super) fn counts(&self, row: usize) -> bool {
        self.mine.get(row).copied().unwrap_or(true)
    }

    pub(super) fn weight(&self, row: usize) -> f64 {
        self.weights.get(row).map_or(1.0, |&weight| f64::from(weight))
    }

    fn catch_up(&mut self, setup: &Setup<'_>, model: &Model, clock: &Clock) {
        let (trees, iteration) = (tree::count(model), setup.iteration(model));
        while self.trees < iteration * setup.outputs {
            self.add_tree(setup, model);
        }
        // Gradients are those at the beginning of an iteration, whichever of its trees is growing.
        let wanted = matches!(clock.phase, Phase::Scale | Phase::Grow | Phase::Vote | Phase::Renew);
        if wanted && self.gradients_of != Some(iteration) {
            self.differentiate(setup, model);
            self.gradients_of = Some(iteration);
        }
        while self.trees < trees {
            self.add_tree(setup, model);
        }
        if matches!(clock.phase, Phase::Grow | Phase::Vote | Phase::Renew) {
            if self.partition_of != Some(trees) {
                self.begin_tree(setup, model, clock);
                self.partition_of = Some(trees);
            }
            self.follow_splits(&Growing::load(model));
        }
    }

    /// Adds the next tree to the scores: by the rows of its leaves where they are known, else by asking its nodes.
    fn add_tree(&mut self, setup: &Setup<'_>, model: &Model) {
        let (number, rows) = (self.trees, self.store.rows());
        let output = number % setup.outputs;
        let router = Router::new(model, &self.columns, number);
        self.trees += 1;
        let is_last = self.partition_of == Some(number) && self.trees == tree::count(model);
        if is_last {
            // Its last splits were made without another exchange.
            self.follow_splits(&Growing::load(model));
        }
        let scores = &mut self.scores[output * rows..(output + 1) * rows];
        if is_last {
            let leaves = model.i64("last_leaves").iter().zip(model.f64("last_values"));
            for (&twig, &value) in leaves {
                let rows = self.partition.rows(twig as usize);
                rows.iter().for_each(|&row| scores[row as usize] += value);
            }
            for &row in &self.outside {
                scores[row as usize] += router.value(&self.store, row as usize);
            }
        } else {
            for (row, score) in scores.iter_mut().enumerate() {
                *score += router.value(&self.store, row);
            }
        }
    }

    fn differentiate(&mut self, setup: &Setup<'_>, model: &Model) {
        let rows = self.store.rows();
        // Every row is written anew, so what was there may stay.
        self.gradients.resize(rows * setup.outputs, [0.0; 2]);
        match setup.loss {
            Loss::LambdaRank => {
                let queries = ranking::Queries::load(model);
                for segment in &self.segments {
                    let held = segment.origin..segment.origin + segment.len as u64;
                    queries.lambdas(held, setup.options.truncation, |row, lambda| {
                        let at = segment.first + (row - segment.origin) as usize;
                        self.gradients[at] = lambda.map(|x| x as f32);
                    });
                }
            }
            Loss::Softmax => self.differentiate_classes(setup.outputs),
            loss => {
                let scored = self.scores.iter().zip(&self.labels);
                for (row, (into, (&score, &label))) in
                    self.gradients.iter_mut().zip(scored).enumerate()
                {
                    let weight = self.weights.get(row).map_or(1.0, |&weight| f64::from(weight));
                    let derivatives = loss.derivatives(score, f64::from(label));
                    *into = derivatives.map(|x| (x * weight) as f32);
                }
            }
        }
    }

    fn differentiate_classes(&mut self, classes: usize) {
        let rows = self.store.rows();
        let mut chances = vec![0.0; classes];
        for row in 0..rows {
            let scores = (0..classes).map(|class| self.scores[class * rows + row]);
            chances.iter_mut().zip(scores).for_each(|(chance, score)| *chance = score);
            losses::softmax(&mut chances);
            let (truth, weight) = (self.labels[row] as usize, self.weight(row));
            for (class, &chance) in chances.iter().enumerate() {
                let derivatives = losses::softmax_derivatives(chance, class == truth, classes);
                self.gradients[class * rows + row] = derivatives.map(|x| (x * weight) as f32);
            }
        }
    }

    /// How large the gradients of a row are, for goss.
    pub(super) fn importance(&self, outputs: usize, row: usize) -> f32 {
        let rows = self.store.rows();
        (0..outputs)
            .map(|output| self.gradients[output * rows + row])
            .map(|[gradient, hessian]| (gradient * hessian).abs())
            .sum()
    }

    /// Chooses the rows of a tree and puts their gradients on the grid.
    fn begin_tree(&mut self, setup: &Setup<'_>, model: &Model, clock: &Clock) {
        let (rows, number) = (self.store.rows(), tree::count(model));
        let output = number % setup.outputs;
        let scales = setup.scales(state::bounds(model), clock.rows);
        let bag = self.bag(setup, model);
        let chance = fixed::key(self.seed, "rounding", &[number as u64]);
        let gradients = &self.gradients[output * rows..(output + 1) * rows];
        self.grid.reset(setup.is_narrow(clock.rows), rows);
        match &mut self.grid {
            Gradients::Narrow(words) => each_row(&self.segments, |row, global| {
                let factor = bag.get(row).map_or(1.0, |&factor| f64::from(factor));
                let pair = [0, 1].map(|at| f64::from(gradients[row][at]) * factor * scales[at]);
                words[row] = rounded(pair, fixed::mix(chance, global));
            }),
            Gradients::Wide(pairs) => {
                for (row, (pair, gradient)) in pairs.iter_mut().zip(gradients).enumerate() {
                    let factor = bag.get(row).map_or(1.0, |&factor| f64::from(factor));
                    *pair =
                        [0, 1].map(|at| fixed::grid(f64::from(gradient[at]) * factor, scales[at]));
                }
            }
        }
        let inside = |row: &u32| bag.get(*row as usize).is_none_or(|&factor| factor != 0.0);
        self.partition.reset((0..rows as u32).filter(inside));
        self.outside = (0..rows as u32).filter(|row| !inside(row)).collect();
        self.bag = bag;
        self.kept.clear();
    }

    /// How much a row of the growing tree counts beside its weight.
    pub(super) fn factor(&self, row: usize) -> f64 {
        self.bag.get(row).map_or(1.0, |&factor| f64::from(factor))
    }

    /// How much each row counts in this iteration beside its weight: 0 when it is not looked at. Empty when all count
    /// one.
    fn bag(&self, setup: &Setup<'_>, model: &Model) -> Vec<f32> {
        let trained = self.parts.iter().all(|&part| part == Part::Train);
        if trained && setup.options.subsample >= 1.0 && setup.options.goss.is_none() {
            return Vec::new();
        }
        let iteration = setup.iteration(model) as u64;
        let chance = fixed::key(self.seed, "bag", &[iteration]);
        let (threshold, amplification) = (state::threshold(model), setup.amplification());
        let mut bag = vec![0.0; self.store.rows()];
        each_row(&self.segments, |row, global| {
            if self.parts[row] != Part::Train {
                return;
            }
            bag[row] = match setup.options.goss {
                None if setup.options.subsample >= 1.0 => 1.0,
                None => {
                    f32::from(u8::from(fixed::uniform(chance, global) < setup.options.subsample))
                }
                Some(_) if f64::from(self.importance(setup.outputs, row)) >= threshold => 1.0,
                Some([top, other]) => {
                    let kept = fixed::uniform(chance, global) < other / (1.0 - top);
                    if kept { amplification as f32 } else { 0.0 }
                }
            };
        });
        bag
    }

    fn follow_splits(&mut self, growing: &Growing) {
        let mut expanded: Vec<(usize, usize)> = (0..growing.twigs.len())
            .filter_map(|node| growing.twigs[node].child.map(|child| (child, node)))
            .filter(|(child, _)| *child >= self.partition.nodes())
            .collect();
        expanded.sort_unstable();
        for (_, node) in expanded {
            let split = growing.twigs[node].split.expect("expanded nodes have a split");
            self.partition.split(node, self.store.column(split.feature), &split.left_bins());
        }
    }
}

/// A packed word, rounded up with the chance that its fraction is.
fn rounded([gradient, hessian]: [f64; 2], chance: u64) -> u64 {
    const UNIT: f64 = 1.0 / (1u64 << 32) as f64;
    let (low, high) = ((chance as u32) as f64 * UNIT, (chance >> 32) as f64 * UNIT);
    let gradient = (gradient + low).floor().clamp(-GRADIENT_MAX, GRADIENT_MAX);
    let hessian = (hessian + high).floor().min(HESSIAN_MAX);
    pack(gradient as i64, hessian as i64)
}

/// The rows that a worker knows.
struct Known {
    held: Vec<Segment>,
    store: Store,
    labels: Vec<f32>,
    /// Empty when all are one.
    weights: Vec<f32>,
    mine: Vec<bool>,
}

impl Known {
    /// Those of its batch.
    fn here(columns: &Columns, (batch, segments): (&Batch<'_>, &[Segment])) -> Known {
        let weights = match batch.table.weights.is_empty() {
            true => Vec::new(),
            false => batch.rows().map(|row| batch.table.weights[row]).collect(),
        };
        Known {
            held: segments.to_vec(),
            store: Store::new(columns, batch.table, segments),
            labels: batch.rows().map(|row| batch.table.labels[row]).collect(),
            weights,
            mine: Vec::new(),
        }
    }

    /// All, which were gathered into the model.
    fn everywhere(model: &Model, columns: &Columns, segments: &[Segment]) -> Known {
        let (width, gathered) = (columns.len(), model.i64("rows"));
        let rows = gathered.chunks_exact(dealing::words(width));
        let (len, shard) = (rows.len(), Shard(0));
        let mut weights: Vec<f32> = rows.clone().map(|row| dealing::weight(row[0])).collect();
        if weights.iter().all(|&weight| weight == 1.0) {
            weights.clear();
        }
        let mut mine = vec![false; len];
        for segment in segments {
            mine[segment.origin as usize..][..segment.len].fill(true);
        }
        Known {
            held: vec![Segment { shard, first: 0, start: 0, origin: 0, len }],
            store: dealing::store(gathered, width),
            labels: rows.map(|row| dealing::label(row[0])).collect(),
            weights,
            mine,
        }
    }
}

/// What some rows are for; `weigh` is asked with their numbers from 0, in the order of the segments.
pub(super) fn parts(
    setup: &Setup<'_>,
    model: &Model,
    (segments, weigh): (&[Segment], &dyn Fn(usize) -> f64),
    seed: u64,
) -> Vec<Part> {
    let chance = fixed::key(seed, "validation", &[]);
    let queries = (setup.loss == Loss::LambdaRank).then(|| ranking::Queries::load(model));
    let holds_out = setup.options.early_stopping > 0;
    let mut parts = Vec::new();
    each_row(segments, |row, global| {
        let unit = queries.as_ref().map_or(global, |queries| queries.group(global));
        let held = holds_out && fixed::uniform(chance, unit) < setup.options.validation;
        parts.push(match weigh(row) > 0.0 {
            false => Part::Mute,
            true if held => Part::HeldOut,
            true => Part::Train,
        });
    });
    parts
}
