//! Parameters that linear learners share: each entry lists those that it takes.

use starlings_core::{Param, ParamKind};

/// Strength of the squared penalty; each entry has its own default.
pub(crate) const fn l2(default: &'static str) -> Param {
    number("l2", (0.0, 1e12), default, "strength of the penalty l2/2·‖w‖² beside the mean loss")
}

/// Strength of the penalty on magnitudes.
pub(crate) const L1: Param =
    number("l1", (0.0, 1e12), "0.0", "strength of the penalty l1·‖w‖₁ (owlqn)");
pub(crate) const LEARNING_RATE: Param = number(
    "learning_rate",
    (0.0, 1e6),
    "0.0",
    "step size of the mini-batch solvers; 0 means automatic: 0.1 (sgd), 0.02 (momentum, nesterov, lamb), 0.05 (adagrad), 0.01 (rmsprop, adam, adamw)",
);
pub(crate) const DECAY: Param = number(
    "decay",
    (0.0, 1e6),
    "0.0",
    "the learning rate at step t is learning_rate / (1 + decay·t)",
);
pub(crate) const MOMENTUM: Param =
    number("momentum", (0.0, 0.9999), "0.9", "how much of the velocity stays (momentum, nesterov)");
pub(crate) const RHO: Param =
    number("rho", (0.0, 0.999999), "0.9", "how much of the mean squared gradient stays (rmsprop)");
pub(crate) const BETA1: Param = number(
    "beta1",
    (0.0, 0.999999),
    "0.9",
    "how much of the mean gradient stays (adam, adamw, lamb)",
);
pub(crate) const BETA2: Param = number(
    "beta2",
    (0.0, 0.999999),
    "0.999",
    "how much of the mean squared gradient stays (adam, adamw, lamb)",
);
pub(crate) const EPSILON: Param = number(
    "epsilon",
    (1e-300, 1.0),
    "1e-8",
    "keeps the quotient of adagrad, rmsprop, adam, adamw and lamb finite",
);
pub(crate) const HISTORY: Param = Param {
    name: "history",
    kind: ParamKind::Integer { min: 1, max: 1000 },
    default: Some("10"),
    help: "steps that lbfgs, owlqn and sandblaster remember",
};
pub(crate) const TOLERANCE: Param =
    number("tolerance", (0.0, 1.0), "1e-7", "full-pass solvers stop when no slope is larger");
pub(crate) const MAX_ITERATIONS: Param = Param {
    name: "max_iterations",
    kind: ParamKind::Integer { min: 0, max: 1_000_000_000 },
    default: Some("1000"),
    help: "full-pass solvers stop after this many iterations, unless the job sets epochs",
};
pub(crate) const INTERCEPT: Param = Param {
    name: "intercept",
    kind: ParamKind::Flag,
    default: Some("true"),
    help: "whether scores have a constant term",
};
pub(crate) const STANDARDISE: Param = Param {
    name: "standardise",
    kind: ParamKind::Flag,
    default: Some("false"),
    help: "whether the penalty counts weights in units of their feature's deviation (full-pass solvers)",
};

/// A number with bounds and a default.
pub(crate) const fn number(
    name: &'static str,
    (min, max): (f64, f64),
    default: &'static str,
    help: &'static str,
) -> Param {
    Param { name, kind: ParamKind::Float { min, max }, default: Some(default), help }
}
