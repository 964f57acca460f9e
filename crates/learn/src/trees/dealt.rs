//! Trees dealt to shards: the way decision trees and random forests are grown here.
//!
//! Rows travel once, as bytes: a bin for every feature, the label and the weight. From then on every worker has all of
//! them, and tree t is grown, whole, by whoever holds shard t mod V; only finished trees travel. A tree depends on the
//! seed and its number alone, so the forest is the same bits for any number of workers. The price is memory: rows ×
//! (features + 8) bytes on every worker; the gain is that no histogram travels.

use super::columns::{categorical, whole};
use super::dealing;
use super::describe;
use super::graph;
use super::impurity::Criterion;
use super::predict::Forest;
use super::sample::Sample;
use super::tree;
use crate::{
    Appetite, Branch, Facts, Grade, Importance, Learner, Moment, Outcome, Place, Task, Work,
};
use starlings_core::{Ability, Block, Fault, Graph, Model, Op, Result, Role, Tensor, Update};
use starlings_data::{Batch, Encoding, LabelNeed, Schema};

/// What such learners give and need.
pub(crate) const GIVES: &[Ability] = &[];
pub(crate) const NEEDS: &[Ability] =
    &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

/// How many features a node looks at.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Choice {
    All,
    SquareRoot,
    Logarithm,
    Count(usize),
    Share(f64),
}

impl Choice {
    /// Of so many.
    pub(crate) fn of(self, features: usize) -> usize {
        let wanted = match self {
            Choice::All => features,
            Choice::SquareRoot => (features as f64).sqrt() as usize,
            Choice::Logarithm => (features as f64).log2() as usize,
            Choice::Count(count) => count,
            Choice::Share(share) => (share * features as f64) as usize,
        };
        wanted.clamp(1, features.max(1))
    }
}

/// A learner whose trees are dealt to shards.
pub(crate) struct Dealt {
    pub(crate) name: &'static str,
    pub(crate) trees: usize,
    pub(crate) criterion: Criterion,
    pub(crate) max_depth: usize,
    pub(crate) min_rows_leaf: u32,
    pub(crate) min_rows_split: u32,
    pub(crate) min_gain: f64,
    pub(crate) bins: usize,
    pub(crate) features: Choice,
    /// Whether each tree sees its own sample of the rows.
    pub(crate) bootstrap: bool,
    /// Whether rows are judged by the trees that did not see them.
    pub(crate) out_of_bag: bool,
    /// How much impurity a leaf must save.
    pub(crate) ccp_alpha: f64,
}

impl Dealt {
    pub(crate) fn is_classification(&self) -> bool {
        self.criterion != Criterion::Variance
    }

    fn refuse(&self, what: &str, hint: &str) -> Fault {
        Fault::caller(format!("{}: {what}", self.name)).hint(hint.to_string())
    }

    /// What a leaf says, in words.
    fn said(&self, model: &Model, leaf: f64) -> String {
        let (width, leaf) = (self.outputs(model), leaf as usize);
        let values = &model.f64("leaf_values")[leaf * width..(leaf + 1) * width];
        values.iter().map(|&x| describe::short(x)).collect::<Vec<_>>().join(" ")
    }

    fn check_labels(&self, batch: &Batch<'_>) -> Result<()> {
        let bad = batch.rows().find(|&row| !batch.table.labels[row].is_finite());
        match bad {
            Some(_) => {
                Err(self.refuse("a label is not a finite number", "remove or mend such rows"))
            }
            None => Ok(()),
        }
    }
}

/// What the next step does.
const SAMPLE: i64 = 0;
const GATHER: i64 = 1;
const GROW: i64 = 2;

impl Learner for Dealt {
    fn task(&self) -> Task {
        if self.is_classification() { Task::Classification } else { Task::Regression }
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn encoding(&self) -> Encoding {
        Encoding::Codes
    }

    fn label(&self) -> LabelNeed {
        if self.is_classification() { LabelNeed::Class } else { LabelNeed::Number }
    }

    fn for_numbers(&self) -> Option<(&'static str, &'static str)> {
        self.is_classification().then_some(("criterion", "variance"))
    }

    fn weighs(&self) -> bool {
        true
    }

    fn gives(&self) -> &'static [Ability] {
        GIVES
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let (features, classes) = (facts.schema.features, facts.schema.classes());
        if features > usize::from(u16::MAX) {
            return Err(self.refuse("there are too many features for trees", "65535 is the most"));
        }
        if self.is_classification() && !(1..=usize::from(u16::MAX)).contains(&classes) {
            return Err(self.refuse(
                &format!("the labels have {classes} classes"),
                "name a label column of classes, or use criterion = \"variance\" for numbers",
            ));
        }
        let outputs = if self.is_classification() { classes.max(2) } else { 1 };
        let trees =
            facts.epochs.map_or(self.trees, |epochs| (epochs as usize).clamp(1, self.trees));
        let mut model = Model::new();
        tree::init(&mut model);
        model.set("leaf_values", Tensor::of(&[0, outputs], vec![], Role::Weight));
        model.set("bins", Tensor::of(&[0], vec![], Role::Weight));
        model.set("bin_starts", whole(vec![0; features + 1], Role::Weight));
        let categorical = categorical(&facts.schema).into_iter().map(i64::from).collect();
        model.set("categorical", whole(categorical, Role::Weight));
        model.set("stage", whole(vec![SAMPLE, trees as i64, i64::from(facts.shards)], Role::State));
        model.set("rows", whole(Vec::new(), Role::State));
        model.set("out_of_bag", whole(Vec::new(), Role::State));
        Ok(model)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        match work.model.i64("stage")[0] {
            SAMPLE => {
                self.check_labels(work.batch)?;
                let width = work.model.i64("categorical").len();
                let sample = Sample::new(work.moment.rows, width, work.moment.seed);
                work.outbox.emit(Block::counts("sample", sample.gather(work.batch)));
            }
            GATHER => work.outbox.emit(Block::counts("rows", dealing::gather(work))),
            _ => dealing::grow(self, work),
        }
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let stage = model.i64("stage")[0];
        match stage {
            SAMPLE => {
                let categorical: Vec<bool> =
                    model.i64("categorical").iter().map(|&is| is != 0).collect();
                let sample = Sample::new(moment.rows, categorical.len(), moment.seed);
                sample.columns(update.i64("sample"), &categorical, self.bins).save(model);
            }
            GATHER => {
                let width = model.i64("categorical").len();
                if dealing::weightless(update.i64("rows"), width) {
                    return Err(
                        self.refuse("no row is left to learn from", "all rows weigh nothing")
                    );
                }
                model.set("rows", whole(update.i64("rows").to_vec(), Role::State));
            }
            _ => dealing::collect(self, model, update),
        }
        if stage < GROW {
            model.i64_mut("stage")[0] += 1;
        }
        let grown = tree::count(model);
        let done = grown >= model.i64("stage")[1] as usize;
        Ok(Outcome { objective: None, done, iterations: Some(grown as u64) })
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let mut outputs = Vec::new();
        self.predict(work.model, work.batch, &mut outputs)?;
        let width = self.outputs(work.model);
        let mut sums = vec![0.0; 4];
        for (row, said) in work.batch.rows().zip(outputs.chunks_exact(width)) {
            let (label, weight) = (work.batch.table.labels[row], work.batch.table.weight(row));
            let (loss, first, second) = dealing::judge(self.is_classification(), said, label);
            for (sum, value) in sums.iter_mut().zip([loss, 1.0, first, second]) {
                *sum += weight * value;
            }
        }
        Ok(sums)
    }

    fn grade(&self, model: &Model, sums: &[f64], _: u64) -> Grade {
        let weight = if sums[1] > 0.0 { sums[1] } else { 1.0 };
        let [loss, first, second] = [sums[0], sums[2], sums[3]].map(|sum| sum / weight);
        let mut metrics: Vec<(&str, f64)> = match self.is_classification() {
            true => vec![("log_loss", loss), ("accuracy", first)],
            false => vec![("rmse", first.sqrt()), ("mae", second)],
        };
        metrics.extend(dealing::out_of_bag(self, model));
        let metrics = metrics.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        Grade { objective: loss, metrics }
    }

    fn outputs(&self, model: &Model) -> usize {
        model.get("leaf_values").map_or(1, |values| values.width())
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let (forest, values, width) =
            (Forest::new(model), model.f64("leaf_values"), self.outputs(model));
        let (from, trees) = (out.len(), forest.len().max(1) as f64);
        out.resize(from + batch.len() * width, 0.0);
        let sums = &mut out[from..];
        forest.each(batch, |row, _, leaf| {
            let said = &values[leaf as usize * width..(leaf as usize + 1) * width];
            sums[row * width..(row + 1) * width]
                .iter_mut()
                .zip(said)
                .for_each(|(sum, x)| *sum += x);
        });
        sums.iter_mut().for_each(|sum| *sum /= trees);
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let (width, values) = (self.outputs(model), model.f64("leaf_values"));
        let said = |_: usize, leaf: f64| {
            let leaf = leaf as usize;
            values[leaf * width..(leaf + 1) * width].to_vec()
        };
        let (mut graph, sums) = graph::scores(model, &vec![0.0; width], said)?;
        let trees = graph.constant("trees", &[1], vec![tree::count(model).max(1) as f64]);
        graph.node(Op::Div, &[&sums, &trees]);
        Some(graph)
    }

    fn describe(&self, model: &Model, schema: &Schema) -> Option<String> {
        Some(describe::text(model, schema, |leaf| self.said(model, leaf)))
    }

    fn importances(&self, model: &Model, schema: &Schema) -> Vec<Importance> {
        describe::importances(model, schema)
    }

    fn tree(&self, model: &Model, schema: &Schema, number: usize) -> Option<Vec<Branch>> {
        describe::branches(model, schema, number, |leaf| self.said(model, leaf))
    }
}
