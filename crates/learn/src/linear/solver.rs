//! Solvers by name, and what each of them asks of a job.

use super::full_pass::{Correlations, FullPass, Method};
use super::mini_batch::{MiniBatch, Optimiser};
use super::penalty::Penalty;
use starlings_core::{Ability, Fault, Params, Result};

/// What solvers over all rows need.
pub(crate) const FULL_PASS_NEEDS: &[Ability] =
    &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

/// A solver with its settings.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SolverKind {
    /// Over all rows.
    FullPass(FullPass),
    /// Over mini-batches.
    MiniBatch(MiniBatch),
}

/// How a linear learner is solved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) solver: SolverKind,
    /// Whether a job with too many features for `cholesky` goes on with conjugate gradients instead.
    pub(crate) automatic: bool,
    pub(crate) penalty: Penalty,
    pub(crate) intercept: bool,
    pub(crate) max_iterations: u64,
}

/// Beyond this many features the products of all with all are too many.
pub(crate) const CHOLESKY_FEATURES_MAX: usize = 4096;

impl Setup {
    /// From checked parameters. `automatic` is what `solver = "auto"` stands for.
    pub(crate) fn new(
        params: &Params,
        penalty: Penalty,
        automatic: &str,
        balanced: bool,
    ) -> Result<Setup> {
        let named = params.text("solver");
        let name = if named == "auto" { automatic } else { named };
        let standardise = params.flag("standardise");
        let solver = match Optimiser::named(name, params) {
            Some((optimiser, rate)) => {
                let needs_pass = [
                    (standardise, "standardise"),
                    (balanced, "class_weight = \"balanced\""),
                    (penalty.l1 > 0.0, "l1"),
                ];
                if let Some((_, what)) = needs_pass.iter().find(|(wanted, _)| *wanted) {
                    return Err(Fault::caller(format!(
                        "{what} needs a pass over all rows, and solver = \"{name}\" takes mini-batches"
                    ))
                    .hint("use solver = \"auto\""));
                }
                let given = params.f64("learning_rate");
                let rate = if given > 0.0 { given } else { rate };
                SolverKind::MiniBatch(MiniBatch {
                    optimiser,
                    rate,
                    decay: params.f64("decay"),
                    l2: penalty.l2,
                })
            }
            None => {
                let (method, correlations) = full_pass(name);
                if penalty.l1 > 0.0 && method != Method::Owlqn {
                    return Err(Fault::caller(format!("solver = \"{name}\" cannot do l1"))
                        .hint("use solver = \"owlqn\" or \"auto\""));
                }
                SolverKind::FullPass(FullPass {
                    method,
                    correlations,
                    penalty,
                    tolerance: params.f64("tolerance"),
                    history: params.size("history"),
                    standardise,
                    balanced,
                })
            }
        };
        let max_iterations = params.size("max_iterations") as u64;
        let intercept = params.flag("intercept");
        Ok(Setup { solver, automatic: named == "auto", penalty, intercept, max_iterations })
    }

    /// The setup for so many features.
    ///
    /// # Errors
    /// When the solver that was asked for cannot have so many.
    pub(crate) fn suited(mut self, features: usize) -> Result<Setup> {
        let SolverKind::FullPass(solver) = &mut self.solver else { return Ok(self) };
        if solver.correlations != Correlations::All || features <= CHOLESKY_FEATURES_MAX {
            return Ok(self);
        }
        if !self.automatic {
            return Err(Fault::caller(format!(
                "{features} features have too many products for solver = \"cholesky\""
            ))
            .hint(format!("use \"conjugate-gradient\" beyond {CHOLESKY_FEATURES_MAX} features")));
        }
        (solver.method, solver.correlations) = full_pass("conjugate-gradient");
        Ok(self)
    }

    pub(crate) fn gives(&self) -> &'static [Ability] {
        match &self.solver {
            SolverKind::FullPass(_) => &[],
            SolverKind::MiniBatch(solver) if solver.is_row_wise() => {
                &[Ability::RowWise, Ability::LocalSteps, Ability::Factors]
            }
            SolverKind::MiniBatch(_) => &[Ability::LocalSteps, Ability::Factors],
        }
    }

    pub(crate) fn requires(&self) -> &'static [Ability] {
        match &self.solver {
            SolverKind::FullPass(_) => FULL_PASS_NEEDS,
            SolverKind::MiniBatch(_) => &[Ability::WholeModel],
        }
    }
}

/// The full-pass solver of a name; L-BFGS for all others.
fn full_pass(name: &str) -> (Method, Correlations) {
    match name {
        "owlqn" => (Method::Owlqn, Correlations::None),
        "newton" => (Method::Newton, Correlations::Sample),
        "conjugate-gradient" => (Method::ConjugateGradient, Correlations::None),
        "sandblaster" => (Method::Sandblaster, Correlations::None),
        "cholesky" => (Method::Lbfgs, Correlations::All),
        _ => (Method::Lbfgs, Correlations::Sample),
    }
}
