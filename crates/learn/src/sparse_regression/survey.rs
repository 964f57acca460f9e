//! The gradient of all features as replicas see it: what working sets and schedules decide from. The first survey, at
//! zero, also brings the second moments of all features and the largest penalty that is of any use.

use super::SparseRegression;
use super::descent::{self, Penalty};
use super::state::{self, Counters, Moments, Phase, Stage, WEIGHTS};
use starlings_core::{Fault, Kind, Model, Result, Role, Tensor, Update};

/// The weights where the solver is, in the units of the data, as rows are multiplied with them.
pub(super) const POINT: &str = "sparse.point";
/// The same in the solver's units.
pub(super) const VALUES: &str = "sparse.values";
/// The second moments of all features in the solver's units; zero for a feature that never varies.
pub(super) const CURVATURES: &str = "sparse.curvatures";
/// The largest slope at zero.
const STEEPEST: &str = "sparse.steepest";

pub(super) fn init(model: &mut Model, width: usize) {
    let features = Moments::of(model).means.len();
    let zeros = |len: usize| Tensor::zeros(Kind::F64, &[len], Role::State);
    model.set(POINT, zeros(width));
    model.set(VALUES, zeros(features));
    model.set(CURVATURES, zeros(features));
    model.set(STEEPEST, zeros(1));
}

/// What a gradient tells.
pub(super) struct Survey {
    /// The point in the solver's units.
    pub(super) values: Vec<f64>,
    /// The slopes there; zero for features that never vary.
    pub(super) slopes: Vec<f64>,
    /// The mean squared residual.
    pub(super) residual: f64,
    /// The mean square of y.
    pub(super) square: f64,
}

impl Survey {
    /// Reads the sums of a survey or a gradient step.
    pub(super) fn read(
        of: &SparseRegression,
        model: &mut Model,
        update: &Update,
    ) -> Result<Survey> {
        let sums = update.f64("gradient");
        if sums.iter().any(|sum| !sum.is_finite()) {
            return Err(Fault::caller("the residuals are not finite: the solver has diverged")
                .hint("lower theta, so that fewer correlated coordinates move at once"));
        }
        let (mass, features) = (Moments::of(model).mass, Moments::of(model).means.len());
        let first = Counters::of(model).phase == Phase::Survey;
        if first {
            let variances: Vec<f64> =
                update.f64("squares")[..features].iter().map(|s| s / mass).collect();
            let all: Vec<usize> = (0..features).collect();
            let units = of.set_units(model, &all, &variances);
            let curvatures = variances.iter().zip(units).map(|(v, unit)| v * unit * unit);
            *model.f64_mut(CURVATURES) = curvatures.collect();
            state::set_square(model, sums[features + 2] / mass);
        }
        let scale = model.get(state::SCALE).map(|_| model.f64(state::SCALE));
        let slope = |column: usize| match model.f64(CURVATURES)[column] > 0.0 {
            true => sums[column] / mass / scale.map_or(1.0, |scale| scale[column]),
            false => 0.0,
        };
        let slopes: Vec<f64> = (0..features).map(slope).collect();
        if first {
            let steepest = slopes.iter().fold(0.0f64, |most, slope| most.max(slope.abs()));
            model.f64_mut(STEEPEST)[0] = steepest;
        }
        let square = Moments::of(model).square;
        let values = model.f64(VALUES).to_vec();
        Ok(Survey { values, slopes, residual: sums[features + 1] / mass, square })
    }

    /// Closes all stages whose gap is small enough, or whose sweeps are used up; `still`: or nothing moves. Gives the gap of the first that is
    /// left, and the objective of the job's own penalty if it was among them.
    pub(super) fn close(
        &self,
        of: &SparseRegression,
        model: &mut Model,
        counters: &mut Counters,
        still: bool,
    ) -> Closed {
        let stages = stages(of, model);
        let mut closed = Closed::default();
        while let Some(&stage) = stages.get(counters.stage) {
            let gap = self.gap(stage.penalty);
            let spent = still && closed.stages == 0 || counters.sweeps >= counters.limit;
            if gap > of.tolerance * self.square && !spent {
                closed.left = Some((stage.penalty, gap));
                return closed;
            }
            let penalty = of.keep(model, stage, &self.values, gap);
            if stage.row.is_none() {
                closed.objective = Some(0.5 * self.residual + penalty);
            }
            counters.stage += 1;
            counters.sweeps = 0;
            closed.stages += 1;
        }
        closed
    }

    /// The duality gap of the point under a penalty.
    pub(super) fn gap(&self, penalty: Penalty) -> f64 {
        descent::gap(&self.values, &self.slopes, self.residual, penalty)
    }
}

/// What came of closing stages.
#[derive(Clone, Copy, Default)]
pub(super) struct Closed {
    /// The penalty and the gap of the stage that is to be solved next.
    pub(super) left: Option<(Penalty, f64)>,
    /// The objective of the job's own penalty.
    pub(super) objective: Option<f64>,
    /// How many stages were closed.
    pub(super) stages: usize,
}

/// All stages, once the first survey is known.
pub(super) fn stages(of: &SparseRegression, model: &Model) -> Vec<Stage> {
    of.wanted.stages(model.f64(STEEPEST)[0])
}

/// Moves the point. Until the job's own penalty has its answer, the point is also the best known one.
pub(super) fn move_to(of: &SparseRegression, model: &mut Model, values: Vec<f64>) {
    let weights = of.weights_of(model, &values);
    let own = stages(of, model).iter().position(|stage| stage.row.is_none());
    if own.is_some_and(|own| Counters::of(model).stage <= own) {
        model.f64_mut(WEIGHTS).copy_from_slice(&weights);
    }
    *model.f64_mut(POINT) = weights;
    *model.f64_mut(VALUES) = values;
}
