//! A mixture of Gaussians by expectation and maximisation (Dempster, Laird, Rubin 1977): an iteration weighs every row
//! by how likely each component made it, and moves the components to the weighted means and covariances. The
//! weighted sums add up over workers, so an iteration is one exchange (`expectation.rs`, `maximisation.rs`).
//!
//! It starts, as scikit-learn's does, from the clusters of k-means, which is another learner run first in the
//! same model. Covariances get `regularisation` added to their diagonal, so that rows that lie in a plane, and
//! components that shrink to one row, stay solvable.

mod expectation;
mod maximisation;
mod shape;

pub use shape::Covariance;

use super::BuildLearner;
use super::k_means::{KMeans, Sampling, Seeding};
use crate::projection::check_width;
use crate::{Appetite, Cells, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use expectation::Densities;
use starlings_core::{
    Ability, Entry, Fault, Graph, Model, Param, ParamKind, Params, Result, Role, Tensor, Update,
    Values,
};
use starlings_data::{Batch, LabelNeed, Slice};
use std::collections::BTreeMap;

/// Gaussian mixtures in the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "gaussian-mixture",
    summary: "A density as a sum of Gaussians, by expectation and maximisation",
    reference: "Dempster, Laird, Rubin, Maximum likelihood from incomplete data via the EM algorithm, 1977",
    params: PARAMS,
    gives: &[],
    needs: NEEDS,
    build: |params| Ok(Box::new(GaussianMixture::new(params))),
};

/// Most covariances: 1 GiB of them.
const NUMBERS_MAX: usize = 1 << 27;

const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

const PARAMS: &[Param] = &[
    Param {
        name: "components",
        kind: ParamKind::Integer { min: 1, max: 100_000 },
        default: None,
        help: "how many Gaussians",
    },
    Param {
        name: "covariance",
        kind: ParamKind::Choice(&["full", "tied", "diagonal", "spherical"]),
        default: Some("full"),
        help: "a whole matrix for each component, one for all, variances for each feature, or one variance each",
    },
    Param {
        name: "regularisation",
        kind: ParamKind::Float { min: 0.0, max: 1e12 },
        default: Some("1e-6"),
        help: "added to the diagonal of every covariance",
    },
    Param {
        name: "tolerance",
        kind: ParamKind::Float { min: 0.0, max: 1e6 },
        default: Some("1e-3"),
        help: "done when the mean log-likelihood changes by less",
    },
    Param {
        name: "max_iterations",
        kind: ParamKind::Integer { min: 0, max: 1_000_000 },
        default: Some("100"),
        help: "iterations at most, unless [train] epochs says otherwise",
    },
    Param {
        name: "start",
        kind: ParamKind::Choice(&["k-means", "random"]),
        default: Some("k-means"),
        help: "the clusters of k-means, or the rows nearest to rows drawn uniformly",
    },
];

/// Where the components start.
#[derive(Clone, PartialEq, Debug)]
pub enum Start {
    /// From the clusters of k-means.
    KMeans,
    /// From the rows nearest to rows drawn uniformly.
    Random,
    /// From these.
    Given(Given),
}

/// Components that are given.
#[derive(Clone, PartialEq, Debug)]
pub struct Given {
    /// The share of each.
    pub weights: Vec<f64>,
    /// The mean of each, one after the other.
    pub means: Vec<f64>,
    /// The covariances: k × d × d, d × d, k × d or k numbers, as the kind of covariance has it.
    pub covariances: Vec<f64>,
}

/// The Gaussian mixture learner.
#[derive(Clone, PartialEq, Debug)]
pub struct GaussianMixture {
    /// Components.
    pub components: usize,
    /// What a covariance is.
    pub covariance: Covariance,
    /// Added to the diagonal of covariances.
    pub regularisation: f64,
    /// Change of the mean log-likelihood below which training is done.
    pub tolerance: f64,
    /// Iterations at most, unless the job says otherwise.
    pub iterations_max: u64,
    /// Where the components start.
    pub start: Start,
}

/// What the next step does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Clusters,
    Hard,
    Soft,
}

const PROGRESS: &str = "mixture";
const LIKELIHOOD: &str = "likelihood";

impl GaussianMixture {
    /// From checked parameters.
    #[must_use]
    pub fn new(params: &Params) -> GaussianMixture {
        GaussianMixture {
            components: params.size("components"),
            covariance: Covariance::named(params.text("covariance")),
            regularisation: params.f64("regularisation"),
            tolerance: params.f64("tolerance"),
            iterations_max: params.size("max_iterations") as u64,
            start: if params.text("start") == "random" { Start::Random } else { Start::KMeans },
        }
    }

    /// The clustering that comes first.
    fn clusters(&self) -> KMeans {
        let scalable = Seeding::Scalable(Sampling { oversampling: 2.0, rounds: 5 });
        let (seeding, iterations_max) = match self.start {
            Start::Random => (Seeding::Random, 0),
            _ => (scalable, 100),
        };
        KMeans { seeding, iterations_max, ..KMeans::with_centres(self.components, Vec::new()) }
    }

    fn stage(&self, model: &Model) -> Stage {
        match model.i64(PROGRESS)[0] {
            0 => Stage::Clusters,
            1 => Stage::Hard,
            _ => Stage::Soft,
        }
    }

    fn check(&self, facts: &Facts) -> Result<()> {
        let (rows, width, count) = (facts.rows, facts.schema.features, self.components);
        if rows < (count as u64).max(2) {
            return Err(Fault::caller(format!(
                "gaussian-mixture: {count} components cannot be made of {rows} rows"
            ))
            .hint("set components to at most the number of rows; two rows are the least"));
        }
        if width == 0 {
            return Err(Fault::caller("gaussian-mixture needs at least one feature")
                .hint("look at [data] features and label"));
        }
        let numbers = self.covariance.shape(count, width).iter().product::<usize>();
        if numbers > NUMBERS_MAX {
            return Err(Fault::caller(format!(
                "gaussian-mixture: {count} components of {width} features have {numbers} covariances, {NUMBERS_MAX} is the most"
            ))
            .hint("use covariance = \"diagonal\" or \"spherical\", or fewer features"));
        }
        if let Start::Given(given) = &self.start {
            let right = (given.weights.len(), given.means.len(), given.covariances.len())
                == (count, count * width, numbers);
            if !right {
                return Err(Fault::caller(format!(
                    "gaussian-mixture: {count} components of {width} features start from {count} weights, {} means and {numbers} covariances",
                    count * width
                )));
            }
        }
        Ok(())
    }
}

impl Learner for GaussianMixture {
    fn task(&self) -> Task {
        Task::Density
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

    fn init(&self, facts: &Facts, place: Place) -> Result<Model> {
        self.check(facts)?;
        let (count, width) = (self.components, facts.schema.features);
        let iterations = facts.epochs.unwrap_or(self.iterations_max) as i64;
        let shape = self.covariance.shape(count, width);
        let mut model = match &self.start {
            Start::Given(_) => Model::new(),
            _ => self.clusters().init(&Facts { epochs: None, ..facts.clone() }, place)?,
        };
        // What k-means makes is of no use to whoever is given the mixture, and goes when it has served.
        let passing: Vec<String> = model.iter().map(|(name, _)| name.to_string()).collect();
        for name in passing {
            if let Some(tensor) = model.get(&name).cloned() {
                model.set(name, Tensor { role: Role::State, ..tensor });
            }
        }
        let (stage, weights, means, covariances) = match &self.start {
            Start::Given(given) => {
                (2, given.weights.clone(), given.means.clone(), given.covariances.clone())
            }
            _ => {
                let equal = vec![1.0 / count as f64; count];
                (0, equal, vec![0.0; count * width], self.covariance.unit(count, width))
            }
        };
        model.set("weights", Tensor::of(&[count], weights, Role::Weight));
        model.set("means", Tensor::of(&[count, width], means, Role::Weight));
        model.set("covariances", Tensor::of(&shape, covariances, Role::Weight));
        model.set(LIKELIHOOD, Tensor::of(&[1], vec![f64::NEG_INFINITY], Role::State));
        let counters = Values::I64(vec![stage, 0, iterations]);
        model.set(PROGRESS, Tensor { shape: vec![3], values: counters, role: Role::State });
        self.covariance.check(&model)?;
        Ok(model)
    }

    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
        if self.stage(model) == Stage::Clusters {
            self.clusters().adopt(model, batch, slice, cells);
        }
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        check_width(work.batch, work.model.get("means").map_or(0, Tensor::width))?;
        match self.stage(work.model) {
            Stage::Clusters => self.clusters().contribute(work),
            Stage::Hard => expectation::hard(self.covariance, &self.clusters(), work),
            Stage::Soft => {
                expectation::soft(self.covariance, work);
                Ok(())
            }
        }
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let stage = self.stage(model);
        if stage == Stage::Clusters {
            if self.clusters().apply(model, update, moment)?.done {
                let centres = model.f64("centres").to_vec();
                *model.f64_mut("means") = centres;
                model.i64_mut(PROGRESS)[0] = 1;
            }
            return Ok(Outcome { iterations: Some(0), ..Outcome::default() });
        }
        maximisation::apply(self.covariance, self.regularisation, model, update)?;
        let likelihood = update.f64("likelihood")[0] / update.f64("weight")[0];
        let &[_, iterations, iterations_max] = model.i64(PROGRESS) else {
            panic!("'mixture' has three numbers");
        };
        if stage == Stage::Hard {
            // What k-means left behind is of no more use.
            let kept = ["weights", "means", "covariances", LIKELIHOOD, PROGRESS];
            let all: Vec<String> = model.iter().map(|(name, _)| name.to_string()).collect();
            for name in all.iter().filter(|name| !kept.contains(&name.as_str())) {
                model.remove(name);
            }
            model.i64_mut(PROGRESS)[0] = 2;
            let done = iterations_max == 0;
            return Ok(Outcome { objective: None, done, iterations: Some(0) });
        }
        let change = (likelihood - model.f64(LIKELIHOOD)[0]).abs();
        model.f64_mut(LIKELIHOOD)[0] = likelihood;
        model.i64_mut(PROGRESS)[1] += 1;
        Ok(Outcome {
            objective: Some(-likelihood),
            done: change < self.tolerance || iterations + 1 >= iterations_max,
            iterations: Some(iterations as u64 + 1),
        })
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let densities = Densities::new(self.covariance, work.model);
        let mut sums = vec![0.0; 2];
        for slice in &work.batch.slices {
            densities.visit(work.batch.table, slice, |tile| {
                for (&row, density) in tile.rows.iter().zip(tile.densities) {
                    let weight = work.batch.table.weight(row);
                    sums[0] += weight * density;
                    sums[1] += weight;
                }
            });
        }
        Ok(sums)
    }

    /// The objective is minus the mean log-likelihood.
    fn grade(&self, _: &Model, sums: &[f64], _: u64) -> Grade {
        let mean = sums[0] / sums[1].max(f64::MIN_POSITIVE);
        let metrics = BTreeMap::from([("log_likelihood".to_string(), mean)]);
        Grade { objective: -mean, metrics }
    }

    fn outputs(&self, _: &Model) -> usize {
        self.components + 1
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        check_width(batch, model.get("means").map_or(0, Tensor::width))?;
        let densities = Densities::new(self.covariance, model);
        for slice in &batch.slices {
            densities.visit(batch.table, slice, |tile| {
                for (place, density) in tile.densities.iter().enumerate().take(tile.rows.len()) {
                    out.extend((0..self.components).map(|k| tile.chance(k, place)));
                    out.push(*density);
                }
            });
        }
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        Some(Densities::new(self.covariance, model).graph())
    }
}
