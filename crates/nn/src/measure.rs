//! What layers cost in time, for cutting a network into stages: each layer takes rows that are made up forth and back a few
//! times, and its best time counts, for everything that disturbs makes it longer. Whoever starts the job measures, once, and
//! tells all workers where to cut: clocks differ, cuts must not.

use crate::chain::{Link, Source};
use crate::cut;
use crate::flow::{Flow, Form};
use crate::learner::Network;
use crate::pass::{Lesson, Pass, Share, Weights, device, tensor};
use crate::stack::Stack;
use burn_tensor::Tensor;
use starlings_core::{Model, Result, Rng, Role, Shard, Step, Values};
use starlings_learn::{Facts, Moment, Place};

/// Rows that are made up, at most.
const ROWS_MAX: u64 = 64;
/// How often a layer is timed, after once that is not.
const TIMES: usize = 3;

impl Network {
    /// How many layers each stage should have by the time that they take.
    pub(crate) fn cut_by_time(
        &self,
        (facts, stack): (&Facts, &Stack),
        stages: u32,
        clock: &dyn Fn() -> f64,
    ) -> Result<Vec<u32>> {
        let mut model = Model::new();
        for (parameter, values) in self.started(facts.seed, stack, &Place::WHOLE)? {
            let (shape, values) = (parameter.shape.clone(), Values::F32(values));
            let tensor = starlings_core::Tensor { shape, values, role: Role::Weight };
            model.set(&parameter.name, tensor);
        }
        let weights = Weights::of(&model, stack.parameters(), true);
        let rows = facts.batch.clamp(1, ROWS_MAX) as usize;
        let costs: Vec<u64> = (0..stack.len())
            .map(|stage| nanoseconds((stack, stage), rows, &weights, clock))
            .collect();
        cut::by_costs(stack, stages as usize, &costs)
    }
}

/// The best time of a layer, forth and back.
fn nanoseconds(
    (stack, stage): (&Stack, usize),
    rows: usize,
    weights: &Weights<'_>,
    clock: &dyn Fn() -> f64,
) -> u64 {
    let mut best = f64::INFINITY;
    for time in 0..=TIMES {
        let moment = Moment { step: Step(time as u64), pass: 0, seed: 0, rows: rows as u64 };
        let shares = vec![Share { shard: Shard(0), rows }];
        let mut pass = Pass::learning(weights, Lesson::of(moment, shares, &vec![1.0; rows]));
        let input = made_up(stack.output_after(stage), rows);
        let above = ones(stack.output_after(stage + 1), rows);
        let began = clock();
        let link = Link::forward((stack, stage..stage + 1), input, stage > 0, &mut pass);
        link.backward(Source::Above(above));
        let took = clock() - began;
        best = if time == 0 { best } else { best.min(took) };
    }
    (best.max(0.0) * 1e9) as u64
}

fn made_up(form: Form, rows: usize) -> Flow {
    let mut rng = Rng::named(0, "measure", &[]);
    let values = (0..rows * form.len()).map(|_| rng.normal() as f32).collect();
    Flow::shaped(tensor(values, [rows, form.len()]), form)
}

fn ones(form: Form, rows: usize) -> Flow {
    Flow::shaped(Tensor::ones([rows, form.len()], &device()), form)
}
