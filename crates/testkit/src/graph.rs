//! Evaluates a [`Graph`] by the definitions of its operators, so that what a learner says about its model can be
//! compared with what the model predicts.

use starlings_core::{FEATURES, Graph, Node, Op, Tensor, Values};
use std::collections::BTreeMap;

/// Rows of equal length.
#[derive(Clone, PartialEq, Debug)]
pub struct Matrix {
    /// Numbers in a row.
    pub width: usize,
    /// All numbers, row after row.
    pub values: Vec<f64>,
}

impl Matrix {
    /// How many rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.values.len().checked_div(self.width).unwrap_or(0)
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        let row = if self.rows() == 1 { 0 } else { row };
        let column = if self.width == 1 { 0 } else { column };
        self.values[row * self.width + column]
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.width..(row + 1) * self.width]
    }

    fn of(tensor: &Tensor) -> Result<Matrix, String> {
        let Values::F64(values) = &tensor.values else {
            return Err("a constant is not f64".into());
        };
        let width = match tensor.shape[..] {
            [] => 1,
            [width] | [_, width] => width,
            _ => return Err(format!("a constant has the shape {:?}", tensor.shape)),
        };
        Ok(Matrix { width, values: values.clone() })
    }
}

/// The value of the graph's last node for these features.
///
/// # Errors
/// When a node reads what is not there, or shapes do not fit.
pub fn evaluate(graph: &Graph, features: Matrix) -> Result<Matrix, String> {
    let mut values = BTreeMap::from([(FEATURES.to_string(), features)]);
    for (name, tensor) in &graph.constants {
        values.insert(name.clone(), Matrix::of(tensor)?);
    }
    let mut last = None;
    for node in &graph.nodes {
        let inputs = node.inputs.iter().map(|name| {
            values
                .get(name)
                .ok_or_else(|| format!("{:?} reads '{name}', which is not there", node.op))
        });
        let value = compute(node, &inputs.collect::<Result<Vec<_>, _>>()?)?;
        values.insert(node.output.clone(), value);
        last = Some(node.output.clone());
    }
    let last = last.ok_or("the graph has no node")?;
    values.remove(&last).ok_or_else(|| "the last node has no value".to_string())
}

fn compute(node: &Node, inputs: &[&Matrix]) -> Result<Matrix, String> {
    match (&node.op, inputs) {
        (Op::Concat, all) => Ok(concat(all)),
        (Op::Columns(columns), [a]) => {
            let rows = 0..a.rows();
            let values = rows.flat_map(|row| columns.iter().map(move |&c| a.at(row, c))).collect();
            Ok(Matrix { width: columns.len(), values })
        }
        (Op::MatMul, [a, b]) => product(a, b),
        (Op::Where, [a, b, c]) => {
            let mut picked = broadcast(a, b, |_, b| b)?;
            let other = broadcast(a, c, |_, c| c)?;
            for (at, value) in picked.values.iter_mut().enumerate() {
                if a.at(at / picked.width, at % picked.width) == 0.0 {
                    *value = other.values[at];
                }
            }
            Ok(picked)
        }
        (op, [a, b]) => broadcast(a, b, pairwise(op)?),
        (Op::Softmax, [a]) => Ok(by_row(a, a.width, softmax)),
        (Op::SumRows, [a]) => Ok(by_row(a, 1, |row| vec![row.iter().sum()])),
        (Op::MaxRows, [a]) => Ok(by_row(a, 1, |row| vec![row[first(row, |x, y| x > y)]])),
        (Op::MinRows, [a]) => Ok(by_row(a, 1, |row| vec![row[first(row, |x, y| x < y)]])),
        (Op::ArgMaxRows, [a]) => Ok(by_row(a, 1, |row| vec![first(row, |x, y| x > y) as f64])),
        (Op::ArgMinRows, [a]) => Ok(by_row(a, 1, |row| vec![first(row, |x, y| x < y) as f64])),
        (op, [a]) => {
            let change = single(op)?;
            Ok(Matrix { width: a.width, values: a.values.iter().map(|&x| change(x)).collect() })
        }
        (op, inputs) => Err(format!("{op:?} with {} inputs", inputs.len())),
    }
}

fn pairwise(op: &Op) -> Result<fn(f64, f64) -> f64, String> {
    Ok(match op {
        Op::Add => |a, b| a + b,
        Op::Sub => |a, b| a - b,
        Op::Mul => |a, b| a * b,
        Op::Div => |a, b| a / b,
        Op::Pow => f64::powf,
        Op::Max => f64::max,
        Op::Min => f64::min,
        Op::Less => |a, b| f64::from(u8::from(a < b)),
        Op::Equal => |a, b| f64::from(u8::from(a == b)),
        other => return Err(format!("{other:?} does not take two inputs")),
    })
}

fn single(op: &Op) -> Result<fn(f64) -> f64, String> {
    Ok(match op {
        Op::Exp => f64::exp,
        Op::Log => f64::ln,
        Op::Sqrt => f64::sqrt,
        Op::Abs => f64::abs,
        Op::Neg => |x| -x,
        Op::Cos => f64::cos,
        Op::Tanh => f64::tanh,
        Op::Relu => |x| x.max(0.0),
        Op::Sigmoid => |x| 1.0 / (1.0 + (-x).exp()),
        Op::Erf => erf,
        Op::IsNaN => |x| f64::from(u8::from(x.is_nan())),
        other => return Err(format!("{other:?} does not take one input")),
    })
}

/// The error function by its Maclaurin series, and by a continued fraction where that is slow.
fn erf(x: f64) -> f64 {
    if x.abs() > 3.0 {
        let mut fraction = 0.0;
        for k in (1..60).rev() {
            fraction = 0.5 * f64::from(k) / (x.abs() + fraction);
        }
        let tail = (-x * x).exp() / (std::f64::consts::PI.sqrt() * (x.abs() + fraction));
        return x.signum() * (1.0 - tail);
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..100 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    2.0 / std::f64::consts::PI.sqrt() * sum
}

fn broadcast(a: &Matrix, b: &Matrix, f: impl Fn(f64, f64) -> f64) -> Result<Matrix, String> {
    let fits = |a: usize, b: usize| a == b || a == 1 || b == 1;
    if !fits(a.rows(), b.rows()) || !fits(a.width, b.width) {
        let shapes = [a, b].map(|m| (m.rows(), m.width));
        return Err(format!("shapes {shapes:?} do not fit"));
    }
    let (rows, width) = (a.rows().max(b.rows()), a.width.max(b.width));
    let places = (0..rows).flat_map(|row| (0..width).map(move |column| (row, column)));
    let values = places.map(|(row, column)| f(a.at(row, column), b.at(row, column))).collect();
    Ok(Matrix { width, values })
}

fn product(a: &Matrix, b: &Matrix) -> Result<Matrix, String> {
    if a.width != b.rows() {
        return Err(format!("{} columns times {} rows", a.width, b.rows()));
    }
    let cell = |row: usize, column: usize| -> f64 {
        (0..a.width).map(|k| a.row(row)[k] * b.row(k)[column]).sum()
    };
    let places = (0..a.rows()).flat_map(|row| (0..b.width).map(move |column| (row, column)));
    Ok(Matrix { width: b.width, values: places.map(|(row, column)| cell(row, column)).collect() })
}

fn by_row(a: &Matrix, width: usize, f: impl Fn(&[f64]) -> Vec<f64>) -> Matrix {
    Matrix { width, values: (0..a.rows()).flat_map(|row| f(a.row(row))).collect() }
}

fn concat(all: &[&Matrix]) -> Matrix {
    let rows = all.iter().map(|m| m.rows()).max().unwrap_or(0);
    let width = all.iter().map(|m| m.width).sum();
    let row = |row| all.iter().flat_map(move |m| (0..m.width).map(move |c| m.at(row, c)));
    Matrix { width, values: (0..rows).flat_map(row).collect() }
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = row.iter().map(|x| (x - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

fn first(row: &[f64], better: fn(f64, f64) -> bool) -> usize {
    (1..row.len()).fold(0, |best, at| if better(row[at], row[best]) { at } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_has_its_known_values() {
        for (x, value) in
            [(0.5, 0.5204998778130465), (2.0, 0.9953222650189527), (3.5, 0.9999992569016276)]
        {
            assert!((erf(x) - value).abs() < 1e-13, "{x}: {} {value}", erf(x));
            assert!((erf(-x) + value).abs() < 1e-13);
        }
    }

    #[test]
    fn a_graph_is_computed_node_by_node() {
        let mut graph = Graph::new();
        let weights = graph.constant("weights", &[2, 1], vec![1.0, -1.0]);
        let bias = graph.constant("bias", &[1], vec![0.5]);
        let score = graph.node(Op::MatMul, &[FEATURES, &weights]);
        let score = graph.node(Op::Add, &[&score, &bias]);
        let other = graph.node(Op::Neg, &[&score]);
        let both = graph.node(Op::Concat, &[&score, &other]);
        graph.node(Op::ArgMaxRows, &[&both]);
        let features = Matrix { width: 2, values: vec![3.0, 1.0, 0.0, 2.0] };
        assert_eq!(evaluate(&graph, features).unwrap().values, [0.0, 1.0]);
        let narrow = Matrix { width: 3, values: vec![0.0; 3] };
        assert_eq!(evaluate(&graph, narrow).unwrap_err(), "3 columns times 2 rows");
    }
}
