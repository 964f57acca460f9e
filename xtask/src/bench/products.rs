//! How fast a library that is not ours (the `gemm` crate) makes the products of a perceptron's layers, forwards and backwards, on
//! one core and on two at once. Arithmetic in registers scales with the cores; products come from caches and memory that
//! the cores share. Each thread has weights and outputs of its own and takes its rows from a table that no cache holds,
//! as a worker does.

use super::scaling;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows of the table.
const TABLE: usize = 1 << 15;
/// Steps of a round.
const STEPS: usize = 400;

/// Multiplications and additions a second of one thread, and of two together, for so many rows a step.
pub(super) fn rates(layers: &[usize], rows: usize) -> [f64; 2] {
    let table = vec![0.5_f32; TABLE * layers[0]];
    let starts = AtomicUsize::new(0);
    let work = || {
        let mut network = Network::of(layers, rows);
        // Two threads read other rows.
        let start = starts.fetch_add(TABLE / 2, Ordering::Relaxed);
        for step in 0..STEPS {
            let first = (start + step * rows) % (TABLE - rows);
            network.step(&table[first * layers[0]..][..rows * layers[0]]);
        }
        black_box(&network.slopes);
    };
    scaling::rates((STEPS * operations(layers, rows)) as f64, &work)
}

/// Multiplications and additions of a step: each layer but the first is multiplied three times, the first twice.
fn operations(layers: &[usize], rows: usize) -> usize {
    let pairs = layers.windows(2).enumerate();
    pairs.map(|(at, pair)| 2 * rows * pair[0] * pair[1] * if at == 0 { 2 } else { 3 }).sum()
}

/// Weights and what is made of them in a step.
struct Network {
    rows: usize,
    layers: Vec<usize>,
    weights: Vec<Vec<f32>>,
    /// What comes out of each layer, and how the loss changes with it.
    outputs: Vec<Vec<f32>>,
    errors: Vec<Vec<f32>>,
    /// How the loss changes with the weights.
    slopes: Vec<Vec<f32>>,
}

impl Network {
    fn of(layers: &[usize], rows: usize) -> Network {
        let pairs = || layers.windows(2);
        let matrices = |value: f32| pairs().map(|pair| vec![value; pair[0] * pair[1]]).collect();
        let sides = |value: f32| pairs().map(|pair| vec![value; rows * pair[1]]).collect();
        Network {
            rows,
            layers: layers.to_vec(),
            weights: matrices(1e-3),
            outputs: sides(0.0),
            errors: sides(1e-3),
            slopes: matrices(0.0),
        }
    }

    fn step(&mut self, inputs: &[f32]) {
        let last = self.weights.len();
        for at in 0..last {
            let (before, after) = self.outputs.split_at_mut(at);
            let from = before.last().map_or(inputs, |outputs| outputs);
            let (width, columns) = (self.layers[at], self.layers[at + 1]);
            let right = (&self.weights[at][..], [columns, 1]);
            product([self.rows, width, columns], (from, [width, 1]), right, &mut after[0]);
        }
        for at in (0..last).rev() {
            let (width, columns) = (self.layers[at], self.layers[at + 1]);
            let (before, after) = self.errors.split_at_mut(at);
            let error = (&after[0][..], [columns, 1]);
            let from = if at == 0 { inputs } else { &self.outputs[at - 1] };
            product([width, self.rows, columns], (from, [1, width]), error, &mut self.slopes[at]);
            if let Some(earlier) = before.last_mut() {
                let turned = (&self.weights[at][..], [1, columns]);
                product([self.rows, columns, width], error, turned, earlier);
            }
        }
    }
}

/// A matrix, and how far its next row and its next column are.
type Matrix<'a> = (&'a [f32], [usize; 2]);

/// left × right, of rows × between × columns numbers.
fn product(
    [rows, between, columns]: [usize; 3],
    (left, left_steps): Matrix<'_>,
    (right, right_steps): Matrix<'_>,
    into: &mut [f32],
) {
    let reaches = |[row, column]: [usize; 2], rows: usize, columns: usize| {
        (rows - 1) * row + (columns - 1) * column
    };
    assert!(reaches(left_steps, rows, between) < left.len(), "the left matrix is too small");
    assert!(reaches(right_steps, between, columns) < right.len(), "the right matrix is too small");
    assert!(rows * columns <= into.len(), "there is no room");
    let [left_row, left_column] = left_steps.map(usize::cast_signed);
    let [right_row, right_column] = right_steps.map(usize::cast_signed);
    #[expect(unsafe_code, reason = "the library takes addresses; all lie within what was checked")]
    unsafe {
        gemm::gemm(
            rows,
            columns,
            between,
            into.as_mut_ptr(),
            1,
            columns.cast_signed(),
            false,
            left.as_ptr(),
            left_column,
            left_row,
            right.as_ptr(),
            right_column,
            right_row,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_makes_the_products_of_a_perceptron() {
        let mut network = Network::of(&[3, 2, 2], 2);
        network.weights = vec![vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![1.0, 0.0, 2.0, 1.0]];
        network.errors[1] = vec![1.0, 2.0, 3.0, 4.0];
        network.step(&[1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
        assert_eq!(network.outputs, [vec![6.0, 8.0, 3.0, 4.0], vec![22.0, 8.0, 11.0, 4.0]]);
        assert_eq!(network.slopes[1], [15.0, 24.0, 20.0, 32.0]);
        assert_eq!(network.errors[0], [1.0, 4.0, 3.0, 10.0]);
        assert_eq!(network.slopes[0], [1.0, 4.0, 3.0, 10.0, 1.0, 4.0]);
        assert_eq!(operations(&[3, 2, 2], 2), 2 * 2 * (3 * 2 * 2 + 2 * 2 * 3));
    }
}
