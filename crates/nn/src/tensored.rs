//! One part of a network whose layers are split among workers (see `split.rs`): between two sums every worker computes its own
//! share of the same rows; what is partial is summed over all of them, forward and back, and the sums have the same bits on
//! each, so that layers that all have stay alike.

use crate::chain::{Link, Source};
use crate::flow::{Flow, Form};
use crate::goal::{SUMS, Told};
use crate::learner::{ANSWERED, Lecture, Network, shaped};
use crate::pass::{Lesson, Pass, Weights, numbers, tensor};
use crate::split::Span;
use crate::stack::Stack;
use crate::stage::Parameter;
use crate::sums::Sums;
use starlings_core::{Fault, Result, Values};
use starlings_data::Batch;
use starlings_learn::{Moment, Place, Wires};

/// One part of a network whose layers are split.
pub(crate) struct Tensored<'a> {
    pub(crate) network: &'a Network,
    /// Of this part's own layers.
    pub(crate) stack: &'a Stack,
    pub(crate) parameters: &'a [Parameter],
    pub(crate) weights: &'a Weights,
    pub(crate) spans: &'a [Span],
    pub(crate) place: &'a Place,
}

impl Tensored<'_> {
    /// Runs some rows forth and back, and adds to the sums.
    pub(crate) fn learn(
        &self,
        lecture: Lecture,
        moment: Moment,
        wires: &mut dyn Wires,
        sums: &mut Sums,
    ) -> Result<()> {
        let Lecture { inputs, told, shares } = lecture;
        let mut pass = Pass::learning(self.weights, Lesson::of(moment, shares, &told.weights));
        let (mut flow, mut links) = (shaped(self.stack, inputs), Vec::new());
        for (index, span) in self.spans.iter().enumerate() {
            let mine = (self.stack, span.stages.clone());
            let link = Link::forward(mine, flow, index > 0, &mut pass);
            sums.loss += link.penalty();
            flow = self.outgoing(span, link.output(), wires)?;
            links.push((span, link));
        }
        let outputs = flow.leaf();
        let loss = self.network.goal.loss(outputs.clone().flat(), &told);
        sums.count(&told, f64::from(loss.clone().into_scalar::<f32>()));
        let mut source = outputs.gradient(&mut loss.backward()).map(Source::Above);
        while let Some((span, link)) = links.pop() {
            let back = source.take().and_then(|source| link.backward(source));
            let (gradients, below) = back.map_or((None, None), |(own, below)| (Some(own), below));
            let mine = (self.parameters, self.stack.parameters_of(span.stages.clone()));
            sums.add(mine, (self.weights, &mut pass), gradients);
            source = match below {
                Some(below) if span.sums_gradients => {
                    let form = self.stack.output_after(span.stages.start);
                    Some(Source::Above(self.summed(below, form, wires)?))
                }
                below => below.map(Source::Above),
            };
        }
        Ok(())
    }

    /// Sums over rows for the grade. All parts know them; the first tells.
    pub(crate) fn score(&self, batch: &Batch<'_>, wires: &mut dyn Wires) -> Result<Vec<f64>> {
        let mut sums = vec![0.0; SUMS];
        let rows: Vec<usize> = batch.rows().filter(|&row| batch.table.weight(row) > 0.0).collect();
        for rows in rows.chunks(ANSWERED) {
            let told = Told::of(batch.table, rows);
            let mut flow = shaped(self.stack, told.inputs.clone());
            for span in self.spans {
                let mut pass = Pass::answering(self.weights);
                let output = self.stack.forward_between(flow, &mut pass, span.stages.clone());
                flow = self.outgoing(span, output, wires)?;
            }
            if self.place.stage == 0 {
                self.network.goal.tally(flow.flat(), &told, &mut sums);
            }
        }
        Ok(sums)
    }

    fn outgoing(&self, span: &Span, output: Flow, wires: &mut dyn Wires) -> Result<Flow> {
        match span.sums_outputs {
            true => self.summed(output, self.stack.output_after(span.stages.end), wires),
            false => Ok(output),
        }
    }

    /// The sum over all parts, in their order.
    fn summed(&self, flow: Flow, form: Form, wires: &mut dyn Wires) -> Result<Flow> {
        let own = numbers(flow.flat());
        let others = || (0..self.place.stages).filter(|&part| part != self.place.stage);
        for part in others() {
            wires.send(part, Values::F32(own.clone()))?;
        }
        let (len, mut sum) = (own.len(), Vec::new());
        for part in 0..self.place.stages {
            let values = match part == self.place.stage {
                true => own.clone(),
                false => received(part, len, wires)?,
            };
            match sum.is_empty() {
                true => sum = values,
                false => sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value),
            }
        }
        let rows = len / form.len();
        Ok(Flow::shaped(tensor(sum, [rows, form.len()]), form))
    }
}

fn received(part: u32, len: usize, wires: &mut dyn Wires) -> Result<Vec<f32>> {
    match wires.receive(part)? {
        Values::F32(values) if values.len() == len => Ok(values),
        other => {
            let what = format!("part {part} sent {} numbers instead of {len}", other.len());
            Err(Fault::peer(None, what))
        }
    }
}
