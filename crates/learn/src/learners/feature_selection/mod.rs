//! Feature selection by a score of each feature alone: its variance, the chi-squared statistic of its sums by class
//! (Liu and Setiono, 1995), or the mutual information of its values and the class. Scores come from sums over the
//! flock (`scores.rs`); the k best features, or those above a threshold, are the projection.

mod scores;

use super::BuildLearner;
use crate::projection::check_width;
use crate::{Appetite, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use scores::Method;
use starlings_core::{
    Ability, Entry, FEATURES, Fault, Graph, Kind, Model, Op, Param, ParamKind, Params, Result,
    Role, Tensor, Update, Values,
};
use starlings_data::{Batch, LabelNeed, Row};
use std::collections::BTreeMap;

/// Feature selection in the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "feature-selection",
    summary: "The features of the largest variance, chi-squared statistic or mutual information",
    reference: "Liu, Setiono, Chi2: feature selection and discretization of numeric attributes, ICTAI 1995; \
                Cover, Thomas, Elements of information theory, 1991",
    params: PARAMS,
    gives: &[],
    needs: NEEDS,
    build: |params| Ok(Box::new(FeatureSelection::new(params))),
};

const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

const PARAMS: &[Param] = &[
    Param {
        name: "method",
        kind: ParamKind::Choice(&["variance", "chi2", "mutual-information"]),
        default: Some("variance"),
        help: "what features are scored by; chi2 wants counts, mutual-information whole numbers, both classes as labels",
    },
    Param {
        name: "k",
        kind: ParamKind::Integer { min: 0, max: 1_000_000_000 },
        default: Some("0"),
        help: "how many features to keep; 0: all those whose score is above the threshold",
    },
    Param {
        name: "threshold",
        kind: ParamKind::Float { min: 0.0, max: 1e300 },
        default: Some("0.0"),
        help: "features whose score is not above it are dropped",
    },
];

/// Feature selection.
struct FeatureSelection {
    method: Method,
    k: usize,
    threshold: f64,
}

impl FeatureSelection {
    fn new(params: &Params) -> FeatureSelection {
        let method = match params.text("method") {
            "chi2" => Method::ChiSquared,
            "mutual-information" => Method::MutualInformation,
            _ => Method::Variance,
        };
        FeatureSelection { method, k: params.size("k"), threshold: params.f64("threshold") }
    }

    /// The best features above the threshold, in the order of their columns. Among equals the first are better.
    fn select(&self, scores: &[f64]) -> Vec<i64> {
        let mut places: Vec<usize> = (0..scores.len()).collect();
        places.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        places.retain(|&place| self.k > 0 || scores[place] > self.threshold);
        if self.k > 0 {
            places.truncate(self.k);
        }
        places.sort_unstable();
        places.into_iter().map(|place| place as i64).collect()
    }
}

impl Learner for FeatureSelection {
    fn task(&self) -> Task {
        Task::Projection
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn label(&self) -> LabelNeed {
        match self.method {
            Method::Variance => LabelNeed::None,
            Method::ChiSquared | Method::MutualInformation => LabelNeed::Class,
        }
    }

    fn weighs(&self) -> bool {
        true
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let (width, classes) = (facts.schema.features, facts.schema.classes());
        if self.k > width || width == 0 || facts.rows == 0 {
            return Err(Fault::caller(format!(
                "feature-selection: {} features cannot be chosen of {width} in {} rows",
                self.k.max(1),
                facts.rows
            ))
            .hint(format!("set k to {width} or less")));
        }
        if self.label() == LabelNeed::Class && classes < 2 {
            return Err(Fault::caller(format!(
                "feature-selection: labels have {classes} classes, two are needed"
            ))
            .hint("name the label column that tells classes apart, or use method = \"variance\""));
        }
        if self.method == Method::MutualInformation && width > scores::MUTUAL_WIDTH_MAX {
            return Err(Fault::caller(format!(
                "feature-selection: mutual information takes at most {} features, not {width}",
                scores::MUTUAL_WIDTH_MAX
            )));
        }
        let mut model = Model::new();
        model.set("scores", Tensor::zeros(Kind::F64, &[width], Role::Weight));
        let all = Values::I64((0..width as i64).collect());
        model.set("selected", Tensor { shape: vec![width], values: all, role: Role::Weight });
        self.method.init(&mut model, width, classes);
        Ok(model)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        check_width(work.batch, work.model.f64("scores").len())?;
        self.method.contribute(work)
    }

    fn apply(&self, model: &mut Model, update: &Update, _: &Moment) -> Result<Outcome> {
        let done = self.method.apply(model, update)?;
        if done {
            let selected = self.select(model.f64("scores"));
            if selected.is_empty() {
                return Err(Fault::caller("feature-selection: no feature is above the threshold")
                    .hint("lower threshold, or say how many to keep with k"));
            }
            let shape = vec![selected.len()];
            let values = Values::I64(selected);
            model.set("selected", Tensor { shape, values, role: Role::Weight });
        }
        Ok(Outcome { objective: None, done, iterations: Some(u64::from(done)) })
    }

    fn score(&self, _: &mut Work<'_>) -> Result<Vec<f64>> {
        Ok(vec![0.0])
    }

    /// The objective is minus the sum of the scores of the features kept.
    fn grade(&self, model: &Model, _: &[f64], _: u64) -> Grade {
        let scores = model.f64("scores");
        let kept: f64 = model.i64("selected").iter().map(|&column| scores[column as usize]).sum();
        let features = model.i64("selected").len() as f64;
        let metrics = BTreeMap::from([("selected_features".to_string(), features)]);
        Grade { objective: -kept, metrics }
    }

    fn outputs(&self, model: &Model) -> usize {
        model.i64("selected").len()
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        check_width(batch, model.f64("scores").len())?;
        let selected = model.i64("selected");
        for row in batch.rows() {
            match batch.table.row(row) {
                Row::Dense(values) => {
                    out.extend(selected.iter().map(|&column| f64::from(values[column as usize])));
                }
                Row::Sparse(columns, values) => out.extend(selected.iter().map(|&column| {
                    let found = columns.binary_search(&(column as u32));
                    found.map_or(0.0, |place| f64::from(values[place]))
                })),
            }
        }
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let mut graph = Graph::new();
        let columns = model.i64("selected").iter().map(|&column| column as usize).collect();
        graph.node(Op::Columns(columns), &[FEATURES]);
        Some(graph)
    }
}
