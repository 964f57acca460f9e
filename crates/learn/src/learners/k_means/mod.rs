//! k-means: k centres such that the sum of squared distances of rows to their nearest centre (the inertia)
//! is small. Lloyd's iterations in `lloyd.rs`, where centres start in `seeding.rs`; `state.rs` says which of
//! the two the next step belongs to. The first step also sums x and x², because the tolerance is relative
//! to the mean variance of the features, as in scikit-learn.

mod assign;
mod lloyd;
pub(in crate::learners) mod points;
mod seeding;
mod state;
mod weighted;

pub use seeding::{Sampling, Seeding};

use super::BuildLearner;
use crate::{Appetite, Cells, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use assign::Assigner;
use starlings_core::{
    Ability, Entry, Fault, Model, Param, ParamKind, Params, Result, Role, Tensor, Update,
};
use starlings_data::{Batch, LabelNeed, Slice};
use state::{Phase, Progress};
use std::collections::BTreeMap;

/// k-means in the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "k-means",
    summary: "k centres that minimise the squared distances of rows to the nearest",
    reference: "Lloyd, Least squares quantization in PCM, 1982; Bahmani et al., Scalable k-means++, VLDB 2012",
    params: PARAMS,
    gives: GIVES,
    needs: NEEDS,
    build: |params| Ok(Box::new(KMeans::new(params))),
};

const GIVES: &[Ability] = &[];
const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

/// Numbers of centres are kept in f32 by the kernel: exact below 2²⁴.
const K_MAX: i64 = (1 << 24) - 1;

const PARAMS: &[Param] = &[
    Param {
        name: "k",
        kind: ParamKind::Integer { min: 1, max: K_MAX },
        default: None,
        help: "how many clusters",
    },
    Param {
        name: "max_iterations",
        kind: ParamKind::Integer { min: 1, max: 1_000_000 },
        default: Some("100"),
        help: "iterations at most, unless [train] epochs says otherwise",
    },
    Param {
        name: "tolerance",
        kind: ParamKind::Float { min: 0.0, max: 1e3 },
        default: Some("1e-4"),
        help: "done when the squared shift of all centres is at most this times the features' mean variance",
    },
    Param {
        name: "seeding",
        kind: ParamKind::Choice(&["k-means||", "random", "first"]),
        default: Some("k-means||"),
        help: "where centres start: oversampled far rows, rows drawn uniformly, or the first k rows",
    },
    Param {
        name: "oversampling",
        kind: ParamKind::Float { min: 0.1, max: 100.0 },
        default: Some("2.0"),
        help: "rows that each round of k-means|| draws, as a multiple of k",
    },
    Param {
        name: "rounds",
        kind: ParamKind::Integer { min: 1, max: 100 },
        default: Some("5"),
        help: "rounds of k-means||",
    },
];

/// The k-means learner.
#[derive(Clone, PartialEq, Debug)]
pub struct KMeans {
    /// Clusters.
    pub k: usize,
    /// Iterations at most, unless the job says otherwise.
    pub iterations_max: u64,
    /// Relative tolerance.
    pub tolerance: f64,
    /// Where centres start.
    pub seeding: Seeding,
}

impl KMeans {
    /// From checked parameters.
    #[must_use]
    pub fn new(params: &Params) -> KMeans {
        let seeding = match params.text("seeding") {
            "random" => Seeding::Random,
            "first" => Seeding::First,
            _ => Seeding::Scalable(Sampling {
                oversampling: params.f64("oversampling"),
                rounds: params.size("rounds"),
            }),
        };
        KMeans {
            k: params.size("k"),
            iterations_max: params.size("max_iterations") as u64,
            tolerance: params.f64("tolerance"),
            seeding,
        }
    }

    /// From given centres, one after the other, with the default tolerance and iterations.
    #[must_use]
    pub fn with_centres(k: usize, centres: Vec<f64>) -> KMeans {
        KMeans { k, iterations_max: 100, tolerance: 1e-4, seeding: Seeding::Given(centres) }
    }

    fn check(&self, facts: &Facts) -> Result<()> {
        let (k, rows, width) = (self.k as u64, facts.rows, facts.schema.features);
        if rows < k {
            return Err(Fault::caller(format!("{k} clusters cannot be made of {rows} rows"))
                .hint(format!("set k to {rows} or less, or give more rows")));
        }
        if rows >= u64::from(u32::MAX) {
            return Err(Fault::caller(format!(
                "k-means takes fewer than 2^32 - 1 rows, not {rows}"
            ))
            .hint("train on a sample of the rows"));
        }
        if width == 0 {
            return Err(Fault::caller("k-means needs at least one feature")
                .hint("look at [data] features and label"));
        }
        match &self.seeding {
            Seeding::Given(centres) if centres.len() != self.k * width => {
                Err(Fault::caller(format!(
                    "{k} centres of {width} features are {} numbers, not {}",
                    self.k * width,
                    centres.len()
                )))
            }
            _ => Ok(()),
        }
    }
}

impl Learner for KMeans {
    fn task(&self) -> Task {
        Task::Clustering
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
        self.check(facts)?;
        let width = facts.schema.features;
        let mut model = Model::new();
        let centres = match &self.seeding {
            Seeding::Given(centres) => Tensor::of(&[self.k, width], centres.clone(), Role::Weight),
            _ => state::no_centres(self.k, width),
        };
        model.set("centres", centres);
        let wanted = self.seeding.wanted_first(self.k, facts.rows, facts.seed);
        state::set_wanted(&mut model, wanted);
        state::set_thresholds(&mut model, 0.0, 0.0);
        let progress = Progress {
            phase: Phase::Statistics,
            round: 0,
            covered: 0,
            iterations: 0,
            iterations_max: facts.epochs.unwrap_or(self.iterations_max) as i64,
            empty: 0,
            rows: facts.rows as i64,
        };
        progress.write(&mut model);
        Ok(model)
    }

    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
        let seeded = Progress::read(model).phase == Phase::Lloyd;
        if matches!(self.seeding, Seeding::Scalable(_)) && !seeded {
            seeding::remember(model, batch.table, slice, cells);
        }
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let progress = Progress::read(work.model);
        match progress.phase {
            Phase::Lloyd => lloyd::contribute(work),
            _ => seeding::contribute(work, progress, seeding::ell(&self.seeding, self.k)),
        }
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        if Progress::read(model).phase == Phase::Lloyd {
            return lloyd::apply(model, update);
        }
        seeding::apply(&self.seeding, self.tolerance, model, update, moment)?;
        let progress = Progress::read(model);
        let done = progress.phase == Phase::Lloyd && progress.iterations_max == 0;
        Ok(Outcome { objective: None, done, iterations: Some(0) })
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let table = work.batch.table;
        let width = state::width(work.model);
        let assigner = Assigner::new(work.model.f64("centres"), width, table);
        let mut inertia = 0.0;
        for slice in &work.batch.slices {
            assigner.visit(table, slice, |tile| inertia += tile.squared.iter().sum::<f64>());
        }
        Ok(vec![inertia])
    }

    fn grade(&self, _: &Model, sums: &[f64], _: u64) -> Grade {
        let metrics = BTreeMap::from([("inertia".to_string(), sums[0])]);
        Grade { objective: sums[0], metrics }
    }

    fn outputs(&self, _: &Model) -> usize {
        2
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let width = state::width(model);
        if batch.table.width() != width {
            let rows = batch.table.width();
            return Err(Fault::caller(format!("rows have {rows} features, the model {width}"))
                .hint("use the same columns as in training"));
        }
        let assigner = Assigner::new(model.f64("centres"), width, batch.table);
        for slice in &batch.slices {
            assigner.visit(batch.table, slice, |tile| {
                for (label, squared) in tile.labels.iter().zip(tile.squared) {
                    out.extend([f64::from(*label), *squared]);
                }
            });
        }
        Ok(())
    }
}
