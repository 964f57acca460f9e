//! Gradient boosting of stumps (depth-1 trees) on the logistic loss (Friedman, 2001), with histograms.
//!
//! Eight steps find the bin edges (exact quantiles, see `quantiles.rs`), the first of them also counts the
//! labels; from then on a step is a tree: workers sum the gradients of their rows by feature and bin,
//! `apply` picks the split. Memory: the bins of each row (eight to a word) and its running score, both a
//! function of model and rows. The score says how many trees it contains, so that a step that is
//! computed again after a failure adds no tree twice.

mod quantiles;
mod rows;
mod splits;

use self::quantiles::{DIGITS, LEVELS};
use super::BuildLearner;
use crate::{Appetite, Cells, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use starlings_core::{
    Ability, Block, Entry, Fault, Kind, Model, Param, ParamKind, Params, Result, Role, Tensor,
    Update, Values,
};
use starlings_data::{Batch, LabelNeed, Slice};
use std::collections::BTreeMap;

const GIVES: &[Ability] = &[];
const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "boosted-stumps",
    summary: "Gradient boosting of depth-1 trees for two classes, with histograms",
    reference: "Friedman, Greedy function approximation: a gradient boosting machine, Annals of \
                Statistics 29(5), 2001",
    params: &[
        Param {
            name: "trees",
            kind: ParamKind::Integer { min: 1, max: 1_000_000 },
            default: Some("100"),
            help: "trees to grow; [train] epochs, if given, counts instead",
        },
        Param {
            name: "learning_rate",
            kind: ParamKind::Float { min: 1e-6, max: 1.0 },
            default: Some("0.1"),
            help: "how much of each tree's step is taken",
        },
        Param {
            name: "bins",
            kind: ParamKind::Integer { min: 2, max: 256 },
            default: Some("64"),
            help: "bins of each feature",
        },
        Param {
            name: "l2",
            kind: ParamKind::Float { min: 0.0, max: 1e9 },
            default: Some("0.0"),
            help: "ridge on the values of leaves",
        },
    ],
    gives: GIVES,
    needs: NEEDS,
    build: |params| Ok(Box::new(BoostedStumps::new(params))),
};

/// Numbers of a tree in the model: feature, threshold, value left, value right.
const TREE: usize = 4;
/// Most features: every step looks at all of them in every row.
const FEATURES_MAX: usize = 20_000;

struct BoostedStumps {
    trees: usize,
    learning_rate: f64,
    bins: usize,
    l2: f64,
}

impl BoostedStumps {
    fn new(params: &Params) -> BoostedStumps {
        BoostedStumps {
            trees: params.size("trees"),
            learning_rate: params.f64("learning_rate"),
            bins: params.size("bins"),
            l2: params.f64("l2"),
        }
    }

    fn edges(&self) -> usize {
        self.bins - 1
    }

    fn count_digits(&self, work: &mut Work<'_>, level: i64) {
        let (edges, prefixes) = (self.edges(), work.model.i64("edges"));
        let mut counts = vec![0; prefixes.len() * DIGITS];
        let mut labels = [0i64; 2];
        for row in work.batch.rows() {
            let mut each = |feature: usize, key: u32| {
                let prefixes = &prefixes[feature * edges..(feature + 1) * edges];
                let at = feature * edges * DIGITS;
                quantiles::count(key, level, prefixes, &mut counts[at..at + edges * DIGITS]);
            };
            rows::each_key(work.batch.table, row, &mut each);
            labels[usize::from(work.batch.table.labels[row] > 0.5)] += 1;
        }
        work.outbox.emit(Block::counts("digits", counts));
        if level == 0 {
            work.outbox.emit(Block::counts("labels", labels.to_vec()));
        }
    }

    fn sum_gradients(&self, work: &mut Work<'_>) {
        let features = work.model.i64("edges").len() / self.edges();
        let mut histogram = vec![0; features * self.bins * 2];
        let (unit, mut total) = (splits::scale(work.moment.rows), 0.0);
        for slice in &work.batch.slices {
            let cells = work.memory.shard(slice.shard);
            rows::refresh(work.model, work.batch.table, slice, cells);
            let (bins, scores) = rows::remembered(cells, slice.len());
            for ((row, bins), score) in slice.rows().zip(bins).zip(scores) {
                let label = f64::from(work.batch.table.labels[row]);
                let p = splits::logistic(*score);
                total += splits::loss(*score, label);
                let whole =
                    [((p - label) * unit).round() as i64, (p * (1.0 - p) * unit).round() as i64];
                splits::add(bins, self.bins, whole, &mut histogram);
            }
        }
        work.outbox.emit(Block::counts("gradients", histogram));
        work.outbox.emit(Block::dense("loss", vec![total]));
    }

    fn descend(&self, model: &mut Model, update: &Update) -> Result<()> {
        let mut ranks = std::mem::take(model.i64_mut("ranks"));
        let counts = update.i64("digits");
        let edges = self.edges();
        for (feature, prefixes) in model.i64_mut("edges").chunks_exact_mut(edges).enumerate() {
            let at = feature * edges;
            let counts = &counts[at * DIGITS..(at + edges) * DIGITS];
            quantiles::descend(prefixes, &mut ranks[at..at + edges], counts);
        }
        *model.i64_mut("ranks") = ranks;
        if update.get("labels").is_some() {
            let labels = update.i64("labels");
            if labels.contains(&0) {
                return Err(Fault::caller(
                    "boosted-stumps: the training rows are all of one class",
                )
                .hint("look at the label column, or give rows of both classes"));
            }
            model.f64_mut("base")[0] = (labels[1] as f64 / labels[0] as f64).ln();
        }
        Ok(())
    }

    fn grow(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let objective = update.f64("loss")[0] / moment.rows as f64;
        if !objective.is_finite() {
            return Err(Fault::caller(format!("boosted-stumps: the loss is {objective}"))
                .hint("lower learning_rate or raise l2"));
        }
        let unit = splits::scale(moment.rows);
        let split = splits::best(update.i64("gradients"), self.bins, unit, self.l2);
        let mut grown = model.i64("grown")[0];
        if let Some(split) = split {
            let edge = model.i64("edges")[split.feature * self.edges() + split.bin];
            let tree = [
                split.feature as f64,
                f64::from(quantiles::value(edge as u32)),
                self.learning_rate * split.left,
                self.learning_rate * split.right,
            ];
            let at = grown as usize * TREE;
            model.f64_mut("trees")[at..at + TREE].copy_from_slice(&tree);
            grown += 1;
            model.i64_mut("grown")[0] = grown;
        }
        let done = split.is_none() || grown as usize == model.f64("trees").len() / TREE;
        Ok(Outcome { objective: Some(objective), done, iterations: Some(grown as u64) })
    }
}

impl Learner for BoostedStumps {
    fn task(&self) -> Task {
        Task::Classification
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::Class
    }

    fn gives(&self) -> &'static [Ability] {
        GIVES
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let classes = facts.schema.classes();
        if classes != 2 {
            return Err(Fault::caller(format!(
                "boosted-stumps tells two classes apart, and the labels have {classes}"
            ))
            .hint("use logistic-regression for more classes"));
        }
        let (features, edges) = (facts.schema.features, self.edges());
        if features > FEATURES_MAX {
            return Err(Fault::caller(format!(
                "boosted-stumps: {features} features are too many, {FEATURES_MAX} is the most"
            ))
            .hint("gradient-boosting takes a column of categories as one feature"));
        }
        let trees = facts.epochs.map_or(self.trees, |epochs| epochs.max(1) as usize);
        let mut ranks = Tensor::zeros(Kind::I64, &[features, edges], Role::State);
        ranks.values =
            Values::I64((0..features).flat_map(|_| quantiles::ranks(facts.rows, edges)).collect());
        let mut model = Model::new();
        model.set("base", Tensor::zeros(Kind::F64, &[1], Role::Weight));
        model.set("trees", Tensor::zeros(Kind::F64, &[trees, TREE], Role::Weight));
        model.set("grown", Tensor::zeros(Kind::I64, &[1], Role::Weight));
        model.set("edges", Tensor::zeros(Kind::I64, &[features, edges], Role::State));
        model.set("ranks", ranks);
        model.set("level", Tensor::zeros(Kind::I64, &[1], Role::State));
        Ok(model)
    }

    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
        rows::refresh(model, batch.table, slice, cells);
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let level = work.model.i64("level")[0];
        if level < LEVELS {
            self.count_digits(work, level);
        } else {
            self.sum_gradients(work);
        }
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        if model.i64("level")[0] < LEVELS {
            self.descend(model, update)?;
            model.i64_mut("level")[0] += 1;
            return Ok(Outcome { iterations: Some(0), ..Outcome::default() });
        }
        self.grow(model, update, moment)
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let (mut loss, mut right) = (0.0, 0.0);
        for row in work.batch.rows() {
            let label = work.batch.table.labels[row];
            let score = rows::score(work.model, work.batch.table, row);
            loss += splits::loss(score, f64::from(label));
            right += f64::from((score > 0.0) == (label > 0.5));
        }
        Ok(vec![loss, right])
    }

    fn grade(&self, _: &Model, sums: &[f64], rows: u64) -> Grade {
        let rows = rows.max(1) as f64;
        let metrics = [("log_loss", sums[0] / rows), ("accuracy", sums[1] / rows)];
        let metrics = metrics.map(|(name, value)| (name.to_string(), value));
        Grade { objective: sums[0] / rows, metrics: BTreeMap::from(metrics) }
    }

    fn outputs(&self, _: &Model) -> usize {
        2
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        for row in batch.rows() {
            let p = splits::logistic(rows::score(model, batch.table, row));
            out.extend([1.0 - p, p]);
        }
        Ok(())
    }
}
