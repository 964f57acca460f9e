//! One stage of a pipeline (Huang et al., 2019: GPipe; Narayanan et al., 2021): some neighbouring layers of a network, or a part of
//! each, with the stages before and after them on other workers. Micro-batches come forward and gradients back in the order
//! that the plan gives; all of a step meet the same weights, and the sums of their gradients are those of the whole network.
//!
//! On the wire a micro-batch is its activations and, last, the penalties so far; back come the gradients by these activations
//! and, last, its loss, so that every stage knows it. Where layers are split, each part sends to the same part of the next
//! stage: rows that are put together or summed before they leave, or its own columns where that part wants no more.

use crate::flow::{Flow, Form};
use crate::goal::{SUMS, Told};
use crate::learner::{Lecture, Network};
use crate::pass::{Lesson, Pass, device, numbers, tensor};
use crate::room::answered;
use crate::section::{Course, Section};
use crate::sums::Sums;
use burn_tensor::Tensor;
use starlings_core::{Fault, Result, Turn, Values};
use starlings_data::Batch;
use starlings_learn::{Moment, Place, Wires};
use std::collections::BTreeMap;

/// Parts of rows that may be on their way to the next stage while scoring.
const AHEAD: usize = 4;

/// A stage of a pipeline.
pub(crate) struct Staged<'a> {
    pub(crate) network: &'a Network,
    /// Its layers.
    pub(crate) section: Section<'a>,
    pub(crate) place: &'a Place,
}

/// A micro-batch that waits for its gradient.
struct Held<'a> {
    course: Course,
    pass: Pass<'a>,
    told: Told,
    /// On the last stage: the gradient of what came out, if anything learns from it.
    gradient: Option<Flow>,
    /// The loss with all penalties, as far as it is known here.
    lost: f32,
}

impl<'a> Staged<'a> {
    /// Takes the micro-batches of a step forward and back. Those without rows are left out, on all stages alike.
    pub(crate) fn step(
        &self,
        (mut micro_batches, turns): (Vec<Option<Lecture>>, &[Turn]),
        moment: Moment,
        wires: &mut dyn Wires,
        sums: &mut Sums,
    ) -> Result<()> {
        let mut held: BTreeMap<u32, Held<'a>> = BTreeMap::new();
        for &turn in turns {
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
        let lesson = Lesson::of(moment, shares, &told.weights);
        let mut pass = Pass::learning(self.section.weights, lesson);
        let (flow, before) = self.incoming(inputs, told.weights.len(), wires)?;
        let (course, flow) = self.section.forward(flow, !self.is_first(), &mut pass, wires)?;
        let penalty = before + course.penalty as f32;
        if !self.is_last() {
            self.send(self.above(), flow, penalty, wires)?;
            return Ok(Held { course, pass, told, gradient: None, lost: 0.0 });
        }
        let (loss, gradient) = self.section.loss(self.network.goal, (flow, &told), wires)?;
        Ok(Held { course, pass, told, gradient, lost: loss as f32 + penalty })
    }

    fn backward(&self, held: Held<'a>, wires: &mut dyn Wires, sums: &mut Sums) -> Result<()> {
        let Held { course, mut pass, told, mut gradient, mut lost } = held;
        let (rows, stack) = (told.weights.len(), self.section.stack);
        if !self.is_last() {
            let form = stack.output_after(self.section.stages.end);
            let (above, told) = receive(self.above(), (rows, form), wires)?;
            (gradient, lost) = (Some(above), told);
        }
        let below = self.section.backward((course, gradient), &mut pass, wires, sums)?;
        sums.count(&told, f64::from(lost));
        if self.is_first() {
            return Ok(());
        }
        let form = stack.output_after(self.section.stages.start);
        let nothing = || Flow::shaped(Tensor::zeros([rows, form.len()], &device()), form);
        self.send(self.below(), below.unwrap_or_else(nothing), lost, wires)
    }

    /// Sums over rows for the grade: the last stage's, of whose parts the first tells, and nothing elsewhere.
    pub(crate) fn score(&self, batch: &Batch<'_>, wires: &mut dyn Wires) -> Result<Vec<f64>> {
        let mut sums = vec![0.0; SUMS];
        let rows: Vec<usize> = batch.rows().filter(|&row| batch.table.weight(row) > 0.0).collect();
        // The same on all stages and parts: their stacks have the same sizes.
        let at_once = answered(self.section.stack);
        for (count, rows) in rows.chunks(at_once).enumerate() {
            // Whoever is slower is waited for: what is on its way takes memory.
            if !self.is_last() && count >= AHEAD {
                wires.receive(self.above())?;
            }
            let told = Told::of(batch.table, rows);
            let (flow, _) = self.incoming(told.inputs.clone(), rows.len(), wires)?;
            let (flow, penalty) = self.section.answer(flow, &told.weights, wires)?;
            // All parts of a stage compute the same penalty: the first tells it.
            sums[1] += if self.place.part() == 0 { penalty } else { 0.0 };
            if !self.is_last() {
                self.send(self.above(), flow, 0.0, wires)?;
            } else if let Some(outputs) = self.section.outputs(flow, wires)? {
                self.network.goal.tally(outputs.flat(), &told, &mut sums);
            }
            if !self.is_first() {
                wires.send(self.below(), Values::F32(vec![1.0]))?;
            }
        }
        if !self.is_last() {
            for _ in 0..rows.len().div_ceil(at_once).min(AHEAD) {
                wires.receive(self.above())?;
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
        let form = self.section.input;
        match self.is_first() {
            true => Ok((Flow::shaped(tensor(inputs, [rows, form.len()]), form), 0.0)),
            false => receive(self.below(), (rows, form), wires),
        }
    }

    fn send(&self, to: u32, flow: Flow, number: f32, wires: &mut dyn Wires) -> Result<()> {
        let mut values = numbers(flow.flat());
        values.push(number);
        wires.send(to, Values::F32(values))
    }

    /// The same part of the stage before.
    fn below(&self) -> u32 {
        self.place.stage - self.place.parts
    }

    /// The same part of the stage after.
    fn above(&self) -> u32 {
        self.place.stage + self.place.parts
    }

    fn is_first(&self) -> bool {
        self.place.depth() == 0
    }

    fn is_last(&self) -> bool {
        self.place.depth() + 1 == self.place.depths()
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
