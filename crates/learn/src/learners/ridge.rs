//! Ridge regression (Hoerl and Kennard, "Ridge regression: biased estimation for nonorthogonal problems", 1970):
//! ½·mean (y − w·x − b)² + l2/2·‖w‖², the intercept unpenalised. scikit-learn's `alpha` penalises the sum of errors, not
//! their mean: alpha = l2 · rows (or · the weight of all rows). Solved as linear regression is; with l2 above zero no
//! system is singular.

use super::linear_regression::{Numbers, SOLVER};
use crate::learners::BuildLearner;
use crate::linear::{FULL_PASS_NEEDS, Linear, Penalty, Setup, params};
use starlings_core::{Entry, Param};

/// The entry of the catalogue. Its abilities are those of the default solver.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "ridge",
    summary: "A number by least squares with a penalty on squared weights; scikit-learn's alpha is l2 times the rows",
    reference: "Hoerl and Kennard, Ridge regression: biased estimation for nonorthogonal problems, 1970",
    params: PARAMS,
    gives: &[],
    needs: FULL_PASS_NEEDS,
    build: |params| {
        let penalty = Penalty { l1: 0.0, l2: params.f64("l2") };
        let setup = Setup::new(params, penalty, "cholesky", false)?;
        Ok(Box::new(Linear { subject: Numbers, setup }))
    },
};

const PARAMS: &[Param] = &[
    SOLVER,
    params::l2("1e-3"),
    params::LEARNING_RATE,
    params::DECAY,
    params::MOMENTUM,
    params::RHO,
    params::BETA1,
    params::BETA2,
    params::EPSILON,
    params::HISTORY,
    params::TOLERANCE,
    params::MAX_ITERATIONS,
    params::INTERCEPT,
    params::STANDARDISE,
];
