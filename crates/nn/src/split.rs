//! Tensor parallelism by annotations (Shoeybi et al., "Megatron-LM: training multi-billion parameter language models using
//! model parallelism", 2019; Yuan et al., "OneFlow: redesign the distributed deep learning framework from scratch", 2021):
//! every layer says how its rows come in and go out on several workers, and where neighbours differ a sum is put between
//! them.
//!
//! | cut | parameters of a worker | rows in | rows out | gradients in | gradients out |
//! |---|---|---|---|---|---|
//! | whole | all | broadcast | broadcast | broadcast | broadcast |
//! | columns | some outputs (channels) | broadcast | split | split | partial |
//! | through | none | split | split | split | split |
//! | rows | those for some inputs | split | partial | broadcast | split |
//!
//! So a layer in columns and the next one in rows cost one sum forward, after the second, and one back, before the first.

use crate::flow::Form;
use crate::pass::f32s;
use crate::stack::Stack;
use crate::stage::Parameter;
use starlings_core::{Fault, Model, Result, Role, Tensor, Values};
use std::ops::Range;

/// What a flow is on the workers that share a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spread {
    /// Each has all of it.
    Broadcast,
    /// Each has some of its numbers.
    Split,
    /// It is the sum of what they have.
    Partial,
}

/// How a layer is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// Everyone has all of it and computes the same.
    Whole,
    /// Everyone has some of its outputs.
    Columns,
    /// It works number by number or channel by channel on what is split.
    Through,
    /// Everyone has what some of its inputs are multiplied with.
    Rows,
}

impl Cut {
    /// Rows in and out, gradients in and out.
    fn spreads(self) -> [Spread; 4] {
        use Spread::{Broadcast, Partial, Split};
        match self {
            Cut::Whole => [Broadcast, Broadcast, Broadcast, Broadcast],
            Cut::Columns => [Broadcast, Split, Split, Partial],
            Cut::Through => [Split, Split, Split, Split],
            Cut::Rows => [Split, Partial, Broadcast, Split],
        }
    }
}

/// Layers between two sums.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) stages: Range<usize>,
    /// Whether what comes out is summed over the workers.
    pub(crate) sums_outputs: bool,
    /// Whether the gradient by what comes in is.
    pub(crate) sums_gradients: bool,
}

/// One worker's part of a network.
pub(crate) struct Split {
    cuts: Vec<Cut>,
    /// Which part, from 0, and of how many.
    pub(crate) part: usize,
    pub(crate) parts: usize,
}

/// Layers that work number by number, or channel by channel.
const THROUGH: &[&str] = &[
    "relu",
    "leaky-relu",
    "gelu",
    "silu",
    "tanh",
    "sigmoid",
    "max-pool",
    "average-pool",
    "flatten",
];

impl Split {
    /// Annotates a network for so many parts: pairs of linear layers or convolutions with nothing else but functions and
    /// pools between them, the first in columns and the second in rows.
    ///
    /// # Errors
    /// When there is no such pair, or one that the parts do not divide.
    pub(crate) fn of(stack: &Stack, (part, parts): (usize, usize)) -> Result<Split> {
        let mut cuts = vec![Cut::Whole; stack.lines().len()];
        let mut at = 0;
        while at < cuts.len() {
            match partner(stack.lines(), at) {
                None => at += 1,
                Some(next) => {
                    let outputs = channels(stack.output_after(at + 1));
                    if !outputs.is_multiple_of(parts) {
                        let line = &stack.lines()[at];
                        let what = format!(
                            "layer {} '{line}' has {outputs} outputs, which {parts} workers cannot share evenly",
                            at + 1
                        );
                        return Err(Fault::caller(what).hint(format!(
                            "choose a width that is a multiple of {parts}, or another number of parts"
                        )));
                    }
                    cuts[at] = Cut::Columns;
                    cuts[at + 1..next].fill(Cut::Through);
                    cuts[next] = Cut::Rows;
                    at = next + 1;
                }
            }
        }
        if cuts.iter().all(|&cut| cut == Cut::Whole) {
            return Err(Fault::caller("no layer of this network can be split")
                .hint("two linear layers or convolutions with only a function or a pool between them can; else choose plan 'pipeline' or 'data-parallel'"));
        }
        Ok(Split { cuts, part, parts })
    }

    /// The lines of this part's own layers.
    pub(crate) fn lines(&self, lines: &[String]) -> Vec<String> {
        let own = |(line, cut): (&String, &Cut)| match cut {
            Cut::Columns => {
                let mut words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
                let outputs: usize = words[1].parse().expect("the whole network was built of it");
                words[1] = (outputs / self.parts).to_string();
                words.join(" ")
            }
            // A bias is added once.
            Cut::Rows if self.part > 0 && !line.contains("bias") => format!("{line} bias off"),
            _ => line.clone(),
        };
        lines.iter().zip(&self.cuts).map(own).collect()
    }

    /// What the names of a layer's parameters have behind the layer's: parts of one tensor have different names.
    pub(crate) fn mark(&self, stage: usize) -> String {
        match self.cuts[stage] {
            Cut::Columns | Cut::Rows => mark(self.part, self.parts),
            Cut::Whole | Cut::Through => String::new(),
        }
    }

    /// The layers between sums, the lowest first: a sum stands wherever neighbours' annotations differ.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let count = self.cuts.len();
        let (mut spans, mut start, mut sums_gradients) = (Vec::new(), 0, false);
        for end in 1..=count {
            // The goal wants whole outputs, and gives whole gradients.
            let above = self.cuts.get(end).copied().unwrap_or(Cut::Whole).spreads();
            let [_, out, gradients_in, _] = self.cuts[end - 1].spreads();
            let [wanted, _, _, gradients] = above;
            let (forward, back) = (converts(out, wanted), converts(gradients, gradients_in));
            if forward || back || end == count {
                let stages = start..end;
                spans.push(Span { stages, sums_outputs: forward, sums_gradients });
                (start, sums_gradients) = (end, back);
            }
        }
        spans
    }

    /// Along which axis a parameter of a stage is cut; `None` where a part has all of it.
    pub(crate) fn axis(&self, stage: usize, line: &str, parameter: &str) -> Option<usize> {
        let is_weight = parameter.ends_with(".weight");
        match (self.cuts[stage], kind(line), is_weight) {
            (Cut::Columns, _, false) => Some(0),
            (Cut::Columns, "conv", true) | (Cut::Rows, "linear", true) => Some(0),
            (Cut::Columns, _, true) | (Cut::Rows, _, true) => Some(1),
            (Cut::Rows, _, false) | (Cut::Whole | Cut::Through, ..) => None,
        }
    }
}

/// Whether any layers of a network can be split.
pub(crate) fn has_pair(lines: &[String]) -> bool {
    (0..lines.len()).any(|at| partner(lines, at).is_some())
}

/// The layer that makes a pair with this one: both multiply, and what is between them goes number by number.
fn partner(lines: &[String], at: usize) -> Option<usize> {
    let multiplies = |at: usize| ["linear", "conv"].contains(&kind(&lines[at]));
    let next = (at + 1..lines.len()).find(|&next| !THROUGH.contains(&kind(&lines[next])));
    next.filter(|&next| multiplies(at) && multiplies(next))
}

/// One part of a tensor that is cut along an axis.
pub(crate) fn slice(
    values: &[f32],
    shape: &[usize],
    axis: usize,
    (part, parts): (usize, usize),
) -> Vec<f32> {
    let inner: usize = shape[axis..].iter().product();
    let own = inner / parts;
    values.chunks_exact(inner).flat_map(|run| &run[part * own..(part + 1) * own]).copied().collect()
}

/// The tensor that parts were cut from.
pub(crate) fn join(parts: &[&[f32]], shape: &[usize], axis: usize) -> Vec<f32> {
    let own = shape[axis..].iter().product::<usize>() / parts.len();
    let runs = parts[0].len() / own.max(1);
    let run = |at: usize| parts.iter().flat_map(move |part| &part[at * own..(at + 1) * own]);
    (0..runs).flat_map(run).copied().collect()
}

/// The parameters of a part and what they start from; `draw` gives the numbers of a whole parameter by its index.
///
/// # Errors
/// When the network cannot be split so.
pub(crate) fn started(
    stack: &Stack,
    part: (usize, usize),
    draw: impl Fn(usize) -> Vec<f32>,
) -> Result<Vec<(Parameter, Vec<f32>)>> {
    let split = Split::of(stack, part)?;
    let own = stack.part(&split)?.parameters_by_stage();
    let (mut index, mut started) = (0, Vec::new());
    for (stage, (wholes, parts)) in stack.parameters_by_stage().iter().zip(own).enumerate() {
        // A bias that only the first part has is the last of its layer.
        for (at, parameter) in parts.into_iter().enumerate() {
            let (whole, values) = (&wholes[at], draw(index + at));
            let values = match split.axis(stage, &stack.lines()[stage], &whole.name) {
                Some(axis) => slice(&values, &whole.shape, axis, part),
                None => values,
            };
            started.push((parameter, values));
        }
        index += wholes.len();
    }
    Ok(started)
}

/// The whole network's weights, from those of all parts.
///
/// # Errors
/// When the network cannot be split so.
pub(crate) fn assembled(stack: &Stack, model: &Model, parts: usize) -> Result<Model> {
    let split = Split::of(stack, (0, parts))?;
    let mut whole = Model::new();
    let unsplit = |(name, it): &(&str, &Tensor)| it.role == Role::Weight && !name.contains('@');
    model.iter().filter(unsplit).for_each(|(name, tensor)| whole.set(name, tensor.clone()));
    for (stage, parameters) in stack.parameters_by_stage().into_iter().enumerate() {
        if split.mark(stage).is_empty() {
            continue;
        }
        for parameter in parameters {
            let of = |part| f32s(model, &marked(&parameter.name, &mark(part, parts)));
            let values = match split.axis(stage, &stack.lines()[stage], &parameter.name) {
                None => of(0).to_vec(),
                Some(axis) => join(&(0..parts).map(of).collect::<Vec<_>>(), &parameter.shape, axis),
            };
            let (shape, values) = (parameter.shape.clone(), Values::F32(values));
            whole.set(&parameter.name, Tensor { shape, values, role: Role::Weight });
        }
    }
    Ok(whole)
}

/// The name of a layer's parameter with a mark behind the layer's.
fn marked(name: &str, mark: &str) -> String {
    let (layer, parameter) = name.rsplit_once('.').unwrap_or((name, ""));
    format!("{layer}{mark}.{parameter}")
}

/// What says which part a model is, before its mark.
const PART: &str = "part";

/// Notes which part a model is, and of how many.
pub(crate) fn note(model: &mut Model, (part, parts): (usize, usize)) {
    let values = Values::I64(vec![part as i64, parts as i64]);
    let name = format!("{PART}{}", mark(part, parts));
    model.set(name, Tensor { shape: vec![2], values, role: Role::State });
}

/// Which part a model is, and of how many; `None` where it is whole.
pub(crate) fn part_of(model: &Model) -> Option<(usize, usize)> {
    let is_note = |name: &str| name.strip_prefix(PART).is_some_and(|rest| rest.starts_with('@'));
    let (_, tensor) = model.iter().find(|(name, _)| is_note(name))?;
    match &tensor.values {
        Values::I64(values) => Some((values[0] as usize, values[1] as usize)),
        _ => None,
    }
}

/// Whether a sum is needed between what is there and what is wanted.
///
/// # Panics
/// If no sum would do: annotations come in pairs.
fn converts(found: Spread, wanted: Spread) -> bool {
    match (found, wanted) {
        (Spread::Partial, Spread::Broadcast) => true,
        _ => {
            assert_eq!(found, wanted, "no sum makes the one of the other");
            false
        }
    }
}

fn mark(part: usize, parts: usize) -> String {
    format!("@{}of{parts}", part + 1)
}

fn kind(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

/// What columns are: numbers of a row, numbers of a step, or channels.
fn channels(form: Form) -> usize {
    match form {
        Form::Flat(width) | Form::Sequence { width, .. } => width,
        Form::Image { channels, .. } => channels,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(input: Form, lines: &[&str], parts: usize) -> Result<Split> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_string()).collect();
        Split::of(&Stack::build(input, &lines).unwrap(), (1, parts))
    }

    #[test]
    fn sums_stand_where_annotations_differ() {
        let lines = ["linear 8", "relu", "linear 6", "relu", "linear 4"];
        let found = split(Form::Flat(5), &lines, 2).unwrap();
        use Cut::{Columns, Rows, Through, Whole};
        assert_eq!(found.cuts, [Columns, Through, Rows, Whole, Whole]);
        let span =
            |stages, sums_outputs, sums_gradients| Span { stages, sums_outputs, sums_gradients };
        assert_eq!(found.spans(), [span(0..3, true, false), span(3..5, false, false)]);
        let lines = ["layer-norm", "linear 8", "linear 6", "tanh", "linear 4", "relu", "linear 4"];
        let found = split(Form::Flat(5), &lines, 2).unwrap();
        assert_eq!(found.cuts, [Whole, Columns, Rows, Whole, Columns, Through, Rows]);
        assert_eq!(
            found.spans(),
            [
                span(0..1, false, false),
                span(1..3, true, true),
                span(3..4, false, false),
                span(4..7, true, true)
            ]
        );
    }

    #[test]
    fn a_part_has_its_share_of_the_columns_and_rows() {
        let image = Form::Image { channels: 1, height: 4, width: 4 };
        let lines = ["conv 6", "relu", "max-pool 2", "linear 5"];
        let found = split(image, &lines, 3).unwrap();
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_string()).collect();
        assert_eq!(found.lines(&lines), ["conv 2", "relu", "max-pool 2", "linear 5 bias off"]);
        assert_eq!((found.mark(0), found.mark(1)), ("@2of3".to_string(), String::new()));
    }

    #[test]
    fn parts_are_joined_to_what_they_were_cut_from() {
        let (shape, whole) = ([2, 6, 3], (0..36).map(|x| x as f32).collect::<Vec<_>>());
        for (axis, parts) in [(0, 2), (1, 3), (1, 2), (2, 3)] {
            let cut: Vec<Vec<f32>> =
                (0..parts).map(|part| slice(&whole, &shape, axis, (part, parts))).collect();
            let cut: Vec<&[f32]> = cut.iter().map(Vec::as_slice).collect();
            assert_eq!(join(&cut, &shape, axis), whole, "axis {axis}");
        }
        assert_eq!(slice(&whole, &shape, 1, (1, 3))[..4], [6.0, 7.0, 8.0, 9.0]);
    }

    #[test]
    fn what_cannot_be_split_is_refused() {
        let fault = split(Form::Flat(5), &["linear 9", "relu", "linear 2"], 2).err().unwrap();
        assert!(fault.to_string().contains("layer 1 'linear 9' has 9 outputs"), "{fault}");
        let fault =
            split(Form::Flat(5), &["linear 8", "dropout 0.5", "linear 2"], 2).err().unwrap();
        assert!(fault.to_string().contains("no layer of this network can be split"), "{fault}");
    }
}
