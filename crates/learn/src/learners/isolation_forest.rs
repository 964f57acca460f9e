//! Isolation forest (Liu, Ting and Zhou, 2008): trees that split small samples of the rows at random; rows that are
//! soon alone are unusual. The score is 2^(-E[h]/c(n)): near 1 for the unusual, below one half for the ordinary.
//!
//! One exchange: every tree's sample is gathered, and all replicas grow the same trees from the seed.

use super::BuildLearner;
use crate::trees::columns::whole;
use crate::trees::predict::Forest;
use crate::trees::sample::Sample;
use crate::trees::tree::{self, Node};
use crate::trees::{describe, fixed, graph};
use crate::{Appetite, Branch, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use starlings_core::{
    Ability, Block, Entry, Fault, Graph, Model, Op, Param, ParamKind, Result, Rng, Role, Tensor,
    Update,
};
use starlings_data::{Batch, LabelNeed, Schema};
use std::collections::BTreeMap;

const GIVES: &[Ability] = &[];
const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "isolation-forest",
    summary: "How unusual a row is, by how soon random splits isolate it",
    reference: "Liu, Ting and Zhou, Isolation forest, ICDM 2008",
    params: &[
        Param {
            name: "trees",
            kind: ParamKind::Integer { min: 1, max: 100_000 },
            default: Some("100"),
            help: "trees to grow",
        },
        Param {
            name: "sample",
            kind: ParamKind::Integer { min: 2, max: 65_536 },
            default: Some("256"),
            help: "rows of each tree",
        },
    ],
    gives: GIVES,
    needs: NEEDS,
    build: |params| {
        let (trees, sample) = (params.size("trees"), params.size("sample"));
        Ok(Box::new(IsolationForest { trees, sample }))
    },
};

struct IsolationForest {
    trees: usize,
    sample: usize,
}

impl IsolationForest {
    fn samples(&self, rows: u64, width: usize, seed: u64) -> impl Iterator<Item = Sample> {
        let count = self.sample as u64;
        let key = move |tree: usize| fixed::key(seed, "isolation", &[tree as u64]);
        (0..self.trees).map(move |tree| Sample::of(rows, width, (count, key(tree))))
    }
}

/// The mean length of an unsuccessful search in a binary search tree of n rows: equation 1.
fn path_length(rows: usize) -> f64 {
    match rows {
        0 | 1 => 0.0,
        2 => 1.0,
        rows => {
            let harmonic: f64 = (1..rows).map(|k| 1.0 / k as f64).sum();
            2.0 * harmonic - 2.0 * (rows as f64 - 1.0) / rows as f64
        }
    }
}

/// Grows a tree from the columns of its sample (algorithm 2).
fn grow(columns: &[Vec<f32>], rng: &mut Rng) -> Vec<Node> {
    let count = columns.first().map_or(0, Vec::len);
    let limit = (count.max(1) as f64).log2().ceil() as usize;
    let mut nodes: Vec<Node> = Vec::new();
    let mut open = vec![((0..count).collect::<Vec<usize>>(), 0, None)];
    while let Some((rows, depth, from)) = open.pop() {
        let place = nodes.len();
        if let Some((parent, side)) = from {
            let parent: &mut Node = &mut nodes[parent];
            parent.children[side] = place as u32;
        }
        let cut = if depth < limit { cut(columns, &rows, rng) } else { None };
        let Some((feature, threshold)) = cut else {
            nodes.push(Node::leaf(depth as f64 + path_length(rows.len()), rows.len() as f64));
            continue;
        };
        let (left, right): (Vec<usize>, Vec<usize>) =
            rows.iter().partition(|&&row| columns[feature][row] <= threshold);
        nodes.push(Node {
            feature: Some(feature as u32),
            threshold: f64::from(threshold),
            missing_left: left.len() > right.len(),
            ..Node::leaf(0.0, rows.len() as f64)
        });
        open.push((right, depth + 1, Some((place, 1))));
        open.push((left, depth + 1, Some((place, 0))));
    }
    nodes
}

/// A random feature on which the rows differ, and a random place between its ends.
fn cut(columns: &[Vec<f32>], rows: &[usize], rng: &mut Rng) -> Option<(usize, f32)> {
    if rows.len() < 2 {
        return None;
    }
    let mut features: Vec<usize> = (0..columns.len()).collect();
    rng.shuffle(&mut features);
    features.into_iter().find_map(|feature| {
        let values = || rows.iter().map(|&row| columns[feature][row]);
        let low = values().fold(f32::INFINITY, f32::min);
        let high = values().fold(f32::NEG_INFINITY, f32::max);
        if low >= high {
            return None;
        }
        let share = rng.uniform();
        let at = (f64::from(low) * (1.0 - share) + f64::from(high) * share) as f32;
        Some((feature, if at >= low && at < high { at } else { low }))
    })
}

impl Learner for IsolationForest {
    fn task(&self) -> Task {
        Task::Anomaly
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::None
    }

    fn gives(&self) -> &'static [Ability] {
        GIVES
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        if facts.rows < 2 {
            return Err(Fault::caller("isolation-forest: one row cannot be told from others")
                .hint("give two rows or more"));
        }
        let features = facts.schema.features;
        if features > usize::from(u16::MAX) {
            return Err(Fault::caller("isolation-forest: there are too many features for trees")
                .hint("65535 is the most"));
        }
        let mut model = Model::new();
        tree::init(&mut model);
        model.set("bins", Tensor::of(&[0], vec![], Role::Weight));
        model.set("bin_starts", whole(vec![0; features + 1], Role::Weight));
        model.set("categorical", whole(vec![0; features], Role::Weight));
        let usual = path_length((facts.rows as usize).min(self.sample));
        model.set("usual", Tensor::of(&[1], vec![usual], Role::Weight));
        Ok(model)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let width = work.model.i64("categorical").len();
        let samples = self.samples(work.moment.rows, width, work.moment.seed);
        let block = samples.flat_map(|sample| sample.gather(work.batch)).collect();
        work.outbox.emit(Block::counts("samples", block));
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let width = model.i64("categorical").len();
        let mut words = update.i64("samples");
        for (number, sample) in self.samples(moment.rows, width, moment.seed).enumerate() {
            let (own, rest) = words.split_at(sample.words() * sample.len());
            let columns: Vec<Vec<f32>> = (0..width).map(|at| sample.column(own, at)).collect();
            let mut rng = Rng::named(moment.seed, "isolation tree", &[number as u64]);
            tree::push(model, &grow(&columns, &mut rng));
            words = rest;
        }
        Ok(Outcome { objective: None, done: true, iterations: Some(1) })
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let mut scores = Vec::new();
        self.predict(work.model, work.batch, &mut scores)?;
        Ok(vec![scores.iter().sum()])
    }

    fn grade(&self, _: &Model, sums: &[f64], rows: u64) -> Grade {
        let mean = sums[0] / rows.max(1) as f64;
        Grade { objective: mean, metrics: BTreeMap::from([("mean_anomaly".to_string(), mean)]) }
    }

    fn outputs(&self, _: &Model) -> usize {
        1
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let (forest, usual) = (Forest::new(model), model.f64("usual")[0]);
        let (from, trees) = (out.len(), forest.len().max(1) as f64);
        out.resize(from + batch.len(), 0.0);
        forest.each(batch, |row, _, length| out[from + row] += length);
        out[from..].iter_mut().for_each(|sum| *sum = (-*sum / trees / usual).exp2());
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let (mut graph, sums) = graph::scores(model, &[0.0], |_, length| vec![length])?;
        let scale = tree::count(model).max(1) as f64 * model.f64("usual")[0];
        let scale = graph.constant("scale", &[1], vec![-scale]);
        let two = graph.constant("two", &[1], vec![2.0]);
        let power = graph.node(Op::Div, &[&sums, &scale]);
        graph.node(Op::Pow, &[&two, &power]);
        Some(graph)
    }

    fn describe(&self, model: &Model, schema: &Schema) -> Option<String> {
        Some(describe::text(model, schema, describe::short))
    }

    fn tree(&self, model: &Model, schema: &Schema, number: usize) -> Option<Vec<Branch>> {
        describe::branches(model, schema, number, describe::short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_lengths_are_those_of_the_paper() {
        assert_eq!((path_length(1), path_length(2)), (0.0, 1.0));
        // c(256) by H(n) ≈ ln n + 0.5772156649, as the paper has it.
        assert!((path_length(256) - 10.2447).abs() < 1e-2, "{}", path_length(256));
    }

    #[test]
    fn every_row_of_a_sample_ends_in_a_leaf() {
        let mut rng = Rng::named(1, "isolation", &[]);
        let columns: Vec<Vec<f32>> =
            (0..3).map(|_| (0..64).map(|_| rng.normal() as f32).collect()).collect();
        let nodes = grow(&columns, &mut rng);
        let leaves = nodes.iter().filter(|node| node.feature.is_none());
        assert_eq!(leaves.map(|node| node.rows).sum::<f64>(), 64.0);
        assert!(nodes.len() > 30);
    }
}
