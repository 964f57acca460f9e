//! The perceptron (Rosenblatt, "The perceptron: a probabilistic model for information storage and organization in the
//! brain", 1958): a row on the wrong side moves the weights by itself. Two classes have one vector of weights, more have
//! one each, of which the right one and the one that beat it move (Kesler's construction). With `average` the model is the
//! mean of the weights after every row (Freund and Schapire, "Large margin classification using the perceptron
//! algorithm", 1999).
//!
//! On a flock it is trained by iterative parameter mixing (McDonald, Hall and Mann, "Distributed training strategies for
//! the structured perceptron", NAACL 2010): in an epoch each shard goes over its rows from the common weights,
//! then the weights of all shards are mixed. Shards are mixed, not workers, and what they send are integers on a
//! grid, so that the model has the same bits on any flock. If the classes can be told apart by a line, it is found:
//! an epoch without a mistake ends the training (Novikoff, 1962; theorem 3 of McDonald et al. for the mixture).

mod epoch;

use super::BuildLearner;
use crate::{Appetite, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use crate::{by_shard, refusals};
use epoch::Layout;
use starlings_core::{
    Ability, Block, Entry, FEATURES, Fault, Graph, Kind, Model, Op, Param, ParamKind, Params,
    Result, Role, Tensor, Update, Values,
};
use starlings_data::{Batch, LabelNeed};
use std::collections::BTreeMap;

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "perceptron",
    summary: "Classes by a linear score that learns from its mistakes; plain or averaged, shards mixed each epoch",
    reference: "Rosenblatt, The perceptron, Psychological Review 65(6), 1958; Freund and Schapire, Large margin \
                classification using the perceptron algorithm, 1999; McDonald, Hall and Mann, NAACL 2010",
    params: PARAMS,
    gives: &[],
    needs: NEEDS,
    build: |params| Ok(Box::new(Perceptron::new(params))),
};

const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

const PARAMS: &[Param] = &[
    Param {
        name: "average",
        kind: ParamKind::Flag,
        default: Some("false"),
        help: "whether the model is the mean of the weights after every row",
    },
    Param {
        name: "mixing",
        kind: ParamKind::Choice(&["uniform", "errors"]),
        default: Some("uniform"),
        help: "how much each shard counts when weights are mixed: all alike, or by its mistakes in the epoch",
    },
    Param {
        name: "max_iterations",
        kind: ParamKind::Integer { min: 0, max: 1_000_000_000 },
        default: Some("1000"),
        help: "epochs at most, unless the job sets them",
    },
    Param {
        name: "tolerance",
        kind: ParamKind::Float { min: 0.0, max: 1.0 },
        default: Some("1e-3"),
        help: "an epoch counts as better if its share of mistakes is smaller by more than this",
    },
    Param {
        name: "patience",
        kind: ParamKind::Integer { min: 1, max: 1_000_000_000 },
        default: Some("5"),
        help: "epochs in a row that are not better, after which training ends; an epoch without mistakes always ends it",
    },
    Param {
        name: "shuffle",
        kind: ParamKind::Flag,
        default: Some("true"),
        help: "whether each epoch goes over a shard's rows in another order",
    },
    Param {
        name: "intercept",
        kind: ParamKind::Flag,
        default: Some("true"),
        help: "whether scores have a constant term",
    },
];

/// The mixed weights, one row a feature, one column a score.
const CURRENT: &str = "current";
/// The sum over epochs of the mean weights within each.
const MEANS: &str = "current.means";
/// What each row of the weights can change by in an epoch: Σ w|x|.
const SIZES: &str = "moves_max";
/// Shards, epochs at most, epochs done, epochs without a better one, fewest mistakes, rows that count, sizes known.
const COUNTERS: &str = "counters";

struct Perceptron {
    average: bool,
    by_errors: bool,
    max_iterations: u64,
    tolerance: f64,
    patience: i64,
    shuffle: bool,
    intercept: bool,
}

impl Perceptron {
    fn new(params: &Params) -> Perceptron {
        Perceptron {
            average: params.flag("average"),
            by_errors: params.text("mixing") == "errors",
            max_iterations: params.size("max_iterations") as u64,
            tolerance: params.f64("tolerance"),
            patience: params.i64("patience"),
            shuffle: params.flag("shuffle"),
            intercept: params.flag("intercept"),
        }
    }

    fn layout(&self, model: &Model) -> Layout {
        let weights = model.get("weights").expect("every model of this learner has weights");
        let features = weights.rows() - usize::from(self.intercept);
        Layout { features, scores: weights.width(), intercept: self.intercept }
    }

    /// Takes an epoch's sums: mixes, and says whether it was the last.
    fn mix(&self, model: &mut Model, update: &Update) -> bool {
        let layout = self.layout(model);
        let tally = update.i64("tally");
        let (shards, mistakes) = (tally[0], tally[1]);
        let share = 1.0 / if self.by_errors { mistakes } else { shards }.max(1) as f64;
        let grids = epoch::grids(model.f64(SIZES), self.by_errors, model.i64(COUNTERS)[5]);
        let start = model.f64(CURRENT).to_vec();
        let mixed = |sums: &[i64]| -> Vec<f64> {
            let sums = sums.iter().enumerate();
            sums.map(|(at, sum)| start[at] + *sum as f64 * grids[at / layout.scores] * share)
                .collect()
        };
        let current = mixed(update.i64("moves"));
        let epochs = model.i64(COUNTERS)[2] + 1;
        if self.average {
            // Mixing by mistakes counts no shard of an epoch without any: its weights are then the start's.
            let mean = mixed(update.i64("means"));
            let means = model.f64_mut(MEANS);
            means.iter_mut().zip(&mean).for_each(|(sum, mean)| *sum += mean);
            let weights = means.iter().map(|sum| sum / epochs as f64).collect();
            *model.f64_mut("weights") = weights;
        } else {
            model.f64_mut("weights").copy_from_slice(&current);
        }
        *model.f64_mut(CURRENT) = current;
        let rows = update.rows("margins").map(by_shard::add_up).unwrap_or_default();
        if let Some(&[weight, margins, _]) = rows.as_slice().first_chunk::<3>() {
            let spread = margins / weight;
            model.f64_mut("spread")[0] = if spread > 0.0 { spread } else { 1.0 };
        }
        self.count(model.i64_mut(COUNTERS), epochs, mistakes)
    }

    fn count(&self, counters: &mut [i64], epochs: i64, mistakes: i64) -> bool {
        counters[2] = epochs;
        let better = (mistakes as f64) < counters[4] as f64 - self.tolerance * counters[5] as f64;
        counters[3] = if better { 0 } else { counters[3] + 1 };
        counters[4] = counters[4].min(mistakes);
        mistakes == 0 || counters[3] >= self.patience || epochs >= counters[1]
    }
}

impl Learner for Perceptron {
    fn task(&self) -> Task {
        Task::Classification
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::Class
    }

    fn weighs(&self) -> bool {
        true
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let classes = facts.schema.classes();
        if facts.rows == 0 {
            return Err(Fault::caller("there are no rows to learn from"));
        }
        if classes < 2 {
            return Err(Fault::caller(format!("labels have {classes} classes, two are needed"))
                .hint("name the label column that tells classes apart"));
        }
        let scores = if classes == 2 { 1 } else { classes };
        let layout = Layout { features: facts.schema.features, scores, intercept: self.intercept };
        if layout.rows() == 0 {
            return Err(Fault::caller("there are no features to learn from"));
        }
        let shape = [layout.rows(), scores];
        let mut model = Model::new();
        model.set("weights", Tensor::zeros(Kind::F64, &shape, Role::Weight));
        model.set("spread", Tensor::of(&[1], vec![1.0], Role::Weight));
        model.set(CURRENT, Tensor::zeros(Kind::F64, &shape, Role::State));
        if self.average {
            model.set(MEANS, Tensor::zeros(Kind::F64, &shape, Role::State));
        }
        model.set(SIZES, Tensor::zeros(Kind::F64, &[layout.rows()], Role::State));
        let epochs = i64::try_from(facts.epochs.unwrap_or(self.max_iterations)).unwrap_or(i64::MAX);
        let counters = vec![i64::from(facts.shards), epochs, 0, 0, i64::MAX, 0, 0];
        let shape = vec![counters.len()];
        model.set(COUNTERS, Tensor { shape, values: Values::I64(counters), role: Role::State });
        Ok(model)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let layout = self.layout(work.model);
        refusals::check_width(layout.features, work.batch)?;
        refusals::check_classes(layout.classes(), work.batch)?;
        let counters = work.model.i64(COUNTERS);
        let shards = counters[0] as u32;
        if counters[6] == 0 {
            let rows = epoch::sizes(layout, work.batch, shards)?;
            work.outbox.emit(Block::rows("sizes", rows));
            let counted = work.batch.rows().filter(|&row| work.batch.table.weight(row) > 0.0);
            work.outbox.emit(Block::counts("rows", vec![counted.count() as i64]));
            return Ok(());
        }
        let grids = epoch::grids(work.model.f64(SIZES), self.by_errors, counters[5]);
        let run = epoch::Epoch {
            layout,
            start: work.model.f64(CURRENT),
            grids: &grids,
            by_errors: self.by_errors,
            shuffle: self.shuffle.then_some(work.moment),
        };
        let sums = run.over(work.batch, shards);
        work.outbox.emit(Block::counts("tally", vec![sums.shards, sums.mistakes]));
        work.outbox.emit(Block::counts("moves", sums.moves));
        if self.average {
            work.outbox.emit(Block::counts("means", sums.means));
        }
        work.outbox.emit(Block::rows("margins", sums.margins));
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, _: &Moment) -> Result<Outcome> {
        if model.i64(COUNTERS)[6] == 0 {
            let sizes = update.rows("sizes").map(by_shard::add_up).unwrap_or_default();
            model.f64_mut(SIZES).copy_from_slice(&sizes);
            let counters = model.i64_mut(COUNTERS);
            (counters[5], counters[6]) = (update.i64("rows")[0], 1);
            let done = counters[1] == 0;
            return Ok(Outcome { objective: None, done, iterations: Some(0) });
        }
        let done = self.mix(model, update);
        let sums = update.rows("margins").map(by_shard::add_up).unwrap_or_default();
        let objective = (sums.len() == 3 && sums[0] > 0.0).then(|| sums[2] / sums[0]);
        Ok(Outcome { objective, done, iterations: Some(model.i64(COUNTERS)[2] as u64) })
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let layout = self.layout(work.model);
        refusals::check_width(layout.features, work.batch)?;
        refusals::check_classes(layout.classes(), work.batch)?;
        let (table, mut sums) = (work.batch.table, vec![0.0; 3]);
        epoch::each(layout, work.model.f64("weights"), work.batch, |row, scores| {
            let truth = table.labels[row] as usize;
            let (weight, margin) = (table.weight(row), epoch::margin(scores, truth).value);
            // A tie is right where the first of equals is the answer.
            let right = margin > 0.0 || (margin == 0.0 && epoch::answer(scores) == truth);
            let own = [(-margin).max(0.0), f64::from(u8::from(right)), 1.0];
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += weight * own);
        });
        Ok(sums)
    }

    /// The objective is the mean perceptron loss: by how much wrong scores beat right ones.
    fn grade(&self, _: &Model, sums: &[f64], _: u64) -> Grade {
        let weight = if sums[2] > 0.0 { sums[2] } else { 1.0 };
        let metrics = BTreeMap::from([("accuracy".to_string(), sums[1] / weight)]);
        Grade { objective: sums[0] / weight, metrics }
    }

    fn outputs(&self, model: &Model) -> usize {
        self.layout(model).classes()
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let layout = self.layout(model);
        refusals::check_width(layout.features, batch)?;
        let spread = model.f64("spread")[0];
        epoch::each(layout, model.f64("weights"), batch, |_, scores| {
            if let [score] = scores {
                let small = (-(score / spread).abs()).exp();
                let (less, more) = (small / (1.0 + small), 1.0 / (1.0 + small));
                out.extend(if *score > 0.0 { [less, more] } else { [more, less] });
                return;
            }
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let powers: Vec<f64> = scores.iter().map(|s| ((s - largest) / spread).exp()).collect();
            let sum: f64 = powers.iter().sum();
            out.extend(powers.iter().map(|power| power / sum));
        });
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let layout = self.layout(model);
        let spread = model.f64("spread")[0];
        let scaled: Vec<f64> = model.f64("weights").iter().map(|weight| weight / spread).collect();
        let (slopes, constants) = scaled.split_at(layout.features * layout.scores);
        let mut graph = Graph::new();
        let weights = graph.constant("weights", &[layout.features, layout.scores], slopes.to_vec());
        let mut scores = graph.node(Op::MatMul, &[FEATURES, &weights]);
        if self.intercept {
            let constants = graph.constant("intercept", &[layout.scores], constants.to_vec());
            scores = graph.node(Op::Add, &[&scores, &constants]);
        }
        if layout.scores > 1 {
            graph.node(Op::Softmax, &[&scores]);
            return Some(graph);
        }
        let p = graph.node(Op::Sigmoid, &[&scores]);
        let one = graph.constant("one", &[1], vec![1.0]);
        let other = graph.node(Op::Sub, &[&one, &p]);
        graph.node(Op::Concat, &[&other, &p]);
        Some(graph)
    }
}
