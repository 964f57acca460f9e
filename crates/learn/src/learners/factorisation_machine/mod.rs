//! Factorisation machines: w₀ + Σ wⱼxⱼ + Σ ⟨vᵢ, vⱼ⟩ xᵢxⱼ, every pair of features with an interaction of its own that
//! is learned also where the two were hardly ever seen together (Rendle, "Factorization machines", ICDM 2010). A row
//! costs k numbers for each of its features, not for each of their pairs.
//!
//! Mini-batches; every change is by row of the parameters (one row a feature), so that rows can live at owners and a
//! batch of sparse rows touches, fetches and changes only its own features.

mod forward;
mod solver;

use super::BuildLearner;
use crate::refusals;
use crate::{Appetite, Facts, Grade, Learner, Moment, Needs, Outcome, Place, Task, Work};
use forward::{Sums, Target};
use solver::{Optimiser, Solver};
use starlings_core::{
    Ability, Block, Body, Entry, FEATURES, Fault, Graph, Kind, Model, Op, Param, ParamKind, Params,
    Result, Rng, Role, Rows, Tensor, Update, Values,
};
use starlings_data::{Batch, Features, LabelNeed};
use std::collections::BTreeMap;

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "factorisation-machine",
    summary: "Numbers or two classes from features and the interactions of all their pairs, by factors",
    reference: "Rendle, Factorization machines, ICDM 2010",
    params: PARAMS,
    gives: GIVES,
    needs: NEEDS,
    build: |params| Ok(Box::new(Machine::new(params))),
};

const GIVES: &[Ability] = &[Ability::RowWise, Ability::LocalSteps];
const NEEDS: &[Ability] = &[Ability::WholeModel];

const PARAMS: &[Param] = &[
    Param {
        name: "task",
        kind: ParamKind::Choice(&["regression", "classification"]),
        default: Some("regression"),
        help: "numbers by squared error, or two classes by log-loss",
    },
    Param {
        name: "components",
        kind: ParamKind::Integer { min: 0, max: 4096 },
        default: Some("8"),
        help: "factors of each feature; without any it is a linear model",
    },
    Param {
        name: "solver",
        kind: ParamKind::Choice(&["adam", "adagrad", "sgd"]),
        default: Some("adam"),
        help: "how gradients become steps",
    },
    number(
        "learning_rate",
        (0.0, 1e6),
        "0.0",
        "step size; 0 means automatic: 0.01 (adam), 0.1 (adagrad), 0.01 (sgd)",
    ),
    number("l2", (0.0, 1e12), "1e-4", "strength of the penalty l2/2·(‖w‖² + ‖V‖²)"),
    number(
        "deviation",
        (0.0, 1e6),
        "0.1",
        "standard deviation of the factors before the first step",
    ),
    number(
        "decay",
        (0.0, 1e6),
        "0.0",
        "the learning rate at step t is learning_rate / (1 + decay·t)",
    ),
    number("beta1", (0.0, 0.999999), "0.9", "how much of the mean gradient stays (adam)"),
    number("beta2", (0.0, 0.999999), "0.999", "how much of the mean squared gradient stays (adam)"),
    number("epsilon", (1e-300, 1.0), "1e-8", "keeps the quotient of adam and adagrad finite"),
];

const fn number(
    name: &'static str,
    (min, max): (f64, f64),
    default: &'static str,
    help: &'static str,
) -> Param {
    Param { name, kind: ParamKind::Float { min, max }, default: Some(default), help }
}

struct Machine {
    target: Target,
    components: usize,
    l2: f64,
    deviation: f64,
    solver: Solver,
}

impl Machine {
    fn new(params: &Params) -> Machine {
        let (epsilon, beta1, beta2) =
            (params.f64("epsilon"), params.f64("beta1"), params.f64("beta2"));
        let (optimiser, automatic) = match params.text("solver") {
            "sgd" => (Optimiser::Sgd, 0.01),
            "adagrad" => (Optimiser::AdaGrad { epsilon }, 0.1),
            _ => (Optimiser::Adam { beta1, beta2, epsilon }, 0.01),
        };
        let given = params.f64("learning_rate");
        let rate = if given > 0.0 { given } else { automatic };
        let l2 = params.f64("l2");
        Machine {
            target: match params.text("task") {
                "classification" => Target::Class,
                _ => Target::Number,
            },
            components: params.size("components"),
            l2,
            deviation: params.f64("deviation"),
            solver: Solver { optimiser, rate, decay: params.f64("decay") },
        }
    }

    fn check(&self, model: &Model, batch: &Batch<'_>) -> Result<()> {
        let features = model.get("weights").map_or(0, Tensor::rows);
        refusals::check_width(features, batch)?;
        match self.target {
            Target::Class => refusals::check_classes(2, batch),
            Target::Number => refusals::check_numbers(batch),
        }
    }

    fn score_of<'a>(&self, model: &'a Model) -> forward::Machine<'a> {
        forward::Machine {
            bias: model.f64("bias")[0],
            weights: model.f64("weights"),
            components: self.components,
        }
    }
}

impl Learner for Machine {
    fn task(&self) -> Task {
        match self.target {
            Target::Class => Task::Classification,
            Target::Number => Task::Regression,
        }
    }

    fn appetite(&self) -> Appetite {
        Appetite::Batches
    }

    fn label(&self) -> LabelNeed {
        match self.target {
            Target::Class => LabelNeed::Class,
            Target::Number => LabelNeed::Number,
        }
    }

    fn weighs(&self) -> bool {
        true
    }

    fn gives(&self) -> &'static [Ability] {
        GIVES
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let (features, classes) = (facts.schema.features, facts.schema.classes());
        if facts.rows == 0 || features == 0 {
            return Err(Fault::caller("there are no rows with features to learn from"));
        }
        if self.target == Target::Class && classes != 2 {
            return Err(Fault::caller(format!(
                "factorisation-machine tells two classes apart, and the labels have {classes}"
            ))
            .hint("use logistic-regression for more classes"));
        }
        let width = 1 + self.components;
        let mut weights = vec![0.0; features * width];
        for (feature, row) in weights.chunks_exact_mut(width).enumerate() {
            let mut rng = Rng::named(facts.seed, "factorisation machine", &[feature as u64]);
            row[1..].iter_mut().for_each(|factor| *factor = self.deviation * rng.normal());
        }
        let mut model = Model::new();
        model.set("weights", Tensor::of(&[features, width], weights, Role::Weight));
        model.set("bias", Tensor::zeros(Kind::F64, &[1, 1], Role::Weight));
        self.solver.init(&mut model, "weights");
        self.solver.init(&mut model, "bias");
        Ok(model)
    }

    fn needs(&self, _: &Model, batch: &Batch<'_>) -> Needs {
        match &batch.table.features {
            Features::Dense { .. } => Needs::All,
            Features::Sparse { .. } => Needs::Rows(BTreeMap::from([
                ("bias".to_string(), vec![0]),
                ("weights".to_string(), forward::touched(batch)),
            ])),
        }
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        self.check(work.model, work.batch)?;
        let machine = self.score_of(work.model);
        let width = 1 + self.components;
        let mut bias = 0.0;
        let (sums, body) = match &work.batch.table.features {
            Features::Dense { .. } => {
                let mut gradient = vec![0.0; machine.weights.len()];
                let into = (&mut bias, &mut gradient[..]);
                let sums = machine.gradient(self.target, work.batch, into, |feature| feature);
                (sums, Body::Dense(Values::F64(gradient)))
            }
            Features::Sparse { width: features, .. } => {
                let index = forward::touched(work.batch);
                let mut gradient = vec![0.0; index.len() * width];
                let place = |feature: usize| index.partition_point(|&at| (at as usize) < feature);
                let into = (&mut bias, &mut gradient[..]);
                let sums = machine.gradient(self.target, work.batch, into, place);
                let total = *features as u32;
                let values = Values::F64(gradient);
                (sums, Body::Rows(Rows { total, width: width as u32, index, values }))
            }
        };
        if !sums.loss.is_finite() {
            let what = "which is not finite";
            if let Some(fault) = refusals::find_number(work.batch, what, f32::is_finite) {
                return Err(fault.hint("leave such rows out, or fill the number in"));
            }
        }
        work.outbox.emit(Block { name: "weights".to_string(), body });
        work.outbox.emit(Block::dense("bias", vec![bias]));
        work.outbox.emit(Block::dense("loss", vec![sums.loss, sums.weight]));
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let mut finite = true;
        for (name, l2) in [("weights", self.l2), ("bias", 0.0)] {
            if let Some(block) = update.get(name) {
                finite &= self.solver.step(model, block, l2, moment);
            }
        }
        if !finite {
            let rate = self.solver.rate;
            return Err(Fault::caller(format!(
                "training diverged: the weights are not finite after {}",
                moment.step
            ))
            .hint(format!("lower learning_rate (it is {rate}), or scale features and labels")));
        }
        let objective = match update.get("loss").map(|_| update.f64("loss")) {
            Some(&[loss, weight]) if weight > 0.0 => Some(loss / weight),
            _ => None,
        };
        Ok(Outcome { objective, ..Outcome::default() })
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        self.check(work.model, work.batch)?;
        let Sums { loss, weight, error, correct } =
            self.score_of(work.model).evaluate(self.target, work.batch);
        Ok(vec![loss, weight, error, correct])
    }

    /// The objective is the mean loss (half the squared error, or the log-loss) and the penalty.
    fn grade(&self, model: &Model, sums: &[f64], _: u64) -> Grade {
        let weight = if sums[1] > 0.0 { sums[1] } else { 1.0 };
        let loss = sums[0] / weight;
        let metrics = match self.target {
            Target::Number => [("rmse", (2.0 * loss).sqrt()), ("mae", sums[2] / weight)],
            Target::Class => [("log_loss", loss), ("accuracy", sums[3] / weight)],
        };
        let squares: f64 = model.f64("weights").iter().map(|weight| weight * weight).sum();
        Grade {
            objective: loss + 0.5 * self.l2 * squares,
            metrics: metrics.map(|(name, value)| (name.to_string(), value)).into(),
        }
    }

    fn outputs(&self, _: &Model) -> usize {
        match self.target {
            Target::Class => 2,
            Target::Number => 1,
        }
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        refusals::check_width(model.get("weights").map_or(0, Tensor::rows), batch)?;
        self.score_of(model).each(batch, |_, score| match self.target {
            Target::Number => out.push(score),
            Target::Class => {
                let p = forward::logistic(score);
                out.extend([1.0 - p, p]);
            }
        });
        Ok(())
    }

    /// w₀ + x·w + ½ Σ ((x·V)² − x²·V²).
    fn graph(&self, model: &Model) -> Option<Graph> {
        let (weights, width) = (model.f64("weights"), 1 + self.components);
        let features = weights.len() / width;
        let column = |from: usize, to: usize, of: fn(f64) -> f64| -> Vec<f64> {
            let rows = weights.chunks_exact(width);
            rows.flat_map(|row| row[from..to].iter().map(|w| of(*w))).collect()
        };
        let mut graph = Graph::new();
        let linear = graph.constant("linear", &[features, 1], column(0, 1, |w| w));
        let bias = graph.constant("bias", &[1], model.f64("bias").to_vec());
        let score = graph.node(Op::MatMul, &[FEATURES, &linear]);
        let mut score = graph.node(Op::Add, &[&score, &bias]);
        if self.components > 0 {
            let shape = [features, self.components];
            let factors = graph.constant("factors", &shape, column(1, width, |w| w));
            let squares = graph.constant("squares", &shape, column(1, width, |w| w * w));
            let half = graph.constant("half", &[1], vec![0.5]);
            let sums = graph.node(Op::MatMul, &[FEATURES, &factors]);
            let all = graph.node(Op::Mul, &[&sums, &sums]);
            let x2 = graph.node(Op::Mul, &[FEATURES, FEATURES]);
            let own = graph.node(Op::MatMul, &[&x2, &squares]);
            let pairs = graph.node(Op::Sub, &[&all, &own]);
            let pairs = graph.node(Op::SumRows, &[&pairs]);
            let pairs = graph.node(Op::Mul, &[&pairs, &half]);
            score = graph.node(Op::Add, &[&score, &pairs]);
        }
        if self.target == Target::Class {
            let p = graph.node(Op::Sigmoid, &[&score]);
            let one = graph.constant("one", &[1], vec![1.0]);
            let other = graph.node(Op::Sub, &[&one, &p]);
            graph.node(Op::Concat, &[&other, &p]);
        }
        Some(graph)
    }
}
