//! The elastic net (Zou and Hastie, 2005): least squares with an l1 and an l2 penalty, so that correlated features share
//! a weight instead of one of them taking it all. The objective is scikit-learn's: ½·mean (y − x·w − b)² + l1·‖w‖₁ +
//! l2/2·‖w‖², where l1 = alpha·l1_ratio and l2 = alpha·(1 − l1_ratio). The work is done in `sparse_regression`.

use super::BuildLearner;
use crate::sparse_regression::{NEEDS, Penalty, Scheduling, Solver, SparseRegression, Wanted};
use starlings_core::{Entry, Fault, Param, ParamKind, Params, Result};

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "elastic-net",
    summary: "Numbers by few features: least squares with l1 and l2 penalties, by coordinate descent",
    reference: "Zou and Hastie, Regularization and variable selection via the elastic net, JRSS B 67, 2005; Friedman, \
                Hastie and Tibshirani, Regularization paths via coordinate descent, 2010; Kim et al., STRADS, 2016",
    params: PARAMS,
    gives: &[],
    needs: NEEDS,
    build: |params| {
        let (l1, l2) = (params.f64("l1"), params.f64("l2"));
        let (alpha, ratio) = (params.f64("alpha"), params.f64("l1_ratio"));
        let penalty = match (l1 >= 0.0 || l2 >= 0.0, alpha >= 0.0) {
            (true, true) => {
                return Err(Fault::caller("alpha and l1 or l2 say the same in two ways")
                    .hint("give alpha and l1_ratio, or l1 and l2"));
            }
            (true, false) => Penalty { l1: l1.max(0.0), l2: l2.max(0.0) },
            (false, given) => {
                let alpha = if given { alpha } else { 1.0 };
                Penalty { l1: alpha * ratio, l2: alpha * (1.0 - ratio) }
            }
        };
        Ok(Box::new(from_params(params, penalty)?))
    },
};

const PARAMS: &[Param] = &[
    number(
        "alpha",
        (-1.0, 1e12),
        "-1.0",
        "strength of both penalties; 1 unless alpha, l1 or l2 is given",
    ),
    number("l1_ratio", (0.0, 1.0), "0.5", "share of the l1 penalty in alpha"),
    number("l1", (-1.0, 1e12), "-1.0", "strength of the penalty l1·‖w‖₁, instead of alpha"),
    number("l2", (-1.0, 1e12), "-1.0", "strength of the penalty l2/2·‖w‖², instead of alpha"),
    SOLVER,
    PATH,
    PATH_RATIO,
    TOLERANCE,
    MAX_ITERATIONS,
    INTERCEPT,
    STANDARDISE,
    GRAM_MAX,
    BLOCK,
    CANDIDATES,
    THETA,
    ETA,
];

pub(super) const SOLVER: Param = Param {
    name: "solver",
    kind: ParamKind::Choice(&["coordinate-descent", "scheduled"]),
    default: Some("coordinate-descent"),
    help: "coordinate-descent sums the Gram matrix once; scheduled moves blocks of uncorrelated coordinates (STRADS)",
};
pub(super) const PATH: Param = whole(
    "path",
    (0, 1_000_000),
    "0",
    "how many penalties of a regularisation path are solved besides, all kept in the model",
);
pub(super) const PATH_RATIO: Param = number(
    "path_ratio",
    (1e-12, 1.0),
    "1e-3",
    "the path's smallest penalty, as a share of its largest",
);
pub(super) const TOLERANCE: Param = number(
    "tolerance",
    (0.0, 1.0),
    "1e-7",
    "done when the duality gap is this share of the variance of y",
);
pub(super) const MAX_ITERATIONS: Param = whole(
    "max_iterations",
    (0, 1_000_000_000),
    "1000",
    "sweeps over the coordinates for each penalty, unless the job sets epochs",
);
pub(super) const INTERCEPT: Param =
    flag("intercept", "true", "whether predictions have a constant term");
pub(super) const STANDARDISE: Param = flag(
    "standardise",
    "false",
    "whether the penalty counts weights in units of their feature's deviation",
);
pub(super) const GRAM_MAX: Param = whole(
    "gram_max",
    (1, 100_000),
    "4096",
    "features up to which the whole Gram matrix is summed; above, that of a working set",
);
pub(super) const BLOCK: Param =
    whole("block", (1, 100_000), "32", "most coordinates that move together (scheduled)");
pub(super) const CANDIDATES: Param =
    whole("candidates", (1, 100_000), "64", "coordinates of which a block is chosen (scheduled)");
pub(super) const THETA: Param = number(
    "theta",
    (0.0, 1e9),
    "0.1",
    "coordinates whose correlation is this or more never move together (scheduled)",
);
pub(super) const ETA: Param = number(
    "eta",
    (1e-300, 1e9),
    "1e-6",
    "priority that every coordinate has beyond its recent change, in deviations of y (scheduled)",
);

/// A sparse regression with these parameters and this penalty.
pub(super) fn from_params(params: &Params, penalty: Penalty) -> Result<SparseRegression> {
    let path = params.size("path");
    if path > 0 && penalty.l1 <= 0.0 {
        return Err(Fault::caller("a path without an l1 penalty has no largest penalty")
            .hint("give l1, or alpha and an l1_ratio above zero, or path = 0"));
    }
    let solver = match params.text("solver") {
        "scheduled" => Solver::Scheduled(Scheduling {
            block: params.size("block"),
            candidates: params.size("candidates").max(params.size("block")),
            theta: params.f64("theta"),
            eta: params.f64("eta"),
        }),
        _ => Solver::CoordinateDescent { gram_max: params.size("gram_max") },
    };
    Ok(SparseRegression {
        wanted: Wanted { penalty, path, smallest: params.f64("path_ratio") },
        solver,
        intercept: params.flag("intercept"),
        standardise: params.flag("standardise"),
        tolerance: params.f64("tolerance"),
        max_iterations: params.size("max_iterations") as u64,
    })
}

pub(super) const fn number(
    name: &'static str,
    (min, max): (f64, f64),
    default: &'static str,
    help: &'static str,
) -> Param {
    Param { name, kind: ParamKind::Float { min, max }, default: Some(default), help }
}

const fn whole(
    name: &'static str,
    (min, max): (i64, i64),
    default: &'static str,
    help: &'static str,
) -> Param {
    Param { name, kind: ParamKind::Integer { min, max }, default: Some(default), help }
}

const fn flag(name: &'static str, default: &'static str, help: &'static str) -> Param {
    Param { name, kind: ParamKind::Flag, default: Some(default), help }
}
