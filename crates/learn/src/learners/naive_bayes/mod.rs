//! Naive Bayes: the features of a row are taken as independent given its class, so that counting is all there is to
//! learn. Multinomial and complement (Rennie et al., 2003) count how often words occur, Bernoulli whether they do,
//! Gaussian has a mean and a variance of each feature in each class.
//!
//! Exact: sums of counts are sums of integers where counts are whole, which f64 adds without rounding up to 2⁵³. One
//! pass over the rows; a second for Gaussian where the first has lost digits (see `gaussian`).

mod fit;
mod gaussian;
mod joint;
mod sums;

use super::BuildLearner;
use crate::refusals;
use crate::{Appetite, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use fit::Smoothing;
use starlings_core::{
    Ability, Block, Entry, Fault, Graph, Kind as Number, Model, Param, ParamKind, Params, Result,
    Role, Tensor, Update,
};
use starlings_data::{Batch, ColumnKind, Encoding, LabelNeed, Schema};
use std::collections::BTreeMap;

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "naive-bayes",
    summary: "Classes by counting, features independent given the class: gaussian, multinomial, bernoulli, complement",
    reference: "Maron, Automatic indexing, JACM 1961; Rennie, Shih, Teevan and Karger, Tackling the poor \
                assumptions of naive Bayes text classifiers, ICML 2003",
    params: PARAMS,
    gives: &[],
    needs: NEEDS,
    build: |params| Ok(Box::new(NaiveBayes::new(params))),
};

const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

const PARAMS: &[Param] = &[
    Param {
        name: "kind",
        kind: ParamKind::Choice(&["gaussian", "multinomial", "bernoulli", "complement"]),
        default: Some("gaussian"),
        help: "what a feature is given the class: a normal number, a count, or whether it is there",
    },
    Param {
        name: "alpha",
        kind: ParamKind::Float { min: 0.0, max: 1e12 },
        default: Some("1.0"),
        help: "what is added to every count (multinomial, bernoulli, complement); less than 1e-10 is taken as that",
    },
    Param {
        name: "fit_prior",
        kind: ParamKind::Flag,
        default: Some("true"),
        help: "whether classes are as likely as they are frequent, or all alike",
    },
    Param {
        name: "binarize",
        kind: ParamKind::Float { min: -3e38, max: 3e38 },
        default: Some("0.0"),
        help: "a feature is there when it is larger than this (bernoulli)",
    },
    Param {
        name: "var_smoothing",
        kind: ParamKind::Float { min: 0.0, max: 1e12 },
        default: Some("1e-9"),
        help: "this share of the largest variance is added to all (gaussian)",
    },
    Param {
        name: "norm",
        kind: ParamKind::Flag,
        default: Some("false"),
        help: "whether the weights of each class are divided by their sum (complement)",
    },
];

/// The logarithm of what never happens, as a finite number: the prior of a class without rows.
const NEVER: f64 = -1e300;

/// What a feature is, given the class.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Gaussian,
    Multinomial,
    Bernoulli { above: f32 },
    Complement { norm: bool },
}

struct NaiveBayes {
    kind: Kind,
    smoothing: Smoothing,
}

impl NaiveBayes {
    fn new(params: &Params) -> NaiveBayes {
        let kind = match params.text("kind") {
            "multinomial" => Kind::Multinomial,
            "bernoulli" => Kind::Bernoulli { above: params.f64("binarize") as f32 },
            "complement" => Kind::Complement { norm: params.flag("norm") },
            _ => Kind::Gaussian,
        };
        let smoothing = Smoothing {
            alpha: params.f64("alpha").max(1e-10),
            fit_prior: params.flag("fit_prior"),
            variance: params.f64("var_smoothing"),
        };
        NaiveBayes { kind, smoothing }
    }

    /// The tensor that says how many classes and features there are.
    fn main_tensor(&self) -> &'static str {
        if self.kind == Kind::Gaussian { "means" } else { "feature_log_probability" }
    }

    /// Classes and features.
    fn shape(&self, model: &Model) -> (usize, usize) {
        let tensor = model.get(self.main_tensor()).expect("made by init");
        (tensor.rows(), tensor.width())
    }
}

impl Learner for NaiveBayes {
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
        let (classes, features) = (facts.schema.classes(), facts.schema.features);
        if facts.rows == 0 {
            return Err(Fault::caller("there are no rows to learn from"));
        }
        if classes < 2 {
            return Err(Fault::caller(format!("labels have {classes} classes, two are needed"))
                .hint("name the label column that tells classes apart"));
        }
        if features == 0 {
            return Err(Fault::caller("there are no features to learn from"));
        }
        let zeros = |shape: &[usize]| Tensor::zeros(Number::F64, shape, Role::Weight);
        let mut model = Model::new();
        model.set("log_prior", zeros(&[classes]));
        model.set(self.main_tensor(), zeros(&[classes, features]));
        if self.kind == Kind::Gaussian {
            model.set("variances", zeros(&[classes, features]));
            let shift = gaussian::first_shift(&column_means(&facts.schema), classes);
            model.set("shift", Tensor::of(&[classes, features], shift, Role::State));
            model.set("passes", Tensor::zeros(Number::I64, &[1], Role::State));
        }
        Ok(model)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let (classes, features) = self.shape(work.model);
        refusals::check_width(features, work.batch)?;
        refusals::check_classes(classes, work.batch)?;
        let sums = match self.kind {
            Kind::Gaussian => gaussian::sums(work.model.f64("shift"), classes, work.batch)?,
            kind => sums::counts(kind, (classes, features), work.batch)?,
        };
        work.outbox.emit(Block::dense("class_weights", sums.class_weights));
        work.outbox.emit(Block::dense("first", sums.first));
        if self.kind == Kind::Gaussian {
            work.outbox.emit(Block::dense("second", sums.second));
        }
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, _: &Moment) -> Result<Outcome> {
        let class_weights = update.f64("class_weights");
        if class_weights.iter().all(|weight| *weight == 0.0) {
            return Err(Fault::caller("no row has a weight above zero"));
        }
        let (mut iterations, mut done) = (1, true);
        if self.kind == Kind::Gaussian {
            let shift = std::mem::take(model.f64_mut("shift"));
            let (first, second) = (update.f64("first"), update.f64("second"));
            let found = gaussian::Found::new(class_weights, &shift, (first, second));
            model.i64_mut("passes")[0] += 1;
            iterations = model.i64("passes")[0] as u64;
            done = iterations > 1 || !found.lost_digits(self.smoothing.variance);
            *model.f64_mut("shift") = found.means.clone();
            *model.f64_mut("variances") = found.smoothed(self.smoothing.variance)?;
            *model.f64_mut("means") = found.means;
        } else {
            let table = fit::log_probabilities(
                self.kind,
                self.smoothing,
                class_weights,
                update.f64("first"),
            );
            *model.f64_mut("feature_log_probability") = table;
        }
        *model.f64_mut("log_prior") = fit::log_priors(self.kind, self.smoothing, class_weights);
        Ok(Outcome { objective: None, done, iterations: Some(iterations) })
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let (classes, features) = self.shape(work.model);
        refusals::check_width(features, work.batch)?;
        refusals::check_classes(classes, work.batch)?;
        let mut sums = vec![0.0; 3];
        joint::each(self.kind, work.model, work.batch, |row, scores| {
            let weight = work.batch.table.weight(row);
            let truth = work.batch.table.labels[row] as usize;
            let (best, evidence) = joint::evidence(scores);
            sums[0] += weight * (evidence - scores[truth]);
            sums[1] += weight * f64::from(u8::from(best == truth));
            sums[2] += weight;
        });
        Ok(sums)
    }

    fn grade(&self, _: &Model, sums: &[f64], _: u64) -> Grade {
        let weight = if sums[2] > 0.0 { sums[2] } else { 1.0 };
        let metrics = [("accuracy", sums[1] / weight), ("log_loss", sums[0] / weight)];
        let metrics = metrics.map(|(name, value)| (name.to_string(), value));
        Grade { objective: sums[0] / weight, metrics: BTreeMap::from(metrics) }
    }

    fn outputs(&self, model: &Model) -> usize {
        self.shape(model).0
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        refusals::check_width(self.shape(model).1, batch)?;
        joint::each(self.kind, model, batch, |_, scores| {
            let (_, evidence) = joint::evidence(scores);
            out.extend(scores.iter().map(|score| (score - evidence).exp()));
        });
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        Some(joint::graph(self.kind, model))
    }
}

/// The mean of each feature where the schema knows it, else 0: a good guess of where numbers lie.
fn column_means(schema: &Schema) -> Vec<f64> {
    let mut means = Vec::with_capacity(schema.features);
    for column in &schema.columns {
        match (&column.kind, schema.encoding) {
            (ColumnKind::Numeric { mean }, _) => means.push(*mean),
            (ColumnKind::Categorical { codes }, Encoding::OneHot) => {
                means.extend(codes.iter().map(|_| 0.0));
            }
            _ => means.push(0.0),
        }
    }
    means.resize(schema.features, 0.0);
    means
}
