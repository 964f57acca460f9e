//! Label propagation (Zhu and Ghahramani, 2002) and label spreading (Zhou et al., 2004): labels run along a graph of the
//! rows, from the few that have one to the many that have none. Propagation holds the known labels fast; spreading lets
//! the graph change them too, and evens out rows with many neighbours.
//!
//! Rows and labels travel once, so that every worker has all of them; each then keeps the edges of its own rows, and an
//! iteration is one exchange of what its rows believe. No sum is formed of more than one worker's numbers, so the
//! result is the same bits for any number of workers. Cost: rows × (4 · features + 16 · classes) bytes on every worker,
//! and 8 · rows² bytes of edges (rbf) or 4 · rows · neighbours (knn) over all workers.

mod edges;
mod options;
mod steps;

pub(super) use options::{PROPAGATION, SPREADING};

use crate::{Appetite, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use options::{Kernel, Method, Options};
use starlings_core::{
    Ability, FEATURES, Fault, Graph, Kind, Model, Op, Result, Role, Tensor, Update, Values,
};
use starlings_data::{Batch, Encoding, LabelNeed};
use std::collections::BTreeMap;
use steps::Stage;

const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

impl Learner for Options {
    fn task(&self) -> Task {
        Task::Classification
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn encoding(&self) -> Encoding {
        Encoding::OneHot
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::SomeClasses
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let (rows, features) = (facts.rows as usize, facts.schema.features);
        let classes = facts.schema.classes().max(2);
        if facts.schema.classes() < 2 {
            return Err(Fault::caller(format!(
                "{}: labels have {} classes, two are needed",
                self.name(),
                facts.schema.classes()
            ))
            .hint("name the label column that tells classes apart; rows without a label leave it empty"));
        }
        self.check_size(rows, features, classes)?;
        let mut model = Model::new();
        model.set("rows", Tensor::zeros(Kind::F32, &[rows, features], Role::Weight));
        model.set("beliefs", Tensor::zeros(Kind::F64, &[rows, classes], Role::Weight));
        model.set("known", Tensor::zeros(Kind::F64, &[rows, classes], Role::State));
        model.set("degrees", Tensor::zeros(Kind::F64, &[rows], Role::State));
        let at = Tensor { shape: vec![2], values: Values::I64(vec![0, 0]), role: Role::State };
        model.set("stage", at);
        Ok(model)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        match Stage::of(work.model) {
            Stage::Gather => self.gather(work),
            Stage::Degrees => self.count_degrees(work),
            Stage::Iterate => self.iterate(work),
        }
    }

    fn apply(&self, model: &mut Model, update: &Update, _: &Moment) -> Result<Outcome> {
        match Stage::of(model) {
            Stage::Gather => self.gathered(model, update),
            Stage::Degrees => {
                *model.f64_mut("degrees") = update.f64("degrees").to_vec();
                Stage::Iterate.set(model);
                Ok(Outcome { iterations: Some(0), ..Outcome::default() })
            }
            Stage::Iterate => Ok(self.iterated(model, update)),
        }
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let classes = self.outputs(work.model);
        let beliefs = work.model.f64("beliefs");
        let mut sums = vec![0.0; 4];
        for slice in &work.batch.slices {
            for (at, row) in slice.rows().enumerate() {
                let number = (slice.origin + at as u64) as usize;
                let Some(&label) = work.batch.table.labels.get(row) else { continue };
                if label.is_nan() {
                    sums[3] += 1.0;
                    continue;
                }
                let believed = &beliefs[number * classes..(number + 1) * classes];
                let chance = believed[label as usize].clamp(f64::EPSILON, 1.0);
                let best =
                    (1..classes).fold(0, |a, b| if believed[b] > believed[a] { b } else { a });
                sums[0] -= chance.ln();
                sums[1] += f64::from(u8::from(best == label as usize));
                sums[2] += 1.0;
            }
        }
        Ok(sums)
    }

    fn grade(&self, _: &Model, sums: &[f64], _: u64) -> Grade {
        let rows = sums[2].max(1.0);
        let metrics = [
            ("accuracy", sums[1] / rows),
            ("log_loss", sums[0] / rows),
            ("rows_unlabelled", sums[3]),
        ];
        let metrics = metrics.map(|(name, value)| (name.to_string(), value));
        Grade { objective: sums[0] / rows, metrics: BTreeMap::from(metrics) }
    }

    fn outputs(&self, model: &Model) -> usize {
        model.get("beliefs").map_or(2, Tensor::width)
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        self.answer(model, batch, out)
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        // The nearest few are beyond these operators.
        let Kernel::Rbf { gamma } = self.kernel else { return None };
        let rows = model.get("rows")?;
        let (count, width) = (rows.rows(), rows.width());
        let numbers: Vec<f64> =
            rows.values.as_f32()?.iter().map(|number| f64::from(*number)).collect();
        let classes = self.outputs(model);
        let mut graph = Graph::new();
        let turned = (0..width * count)
            .map(|at| -2.0 * numbers[(at % count) * width + at / count])
            .collect();
        let turned = graph.constant("rows", &[width, count], turned);
        let squares = numbers.chunks(width.max(1)).map(|row| row.iter().map(|x| x * x).sum());
        let squares = graph.constant("squares", &[count], squares.collect());
        let beliefs = graph.constant("beliefs", &[count, classes], model.f64("beliefs").to_vec());
        let slope = graph.constant("slope", &[1], vec![-gamma]);
        let products = graph.node(Op::MatMul, &[FEATURES, &turned]);
        // The row's own square is the same for all, and falls out with the nearest.
        let distances = graph.node(Op::Add, &[&products, &squares]);
        let nearest = graph.node(Op::MinRows, &[&distances]);
        let beyond = graph.node(Op::Sub, &[&distances, &nearest]);
        let scaled = graph.node(Op::Mul, &[&beyond, &slope]);
        let weights = graph.node(Op::Exp, &[&scaled]);
        let sums = graph.node(Op::MatMul, &[&weights, &beliefs]);
        let total = graph.node(Op::SumRows, &[&sums]);
        let zero = graph.constant("zero", &[1], vec![0.0]);
        let nothing = graph.node(Op::Equal, &[&total, &zero]);
        let one = graph.constant("one", &[1], vec![1.0]);
        let safe = graph.node(Op::Where, &[&nothing, &one, &total]);
        let shares = graph.node(Op::Div, &[&sums, &safe]);
        let even = graph.constant("even", &[classes], vec![1.0 / classes as f64; classes]);
        graph.node(Op::Where, &[&nothing, &even, &shares]);
        Some(graph)
    }
}

impl Options {
    /// What it is called in a job.
    fn name(&self) -> &'static str {
        match self.method {
            Method::Propagation => "label-propagation",
            Method::Spreading { .. } => "label-spreading",
        }
    }
}
