//! One part of a network whose layers are split among workers (see `split.rs`): between two conversions every worker computes
//! its own share of the same rows; what is partial is summed and what is split is put together, forward and back, with the
//! same bits on each, so that layers that all have stay alike.

use crate::chain::{Link, Source};
use crate::flow::{Flow, Form};
use crate::goal::{SUMS, Told};
use crate::learner::{ANSWERED, Lecture, Network, shaped};
use crate::parts::{join, slice};
use crate::pass::{Lesson, Pass, Weights, numbers, tensor};
use crate::split::{Ends, Meeting, Span, Split};
use crate::stack::Stack;
use crate::stage::Parameter;
use crate::sums::Sums;
use crate::together::Together;
use crate::vocabulary;
use starlings_core::Result;
use starlings_data::Batch;
use starlings_learn::{Moment, Place, Wires};

/// One part of a network whose layers are split.
pub(crate) struct Tensored<'a> {
    pub(crate) network: &'a Network,
    /// Of this part's own layers.
    pub(crate) stack: &'a Stack,
    pub(crate) parameters: &'a [Parameter],
    pub(crate) weights: &'a Weights<'a>,
    pub(crate) split: &'a Split,
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
        let mut together = Together::of(self.place, wires);
        let (mut flow, mut links, mut beside) =
            (shaped(self.stack, inputs), Vec::new(), Vec::new());
        for (index, span) in self.split.spans().into_iter().enumerate() {
            beside.extend(span.opens.then(|| flow.clone().leaf()));
            let mine = (self.stack, span.stages.clone());
            let link = Link::forward(mine, flow, index > 0, &mut pass);
            sums.loss += link.penalty();
            flow = met(&span, link.output(), &mut together)?;
            if let Some(before) = span.closes.then(|| beside.pop()).flatten() {
                flow = flow.leaf().plus(before);
            }
            links.push((span, link));
        }
        let (loss, mut gradient) = self.loss(flow, &told, &mut together)?;
        sums.count(&told, loss);
        let mut beside = Vec::new();
        while let Some((span, link)) = links.pop() {
            beside.extend(span.closes.then(|| gradient.clone()));
            let above = gradient.take().map(Source::Above);
            let back = above.and_then(|source| link.backward(source));
            let (gradients, below) = back.map_or((None, None), |(own, below)| (Some(own), below));
            let mine = (self.parameters, self.stack.parameters_of(span.stages.clone()));
            sums.add(mine, (self.weights, &mut pass), gradients);
            let before = span.opens.then(|| beside.pop()).flatten().flatten();
            gradient = match below {
                Some(below) => Some(returned(&span, (below, before), &mut together)?),
                None => None,
            };
        }
        Ok(())
    }

    /// The loss of rows, and its gradient by what came out.
    fn loss(
        &self,
        flow: Flow,
        told: &Told,
        together: &mut Together<'_>,
    ) -> Result<(f64, Option<Flow>)> {
        if self.split.ends == Ends::Vocabulary {
            let (loss, gradient) = vocabulary::loss(self.network.goal, flow, told, together)?;
            return Ok((loss, Some(gradient)));
        }
        let outputs = flow.leaf();
        let loss = self.network.goal.loss(outputs.clone().flat(), told);
        let lost = f64::from(loss.clone().into_scalar::<f32>());
        Ok((lost, outputs.gradient(&mut loss.backward())))
    }

    /// Sums over rows for the grade. The first part tells.
    pub(crate) fn score(&self, batch: &Batch<'_>, wires: &mut dyn Wires) -> Result<Vec<f64>> {
        let mut sums = vec![0.0; SUMS];
        let mut together = Together::of(self.place, wires);
        let spans = self.split.spans();
        let rows: Vec<usize> = batch.rows().filter(|&row| batch.table.weight(row) > 0.0).collect();
        for rows in rows.chunks(ANSWERED) {
            let told = Told::of(batch.table, rows);
            let (mut flow, mut beside) = (shaped(self.stack, told.inputs.clone()), Vec::new());
            for span in &spans {
                beside.extend(span.opens.then(|| flow.clone()));
                let mut pass = Pass::answering(self.weights);
                let output = self.stack.forward_between(flow, &mut pass, span.stages.clone());
                flow = met(span, output, &mut together)?;
                if let Some(before) = span.closes.then(|| beside.pop()).flatten() {
                    flow = flow.plus(before);
                }
            }
            let whole = match self.split.ends {
                Ends::Whole => (self.place.stage == 0).then_some(flow),
                Ends::Vocabulary => {
                    let (form, own) = (widened(flow.form(), together.parts), numbers(flow.flat()));
                    together.at_first(own)?.map(|parts| joined(&parts, form))
                }
            };
            if let Some(outputs) = whole {
                self.network.goal.tally(outputs.flat(), &told, &mut sums);
            }
        }
        Ok(sums)
    }
}

/// What the layers above a span get of what came out of it.
fn met(span: &Span, output: Flow, together: &mut Together<'_>) -> Result<Flow> {
    match span.outputs {
        Meeting::Pass => Ok(output),
        Meeting::Sum => summed(output, together),
        Meeting::Gather => {
            let form = widened(output.form(), together.parts);
            Ok(joined(&together.all(numbers(output.flat()))?, form))
        }
    }
}

/// What the layers below a span get of the gradient by what went into it, and that of what went beside it.
fn returned(
    span: &Span,
    (below, beside): (Flow, Option<Flow>),
    together: &mut Together<'_>,
) -> Result<Flow> {
    let below = if span.sums_gradients { summed(below, together)? } else { below };
    let below = match beside {
        Some(beside) => below.plus(beside),
        None => below,
    };
    if !span.narrows_gradients {
        return Ok(below);
    }
    let form = below.form();
    let part = (together.part as usize, together.parts as usize);
    let own = slice(&numbers(below.flat()), run(form), part);
    Ok(filled(own, narrowed(form, part.1)))
}

/// The sum over all parts.
fn summed(flow: Flow, together: &mut Together<'_>) -> Result<Flow> {
    let form = flow.form();
    Ok(filled(together.sum(numbers(flow.flat()))?, form))
}

/// Rows of everyone's columns.
fn joined(parts: &[Vec<f32>], form: Form) -> Flow {
    filled(join(parts, run(form)), form)
}

fn filled(values: Vec<f32>, form: Form) -> Flow {
    let rows = values.len() / form.len();
    Flow::shaped(tensor(values, [rows, form.len()]), form)
}

/// Numbers of a row among which each part has neighbours.
fn run(form: Form) -> usize {
    match form {
        Form::Sequence { width, .. } => width,
        other => other.len(),
    }
}

/// The form of the columns of so many parts together.
fn widened(form: Form, parts: u32) -> Form {
    let parts = parts as usize;
    match form {
        Form::Flat(width) => Form::Flat(width * parts),
        Form::Sequence { steps, width } => Form::Sequence { steps, width: width * parts },
        Form::Image { channels, height, width } => {
            Form::Image { channels: channels * parts, height, width }
        }
    }
}

/// The form of one part's columns.
fn narrowed(form: Form, parts: usize) -> Form {
    match form {
        Form::Flat(width) => Form::Flat(width / parts),
        Form::Sequence { steps, width } => Form::Sequence { steps, width: width / parts },
        Form::Image { channels, height, width } => {
            Form::Image { channels: channels / parts, height, width }
        }
    }
}
