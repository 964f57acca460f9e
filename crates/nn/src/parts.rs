//! The tensors of a network whose layers are split among workers: which numbers each part has, under which names, and how the
//! whole model is put together again.

use crate::pass::f32s;
use crate::split::Split;
use crate::stack::Stack;
use crate::stage::Parameter;
use crate::unfold::unfolded;
use starlings_core::{Model, Result, Role, Tensor, Values};
use std::ops::Range;

/// One part of a tensor that is cut into runs of so many numbers, of each of which every part has as many.
pub(crate) fn slice(values: &[f32], run: usize, (part, parts): (usize, usize)) -> Vec<f32> {
    let own = run / parts;
    values.chunks_exact(run).flat_map(|run| &run[part * own..(part + 1) * own]).copied().collect()
}

/// The tensor that parts were cut from.
pub(crate) fn join<T: AsRef<[f32]>>(parts: &[T], run: usize) -> Vec<f32> {
    let own = (run / parts.len()).max(1);
    let runs = parts[0].as_ref().len() / own;
    let run = |at: usize| parts.iter().flat_map(move |it| &it.as_ref()[at * own..(at + 1) * own]);
    (0..runs).flat_map(run).copied().collect()
}

/// The parameters that a part has of some layers and what they start from; `draw` gives the numbers of a whole parameter by
/// its index.
///
/// # Errors
/// When the network cannot be split so.
pub(crate) fn started(
    (stack, layers): (&Stack, &Range<usize>),
    split: &Split,
    draw: impl Fn(usize) -> Vec<f32>,
) -> Result<Vec<(Parameter, Vec<f32>)>> {
    let own = stack.part(split)?.parameters_by_stage();
    let (mut index, mut started) = (0, Vec::new());
    for (at, (piece, parts)) in unfolded(stack).pieces.iter().zip(own).enumerate() {
        let wholes = piece.stage.parameters();
        let parts = if layers.contains(&(piece.number - 1)) { parts } else { Vec::new() };
        // A bias that only the first part has is the last of its layer.
        for (place, parameter) in parts.into_iter().enumerate() {
            let (whole, values) = (&wholes[place], draw(index + place));
            let values = match split.run(at, piece.line, whole) {
                Some(run) => slice(&values, run, (split.part, split.parts)),
                None => values,
            };
            started.push((parameter, values));
        }
        index += wholes.len();
    }
    Ok(started)
}

/// The whole network's weights, from those of all parts.
pub(crate) fn assembled(stack: &Stack, split: &Split, model: &Model) -> Model {
    let mut whole = Model::new();
    let unsplit = |(name, it): &(&str, &Tensor)| it.role == Role::Weight && !name.contains('@');
    model.iter().filter(unsplit).for_each(|(name, tensor)| whole.set(name, tensor.clone()));
    for (at, piece) in unfolded(stack).pieces.iter().enumerate() {
        if split.mark(at).is_empty() {
            continue;
        }
        for parameter in piece.stage.parameters() {
            let of = |part| f32s(model, &marked(&parameter.name, &mark(part, split.parts)));
            let values = match split.run(at, piece.line, &parameter) {
                None => of(0).to_vec(),
                Some(run) => join(&(0..split.parts).map(of).collect::<Vec<_>>(), run),
            };
            let (shape, values) = (parameter.shape.clone(), Values::F32(values));
            whole.set(&parameter.name, Tensor { shape, values, role: Role::Weight });
        }
    }
    whole
}

/// The name of a layer's parameter with a mark behind the layer's.
fn marked(name: &str, mark: &str) -> String {
    let (layer, parameter) = name.rsplit_once('.').unwrap_or((name, ""));
    format!("{layer}{mark}.{parameter}")
}

/// What the names of a part's layers end with.
pub(crate) fn mark(part: usize, parts: usize) -> String {
    format!("@{}of{parts}", part + 1)
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
    let Values::I64(values) = &tensor.values else { return None };
    let [part, parts] = values[..] else { return None };
    let (part, parts) = (usize::try_from(part).ok()?, usize::try_from(parts).ok()?);
    (part < parts).then_some((part, parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_to_what_they_were_cut_from() {
        let whole: Vec<f32> = (0..36).map(|x| x as f32).collect();
        for (run, parts) in [(36, 2), (18, 3), (18, 2), (3, 3)] {
            let cut: Vec<Vec<f32>> =
                (0..parts).map(|part| slice(&whole, run, (part, parts))).collect();
            assert_eq!(join(&cut, run), whole, "runs of {run}");
        }
        assert_eq!(slice(&whole, 18, (1, 3))[..4], [6.0, 7.0, 8.0, 9.0]);
        assert_eq!(slice(&whole, 18, (1, 3))[6..8], [24.0, 25.0]);
    }
}
