//! The linear support vector machine (Cortes and Vapnik, 1995) with scikit-learn's `LinearSVC` as the model of its
//! parameters: ½‖w‖² + c·Σ loss, here divided by c·(sum of weights), so that objectives do not grow with the rows. The work
//! is done in `margin`.

use super::BuildLearner;
use crate::margin::{ClassWeight, Loss, Margin, Part, Solver, check_labels};
use crate::rows::{check_finite, check_width};
use crate::{Appetite, Facts, Grade, Learner, Moment, Outcome, Place, Rebuilds, Task, Work};
use starlings_core::{
    Ability, Entry, FEATURES, Fault, Graph, Model, Param, ParamKind, Params, Result, Update,
};
use starlings_data::{Batch, LabelNeed};

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "linear-svm",
    summary: "Classes by a margin: hinge or squared hinge, by dual coordinate ascent or L-BFGS",
    reference: "Cortes and Vapnik, Support-vector networks, 1995; Shalev-Shwartz and Zhang, Stochastic dual coordinate \
                ascent, JMLR 14, 2013; Ma et al., Adding vs. averaging in distributed primal-dual optimization, ICML 2015",
    params: PARAMS,
    gives: &[],
    needs: NEEDS,
    build: |params| {
        let margin = margin(params, params.flag("standardise"))?;
        Ok(Box::new(LinearSvm { margin, max_iterations: params.size("max_iterations") as u64 }))
    },
};

/// What all margin learners need: an agreed, exact sum.
pub(super) const NEEDS: &[Ability] =
    &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

const PARAMS: &[Param] = &[
    LOSS,
    SOLVER,
    C,
    L2,
    CLASS_WEIGHT,
    INTERCEPT,
    INTERCEPT_SCALING,
    Param {
        name: "standardise",
        kind: ParamKind::Flag,
        default: Some("false"),
        help: "whether features are centred (unless rows are sparse) and divided by their deviation; weights come back \
               in the units of the data",
    },
    TOLERANCE,
    MAX_ITERATIONS,
    LOCAL_PASSES,
];

pub(super) const LOSS: Param = Param {
    name: "loss",
    kind: ParamKind::Choice(&["squared-hinge", "hinge"]),
    default: Some("squared-hinge"),
    help: "what a row costs whose margin is below one",
};
pub(super) const SOLVER: Param = Param {
    name: "solver",
    kind: ParamKind::Choice(&["auto", "lbfgs", "sdca"]),
    default: Some("auto"),
    help: "sdca: dual coordinate ascent by shard (CoCoA+); lbfgs: the squared hinge over all rows; auto: lbfgs where it can",
};
pub(super) const C: Param = number(
    "c",
    (1e-12, 1e12),
    "1.0",
    "how much losses count against ½‖w‖²; l2 is 1/(c·sum of weights)",
);
pub(super) const L2: Param = number(
    "l2",
    (0.0, 1e12),
    "0.0",
    "strength of the penalty l2/2·‖w‖² against the mean loss, instead of c; 0 means by c",
);
pub(super) const CLASS_WEIGHT: Param = Param {
    name: "class_weight",
    kind: ParamKind::Text,
    default: Some("none"),
    help: "none, balanced (all classes count alike), or what each class counts: \"yes: 2, no: 0.5\"",
};
pub(super) const INTERCEPT: Param = Param {
    name: "intercept",
    kind: ParamKind::Flag,
    default: Some("true"),
    help: "whether scores have a constant term",
};
pub(super) const INTERCEPT_SCALING: Param = number(
    "intercept_scaling",
    (1e-6, 1e6),
    "1.0",
    "the constant feature whose weight is the intercept: the larger, the less the intercept is penalised",
);
pub(super) const TOLERANCE: Param = number(
    "tolerance",
    (0.0, 1.0),
    "1e-4",
    "done when the duality gap is this share of the objective",
);
pub(super) const MAX_ITERATIONS: Param = Param {
    name: "max_iterations",
    kind: ParamKind::Integer { min: 0, max: 1_000_000_000 },
    default: Some("1000"),
    help: "iterations of lbfgs or rounds of sdca, unless the job sets epochs",
};
pub(super) const LOCAL_PASSES: Param = Param {
    name: "local_passes",
    kind: ParamKind::Integer { min: 1, max: 1000 },
    default: Some("1"),
    help: "passes of each shard over its rows between two exchanges (sdca)",
};

/// The margin machine that parameters ask for.
pub(super) fn margin(params: &Params, standardise: bool) -> Result<Margin> {
    let loss = match params.text("loss") {
        "hinge" => Loss::Hinge,
        _ => Loss::SquaredHinge,
    };
    let dual = Solver::Dual { passes: params.size("local_passes") };
    let solver = match (params.text("solver"), loss) {
        ("sdca", _) | ("auto", Loss::Hinge) => dual,
        ("lbfgs", Loss::Hinge) => {
            return Err(Fault::caller("the hinge has a kink that lbfgs cannot pass over")
                .hint("use solver = \"sdca\", or loss = \"squared-hinge\""));
        }
        _ => Solver::Primal,
    };
    let constant = params.flag("intercept").then(|| params.f64("intercept_scaling"));
    Ok(Margin {
        loss,
        solver,
        c: params.f64("c"),
        l2: params.f64("l2"),
        constant,
        class_weight: class_weight(params.text("class_weight"))?,
        standardise,
        tolerance: params.f64("tolerance"),
    })
}

fn class_weight(text: &str) -> Result<ClassWeight> {
    match text.trim() {
        "" | "none" => return Ok(ClassWeight::Even),
        "balanced" => return Ok(ClassWeight::Balanced),
        _ => {}
    }
    let pair = |pair: &str| -> Option<(String, f64)> {
        let (class, weight) = pair.rsplit_once(':')?;
        let weight: f64 = weight.trim().parse().ok()?;
        (weight.is_finite() && weight >= 0.0).then(|| (class.trim().to_string(), weight))
    };
    let pairs: Option<Vec<(String, f64)>> = text.split(',').map(pair).collect();
    pairs.map(ClassWeight::Given).ok_or_else(|| {
        Fault::caller(format!("class_weight = \"{text}\" cannot be read"))
            .hint("write none, balanced, or pairs of class and weight: \"yes: 2, no: 0.5\"")
    })
}

const fn number(
    name: &'static str,
    (min, max): (f64, f64),
    default: &'static str,
    help: &'static str,
) -> Param {
    Param { name, kind: ParamKind::Float { min, max }, default: Some(default), help }
}

/// A linear support vector machine.
struct LinearSvm {
    margin: Margin,
    max_iterations: u64,
}

/// The shards of a batch.
fn parts<'a>(batch: &Batch<'a>) -> Vec<Part<'a>> {
    batch.slices.iter().map(|slice| Part::of(batch, slice)).collect()
}

impl Learner for LinearSvm {
    fn task(&self) -> Task {
        Task::Classification
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::Class
    }

    fn weighs(&self) -> bool {
        true
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let mut model = Model::new();
        self.margin.init(&mut model, facts.schema.features, facts, self.max_iterations)?;
        Ok(model)
    }

    fn rebuilds(&self) -> Rebuilds {
        self.margin.rebuilds()
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let layout = self.margin.layout(work.model);
        check_width(layout.features, work.batch)?;
        if work.moment.step.0 == 0 {
            check_labels(layout.classes(), work.batch)?;
            check_finite(work.batch)?;
        }
        let parts = parts(work.batch);
        self.margin.contribute(work, &parts);
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        self.margin.apply(model, update, moment)
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let layout = self.margin.layout(work.model);
        check_width(layout.features, work.batch)?;
        check_labels(layout.classes(), work.batch)?;
        Ok(self.margin.score(work.model, &parts(work.batch)))
    }

    fn grade(&self, model: &Model, sums: &[f64], _: u64) -> Grade {
        self.margin.grade(model, sums)
    }

    fn outputs(&self, model: &Model) -> usize {
        self.margin.layout(model).classes()
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        check_width(self.margin.layout(model).features, batch)?;
        let predictor = self.margin.predictor(model);
        parts(batch).iter().for_each(|part| predictor.predict(part, out));
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let mut graph = Graph::new();
        self.margin.graph(model, &mut graph, FEATURES);
        Some(graph)
    }
}
