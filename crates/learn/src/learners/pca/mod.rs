//! Principal components: the orthogonal directions in which the rows vary most (Pearson 1901, Hotelling 1933). The
//! first step sums the mean. Then either one step sums the covariance, which every replica decomposes for itself
//! (`covariance.rs`), or, where rows are wide, a few passes find the leading directions alone (`randomised.rs`).
//! Parameters, signs and figures are those of scikit-learn's `PCA`.

mod covariance;
mod randomised;

use super::BuildLearner;
use crate::algebra::symmetric::{Eigen, turn};
use crate::projection::{self, Projection, check_width};
use crate::{Appetite, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use pulp::{Arch, Simd, WithSimd};
use starlings_core::{
    Ability, Block, Entry, Fault, Graph, Kind, Model, Param, ParamKind, Params, Result, Role,
    Tensor, Update, Values,
};
use starlings_data::{Batch, LabelNeed, Row};

/// Principal components in the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "pca",
    summary: "Principal components: the orthogonal directions in which rows vary most",
    reference: "Hotelling, Analysis of a complex of statistical variables into principal components, 1933; \
                Halko, Martinsson, Tropp, Finding structure with randomness, SIAM Review 2011",
    params: PARAMS,
    gives: &[],
    needs: NEEDS,
    build: |params| Ok(Box::new(Pca::new(params)?)),
};

const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

/// Up to this many features `auto` decomposes the covariance.
const COVARIANCE_WIDTH: usize = 1000;
/// The covariance of more features than this does not fit anywhere.
const COVARIANCE_WIDTH_MAX: usize = 16_384;

const PARAMS: &[Param] = &[
    Param {
        name: "components",
        kind: ParamKind::Float { min: 0.0, max: 1e9 },
        default: Some("0.0"),
        help: "how many components; below 1 the share of variance that they explain at least; 0 means all",
    },
    Param {
        name: "whiten",
        kind: ParamKind::Flag,
        default: Some("false"),
        help: "whether each component of a projected row is divided by its deviation",
    },
    Param {
        name: "algorithm",
        kind: ParamKind::Choice(&["auto", "covariance", "randomised"]),
        default: Some("auto"),
        help: "decompose the covariance of all features, or find the leading components by passes; auto: randomised for few components of more than 1000 features",
    },
    Param {
        name: "power_iterations",
        kind: ParamKind::Integer { min: 0, max: 10_000 },
        default: Some("7"),
        help: "passes of the randomised algorithm after the first",
    },
    Param {
        name: "oversampling",
        kind: ParamKind::Integer { min: 0, max: 10_000 },
        default: Some("10"),
        help: "directions that the randomised algorithm follows beyond those wanted",
    },
    Param {
        name: "tolerance",
        kind: ParamKind::Float { min: 0.0, max: 1.0 },
        default: Some("1e-10"),
        help: "the randomised algorithm is done when no wanted variance changes by more than this, relatively",
    },
];

/// How many components are wanted.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Wanted {
    All,
    Count(usize),
    Share(f64),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Algorithm {
    Auto,
    Covariance,
    Randomised,
}

/// Principal components.
struct Pca {
    wanted: Wanted,
    whiten: bool,
    algorithm: Algorithm,
    passes: randomised::Passes,
}

impl Pca {
    fn new(params: &Params) -> Result<Pca> {
        let components = params.f64("components");
        let wanted = match components {
            0.0 => Wanted::All,
            share if share < 1.0 => Wanted::Share(share),
            count if count.fract() == 0.0 => Wanted::Count(count as usize),
            other => {
                return Err(Fault::caller(format!("pca: {other} components cannot be made"))
                    .hint("give a whole number, or a share of variance below 1"));
            }
        };
        let algorithm = match params.text("algorithm") {
            "covariance" => Algorithm::Covariance,
            "randomised" => Algorithm::Randomised,
            _ => Algorithm::Auto,
        };
        if algorithm == Algorithm::Randomised && !matches!(wanted, Wanted::Count(_)) {
            return Err(Fault::caller(
                "pca: the randomised algorithm needs a number of components",
            )
            .hint("set components to 1 or more, or algorithm to \"covariance\""));
        }
        let passes = randomised::Passes {
            power_iterations: params.size("power_iterations"),
            oversampling: params.size("oversampling"),
            tolerance: params.f64("tolerance"),
        };
        Ok(Pca { wanted, whiten: params.flag("whiten"), algorithm, passes })
    }

    /// The count for the randomised algorithm, where that is the one to use.
    fn randomised(&self, rows: u64, width: usize) -> Option<usize> {
        let Wanted::Count(count) = self.wanted else { return None };
        let most = (width as u64).min(rows) as f64;
        let few = width > COVARIANCE_WIDTH && (count as f64) < 0.8 * most;
        match self.algorithm {
            Algorithm::Randomised => Some(count),
            Algorithm::Auto if few => Some(count),
            _ => None,
        }
    }

    fn check(&self, facts: &Facts) -> Result<()> {
        let (rows, width) = (facts.rows, facts.schema.features);
        if rows < 2 || width == 0 {
            return Err(Fault::caller(format!(
                "pca: {rows} rows of {width} features do not vary: two rows and one feature are needed"
            )));
        }
        let most = (width as u64).min(rows);
        if let Wanted::Count(count) = self.wanted
            && count as u64 > most
        {
            return Err(Fault::caller(format!(
                "pca: {rows} rows of {width} features have at most {most} components, not {count}"
            ))
            .hint(format!("set components to {most} or less")));
        }
        if width > COVARIANCE_WIDTH_MAX && self.randomised(rows, width).is_none() {
            return Err(Fault::caller(format!(
                "pca: the covariance of {width} features is too large"
            ))
            .hint("set components to a small number and algorithm to \"randomised\""));
        }
        Ok(())
    }

    fn projection<'a>(&self, model: &'a Model) -> Projection<'a> {
        let variances = model.f64("explained_variance");
        let scale = match self.whiten {
            true => variances.iter().map(|v| 1.0 / v.sqrt().max(f64::EPSILON)).collect(),
            false => Vec::new(),
        };
        Projection { mean: model.f64("mean"), components: model.f64("components"), scale }
    }
}

/// Sets what was found: `count` components with their variances, in scikit-learn's signs.
fn finish(model: &mut Model, found: Eigen, count: usize, (weight, total): (f64, f64)) {
    let width = model.f64("mean").len();
    let variances: Vec<f64> =
        found.values[..count].iter().map(|value| value.max(0.0) / (weight - 1.0)).collect();
    let share = |v: &f64| if total > 0.0 { v / total } else { 0.0 };
    let ratios = variances.iter().map(share).collect();
    let mut vectors = found.vectors;
    vectors.truncate(count * width);
    turn(&mut vectors, width);
    model.set("components", Tensor::of(&[count, width], vectors, Role::Weight));
    model.set("explained_variance", Tensor::of(&[count], variances, Role::Weight));
    model.set("explained_variance_ratio", Tensor::of(&[count], ratios, Role::Weight));
}

/// Σw and Σwx of every feature.
fn means(batch: &Batch<'_>, width: usize) -> Vec<f64> {
    let mut sums = vec![0.0; 1 + width];
    for row in batch.rows() {
        let weight = batch.table.weight(row);
        sums[0] += weight;
        let first = &mut sums[1..];
        match batch.table.row(row) {
            Row::Dense(values) => Arch::new().dispatch(AddScaled { values, weight, first }),
            Row::Sparse(columns, values) => {
                let entries = columns.iter().zip(values);
                entries.for_each(|(&column, &x)| first[column as usize] += weight * f64::from(x));
            }
        }
    }
    sums
}

struct AddScaled<'a> {
    values: &'a [f32],
    weight: f64,
    first: &'a mut [f64],
}

impl WithSimd for AddScaled<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (sum, x) in self.first.iter_mut().zip(self.values) {
            *sum += self.weight * f64::from(*x);
        }
    }
}

/// Σw, Σwx and Σwx² of every feature.
pub(super) fn moments(batch: &Batch<'_>, width: usize) -> Vec<f64> {
    let mut sums = vec![0.0; 1 + 2 * width];
    let (weights, rest) = sums.split_at_mut(1);
    let (first, second) = rest.split_at_mut(width);
    for row in batch.rows() {
        let weight = batch.table.weight(row);
        weights[0] += weight;
        match batch.table.row(row) {
            Row::Dense(values) => {
                for ((&x, sum), square) in values.iter().zip(&mut *first).zip(&mut *second) {
                    let x = f64::from(x);
                    *sum += weight * x;
                    *square += weight * (x * x);
                }
            }
            Row::Sparse(columns, values) => {
                for (&column, &x) in columns.iter().zip(values) {
                    let x = f64::from(x);
                    first[column as usize] += weight * x;
                    second[column as usize] += weight * (x * x);
                }
            }
        }
    }
    sums
}

impl Learner for Pca {
    fn task(&self) -> Task {
        Task::Projection
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::None
    }

    fn weighs(&self) -> bool {
        true
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        self.check(facts)?;
        let width = facts.schema.features;
        let count = match self.wanted {
            Wanted::Count(count) => count,
            // Known when the variances are.
            Wanted::All | Wanted::Share(_) => 0,
        };
        let mut model = Model::new();
        model.set("mean", Tensor::zeros(Kind::F64, &[width], Role::Weight));
        model.set("components", Tensor::zeros(Kind::F64, &[count, width], Role::Weight));
        model.set("explained_variance", Tensor::zeros(Kind::F64, &[count], Role::Weight));
        model.set("explained_variance_ratio", Tensor::zeros(Kind::F64, &[count], Role::Weight));
        model.set("weight", Tensor::zeros(Kind::F64, &[1], Role::State));
        let counters = Values::I64(vec![0, facts.rows as i64]);
        model.set("progress", Tensor { shape: vec![2], values: counters, role: Role::State });
        if let Some(count) = self.randomised(facts.rows, width) {
            self.passes.init(&mut model, (count, width), facts);
        }
        Ok(model)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let width = work.model.f64("mean").len();
        check_width(work.batch, width)?;
        if work.model.i64("progress")[0] == 0 {
            work.outbox.emit(Block::dense("moments", means(work.batch, width)));
        } else if work.model.get(randomised::BASIS).is_some() {
            randomised::contribute(work);
        } else {
            covariance::contribute(work);
        }
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, _: &Moment) -> Result<Outcome> {
        let steps = model.i64("progress")[0];
        model.i64_mut("progress")[0] += 1;
        if update.blocks.iter().any(|block| !block.f64s().iter().all(|x| x.is_finite())) {
            return Err(Fault::caller("pca: the sums of squares are not finite")
                .hint("scale the features, for example to variance 1"));
        }
        if steps == 0 {
            let sums = update.f64("moments");
            if sums[0] <= 1.0 {
                let weight = sums[0];
                return Err(Fault::caller(format!(
                    "pca: the rows weigh {weight} in all; more than 1 is needed"
                )));
            }
            model.f64_mut("weight")[0] = sums[0];
            let means = sums[1..].iter().map(|sum| sum / sums[0]);
            model.f64_mut("mean").iter_mut().zip(means).for_each(|(mean, m)| *mean = m);
            return Ok(Outcome { iterations: Some(0), ..Outcome::default() });
        }
        match model.get(randomised::BASIS).is_some() {
            true => Ok(self.passes.apply(model, update, steps as u64)),
            false => {
                covariance::apply(model, update, self.wanted);
                Ok(Outcome { objective: None, done: true, iterations: Some(1) })
            }
        }
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        Projection { scale: Vec::new(), ..self.projection(work.model) }.score(work.batch)
    }

    fn grade(&self, _: &Model, sums: &[f64], _: u64) -> Grade {
        projection::grade(sums)
    }

    fn outputs(&self, model: &Model) -> usize {
        self.projection(model).outputs()
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        self.projection(model).project(batch, out)
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        Some(self.projection(model).graph())
    }
}
