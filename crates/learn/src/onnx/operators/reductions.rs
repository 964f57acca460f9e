//! Sums, means, extremes and places of them along axes, and softmax.

use super::super::file::Node;
use super::super::value::{Kind, Numbers, Value, place};
use super::{Budget, Inputs, Known, Operator, transform};
use starlings_core::{Fault, Result};

pub(super) const KNOWN: &[Known] = &[
    ("ReduceSum", |node| reduction(node, |row| row.iter().sum())),
    ("ReduceMean", |node| reduction(node, |row| row.iter().sum::<f64>() / row.len() as f64)),
    ("ReduceProd", |node| reduction(node, |row| row.iter().product())),
    ("ReduceMax", |node| {
        reduction(node, |row| row.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    }),
    ("ReduceMin", |node| reduction(node, |row| row.iter().copied().fold(f64::INFINITY, f64::min))),
    ("ReduceSumSquare", |node| reduction(node, |row| row.iter().map(|x| x * x).sum())),
    ("ReduceL1", |node| reduction(node, |row| row.iter().map(|x| x.abs()).sum())),
    ("ReduceL2", |node| reduction(node, |row| row.iter().map(|x| x * x).sum::<f64>().sqrt())),
    ("ReduceLogSumExp", |node| reduction(node, log_sum_exp)),
    ("ArgMax", |node| argument(node, |x, best| x > best)),
    ("ArgMin", |node| argument(node, |x, best| x < best)),
    ("Softmax", |node| normalised(node, |row| transform::softmax(row, |_| true))),
    ("LogSoftmax", |node| {
        normalised(node, |row| {
            let total = log_sum_exp(row);
            row.iter_mut().for_each(|x| *x -= total);
        })
    }),
];

fn log_sum_exp(row: &[f64]) -> f64 {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest.is_infinite() {
        return largest;
    }
    largest + row.iter().map(|x| (x - largest).exp()).sum::<f64>().ln()
}

fn reduction(node: &Node, f: fn(&[f64]) -> f64) -> Result<Operator> {
    let told = node.ints("axes")?;
    let kept = node.int("keepdims", 1)? != 0;
    let nothing = node.int("noop_with_empty_axes", 0)? != 0;
    Ok(Box::new(move |inputs, budget| {
        let x = inputs.numbers(0)?;
        let axes = match inputs.maybe(1) {
            Some(axes) => Some(axes.numbers()?.ints()),
            None => told.clone(),
        };
        let rank = x.array.shape.len();
        let axes = match axes {
            None if nothing => return Ok(vec![Value::Numbers(x.clone())]),
            None => (0..rank).collect(),
            Some(axes) => axes.iter().map(|axis| place(*axis, rank)).collect::<Result<Vec<_>>>()?,
        };
        let mut result = x.clone();
        for &axis in &axes {
            result = along(&result, axis, f, budget)?;
        }
        if !kept {
            let keep = |(axis, length): (usize, &usize)| (!axes.contains(&axis)).then_some(*length);
            result.array.shape = result.array.shape.iter().enumerate().filter_map(keep).collect();
        }
        Ok(vec![Value::Numbers(result)])
    }))
}

/// One number for each line along an axis, which stays with the length one.
fn along(x: &Numbers, axis: usize, f: fn(&[f64]) -> f64, budget: &mut Budget) -> Result<Numbers> {
    let mut shape = x.array.shape.clone();
    let mut values = Vec::new();
    lines(x, axis as i64, budget, |line| values.push(f(line)))?;
    shape[axis] = 1;
    Numbers::new(x.kind, shape, values)
}

/// Shows every line along an axis, in the order of what stays.
fn lines(
    x: &Numbers,
    axis: i64,
    budget: &mut Budget,
    mut show: impl FnMut(&mut [f64]),
) -> Result<()> {
    let [outer, length, inner] = x.array.around(axis)?;
    budget.hold(2 * x.array.values.len() + outer.saturating_mul(inner))?;
    let mut line = vec![0.0; length];
    for from in 0..outer {
        for behind in 0..inner {
            let at = |place: usize| (from * length + place) * inner + behind;
            line.iter_mut().enumerate().for_each(|(place, x_)| *x_ = x.array.values[at(place)]);
            show(&mut line);
        }
    }
    Ok(())
}

fn argument(node: &Node, better: fn(f64, f64) -> bool) -> Result<Operator> {
    let (axis, kept) = (node.int("axis", 0)?, node.int("keepdims", 1)? != 0);
    if node.int("select_last_index", 0)? != 0 {
        return Err(Fault::caller("select_last_index is not known"));
    }
    Ok(Box::new(move |inputs: &Inputs<'_>, budget: &mut Budget| {
        let x = inputs.numbers(0)?;
        let at = place(axis, x.array.shape.len())?;
        let mut shape = x.array.shape.clone();
        let mut values = Vec::new();
        lines(x, axis, budget, |line| {
            let best = (1..line.len())
                .fold(0, |best, at| if better(line[at], line[best]) { at } else { best });
            values.push(best as f64);
        })?;
        match kept {
            true => shape[at] = 1,
            false => drop(shape.remove(at)),
        }
        Ok(vec![Value::of(Kind::Int, shape, values)?])
    }))
}

fn normalised(node: &Node, change: fn(&mut [f64])) -> Result<Operator> {
    // Before version 13 all axes from this one on were one.
    let old = node.version < 13;
    let axis = node.int("axis", if old { 1 } else { -1 })?;
    Ok(Box::new(move |inputs, budget| {
        let x = inputs.numbers(0)?;
        let rank = x.array.shape.len();
        if place(axis, rank)? + 1 != rank {
            return Err(Fault::caller("only the last axis is known"));
        }
        let mut values = Vec::with_capacity(x.array.values.len());
        lines(x, axis, budget, |line| {
            change(line);
            values.extend_from_slice(line);
        })?;
        Ok(vec![Value::of(x.kind, x.array.shape.clone(), values)?])
    }))
}
