//! What one worker computes of a network: a run of its layers, or its own part of each of them where they are split (see
//! `split.rs`). Between two conversions every worker of the run computes its own share of the same rows; what is partial is
//! summed and what is split is put together, forward and back, with the same bits on each, so that layers that all have stay
//! alike.

use crate::chain::{Link, Source};
use crate::flow::{Flow, Form};
use crate::goal::{Goal, Told};
use crate::layers::Recurrent;
use crate::parts::{join, slice};
use crate::pass::{Pass, Weights, numbers, tensor};
use crate::recurrence::Recurrence;
use crate::split::{Ends, Meeting, Span, Split};
use crate::stack::Stack;
use crate::stage::Parameter;
use crate::sums::Sums;
use crate::together::Together;
use crate::vocabulary;
use starlings_core::Result;
use starlings_learn::{Place, Wires};
use std::ops::Range;

/// A run of layers, or a part of each.
pub(crate) struct Section<'a> {
    /// Of this worker's own layers: where they are split, of its parts of them.
    pub(crate) stack: &'a Stack,
    /// Of all of the stack's layers.
    pub(crate) parameters: &'a [Parameter],
    /// Of those that it has.
    pub(crate) weights: &'a Weights<'a>,
    pub(crate) split: Split,
    /// Which of the stack's layers it has.
    pub(crate) stages: Range<usize>,
    /// The form of rows that come into the first of them.
    pub(crate) input: Form,
    pub(crate) place: &'a Place,
}

/// Rows that have gone through a section and wait for their gradient.
pub(crate) struct Course {
    passages: Vec<(Span, Passage)>,
    /// What is to be small besides the loss.
    pub(crate) penalty: f64,
}

/// Rows that have gone through a span.
enum Passage {
    /// By themselves.
    Link(Link),
    /// With those who have the other units, step by step.
    Steps(Recurrence),
}

impl Section<'_> {
    /// Runs rows through it. Whoever is `inner` is asked for the gradient of what comes in.
    ///
    /// # Errors
    /// When a worker that shares its layers is lost.
    pub(crate) fn forward(
        &self,
        mut flow: Flow,
        inner: bool,
        pass: &mut Pass<'_>,
        wires: &mut dyn Wires,
    ) -> Result<(Course, Flow)> {
        let mut together = Together::of(self.place, wires);
        let (mut passages, mut penalty, mut beside) = (Vec::new(), 0.0, Vec::new());
        for (index, span) in self.split.spans(&self.stages).into_iter().enumerate() {
            beside.extend(span.opens.then(|| flow.clone().leaf()));
            let (inner, mine) = (inner || index > 0, (self.stack, span.stages.clone()));
            let passage = match self.recurrent(&span) {
                Some(layer) => {
                    let (steps, states) =
                        Recurrence::forward(layer, (flow, inner), pass, &mut together)?;
                    flow = states;
                    Passage::Steps(steps)
                }
                None => {
                    let link = Link::forward(mine, flow, inner, pass);
                    penalty += link.penalty();
                    flow = met(&span, link.output(), &mut together)?;
                    Passage::Link(link)
                }
            };
            flow = forked(&span, flow.leaf(), &mut beside);
            passages.push((span, passage));
        }
        Ok((Course { passages, penalty }, flow))
    }

    /// The loss of rows that came out of the last layer, and its gradient by them.
    ///
    /// # Errors
    /// When a worker that shares its layers is lost.
    pub(crate) fn loss(
        &self,
        goal: Goal,
        (flow, told): (Flow, &Told),
        wires: &mut dyn Wires,
    ) -> Result<(f64, Option<Flow>)> {
        if self.split.ends == Ends::Vocabulary {
            let mut together = Together::of(self.place, wires);
            let (loss, gradient) = vocabulary::loss(goal, flow, told, &mut together)?;
            return Ok((loss, Some(gradient)));
        }
        let outputs = flow.leaf();
        let loss = goal.loss(outputs.clone().flat(), told);
        let lost = f64::from(loss.clone().into_scalar::<f32>());
        Ok((lost, outputs.gradient(&mut loss.backward())))
    }

    /// Takes the gradient of what came out back, adds those of its parameters to the sums, and gives that of what came in.
    ///
    /// # Errors
    /// When a worker that shares its layers is lost.
    pub(crate) fn backward(
        &self,
        (mut course, mut gradient): (Course, Option<Flow>),
        pass: &mut Pass<'_>,
        wires: &mut dyn Wires,
        sums: &mut Sums,
    ) -> Result<Option<Flow>> {
        let mut together = Together::of(self.place, wires);
        let mut beside = Vec::new();
        while let Some((span, passage)) = course.passages.pop() {
            beside.extend(span.closes.then(|| gradient.clone()));
            // The other way is done: its gradient waits where the ways part.
            if let Some(last) = span.turns.then(|| beside.last_mut()).flatten() {
                std::mem::swap(last, &mut gradient);
            }
            let is_split = span.outputs == Meeting::Gather;
            let mut above = gradient.take();
            if is_split && (span.turns || span.closes) {
                above = above.map(|above| own_columns(above, &together));
            }
            let mine = (self.parameters, self.stack.parameters_of(span.stages.clone()));
            let below = match (passage, above) {
                (Passage::Steps(steps), Some(above)) => {
                    steps.backward(above, mine, self.weights, (&mut together, sums))?
                }
                (Passage::Link(link), Some(above)) => {
                    let back = link.backward(Source::Above(above));
                    let (gradients, below) =
                        back.map_or((None, None), |(own, below)| (Some(own), below));
                    sums.add(mine, (self.weights, pass), gradients);
                    below
                }
                (_, None) => {
                    sums.add(mine, (self.weights, pass), None);
                    None
                }
            };
            let before = span.opens.then(|| beside.pop()).flatten().flatten();
            gradient = match below {
                Some(below) => Some(returned(&span, (below, before), &mut together)?),
                None => None,
            };
        }
        Ok(gradient)
    }

    /// What comes out of rows when nothing is learnt.
    ///
    /// # Errors
    /// When a worker that shares its layers is lost.
    pub(crate) fn answer(
        &self,
        mut flow: Flow,
        weights: &[f32],
        wires: &mut dyn Wires,
    ) -> Result<(Flow, f64)> {
        let mut together = Together::of(self.place, wires);
        let (mut beside, mut penalty) = (Vec::new(), 0.0);
        for span in self.split.spans(&self.stages) {
            beside.extend(span.opens.then(|| flow.clone()));
            let mut pass = Pass::grading(self.weights, weights);
            flow = match self.recurrent(&span) {
                Some(layer) => Recurrence::forward(layer, (flow, false), &pass, &mut together)?.1,
                None => {
                    let output = self.stack.forward_between(flow, &mut pass, span.stages.clone());
                    penalty += pass.penalties();
                    met(&span, output, &mut together)?
                }
            };
            flow = forked(&span, flow, &mut beside);
        }
        Ok((flow, penalty))
    }

    /// The layer of a span whose workers meet at each of its steps.
    fn recurrent(&self, span: &Span) -> Option<&Recurrent> {
        let first = span.stages.start;
        self.split.meets_at_steps(first).then(|| self.stack.stage(first).recurrent()).flatten()
    }

    /// The whole of what came out of the last layer, at the first of those who share it; nothing at the others.
    ///
    /// # Errors
    /// When a worker that shares its layers is lost.
    pub(crate) fn outputs(&self, flow: Flow, wires: &mut dyn Wires) -> Result<Option<Flow>> {
        match self.split.ends {
            Ends::Whole => Ok((self.place.part() == 0).then_some(flow)),
            Ends::Vocabulary => {
                let mut together = Together::of(self.place, wires);
                let (form, own) = (widened(flow.form(), together.parts), numbers(flow.flat()));
                Ok(together.at_first(own)?.map(|parts| joined(&parts, form)))
            }
        }
    }
}

/// What goes on after a span where ways turn or join.
fn forked(span: &Span, flow: Flow, beside: &mut Vec<Flow>) -> Flow {
    match (span.turns, span.closes, beside.pop()) {
        (true, _, Some(before)) => {
            beside.push(flow);
            before
        }
        (_, true, Some(other)) => flow.plus(other),
        (_, _, waiting) => {
            beside.extend(waiting);
            flow
        }
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
    Ok(if span.narrows_gradients { own_columns(below, together) } else { below })
}

/// This part's columns of rows that all have.
fn own_columns(flow: Flow, together: &Together<'_>) -> Flow {
    let form = flow.form();
    let part = (together.part as usize, together.parts as usize);
    let own = slice(&numbers(flow.flat()), run(form), part);
    filled(own, narrowed(form, part.1))
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
