//! k-means: k centres such that the sum of squared distances of rows to their nearest centre (the inertia)
//! is small. Lloyd's iterations in `lloyd.rs`, the same with fewer distances in `bounds.rs`, mini-batches in
//! `mini_batch.rs`; where centres start in `seeding.rs`; `state.rs` says which of these the next step belongs to. The first step also sums x and x², because the tolerance is relative
//! to the mean variance of the features, as in scikit-learn.

mod assign;
mod bounds;
mod lloyd;
mod mini_batch;
pub(in crate::learners) mod points;
mod seeding;
mod state;
mod weighted;

pub use seeding::{Sampling, Seeding};

use super::BuildLearner;
use crate::{Appetite, Cells, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use assign::Assigner;
use starlings_core::{
    Ability, Entry, FEATURES, Fault, Graph, Kind, Model, Op, Param, ParamKind, Params, Result,
    Role, Tensor, Update,
};
use starlings_data::{Batch, LabelNeed, Slice};
use state::{Phase, Progress};
use std::collections::BTreeMap;

/// k-means in the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "k-means",
    summary: "K centres that minimise the squared distances of rows to the nearest",
    reference: "Lloyd, Least squares quantization in PCM, 1982; Bahmani et al., Scalable k-means++, VLDB 2012; Elkan, \
                Using the triangle inequality to accelerate k-means, ICML 2003; Hamerly, Making k-means even faster, SDM \
                2010; Sculley, Web-scale k-means clustering, WWW 2010",
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
        name: "algorithm",
        kind: ParamKind::Choice(&["auto", "lloyd", "elkan", "hamerly", "mini-batch"]),
        default: Some("auto"),
        help: "compare all rows with all centres, spare distances by bounds, or move by mini-batches; auto is lloyd",
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

/// How the centres move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// Lloyd's, whose kernel compares a row with all centres sooner than bounds can tell which it need not.
    Auto,
    /// Every row is compared with every centre.
    Lloyd,
    /// Lloyd's iterations with a bound for each row and centre.
    Elkan,
    /// Lloyd's iterations with two bounds for each row.
    Hamerly,
    /// A batch at a time; approximate.
    MiniBatch,
}

/// How many lower bounds a row has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bounds {
    /// One for all other centres.
    One,
    /// One for each centre.
    Each,
}

/// The k-means learner.
#[derive(Clone, PartialEq, Debug)]
pub struct KMeans {
    /// Clusters.
    pub k: usize,
    /// How the centres move.
    pub algorithm: Algorithm,
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
        let algorithm = match params.text("algorithm") {
            "lloyd" => Algorithm::Lloyd,
            "elkan" => Algorithm::Elkan,
            "hamerly" => Algorithm::Hamerly,
            "mini-batch" => Algorithm::MiniBatch,
            _ => Algorithm::Auto,
        };
        KMeans {
            k: params.size("k"),
            algorithm,
            iterations_max: params.size("max_iterations") as u64,
            tolerance: params.f64("tolerance"),
            seeding,
        }
    }

    /// From given centres, one after the other, with the default tolerance and iterations.
    #[must_use]
    pub fn with_centres(k: usize, centres: Vec<f64>) -> KMeans {
        let (algorithm, seeding) = (Algorithm::Lloyd, Seeding::Given(centres));
        KMeans { k, algorithm, iterations_max: 100, tolerance: 1e-4, seeding }
    }

    /// The bounds to keep; none where Lloyd's own iteration is to run. Lloyd's also looks for the farthest rows.
    fn bounds(&self, progress: Progress) -> Option<Bounds> {
        match self.algorithm {
            _ if progress.empty > 0 => None,
            Algorithm::Hamerly => Some(Bounds::One),
            Algorithm::Elkan => Some(Bounds::Each),
            _ => None,
        }
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
        if self.algorithm == Algorithm::MiniBatch && self.seeding == Seeding::First {
            return Err(Fault::caller(
                "mini-batches come in random order: there are no first rows",
            )
            .hint("use seeding = \"random\" or \"k-means||\""));
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
        match self.algorithm {
            Algorithm::MiniBatch => Appetite::Batches,
            _ => Appetite::Passes,
        }
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::None
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
        state::set_drifts(&mut model, vec![0.0; self.k]);
        model.set(lloyd::DISTANCES, Tensor::zeros(Kind::I64, &[1], Role::State));
        let phase = match (self.algorithm, &self.seeding) {
            (Algorithm::MiniBatch, Seeding::Given(_)) => Phase::Lloyd,
            (Algorithm::MiniBatch, _) => Phase::Gather,
            _ => Phase::Statistics,
        };
        if self.algorithm == Algorithm::MiniBatch {
            mini_batch::init(&mut model, self.k);
        }
        let progress = Progress {
            phase,
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
        let over = matches!(Progress::read(model).phase, Phase::Lloyd | Phase::Gather);
        if matches!(self.seeding, Seeding::Scalable(_)) && !over {
            seeding::remember(model, batch.table, slice, cells);
        }
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let progress = Progress::read(work.model);
        match progress.phase {
            Phase::Lloyd => match self.bounds(progress) {
                Some(bounds) => bounds::contribute(work, bounds),
                None => lloyd::contribute(work),
            },
            Phase::Gather => mini_batch::contribute_sample(work, progress),
            _ => seeding::contribute(work, progress, &self.seeding),
        }
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        match (Progress::read(model).phase, self.algorithm) {
            (Phase::Lloyd, Algorithm::MiniBatch) => return mini_batch::apply(model, update),
            (Phase::Lloyd, _) => return lloyd::apply(model, update),
            (Phase::Gather, _) => {
                mini_batch::apply_sample(self, model, update, moment)?;
                return Ok(Outcome::default());
            }
            _ => {}
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
            assigner.visit(table, slice, |tile| {
                for (&row, squared) in tile.rows.iter().zip(tile.squared) {
                    inertia += table.weight(row) * squared;
                }
            });
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

    /// ‖x − c‖² for all centres by one product, then the smallest and where it stands. As in the kernel, both x and c
    /// are first shifted by the mean of the centres.
    fn graph(&self, model: &Model) -> Option<Graph> {
        let (width, k, centres) = (state::width(model), self.k, model.f64("centres"));
        let mean = |f: usize| centres.iter().skip(f).step_by(width).sum::<f64>() / k as f64;
        let means: Vec<f64> = (0..width).map(mean).collect();
        let shifted = |c: usize, f: usize| centres[c * width + f] - means[f];
        let transposed = (0..width * k).map(|at| -2.0 * shifted(at % k, at / k)).collect();
        let norms = (0..k).map(|c| (0..width).map(|f| shifted(c, f).powi(2)).sum()).collect();
        let mut graph = Graph::new();
        let means = graph.constant("means", &[width], means);
        let centres = graph.constant("centres", &[width, k], transposed);
        let norms = graph.constant("norms", &[k], norms);
        let zero = graph.constant("zero", &[1], vec![0.0]);
        let x = graph.node(Op::Sub, &[FEATURES, &means]);
        let products = graph.node(Op::MatMul, &[&x, &centres]);
        let scores = graph.node(Op::Add, &[&products, &norms]);
        let cluster = graph.node(Op::ArgMinRows, &[&scores]);
        let least = graph.node(Op::MinRows, &[&scores]);
        let squares = graph.node(Op::Mul, &[&x, &x]);
        let length = graph.node(Op::SumRows, &[&squares]);
        let squared = graph.node(Op::Add, &[&least, &length]);
        let squared = graph.node(Op::Max, &[&squared, &zero]);
        graph.node(Op::Concat, &[&cluster, &squared]);
        Some(graph)
    }
}
