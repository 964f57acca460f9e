//! Truncated singular values: the leading right singular vectors of the rows as they are, not centred, so that sparse
//! rows stay sparse (with word counts: latent semantic analysis). Randomised, as Halko, Martinsson and Tropp (2011)
//! have it: a random start and a few power iterations (`algebra/subspace.rs`), each product with XᵀX one exchange of
//! width · (components + oversampling) numbers. Parameters and figures are those of scikit-learn's `TruncatedSVD`.

use super::BuildLearner;
use super::pca::moments;
use crate::algebra::subspace::{advance, product, start};
use crate::algebra::symmetric::{dot, turn};
use crate::projection::{self, Projection, check_width};
use crate::{Appetite, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use starlings_core::{
    Ability, Block, Entry, Fault, Graph, Kind, Model, Param, ParamKind, Params, Result, Role,
    Tensor, Update,
};
use starlings_data::{Batch, LabelNeed};

/// Truncated singular values in the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "truncated-svd",
    summary: "The leading singular vectors of rows as they are: a projection for sparse rows",
    reference: "Halko, Martinsson, Tropp, Finding structure with randomness: probabilistic algorithms for \
                constructing approximate matrix decompositions, SIAM Review 53(2), 2011",
    params: PARAMS,
    gives: &[],
    needs: NEEDS,
    build: |params| Ok(Box::new(TruncatedSvd::new(params))),
};

const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

const PARAMS: &[Param] = &[
    Param {
        name: "components",
        kind: ParamKind::Integer { min: 1, max: 100_000 },
        default: Some("2"),
        help: "how many singular vectors",
    },
    Param {
        name: "power_iterations",
        kind: ParamKind::Integer { min: 0, max: 10_000 },
        default: Some("5"),
        help: "passes after the first; more are needed where singular values lie close together",
    },
    Param {
        name: "oversampling",
        kind: ParamKind::Integer { min: 0, max: 10_000 },
        default: Some("10"),
        help: "directions that are followed beyond those wanted",
    },
    Param {
        name: "tolerance",
        kind: ParamKind::Float { min: 0.0, max: 1.0 },
        default: Some("1e-10"),
        help: "done when no wanted squared singular value changes by more than this, relatively",
    },
];

/// Truncated singular values.
struct TruncatedSvd {
    components: usize,
    power_iterations: u64,
    oversampling: usize,
    tolerance: f64,
}

impl TruncatedSvd {
    fn new(params: &Params) -> TruncatedSvd {
        TruncatedSvd {
            components: params.size("components"),
            power_iterations: params.size("power_iterations") as u64,
            oversampling: params.size("oversampling"),
            tolerance: params.f64("tolerance"),
        }
    }

    fn projection<'a>(model: &'a Model) -> Projection<'a> {
        let (mean, components) = (model.f64("origin"), model.f64("components"));
        Projection { mean, components, scale: Vec::new() }
    }

    /// Singular values, and the variance of each coordinate: its mean square less the square of its mean.
    fn finish(&self, model: &mut Model, mut vectors: Vec<f64>, squares: &[f64]) {
        let width = model.f64("origin").len();
        vectors.truncate(self.components * width);
        turn(&mut vectors, width);
        let (weight, means) = model.f64("moments").split_at(1);
        let (means, variances) = means.split_at(width);
        let total: f64 = variances.iter().sum();
        let pairs = vectors.chunks_exact(width).zip(squares);
        let explained: Vec<f64> = pairs
            .map(|(vector, square)| (square / weight[0] - dot(vector, means).powi(2)).max(0.0))
            .collect();
        let ratio = explained.iter().map(|v| if total > 0.0 { v / total } else { 0.0 }).collect();
        let singular = squares.iter().take(self.components).map(|s| s.max(0.0).sqrt()).collect();
        let count = self.components;
        model.set("components", Tensor::of(&[count, width], vectors, Role::Weight));
        model.set("singular_values", Tensor::of(&[count], singular, Role::Weight));
        model.set("explained_variance", Tensor::of(&[count], explained, Role::Weight));
        model.set("explained_variance_ratio", Tensor::of(&[count], ratio, Role::Weight));
    }
}

impl Learner for TruncatedSvd {
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
        let (rows, width, count) = (facts.rows, facts.schema.features, self.components);
        if (width as u64).min(rows) < count as u64 {
            let most = (width as u64).min(rows);
            return Err(Fault::caller(format!(
                "truncated-svd: {rows} rows of {width} features have at most {most} singular values, not {count}"
            ))
            .hint("set components to that or less"));
        }
        let columns = (count + self.oversampling).min(width);
        let mut model = Model::new();
        let zeros = |shape: &[usize], role| Tensor::zeros(Kind::F64, shape, role);
        model.set("components", zeros(&[count, width], Role::Weight));
        model.set("singular_values", zeros(&[count], Role::Weight));
        model.set("explained_variance", zeros(&[count], Role::Weight));
        model.set("explained_variance_ratio", zeros(&[count], Role::Weight));
        model.set("origin", zeros(&[width], Role::Weight));
        model.set(
            "basis",
            Tensor::of(&[columns, width], start(width, columns, facts.seed), Role::State),
        );
        model.set("values", zeros(&[count], Role::State));
        model.set("moments", zeros(&[1 + 2 * width], Role::State));
        model.set("pass", Tensor::zeros(Kind::I64, &[1], Role::State));
        Ok(model)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let origin = work.model.f64("origin");
        check_width(work.batch, origin.len())?;
        if work.model.i64("pass")[0] == 0 {
            work.outbox.emit(Block::dense("moments", moments(work.batch, origin.len())));
        }
        let sums = product(work.batch, origin, work.model.f64("basis"));
        work.outbox.emit(Block::dense("image", sums.image));
        work.outbox.emit(Block::dense("coordinates", sums.coordinates));
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, _: &Moment) -> Result<Outcome> {
        if update.blocks.iter().any(|block| !block.f64s().iter().all(|x| x.is_finite())) {
            return Err(Fault::caller("truncated-svd: the sums of squares are not finite")
                .hint("scale the features, for example to variance 1"));
        }
        let pass = model.i64("pass")[0] as u64;
        model.i64_mut("pass")[0] += 1;
        if pass == 0 {
            let sums = update.f64("moments");
            if sums[0] <= 0.0 {
                return Err(Fault::caller("truncated-svd: all rows weigh nothing"));
            }
            let width = model.f64("origin").len();
            let moments = model.f64_mut("moments");
            moments[0] = sums[0];
            for feature in 1..=width {
                let (mean, square) = (sums[feature] / sums[0], sums[width + feature] / sums[0]);
                moments[feature] = mean;
                moments[width + feature] = (square - mean * mean).max(0.0);
            }
        }
        let (image, coordinates) = (update.f64("image"), update.f64("coordinates"));
        let found = advance(image, coordinates, model.f64("origin"), model.f64("basis"));
        let values = found.eigen.values[..self.components].to_vec();
        let still = values.iter().zip(model.f64("values")).all(|(new, old)| {
            (new - old).abs() <= self.tolerance * new.abs().max(f64::MIN_POSITIVE)
        });
        *model.f64_mut("basis") = found.next;
        self.finish(model, found.eigen.vectors, &values);
        *model.f64_mut("values") = values;
        let done = still || pass >= self.power_iterations;
        Ok(Outcome { objective: None, done, iterations: Some(pass + 1) })
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        TruncatedSvd::projection(work.model).score(work.batch)
    }

    fn grade(&self, _: &Model, sums: &[f64], _: u64) -> Grade {
        projection::grade(sums)
    }

    fn outputs(&self, model: &Model) -> usize {
        TruncatedSvd::projection(model).outputs()
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        TruncatedSvd::projection(model).project(batch, out)
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        Some(TruncatedSvd::projection(model).graph())
    }
}
