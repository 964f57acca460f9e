//! Operators that move elements and compute nothing.

use super::super::file::Node;
use super::super::value::{Array, Kind, Numbers, RANK_MAX, Value, count, place};
use super::arithmetic::{stretch, stretched};
use super::{Budget, Inputs, Known, Operator};
use starlings_core::{Fault, Result};

pub(super) const KNOWN: &[Known] = &[
    ("Identity", |_| Ok(same())),
    ("Dropout", |_| Ok(same())),
    ("Constant", constant),
    ("Shape", |_| Ok(Box::new(shape_of))),
    ("ConstantOfShape", constant_of_shape),
    ("Expand", |_| Ok(Box::new(expand))),
    ("Reshape", reshape),
    ("Flatten", flatten),
    ("Squeeze", squeeze),
    ("Unsqueeze", unsqueeze),
    ("Transpose", transpose),
    ("Concat", concat),
    ("Gather", gather),
    ("Slice", slice),
];

fn same() -> Operator {
    Box::new(|inputs, budget| copy(inputs.value(0)?, inputs.value(0)?.shape().to_vec(), budget))
}

fn copy(value: &Value, shape: Vec<usize>, budget: &mut Budget) -> Result<Vec<Value>> {
    budget.hold(value.len())?;
    Ok(vec![value.reshaped(shape)?])
}

fn constant(node: &Node) -> Result<Operator> {
    let value = match (node.tensor("value")?, node.ints("value_ints")?) {
        (Some(value), _) => value,
        (None, Some(ints)) => {
            Value::of(Kind::Int, vec![ints.len()], ints.iter().map(|x| *x as f64).collect())?
        }
        (None, None) => {
            let (int, float) =
                (node.int("value_int", i64::MIN)?, node.float("value_float", f64::NAN)?);
            match int {
                i64::MIN => Value::of(Kind::Float, vec![], vec![float])?,
                int => Value::of(Kind::Int, vec![], vec![int as f64])?,
            }
        }
    };
    Ok(Box::new(move |_, budget| copy(&value, value.shape().to_vec(), budget)))
}

fn shape_of(inputs: &Inputs<'_>, budget: &mut Budget) -> Result<Vec<Value>> {
    let shape = inputs.value(0)?.shape();
    budget.hold(shape.len())?;
    let lengths = shape.iter().map(|length| *length as f64).collect();
    Ok(vec![Value::of(Kind::Int, vec![shape.len()], lengths)?])
}

/// A shape that is given as numbers.
fn lengths(value: &Value) -> Result<Vec<usize>> {
    let ints = value.numbers()?.ints();
    if ints.len() > RANK_MAX {
        return Err(Fault::caller(format!("{} axes are too many", ints.len())));
    }
    let length =
        |x: &i64| usize::try_from(*x).map_err(|_| Fault::caller(format!("a length of {x}")));
    ints.iter().map(length).collect()
}

fn constant_of_shape(node: &Node) -> Result<Operator> {
    let (kind, x) = match node.tensor("value")? {
        None => (Kind::Float, 0.0),
        Some(value) => (value.numbers()?.kind, *value.numbers()?.array.only()?),
    };
    Ok(Box::new(move |inputs, budget| {
        let shape = lengths(inputs.value(0)?)?;
        budget.hold(count(&shape)?)?;
        let values = vec![x; count(&shape)?];
        Ok(vec![Value::of(kind, shape, values)?])
    }))
}

fn expand(inputs: &Inputs<'_>, budget: &mut Budget) -> Result<Vec<Value>> {
    let x = inputs.numbers(0)?;
    let shape = stretch(&x.array.shape, &lengths(inputs.value(1)?)?)?;
    budget.hold(count(&shape)?)?;
    let array = Array::new(shape.clone(), vec![0.0; count(&shape)?])?;
    let zeros = Numbers { kind: x.kind, array };
    Ok(vec![Value::Numbers(stretched((&zeros, x), x.kind, |_, x| x, budget)?)])
}

fn reshape(node: &Node) -> Result<Operator> {
    let told = node.ints("shape")?;
    let zeros_are_lengths = node.int("allowzero", 0)? != 0;
    Ok(Box::new(move |inputs, budget| {
        let value = inputs.value(0)?;
        let wanted = match inputs.maybe(1) {
            Some(shape) => shape.numbers()?.ints(),
            None => told.clone().unwrap_or_default(),
        };
        let misfit = || Fault::caller(format!("{:?} cannot become {wanted:?}", value.shape()));
        if wanted.len() > RANK_MAX {
            return Err(misfit());
        }
        let mut shape = Vec::with_capacity(wanted.len());
        for (axis, &length) in wanted.iter().enumerate() {
            shape.push(match length {
                0 if !zeros_are_lengths => *value.shape().get(axis).ok_or_else(misfit)?,
                -1 => 1,
                length => usize::try_from(length).map_err(|_| misfit())?,
            });
        }
        if let Some(open) = wanted.iter().position(|length| *length == -1) {
            let others = count(&shape)?;
            shape[open] = value.len().checked_div(others).unwrap_or(0);
        }
        copy(value, shape, budget)
    }))
}

fn flatten(node: &Node) -> Result<Operator> {
    let axis = node.int("axis", 1)?;
    Ok(Box::new(move |inputs, budget| {
        let value = inputs.value(0)?;
        let shape = value.shape();
        let axis = if axis == shape.len() as i64 { shape.len() } else { place(axis, shape.len())? };
        let product = |axes: &[usize]| axes.iter().product::<usize>();
        copy(value, vec![product(&shape[..axis]), product(&shape[axis..])], budget)
    }))
}

/// Axes from the second input, or from the attribute of older versions.
fn axes(inputs: &Inputs<'_>, told: Option<&Vec<i64>>) -> Result<Option<Vec<i64>>> {
    match inputs.maybe(1) {
        Some(axes) => Ok(Some(axes.numbers()?.ints())),
        None => Ok(told.cloned()),
    }
}

fn squeeze(node: &Node) -> Result<Operator> {
    let told = node.ints("axes")?;
    Ok(Box::new(move |inputs, budget| {
        let value = inputs.value(0)?;
        let shape = value.shape();
        let gone: Vec<usize> = match axes(inputs, told.as_ref())? {
            None => (0..shape.len()).filter(|axis| shape[*axis] == 1).collect(),
            Some(axes) => {
                axes.iter().map(|axis| place(*axis, shape.len())).collect::<Result<_>>()?
            }
        };
        let left = (0..shape.len()).filter(|axis| !gone.contains(axis)).map(|axis| shape[axis]);
        copy(value, left.collect(), budget)
    }))
}

fn unsqueeze(node: &Node) -> Result<Operator> {
    let told = node.ints("axes")?;
    Ok(Box::new(move |inputs, budget| {
        let value = inputs.value(0)?;
        let new = axes(inputs, told.as_ref())?.unwrap_or_default();
        let rank = value.shape().len() + new.len();
        if rank > RANK_MAX {
            return Err(Fault::caller(format!("{rank} axes are too many")));
        }
        let new = new.iter().map(|axis| place(*axis, rank)).collect::<Result<Vec<_>>>()?;
        let mut old = value.shape().iter();
        let length = |axis: usize| match new.contains(&axis) {
            true => 1,
            false => old.next().copied().unwrap_or(1),
        };
        copy(value, (0..rank).map(length).collect(), budget)
    }))
}

fn transpose(node: &Node) -> Result<Operator> {
    let told = node.ints("perm")?;
    Ok(Box::new(move |inputs, budget| {
        let value = inputs.value(0)?;
        let shape = value.shape();
        let rank = shape.len();
        let order: Vec<usize> = match &told {
            None => (0..rank).rev().collect(),
            Some(order) => order.iter().map(|axis| place(*axis, rank)).collect::<Result<_>>()?,
        };
        if order.len() != rank || (0..rank).any(|axis| !order.contains(&axis)) {
            return Err(Fault::caller(format!("{order:?} is no order of {rank} axes")));
        }
        let turned: Vec<usize> = order.iter().map(|axis| shape[*axis]).collect();
        budget.hold(2 * value.len())?;
        let stride = |axis: usize| shape[axis + 1..].iter().product::<usize>();
        let strides: Vec<usize> = order.iter().map(|axis| stride(*axis)).collect();
        let place = |mut at: usize| {
            let mut place = 0;
            for (length, stride) in turned.iter().zip(&strides).rev() {
                place += at % length * stride;
                at /= length;
            }
            place
        };
        let places: Vec<usize> = (0..value.len()).map(place).collect();
        Ok(vec![value.picked(turned.clone(), &places)?])
    }))
}

fn concat(node: &Node) -> Result<Operator> {
    let axis = node.int("axis", 1)?;
    Ok(Box::new(move |inputs, budget| {
        let all = inputs.all()?;
        budget.hold(all.iter().map(|value| value.len()).sum())?;
        let mut shape = all[0].shape().to_vec();
        let at = place(axis, shape.len())?;
        for value in &all[1..] {
            let other = value.shape();
            let fits = |(axis, length): (usize, &usize)| axis == at || shape[axis] == *length;
            if other.len() != shape.len() || !other.iter().enumerate().all(fits) {
                return Err(Fault::caller(format!("{shape:?} and {other:?} do not fit")));
            }
        }
        shape[at] = all.iter().map(|value| value.shape()[at]).sum();
        let outer: usize = shape[..at].iter().product();
        Ok(vec![match all[0] {
            Value::Numbers(first) => {
                let parts = all.iter().map(|value| Ok(&value.numbers()?.array));
                let parts = parts.collect::<Result<Vec<_>>>()?;
                Value::of(first.kind, shape, side_by_side(&parts, outer))?
            }
            Value::Texts(_) => {
                let parts = all.iter().map(|value| match value {
                    Value::Texts(texts) => Ok(texts),
                    Value::Numbers(_) => Err(Fault::caller("texts and numbers do not go together")),
                });
                let parts = parts.collect::<Result<Vec<_>>>()?;
                Value::Texts(Array::new(shape, side_by_side(&parts, outer))?)
            }
        }])
    }))
}

fn side_by_side<T: Clone>(parts: &[&Array<T>], outer: usize) -> Vec<T> {
    let mut values = Vec::with_capacity(parts.iter().map(|part| part.values.len()).sum());
    for row in 0..outer {
        for part in parts {
            let width = part.values.len() / outer;
            values.extend_from_slice(&part.values[row * width..(row + 1) * width]);
        }
    }
    values
}

fn gather(node: &Node) -> Result<Operator> {
    let axis = node.int("axis", 0)?;
    Ok(Box::new(move |inputs, budget| {
        let (value, wanted) = (inputs.value(0)?, inputs.numbers(1)?);
        let at = place(axis, value.shape().len())?;
        let mut shape = value.shape()[..at].to_vec();
        shape.extend(&wanted.array.shape);
        shape.extend(&value.shape()[at + 1..]);
        let wanted = wanted.ints();
        let places = wanted.iter().map(|one| place(*one, value.shape()[at]));
        pick_along((value, at), &places.collect::<Result<Vec<_>>>()?, shape, budget)
    }))
}

/// Picks these places along an axis.
pub(super) fn pick_along(
    (value, axis): (&Value, usize),
    wanted: &[usize],
    shape: Vec<usize>,
    budget: &mut Budget,
) -> Result<Vec<Value>> {
    let product = |axes: &[usize]| axes.iter().product::<usize>();
    let (outer, length) = (product(&value.shape()[..axis]), value.shape()[axis]);
    let inner = product(&value.shape()[axis + 1..]);
    budget.hold(count(&shape)?.saturating_mul(2))?;
    let mut places = Vec::with_capacity(count(&shape)?);
    for row in 0..outer {
        for one in wanted {
            let from = (row * length + one) * inner;
            places.extend(from..from + inner);
        }
    }
    Ok(vec![value.picked(shape, &places)?])
}

fn slice(node: &Node) -> Result<Operator> {
    let told = [node.ints("starts")?, node.ints("ends")?, node.ints("axes")?];
    Ok(Box::new(move |inputs, budget| {
        let list = |at: usize| match (inputs.maybe(at), told.get(at - 1)) {
            (Some(value), _) => Ok(Some(value.numbers()?.ints())),
            (None, Some(told)) => Ok::<_, Fault>(told.clone()),
            (None, None) => Ok(None),
        };
        let (starts, ends) = (list(1)?.unwrap_or_default(), list(2)?.unwrap_or_default());
        let axes = list(3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = list(4)?.unwrap_or_else(|| vec![1; starts.len()]);
        if ends.len() != starts.len() || axes.len() != starts.len() || steps.len() != starts.len() {
            return Err(Fault::caller("starts, ends, axes and steps are not equally many"));
        }
        let value = inputs.value(0)?;
        budget.hold(value.len())?;
        let mut result = value.clone();
        for at in 0..starts.len() {
            let axis = place(axes[at], result.shape().len())?;
            let length = result.shape()[axis] as i64;
            let bound = |x: i64| if x < 0 { x.saturating_add(length) } else { x }.clamp(0, length);
            if steps[at] < 1 {
                return Err(Fault::caller(format!("a step of {} is not known", steps[at])));
            }
            let range = bound(starts[at])..bound(ends[at]);
            let step = usize::try_from(steps[at]).unwrap_or(usize::MAX);
            let wanted: Vec<usize> = range.step_by(step).map(|x| x as usize).collect();
            let mut shape = result.shape().to_vec();
            shape[axis] = wanted.len();
            result = pick_along((&result, axis), &wanted, shape, budget)?.remove(0);
        }
        Ok(vec![result])
    }))
}
