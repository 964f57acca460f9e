//! The lasso (Tibshirani, 1996): least squares with an l1 penalty, which makes most weights exactly zero. The objective is
//! scikit-learn's: ½·mean (y − x·w − b)² + l1·‖w‖₁. The work is done in `sparse_regression`.

use super::BuildLearner;
use super::elastic_net::{from_params, number};
use crate::sparse_regression::{NEEDS, Penalty};
use starlings_core::{Entry, Fault, Param};

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "lasso",
    summary: "Numbers by few features: least squares with an l1 penalty, by coordinate descent",
    reference: "Tibshirani, Regression shrinkage and selection via the lasso, JRSS B 58, 1996; Friedman, Hastie and \
                Tibshirani, Regularization paths via coordinate descent, 2010; Kim et al., STRADS, EuroSys 2016",
    params: PARAMS,
    gives: &[],
    needs: NEEDS,
    build: |params| {
        let (l1, alpha) = (params.f64("l1"), params.f64("alpha"));
        let l1 = match (l1 >= 0.0, alpha >= 0.0) {
            (true, true) => {
                return Err(Fault::caller("l1 and alpha are the same number under two names")
                    .hint("give one of them"));
            }
            (true, false) => l1,
            (false, true) => alpha,
            (false, false) => 1.0,
        };
        Ok(Box::new(from_params(params, Penalty { l1, l2: 0.0 })?))
    },
};

const PARAMS: &[Param] = &[
    number(
        "l1",
        (-1.0, 1e12),
        "-1.0",
        "strength of the penalty l1·‖w‖₁; 1 unless l1 or alpha is given",
    ),
    number("alpha", (-1.0, 1e12), "-1.0", "scikit-learn's name for l1"),
    super::elastic_net::SOLVER,
    super::elastic_net::PATH,
    super::elastic_net::PATH_RATIO,
    super::elastic_net::TOLERANCE,
    super::elastic_net::MAX_ITERATIONS,
    super::elastic_net::INTERCEPT,
    super::elastic_net::STANDARDISE,
    super::elastic_net::GRAM_MAX,
    super::elastic_net::BLOCK,
    super::elastic_net::CANDIDATES,
    super::elastic_net::THETA,
    super::elastic_net::ETA,
];
