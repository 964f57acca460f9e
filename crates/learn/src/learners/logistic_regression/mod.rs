//! Logistic regression with an L2 penalty: mean log-loss + l2/2·‖w‖², the intercept unpenalised. Two classes
//! have one vector of weights, more have one each (softmax). Solved by L-BFGS over all rows (Liu and
//! Nocedal, 1989), or by stochastic gradients, momentum, AdaGrad or Adam over mini-batches.

mod exact;
mod full_pass;
mod mini_batch;
mod objective;

use crate::learners::BuildLearner;
use crate::{Appetite, Facts, Grade, Learner, Moment, Needs, Outcome, Place, Task, Work};
use full_pass::FullPass;
use mini_batch::{MiniBatch, Optimiser};
use objective::Layout;
use starlings_core::{
    Ability, Entry, Fault, Kind, Model, Param, ParamKind, Params, Result, Role, Tensor, Update,
};
use starlings_data::{Batch, Features, LabelNeed};
use std::collections::BTreeMap;

/// The entry of the catalogue. Its abilities are those of the default solver.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "logistic-regression",
    summary: "Classes by a linear score: binary or softmax, by L-BFGS, SGD, momentum, AdaGrad or Adam",
    reference: "Cox, The regression analysis of binary sequences, 1958; Liu and Nocedal, On the limited \
                memory BFGS method for large scale optimization, 1989",
    params: PARAMS,
    gives: &[],
    needs: FULL_PASS_NEEDS,
    build: |params| Ok(Box::new(LogisticRegression::new(params)?)),
};

const FULL_PASS_NEEDS: &[Ability] =
    &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

const PARAMS: &[Param] = &[
    Param {
        name: "solver",
        kind: ParamKind::Choice(&["lbfgs", "sgd", "momentum", "adagrad", "adam"]),
        default: Some("lbfgs"),
        help: "how the objective is minimised: lbfgs passes over all rows, the others take mini-batches",
    },
    number("l2", (0.0, 1e12), "1e-4", "strength of the penalty l2/2·‖w‖²"),
    number(
        "learning_rate",
        (0.0, 1e6),
        "0.0",
        "step size of the mini-batch solvers; 0 means automatic: 0.1 (sgd), 0.02 (momentum), 0.05 (adagrad), 0.01 (adam)",
    ),
    number(
        "decay",
        (0.0, 1e6),
        "0.0",
        "the learning rate at step t is learning_rate / (1 + decay·t)",
    ),
    number("momentum", (0.0, 0.9999), "0.9", "how much of the velocity stays (momentum)"),
    number("beta1", (0.0, 0.999999), "0.9", "how much of the mean gradient stays (adam)"),
    number("beta2", (0.0, 0.999999), "0.999", "how much of the mean squared gradient stays (adam)"),
    number("epsilon", (1e-300, 1.0), "1e-8", "keeps the quotient of adam and adagrad finite"),
    Param {
        name: "history",
        kind: ParamKind::Integer { min: 1, max: 1000 },
        default: Some("10"),
        help: "steps that lbfgs remembers",
    },
    number("tolerance", (0.0, 1.0), "1e-7", "lbfgs stops when no slope is larger"),
    Param {
        name: "max_iterations",
        kind: ParamKind::Integer { min: 0, max: 1_000_000_000 },
        default: Some("1000"),
        help: "lbfgs stops after this many iterations, unless the job sets epochs",
    },
    Param {
        name: "intercept",
        kind: ParamKind::Flag,
        default: Some("true"),
        help: "whether scores have a constant term",
    },
    Param {
        name: "standardise",
        kind: ParamKind::Flag,
        default: Some("false"),
        help: "whether the penalty counts weights in units of their feature's deviation (lbfgs only)",
    },
];

const fn number(
    name: &'static str,
    (min, max): (f64, f64),
    default: &'static str,
    help: &'static str,
) -> Param {
    Param { name, kind: ParamKind::Float { min, max }, default: Some(default), help }
}

/// Logistic regression.
struct LogisticRegression {
    solver: Solver,
    l2: f64,
    intercept: bool,
    max_iterations: u64,
}

enum Solver {
    FullPass(FullPass),
    MiniBatch(MiniBatch),
}

impl LogisticRegression {
    fn new(params: &Params) -> Result<LogisticRegression> {
        let (l2, intercept) = (params.f64("l2"), params.flag("intercept"));
        let standardise = params.flag("standardise");
        let optimiser = match params.text("solver") {
            "sgd" => Some((Optimiser::Sgd, 0.1)),
            "momentum" => Some((Optimiser::Momentum { momentum: params.f64("momentum") }, 0.02)),
            "adagrad" => Some((Optimiser::AdaGrad { epsilon: params.f64("epsilon") }, 0.05)),
            "adam" => {
                let (beta1, beta2) = (params.f64("beta1"), params.f64("beta2"));
                Some((Optimiser::Adam { beta1, beta2, epsilon: params.f64("epsilon") }, 0.01))
            }
            _ => None,
        };
        let solver = match optimiser {
            Some(_) if standardise => {
                return Err(Fault::caller("standardise needs a pass over all rows")
                    .hint("use solver = \"lbfgs\", or scale the features before training"));
            }
            Some((optimiser, automatic)) => {
                let given = params.f64("learning_rate");
                let rate = if given > 0.0 { given } else { automatic };
                let decay = params.f64("decay");
                Solver::MiniBatch(MiniBatch { optimiser, rate, decay, l2, intercept })
            }
            None => {
                let (tolerance, history) = (params.f64("tolerance"), params.size("history"));
                Solver::FullPass(FullPass { l2, tolerance, history, standardise, intercept })
            }
        };
        let max_iterations = params.size("max_iterations") as u64;
        Ok(LogisticRegression { solver, l2, intercept, max_iterations })
    }

    fn layout(&self, model: &Model) -> Layout {
        let weights = model.get("weights").expect("every model of this learner has weights");
        let features = weights.rows() - usize::from(self.intercept);
        Layout { features, scores: weights.width(), intercept: self.intercept }
    }
}

impl Learner for LogisticRegression {
    fn task(&self) -> Task {
        Task::Classification
    }

    fn appetite(&self) -> Appetite {
        match self.solver {
            Solver::FullPass(_) => Appetite::Passes,
            Solver::MiniBatch(_) => Appetite::Batches,
        }
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::Class
    }

    fn gives(&self) -> &'static [Ability] {
        match self.solver {
            Solver::FullPass(_) => &[],
            Solver::MiniBatch(_) => &[Ability::RowWise, Ability::LocalSteps, Ability::Factors],
        }
    }

    fn requires(&self) -> &'static [Ability] {
        match self.solver {
            Solver::FullPass(_) => FULL_PASS_NEEDS,
            Solver::MiniBatch(_) => &[Ability::WholeModel],
        }
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let classes = facts.schema.classes();
        if facts.rows == 0 {
            return Err(Fault::caller("there are no rows to learn from"));
        }
        if classes < 2 {
            return Err(Fault::caller(format!("labels have {classes} classes, two are needed"))
                .hint("name the label column that tells classes apart"));
        }
        let scores = if classes == 2 { 1 } else { classes };
        let layout = Layout { features: facts.schema.features, scores, intercept: self.intercept };
        if layout.rows() == 0 {
            return Err(Fault::caller("there are no features to learn from"));
        }
        let mut model = Model::new();
        let shape = [layout.rows(), layout.scores];
        model.set("weights", Tensor::zeros(Kind::F64, &shape, Role::Weight));
        match &self.solver {
            Solver::FullPass(solver) => {
                let iterations = facts.epochs.unwrap_or(self.max_iterations);
                let iterations = i64::try_from(iterations).unwrap_or(i64::MAX);
                solver.init(&mut model, layout, (iterations, facts.shards));
            }
            Solver::MiniBatch(solver) => solver.init(&mut model, layout),
        }
        Ok(model)
    }

    fn needs(&self, model: &Model, batch: &Batch<'_>) -> Needs {
        match (&self.solver, &batch.table.features) {
            (Solver::MiniBatch(_), Features::Sparse { .. }) => {
                let touched = objective::touched(self.layout(model), batch);
                Needs::Rows(BTreeMap::from([("weights".to_string(), touched)]))
            }
            _ => Needs::All,
        }
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let layout = self.layout(work.model);
        objective::check_width(layout, work.batch)?;
        objective::check_labels(layout, work.batch)?;
        match &self.solver {
            Solver::FullPass(solver) => solver.contribute(work, layout),
            Solver::MiniBatch(solver) => solver.contribute(work, layout),
        }
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        match &self.solver {
            Solver::FullPass(solver) => solver.apply(model, update, moment),
            Solver::MiniBatch(solver) => solver.apply(model, update, moment),
        }
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let layout = self.layout(work.model);
        objective::check_width(layout, work.batch)?;
        objective::check_labels(layout, work.batch)?;
        let sums = objective::evaluate(layout, work.model.f64("weights"), work.batch);
        Ok(vec![sums.loss, sums.correct])
    }

    fn grade(&self, model: &Model, sums: &[f64], rows: u64) -> Grade {
        let layout = self.layout(model);
        let rows = rows.max(1) as f64;
        let scale = model.get(full_pass::SCALE).map(|_| model.f64(full_pass::SCALE));
        let weights = model.f64("weights").chunks_exact(layout.scores).take(layout.features);
        let mut squares = 0.0;
        for (feature, row) in weights.enumerate() {
            let unit = scale.map_or(1.0, |scale| scale[feature]);
            squares += row.iter().map(|w| (w * unit).powi(2)).sum::<f64>();
        }
        let log_loss = sums[0] / rows;
        let metrics = [("accuracy", sums[1] / rows), ("log_loss", log_loss)];
        Grade {
            objective: log_loss + 0.5 * self.l2 * squares,
            metrics: metrics.map(|(name, value)| (name.to_string(), value)).into(),
        }
    }

    fn outputs(&self, model: &Model) -> usize {
        self.layout(model).classes()
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let layout = self.layout(model);
        objective::check_width(layout, batch)?;
        objective::probabilities(layout, model.f64("weights"), batch, out);
        Ok(())
    }
}
