//! One stage of a pipeline (Huang et al., 2019: GPipe; Narayanan et al., 2021): some neighbouring layers of a network, with
//! the stages before and after them on other workers. Micro-batches come forward and gradients back in the order that the
//! plan gives; all of a step meet the same weights, and the sums of their gradients are those of the whole network.
//!
//! On the wire a micro-batch is its activations and, last, the penalties so far; back come the gradients by these activations
//! and, last, its loss, so that every stage knows it.

use crate::chain::{Link, Source};
use crate::flow::{Flow, Form};
use crate::goal::{SUMS, Told};
use crate::learner::{ANSWERED, Lecture, Network, shaped};
use crate::pass::{Lesson, Pass, Weights, numbers, tensor};
use crate::stack::Stack;
use crate::stage::Parameter;
use crate::sums::Sums;
use burn_tensor::Tensor;
use starlings_core::{Fault, Result, Turn, Values};
use starlings_data::Batch;
use starlings_learn::{Moment, Place, Wires};
use std::collections::BTreeMap;
use std::ops::Range;

/// Parts of rows that may be on their way to the next stage while scoring.
const AHEAD: usize = 4;

/// A stage of a pipeline.
pub(crate) struct Staged<'a> {
    pub(crate) network: &'a Network,
    pub(crate) stack: &'a Stack,
    /// Of the whole network.
    pub(crate) parameters: &'a [Parameter],
    /// Of this stage.
    pub(crate) weights: &'a Weights<'a>,
    /// Its layers.
    pub(crate) layers: Range<usize>,
    pub(crate) place: &'a Place,
}

/// A micro-batch that waits for its gradient.
struct Held<'a> {
    link: Link,
    pass: Pass<'a>,
    told: Told,
    /// The last stage's.
    loss: Option<Tensor<1>>,
    /// The loss with all penalties, as far as it is known here.
    lost: f32,
}

impl<'a> Staged<'a> {
    /// Takes the micro-batches of a step forward and back. Those without rows are left out, on all stages alike.
    pub(crate) fn step(
        &self,
        mut micro_batches: Vec<Option<Lecture>>,
        moment: Moment,
        wires: &mut dyn Wires,
        sums: &mut Sums,
    ) -> Result<()> {
        let mut held: BTreeMap<u32, Held<'a>> = BTreeMap::new();
        for &turn in &self.place.turns {
            let number = turn.micro_batch();
            match turn {
                Turn::Forward(_) => {
                    let lecture = micro_batches.get_mut(number as usize).and_then(Option::take);
                    if let Some(lecture) = lecture {
                        held.insert(number, self.forward(lecture, moment, wires)?);
                    }
                }
                Turn::Backward(_) => {
                    if let Some(held) = held.remove(&number) {
                        self.backward(held, wires, sums)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn forward(&self, lecture: Lecture, moment: Moment, wires: &mut dyn Wires) -> Result<Held<'a>> {
        let Lecture { inputs, told, shares } = lecture;
        let mut pass = Pass::learning(self.weights, Lesson::of(moment, shares, &told.weights));
        let (flow, before) = self.incoming(inputs, told.weights.len(), wires)?;
        let mine = (self.stack, self.layers.clone());
        let link = Link::forward(mine, flow, !self.is_first(), &mut pass);
        let penalty = before + link.penalty() as f32;
        if !self.is_last() {
            self.send(self.place.stage + 1, link.output(), penalty, wires)?;
            return Ok(Held { link, pass, told, loss: None, lost: 0.0 });
        }
        let loss = self.network.goal.loss(link.output().flat(), &told);
        let lost = loss.clone().into_scalar::<f32>() + penalty;
        Ok(Held { link, pass, told, loss: Some(loss), lost })
    }

    fn backward(&self, held: Held<'a>, wires: &mut dyn Wires, sums: &mut Sums) -> Result<()> {
        let Held { link, mut pass, told, loss, mut lost } = held;
        let rows = told.weights.len();
        let source = match loss {
            Some(loss) => Source::Loss(loss),
            None => {
                let form = self.stack.output_after(self.layers.end);
                let (gradient, told) = receive(self.place.stage + 1, (rows, form), wires)?;
                lost = told;
                Source::Above(gradient)
            }
        };
        let back = link.backward(source);
        let (gradients, below) = back.map_or((None, None), |(own, below)| (Some(own), below));
        sums.count(&told, f64::from(lost));
        let mine = (self.parameters, self.stack.parameters_of(self.layers.clone()));
        sums.add(mine, (self.weights, &mut pass), gradients);
        if self.is_first() {
            return Ok(());
        }
        let form = self.stack.output_after(self.layers.start);
        let nothing =
            || Flow::shaped(Tensor::zeros([rows, form.len()], &crate::pass::device()), form);
        self.send(self.place.stage - 1, below.unwrap_or_else(nothing), lost, wires)
    }

    /// Sums over rows for the grade: the last stage's, and nothing elsewhere.
    pub(crate) fn score(&self, batch: &Batch<'_>, wires: &mut dyn Wires) -> Result<Vec<f64>> {
        let mut sums = vec![0.0; SUMS];
        let rows: Vec<usize> = batch.rows().filter(|&row| batch.table.weight(row) > 0.0).collect();
        let (before, after) = (self.place.stage.wrapping_sub(1), self.place.stage + 1);
        for (count, rows) in rows.chunks(ANSWERED).enumerate() {
            // Whoever is slower is waited for: what is on its way takes memory.
            if !self.is_last() && count >= AHEAD {
                wires.receive(after)?;
            }
            let told = Told::of(batch.table, rows);
            let (flow, _) = self.incoming(told.inputs.clone(), rows.len(), wires)?;
            let mut pass = Pass::answering(self.weights);
            let output = self.stack.forward_between(flow, &mut pass, self.layers.clone());
            match self.is_last() {
                true => self.network.goal.tally(output.flat(), &told, &mut sums),
                false => self.send(after, output, 0.0, wires)?,
            }
            if !self.is_first() {
                wires.send(before, Values::F32(vec![1.0]))?;
            }
        }
        if !self.is_last() {
            for _ in 0..rows.len().div_ceil(ANSWERED).min(AHEAD) {
                wires.receive(after)?;
            }
        }
        Ok(sums)
    }

    /// What comes into the stage: the data's rows, or activations and the penalties before them.
    fn incoming(
        &self,
        inputs: Vec<f32>,
        rows: usize,
        wires: &mut dyn Wires,
    ) -> Result<(Flow, f32)> {
        match self.place.stage {
            0 => Ok((shaped(self.stack, inputs), 0.0)),
            stage => {
                let form = self.stack.output_after(self.layers.start);
                receive(stage - 1, (rows, form), wires)
            }
        }
    }

    fn send(&self, to: u32, flow: Flow, number: f32, wires: &mut dyn Wires) -> Result<()> {
        let mut values = numbers(flow.flat());
        values.push(number);
        wires.send(to, Values::F32(values))
    }

    fn is_first(&self) -> bool {
        self.place.stage == 0
    }

    fn is_last(&self) -> bool {
        self.place.stage + 1 == self.place.stages
    }
}

/// Rows of a form from another stage, and the number that comes with them.
fn receive(from: u32, (rows, form): (usize, Form), wires: &mut dyn Wires) -> Result<(Flow, f32)> {
    let wanted = rows * form.len() + 1;
    match wires.receive(from)? {
        Values::F32(mut values) if values.len() == wanted => {
            let number = values.pop().unwrap_or_default();
            Ok((Flow::shaped(tensor(values, [rows, form.len()]), form), number))
        }
        other => {
            let what = format!("stage {from} sent {} numbers instead of {wanted}", other.len());
            Err(Fault::peer(None, what))
        }
    }
}
