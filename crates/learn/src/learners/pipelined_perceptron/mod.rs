//! A perceptron with one hidden layer (tanh, then softmax) whose layers may sit on different workers: a
//! pipeline of two stages with micro-batches (GPipe, Huang et al., 2019). Each stage emits and applies the
//! blocks of its own layer; with the whole model in one place the same arithmetic runs without wires.
//! Trained by stochastic gradient descent on cross-entropy with a ridge on the weights (not the biases).

mod layers;
mod schedule;

use self::layers::{Hidden, Output};
use super::BuildLearner;
use crate::{Appetite, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use starlings_core::{
    Ability, Block, Entry, Fault, Model, Param, ParamKind, Params, Result, Rng, Role, Tensor,
    Update, Values,
};
use starlings_data::{Batch, LabelNeed};
use std::collections::BTreeMap;

const GIVES: &[Ability] = &[Ability::StagedModel];
const NEEDS: &[Ability] = &[Ability::Sum];

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "pipelined-perceptron",
    summary: "A perceptron with one hidden layer whose two layers may sit on different workers",
    reference: "Huang et al., GPipe: efficient training of giant neural networks using pipeline \
                parallelism, NeurIPS 2019",
    params: &[
        Param {
            name: "hidden",
            kind: ParamKind::Integer { min: 1, max: 1 << 20 },
            default: Some("32"),
            help: "units of the hidden layer",
        },
        Param {
            name: "learning_rate",
            kind: ParamKind::Float { min: 1e-9, max: 1e3 },
            default: Some("0.1"),
            help: "step along the mean gradient",
        },
        Param {
            name: "micro_batches",
            kind: ParamKind::Integer { min: 1, max: 4096 },
            default: Some("4"),
            help: "parts of a worker's batch that follow each other through the stages",
        },
        Param {
            name: "l2",
            kind: ParamKind::Float { min: 0.0, max: 1e6 },
            default: Some("0.0"),
            help: "ridge on the weights",
        },
    ],
    gives: GIVES,
    needs: NEEDS,
    build: |params| Ok(Box::new(PipelinedPerceptron::new(params))),
};

/// The tensors, stage by stage.
const HIDDEN: &str = "hidden";
const OUTPUT: &str = "output";

/// Rows that go over the wire at once while scoring.
const SCORE_ROWS: usize = 256;

struct PipelinedPerceptron {
    hidden: usize,
    learning_rate: f64,
    micro_batches: usize,
    l2: f64,
}

/// What a place has to do.
enum Part {
    Whole,
    First,
    Second,
}

fn part(place: &Place) -> Result<Part> {
    match (place.stage, place.stages) {
        (0, 1) => Ok(Part::Whole),
        (0, 2) => Ok(Part::First),
        (1, 2) => Ok(Part::Second),
        (_, stages) => Err(Fault::caller(format!(
            "pipelined-perceptron has two layers and cannot be cut into {stages} stages"
        ))
        .hint("use 2 stages, or plan = \"data-parallel\"")),
    }
}

impl PipelinedPerceptron {
    fn new(params: &Params) -> PipelinedPerceptron {
        PipelinedPerceptron {
            hidden: params.size("hidden"),
            learning_rate: params.f64("learning_rate"),
            micro_batches: params.size("micro_batches"),
            l2: params.f64("l2"),
        }
    }

    /// Half the ridge on the weights of a layer of `outputs` units.
    fn penalty(&self, weights: &[f64], outputs: usize) -> f64 {
        let weights = &weights[..weights.len() - outputs];
        0.5 * self.l2 * weights.iter().map(|w| w * w).sum::<f64>()
    }

    fn output<'a>(&self, model: &'a Model, labels: &'a [f32]) -> (Output<'a>, f64) {
        let weights = model.f64(OUTPUT);
        let penalty = self.penalty(weights, weights.len() / (self.hidden + 1));
        (Output::new(labels, weights, self.hidden), penalty)
    }

    fn descend(&self, tensor: &mut Tensor, gradient: &[f64], rows: f64) {
        let width = tensor.width();
        let Values::F64(weights) = &mut tensor.values else { panic!("the layers are f64") };
        let bias = weights.len() - width;
        let decay = |at: usize| if at < bias { self.l2 } else { 0.0 };
        for (at, (weight, gradient)) in weights.iter_mut().zip(gradient).enumerate() {
            *weight -= self.learning_rate * (gradient / rows + decay(at) * *weight);
        }
    }
}

/// Uniform within Glorot and Bengio's bounds (2010), biases zero. A generator a row: any worker that
/// builds the tensor gets the same numbers.
fn glorot(seed: u64, name: &str, inputs: usize, outputs: usize) -> Tensor {
    let bound = (6.0 / (inputs + outputs) as f64).sqrt();
    let mut values = Vec::with_capacity((inputs + 1) * outputs);
    for row in 0..inputs {
        let mut rng = Rng::named(seed, name, &[row as u64]);
        values.extend((0..outputs).map(|_| bound * (2.0 * rng.uniform() - 1.0)));
    }
    values.resize((inputs + 1) * outputs, 0.0);
    Tensor::of(&[inputs + 1, outputs], values, Role::Weight)
}

impl Learner for PipelinedPerceptron {
    fn task(&self) -> Task {
        Task::Classification
    }

    fn appetite(&self) -> Appetite {
        Appetite::Batches
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::Class
    }

    fn gives(&self) -> &'static [Ability] {
        GIVES
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, place: Place) -> Result<Model> {
        let classes = facts.schema.classes();
        if classes < 2 {
            return Err(Fault::caller(format!(
                "pipelined-perceptron tells classes apart, and the labels have {classes}"
            ))
            .hint("look at the label column"));
        }
        let (seed, features) = (facts.seed, facts.schema.features);
        let mut model = Model::new();
        let part = part(&place)?;
        if !matches!(part, Part::Second) {
            model.set(HIDDEN, glorot(seed, HIDDEN, features, self.hidden));
        }
        if !matches!(part, Part::First) {
            model.set(OUTPUT, glorot(seed, OUTPUT, self.hidden, classes));
        }
        Ok(model)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let (table, model) = (work.batch.table, work.model);
        let rows: Vec<usize> = work.batch.rows().collect();
        let micros = rows.chunks(rows.len().div_ceil(self.micro_batches).max(1));
        let share = rows.len() as f64;
        match part(&work.place)? {
            Part::Whole => {
                let mut hidden = Hidden::new(table, model.f64(HIDDEN));
                let (mut output, penalty) = self.output(model, &table.labels);
                schedule::whole(micros, &mut hidden, &mut output)?;
                let penalty = self.penalty(hidden.weights, self.hidden) + penalty;
                work.outbox.emit(Block::dense(HIDDEN, hidden.gradient));
                work.outbox.emit(Block::dense(OUTPUT, output.gradient));
                work.outbox.emit(Block::dense("loss", vec![output.loss + penalty * share]));
            }
            Part::First => {
                let mut hidden = Hidden::new(table, model.f64(HIDDEN));
                let penalty = self.penalty(hidden.weights, self.hidden);
                schedule::first(micros, &mut hidden, penalty, work.wires)?;
                work.outbox.emit(Block::dense(HIDDEN, hidden.gradient));
            }
            Part::Second => {
                let (mut output, penalty) = self.output(model, &table.labels);
                let first = schedule::second(micros, &mut output, self.hidden, work.wires)?;
                let penalty = first + penalty;
                work.outbox.emit(Block::dense(OUTPUT, output.gradient));
                work.outbox.emit(Block::dense("loss", vec![output.loss + penalty * share]));
            }
        }
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let rows = moment.rows.max(1) as f64;
        for name in [HIDDEN, OUTPUT] {
            if let (Some(tensor), true) = (model.get_mut(name), update.get(name).is_some()) {
                self.descend(tensor, update.f64(name), rows);
                if !tensor.values.all_finite() {
                    return Err(Fault::caller(format!(
                        "pipelined-perceptron: the {name} layer diverged at {}",
                        moment.step
                    ))
                    .hint("lower learning_rate"));
                }
            }
        }
        let loss = update.get("loss").map(|_| update.f64("loss")[0] / rows);
        Ok(Outcome { objective: loss, ..Outcome::default() })
    }

    /// Sums: loss, hits, penalty times rows. Each stage adds the penalty of its own layer; rows are counted
    /// by the last stage alone.
    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let (table, model) = (work.batch.table, work.model);
        let rows: Vec<usize> = work.batch.rows().collect();
        let (micros, share) = (rows.chunks(SCORE_ROWS), rows.len() as f64);
        let part = part(&work.place)?;
        if let Part::First = part {
            let hidden = Hidden::new(table, model.f64(HIDDEN));
            schedule::score_first(micros, &hidden, work.wires)?;
            return Ok(vec![0.0, 0.0, self.penalty(hidden.weights, self.hidden) * share]);
        }
        let (mut output, mut penalty) = self.output(model, &table.labels);
        if let Part::Whole = part {
            let hidden = Hidden::new(table, model.f64(HIDDEN));
            penalty += self.penalty(hidden.weights, self.hidden);
            for rows in micros {
                output.score(rows, &hidden.forward(rows))?;
            }
        } else {
            schedule::score_second(micros, &mut output, self.hidden, work.wires)?;
        }
        Ok(vec![output.loss, output.right, penalty * share])
    }

    fn grade(&self, _: &Model, sums: &[f64], rows: u64) -> Grade {
        let rows = rows.max(1) as f64;
        let metrics = [("log_loss", sums[0] / rows), ("accuracy", sums[1] / rows)];
        let metrics = metrics.map(|(name, value)| (name.to_string(), value));
        Grade { objective: (sums[0] + sums[2]) / rows, metrics: BTreeMap::from(metrics) }
    }

    fn outputs(&self, model: &Model) -> usize {
        model.get(OUTPUT).map_or(0, Tensor::width)
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        if model.get(HIDDEN).is_none() || model.get(OUTPUT).is_none() {
            return Err(Fault::caller("only one stage of the pipelined-perceptron is here")
                .hint("predict with the model file, which has all stages"));
        }
        let hidden = Hidden::new(batch.table, model.f64(HIDDEN));
        let (output, _) = self.output(model, &[]);
        let classes = self.outputs(model);
        for row in batch.rows() {
            out.resize(out.len() + classes, 0.0);
            let at = out.len() - classes;
            output.probabilities(&hidden.forward(&[row]), &mut out[at..]);
        }
        Ok(())
    }
}
