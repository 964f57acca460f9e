//! Support vector machines with kernels, made so that they distribute: rows become features whose products come close
//! to the kernel, and a linear machine (`margin`) is trained on those. Two maps: random features (Rahimi and Recht, 2007;
//! for polynomials Pham and Pagh's TensorSketch, 2013) and Nyström's landmarks (Williams and Seeger, 2001).
//!
//! Step 0 sums first and second moments, from which γ and the standardisation come; with Nyström one more step gathers
//! the landmarks; then the linear machine's steps follow. Mapped rows are remembered by shard.

mod kernel;
mod nystroem;
mod random_features;
mod tensor_sketch;

use super::BuildLearner;
use super::linear_svm;
use crate::margin::{Margin, Part, check_labels};
use crate::rows::{check_finite, check_width};
use crate::{Appetite, Cells, Facts, Grade, Learner, Moment, Outcome, Place, Rebuilds, Task, Work};
use kernel::{Approximation, FeatureMap, GAMMA, INPUT, Kernel};
use starlings_core::{
    Ability, Block, Entry, FEATURES, Fault, Graph, Kind, Model, Param, ParamKind, Params, Result,
    Role, Rows, Tensor, Update, Values,
};
use starlings_data::{Batch, LabelNeed, Slice};

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "kernel-svm",
    summary: "Classes by a margin in the space of an RBF, polynomial or sigmoid kernel, through explicit features",
    reference: "Rahimi and Recht, Random features for large-scale kernel machines, NIPS 2007; Pham and Pagh, Fast and \
                scalable polynomial kernels, KDD 2013; Williams and Seeger, Using the Nyström method, NIPS 2000",
    params: PARAMS,
    gives: &[],
    needs: linear_svm::NEEDS,
    build: |params| Ok(Box::new(KernelSvm::new(params)?)),
};

/// Most features: rows are laid out whole before they are mapped.
const FEATURES_MAX: usize = 1 << 16;

const PARAMS: &[Param] = &[
    Param {
        name: "kernel",
        kind: ParamKind::Choice(&["rbf", "polynomial", "sigmoid"]),
        default: Some("rbf"),
        help: "rbf: exp(−γ‖x − y‖²); polynomial: (γ·x·y + coef0)^degree; sigmoid: tanh(γ·x·y + coef0)",
    },
    Param {
        name: "approximation",
        kind: ParamKind::Choice(&["nystroem", "random-features"]),
        default: Some("nystroem"),
        help: "nystroem: kernels with rows drawn as landmarks; random-features: Fourier features, or TensorSketch for \
               polynomials",
    },
    Param {
        name: "components",
        kind: ParamKind::Integer { min: 1, max: 100_000 },
        default: Some("100"),
        help: "features that rows become; nystroem has no more than rows",
    },
    number(
        "gamma",
        (0.0, 1e12),
        "0.0",
        "γ; 0 means 1/(features·variance of all numbers), scikit-learn's scale",
    ),
    Param {
        name: "degree",
        kind: ParamKind::Integer { min: 1, max: 20 },
        default: Some("3"),
        help: "degree of the polynomial",
    },
    number("coef0", (-1e6, 1e6), "0.0", "offset of polynomial and sigmoid"),
    Param {
        name: "standardise",
        kind: ParamKind::Flag,
        default: Some("false"),
        help: "whether features are centred and divided by their deviation before the kernel",
    },
    linear_svm::LOSS,
    linear_svm::SOLVER,
    linear_svm::C,
    linear_svm::L2,
    linear_svm::CLASS_WEIGHT,
    linear_svm::INTERCEPT,
    linear_svm::INTERCEPT_SCALING,
    linear_svm::TOLERANCE,
    linear_svm::MAX_ITERATIONS,
    linear_svm::LOCAL_PASSES,
];

const fn number(
    name: &'static str,
    (min, max): (f64, f64),
    default: &'static str,
    help: &'static str,
) -> Param {
    Param { name, kind: ParamKind::Float { min, max }, default: Some(default), help }
}

/// Phase, number of shards.
const COUNTERS: &str = "kernel.counters";
/// The job's seed.
const SEED: &str = "kernel.seed";
/// The memory's cell of mapped rows.
const MAPPED: &str = "mapped";

/// A kernel machine.
struct KernelSvm {
    map: FeatureMap,
    margin: Margin,
    components: usize,
    gamma: f64,
    standardise: bool,
    max_iterations: u64,
}

impl KernelSvm {
    fn new(params: &Params) -> Result<KernelSvm> {
        let offset = params.f64("coef0");
        let kernel = match params.text("kernel") {
            "polynomial" => Kernel::Polynomial { degree: params.size("degree") as u32, offset },
            "sigmoid" => Kernel::Sigmoid { offset },
            _ => Kernel::Rbf,
        };
        let approximation = match params.text("approximation") {
            "random-features" => Approximation::RandomFeatures,
            _ => Approximation::Nystroem,
        };
        match (approximation, kernel) {
            (Approximation::RandomFeatures, Kernel::Sigmoid { .. }) => {
                return Err(Fault::caller(
                    "the sigmoid kernel is not positive definite: no random features have it",
                )
                .hint("use approximation = \"nystroem\""));
            }
            (Approximation::RandomFeatures, Kernel::Polynomial { .. }) if offset < 0.0 => {
                return Err(Fault::caller(
                    "a polynomial with coef0 below zero is not positive definite",
                )
                .hint("give coef0 = 0 or more, or approximation = \"nystroem\""));
            }
            _ => {}
        }
        Ok(KernelSvm {
            map: FeatureMap { kernel, approximation },
            margin: linear_svm::margin(params, false)?,
            components: params.size("components"),
            gamma: params.f64("gamma"),
            standardise: params.flag("standardise"),
            max_iterations: params.size("max_iterations") as u64,
        })
    }

    fn components(&self, model: &Model) -> usize {
        self.margin.layout(model).features
    }

    /// Features of the rows before they are mapped.
    fn input_width(&self, model: &Model) -> usize {
        match (self.map.approximation, self.map.kernel) {
            (Approximation::Nystroem, _) => model.get(nystroem::LANDMARKS).map_or(0, Tensor::width),
            (_, Kernel::Polynomial { .. }) => tensor_sketch::input_width(model),
            _ => random_features::input_width(model),
        }
    }

    /// Moments are known: γ, the standardisation and the landmarks' places follow.
    fn take_moments(&self, model: &mut Model, update: &Update) -> Result<()> {
        let sums = update.f64("input moments");
        let (mass, features) = (sums[0], (sums.len() - 1) / 2);
        if mass <= 0.0 {
            return Err(Fault::caller("all rows weigh nothing: there is nothing to learn from")
                .hint("give some rows a weight above zero"));
        }
        let (firsts, seconds) = sums[1..].split_at(features);
        let mut means: Vec<f64> = firsts.iter().map(|first| first / mass).collect();
        let mut squares: Vec<f64> = seconds.iter().map(|second| second / mass).collect();
        if self.standardise {
            let scale = model.f64_mut(INPUT);
            for column in 0..features {
                let (mean, square) = (means[column], squares[column]);
                let variance = square - mean * mean;
                let varies = variance > 1e-12 * square;
                scale[column] = if varies { variance.sqrt() } else { 1.0 };
                scale[features + column] = mean;
                (means[column], squares[column]) = (0.0, f64::from(u8::from(varies)));
            }
        }
        let mean = means.iter().sum::<f64>() / features as f64;
        let variance = squares.iter().sum::<f64>() / features as f64 - mean * mean;
        model.f64_mut(GAMMA)[0] = match self.gamma > 0.0 {
            true => self.gamma,
            false if variance > 0.0 => 1.0 / (features as f64 * variance),
            false => 1.0,
        };
        let nystroem = self.map.approximation == Approximation::Nystroem;
        if nystroem {
            let counts = update.rows("counts").map(dense).unwrap_or_default();
            let seed = model.i64(SEED)[0] as u64;
            nystroem::draw(model, &counts, seed);
        }
        model.i64_mut(COUNTERS)[0] = if nystroem { 1 } else { 2 };
        Ok(())
    }

    /// Makes sure that the mapped rows of a shard are remembered.
    fn remember(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
        if !cells.contains_key(MAPPED) {
            let mapped = self.mapped(model, batch, slice);
            cells.insert(MAPPED.to_string(), Values::F32(mapped));
        }
    }

    fn mapped(&self, model: &Model, batch: &Batch<'_>, slice: &Slice) -> Vec<f32> {
        let mut mapped = Vec::with_capacity(slice.len() * self.components(model));
        self.each_mapped(model, batch, slice, |features| {
            mapped.extend(features.iter().map(|&feature| feature as f32));
        });
        mapped
    }

    /// Visits the features of all rows of a shard.
    fn each_mapped(
        &self,
        model: &Model,
        batch: &Batch<'_>,
        slice: &Slice,
        mut visit: impl FnMut(&[f64]),
    ) {
        let mut features = vec![0.0; self.components(model)];
        let mut x = vec![0.0; batch.table.width()];
        for row in slice.rows() {
            kernel::spread(model, batch.table.row(row), &mut x);
            self.map.map(model, &x, &mut features);
            visit(&features);
        }
    }

    /// Calls `then` with the mapped rows of all shards of a batch.
    fn with_parts<T>(
        &self,
        work: &mut Work<'_>,
        then: impl FnOnce(&mut Work<'_>, &[Part<'_>]) -> T,
    ) -> T {
        let (model, batch) = (work.model, work.batch);
        let width = self.components(model);
        let mut cells = Vec::with_capacity(batch.slices.len());
        for slice in &batch.slices {
            self.remember(model, batch, slice, work.memory.shard(slice.shard));
            cells.push(work.memory.shard(slice.shard).remove(MAPPED));
        }
        let parts: Vec<Part<'_>> = batch
            .slices
            .iter()
            .zip(&cells)
            .map(|(slice, mapped)| {
                let mapped = mapped.as_ref().and_then(Values::as_f32).unwrap_or(&[]);
                Part::of(batch, slice).mapped(mapped, width)
            })
            .collect();
        let answer = then(work, &parts);
        drop(parts);
        for (slice, mapped) in batch.slices.iter().zip(cells) {
            if let Some(mapped) = mapped {
                work.memory.shard(slice.shard).insert(MAPPED.to_string(), mapped);
            }
        }
        answer
    }
}

/// Rows of one number each as a vector.
fn dense(rows: &Rows) -> Vec<f64> {
    let mut all = vec![0.0; rows.total as usize];
    for (&row, value) in rows.index.iter().zip(rows.values.as_f64().unwrap_or(&[])) {
        all[row as usize] = *value;
    }
    all
}

/// The sum of weights, then sums of x and of x²; and how many rows of each shard count.
fn input_moments(batch: &Batch<'_>, width: usize, shards: u32) -> (Vec<f64>, Rows) {
    let mut sums = vec![0.0; 1 + 2 * width];
    let mut counts = Rows::none(Kind::F64, shards, 1);
    let mut values = Vec::new();
    for slice in &batch.slices {
        let part = Part::of(batch, slice);
        let mut count = 0.0;
        for row in 0..part.len() {
            let weight = part.weight(row);
            count += f64::from(u8::from(weight > 0.0));
            sums[0] += weight;
            let (firsts, seconds) = sums[1..].split_at_mut(width);
            part.add(row, weight, firsts);
            part.add_squares(row, weight, seconds);
        }
        counts.index.push(slice.shard.0);
        values.push(count);
    }
    counts.values = Values::F64(values);
    (sums, counts)
}

impl Learner for KernelSvm {
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
        linear_svm::NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let features = facts.schema.features;
        if features == 0 {
            return Err(Fault::caller("there are no features to learn from"));
        }
        if features > FEATURES_MAX {
            return Err(Fault::caller(format!(
                "kernel-svm: {features} features are too many, {FEATURES_MAX} is the most"
            ))
            .hint(
                "make fewer of them with [[prepare]] name = \"hash-encoding\", or use linear-svm",
            ));
        }
        let rows = usize::try_from(facts.rows).unwrap_or(usize::MAX);
        let nystroem = self.map.approximation == Approximation::Nystroem;
        let components = if nystroem { self.components.min(rows).max(1) } else { self.components };
        let mut model = Model::new();
        self.margin.init(&mut model, components, facts, self.max_iterations)?;
        model.set(GAMMA, Tensor::zeros(Kind::F64, &[1], Role::Weight));
        model.set(COUNTERS, Tensor::zeros(Kind::I64, &[2], Role::State));
        model.i64_mut(COUNTERS)[1] = i64::from(facts.shards);
        model.set(SEED, Tensor::zeros(Kind::I64, &[1], Role::State));
        model.i64_mut(SEED)[0] = facts.seed as i64;
        if self.standardise {
            let units = [vec![1.0; features], vec![0.0; features]].concat();
            model.set(INPUT, Tensor::of(&[2, features], units, Role::Weight));
        }
        match (self.map.approximation, self.map.kernel) {
            (Approximation::Nystroem, _) => nystroem::init(&mut model, features, components),
            (_, Kernel::Polynomial { degree, .. }) => {
                let size = (degree as usize, components);
                tensor_sketch::init(&mut model, features, size, facts.seed);
            }
            _ => random_features::init(&mut model, features, components, facts.seed),
        }
        Ok(model)
    }

    fn rebuilds(&self) -> Rebuilds {
        self.margin.rebuilds()
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let model = work.model;
        check_width(self.input_width(model), work.batch)?;
        match model.i64(COUNTERS)[0] {
            0 => {
                check_labels(self.margin.layout(model).classes(), work.batch)?;
                check_finite(work.batch)?;
                let (sums, counts) = input_moments(
                    work.batch,
                    self.input_width(model),
                    model.i64(COUNTERS)[1] as u32,
                );
                work.outbox.emit(Block::dense("input moments", sums));
                work.outbox.emit(Block::rows("counts", counts));
            }
            1 => {
                let held = nystroem::held(model, work.batch);
                work.outbox.emit(Block::rows("landmarks", held));
            }
            _ => self.with_parts(work, |work, parts| self.margin.contribute(work, parts)),
        }
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        match model.i64(COUNTERS)[0] {
            0 => self.take_moments(model, update)?,
            1 => {
                if let Some(rows) = update.rows("landmarks") {
                    nystroem::settle(model, self.map.kernel, rows);
                }
                model.i64_mut(COUNTERS)[0] = 2;
            }
            _ => return self.margin.apply(model, update, moment),
        }
        Ok(Outcome { iterations: Some(0), ..Outcome::default() })
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        check_width(self.input_width(work.model), work.batch)?;
        check_labels(self.margin.layout(work.model).classes(), work.batch)?;
        Ok(self.with_parts(work, |work, parts| self.margin.score(work.model, parts)))
    }

    fn grade(&self, model: &Model, sums: &[f64], _: u64) -> Grade {
        self.margin.grade(model, sums)
    }

    fn outputs(&self, model: &Model) -> usize {
        self.margin.layout(model).classes()
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        check_width(self.input_width(model), batch)?;
        let predictor = self.margin.predictor(model);
        for slice in &batch.slices {
            self.each_mapped(model, batch, slice, |features| predictor.shares_of(features, out));
        }
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let mut graph = Graph::new();
        let mapped = self.map.graph(model, &mut graph, FEATURES, self.components(model));
        self.margin.graph(model, &mut graph, &mapped);
        Some(graph)
    }
}
