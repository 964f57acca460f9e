//! Products of matrices.

use super::super::file::Node;
use super::super::value::{Numbers, Value};
use super::arithmetic::stretched;
use super::{Budget, Known, Operator};
use starlings_core::{Fault, Result};

pub(super) const KNOWN: &[Known] = &[("MatMul", |_| Ok(matmul())), ("Gemm", gemm)];

fn matmul() -> Operator {
    Box::new(|inputs, budget| {
        let (a, b) = (inputs.numbers(0)?, inputs.numbers(1)?);
        // A vector on the right is one column, and leaves no axis behind.
        let (rows, width, is_vector) = match b.array.shape[..] {
            [rows, width] => (rows, width, false),
            [rows] => (rows, 1, true),
            _ => return Err(unknown(a, b)),
        };
        let Some((&inner, outer)) = a.array.shape.split_last() else { return Err(unknown(a, b)) };
        if inner != rows {
            return Err(unequal(inner, rows));
        }
        let cells = [outer.iter().product(), inner, width];
        let values = product(&a.array.values, &b.array.values, cells, budget)?;
        let mut shape = outer.to_vec();
        shape.extend((!is_vector).then_some(width));
        Ok(vec![Value::of(a.kind, shape, values)?])
    })
}

/// α·A·B + β·C, either of A and B turned.
fn gemm(node: &Node) -> Result<Operator> {
    let (alpha, beta) = (node.float("alpha", 1.0)?, node.float("beta", 1.0)?);
    let turned = [node.int("transA", 0)? != 0, node.int("transB", 0)? != 0];
    Ok(Box::new(move |inputs, budget| {
        let matrix = |at: usize| -> Result<(Vec<f64>, usize, usize)> {
            let array = &inputs.numbers(at)?.array;
            let (rows, width) = array.matrix()?;
            Ok(match turned[at] {
                false => (array.values.clone(), rows, width),
                true => (transposed(&array.values, rows, width), width, rows),
            })
        };
        budget.hold(inputs.value(0)?.len() + inputs.value(1)?.len())?;
        let ((a, outer, inner), (b, rows, width)) = (matrix(0)?, matrix(1)?);
        if inner != rows {
            return Err(unequal(inner, rows));
        }
        let mut values = product(&a, &b, [outer, inner, width], budget)?;
        values.iter_mut().for_each(|x| *x *= alpha);
        let kind = inputs.numbers(0)?.kind;
        let product = Numbers::new(kind, vec![outer, width], values)?;
        let Some(added) = inputs.maybe(2) else { return Ok(vec![Value::Numbers(product)]) };
        let sum = stretched((&product, added.numbers()?), kind, |x, c| x + beta * c, budget)?;
        Ok(vec![Value::Numbers(sum)])
    }))
}

fn unknown(a: &Numbers, b: &Numbers) -> Fault {
    let shapes = [a, b].map(|numbers| &numbers.array.shape);
    Fault::caller(format!("a product of the shapes {shapes:?} is not known"))
}

fn unequal(inner: usize, rows: usize) -> Fault {
    Fault::caller(format!("{inner} columns times {rows} rows"))
}

fn transposed(values: &[f64], rows: usize, width: usize) -> Vec<f64> {
    (0..width).flat_map(|column| (0..rows).map(move |row| values[row * width + column])).collect()
}

/// The product of two matrices, row after row.
pub(super) fn product(
    a: &[f64],
    b: &[f64],
    [outer, inner, width]: [usize; 3],
    budget: &mut Budget,
) -> Result<Vec<f64>> {
    let cells = outer.saturating_mul(width);
    budget.hold(cells)?;
    budget.work((cells as u64).saturating_mul(inner as u64))?;
    let mut out = vec![0.0; cells];
    if inner == 0 || width == 0 {
        return Ok(out);
    }
    for (row, out) in a.chunks_exact(inner).zip(out.chunks_exact_mut(width)) {
        for (x, weights) in row.iter().zip(b.chunks_exact(width)) {
            out.iter_mut().zip(weights).for_each(|(out, weight)| *out += x * weight);
        }
    }
    Ok(out)
}
