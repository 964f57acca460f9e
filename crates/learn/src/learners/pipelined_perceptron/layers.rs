//! The two layers on micro-batches of rows: forward, backward, and the sums of their gradients (Rumelhart,
//! Hinton and Williams, 1986). A layer's weights have a row for each input and a last row for the bias.

use starlings_core::{Fault, Result};
use starlings_data::{Row, Table};

/// The hidden layer: features → tanh.
pub(super) struct Hidden<'a> {
    pub(super) table: &'a Table,
    pub(super) weights: &'a [f64],
    pub(super) width: usize,
    pub(super) gradient: Vec<f64>,
}

impl<'a> Hidden<'a> {
    pub(super) fn new(table: &'a Table, weights: &'a [f64]) -> Hidden<'a> {
        let width = weights.len() / (table.width() + 1);
        Hidden { table, weights, width, gradient: vec![0.0; weights.len()] }
    }

    /// The activations of these rows, row after row.
    pub(super) fn forward(&self, rows: &[usize]) -> Vec<f64> {
        let mut activations = Vec::with_capacity(rows.len() * self.width);
        let bias = &self.weights[self.weights.len() - self.width..];
        for &row in rows {
            activations.extend_from_slice(bias);
            let at = activations.len() - self.width;
            let unit = &mut activations[at..];
            each_entry(self.table.row(row), |feature, x| {
                add_scaled(x, &self.weights[feature * self.width..][..self.width], unit);
            });
            unit.iter_mut().for_each(|a| *a = a.tanh());
        }
        activations
    }

    /// Adds the gradient of these rows, given the loss's derivative by their activations.
    pub(super) fn backward(&mut self, rows: &[usize], activations: &[f64], upstream: &[f64]) {
        let (width, bias) = (self.width, self.weights.len() - self.width);
        let mut delta = vec![0.0; width];
        let units = activations.chunks_exact(width).zip(upstream.chunks_exact(width));
        for (&row, (unit, upstream)) in rows.iter().zip(units) {
            for ((delta, a), u) in delta.iter_mut().zip(unit).zip(upstream) {
                *delta = u * (1.0 - a * a);
            }
            each_entry(self.table.row(row), |feature, x| {
                add_scaled(x, &delta, &mut self.gradient[feature * width..][..width]);
            });
            add_scaled(1.0, &delta, &mut self.gradient[bias..]);
        }
    }
}

/// The output layer: activations → softmax → cross-entropy.
pub(super) struct Output<'a> {
    labels: &'a [f32],
    weights: &'a [f64],
    width: usize,
    classes: usize,
    pub(super) gradient: Vec<f64>,
    /// Sum of the losses of all rows seen.
    pub(super) loss: f64,
    /// How many of them were right.
    pub(super) right: f64,
}

impl<'a> Output<'a> {
    pub(super) fn new(labels: &'a [f32], weights: &'a [f64], width: usize) -> Output<'a> {
        let classes = weights.len() / (width + 1);
        let gradient = vec![0.0; weights.len()];
        Output { labels, weights, width, classes, gradient, loss: 0.0, right: 0.0 }
    }

    /// The probabilities of all classes from one row's activations.
    pub(super) fn probabilities(&self, unit: &[f64], out: &mut [f64]) {
        out.copy_from_slice(&self.weights[self.width * self.classes..]);
        for (a, weights) in unit.iter().zip(self.weights.chunks_exact(self.classes)) {
            add_scaled(*a, weights, out);
        }
        let most = out.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        out.iter_mut().for_each(|z| *z = (*z - most).exp());
        let total: f64 = out.iter().sum();
        out.iter_mut().for_each(|p| *p /= total);
    }

    /// Adds loss and gradient of these rows and returns the loss's derivative by their activations.
    pub(super) fn step(&mut self, rows: &[usize], activations: &[f64]) -> Result<Vec<f64>> {
        let mut upstream = Vec::with_capacity(activations.len());
        let mut delta = vec![0.0; self.classes];
        for (&row, unit) in rows.iter().zip(activations.chunks_exact(self.width)) {
            self.see(row, unit, &mut delta)?;
            let gradients = self.gradient.chunks_exact_mut(self.classes);
            for ((a, gradient), weights) in
                unit.iter().zip(gradients).zip(self.weights.chunks_exact(self.classes))
            {
                add_scaled(*a, &delta, gradient);
                upstream.push(weights.iter().zip(&delta).map(|(w, d)| w * d).sum());
            }
            add_scaled(1.0, &delta, &mut self.gradient[self.width * self.classes..]);
        }
        Ok(upstream)
    }

    /// Adds only loss and hits of these rows.
    pub(super) fn score(&mut self, rows: &[usize], activations: &[f64]) -> Result<()> {
        let mut delta = vec![0.0; self.classes];
        for (&row, unit) in rows.iter().zip(activations.chunks_exact(self.width)) {
            self.see(row, unit, &mut delta)?;
        }
        Ok(())
    }

    /// One row's loss; leaves the loss's derivative by the scores of the classes in `delta`.
    fn see(&mut self, row: usize, unit: &[f64], delta: &mut [f64]) -> Result<()> {
        let label = self.labels[row] as usize;
        if label >= self.classes {
            return Err(Fault::caller(format!(
                "row {row} has class {label}, and the model knows {} classes",
                self.classes
            )));
        }
        self.probabilities(unit, delta);
        let likeliest = (0..delta.len()).rev().max_by(|&a, &b| delta[a].total_cmp(&delta[b]));
        self.right += f64::from(likeliest == Some(label));
        self.loss -= delta[label].max(f64::MIN_POSITIVE).ln();
        delta[label] -= 1.0;
        Ok(())
    }
}

fn each_entry(row: Row<'_>, mut each: impl FnMut(usize, f64)) {
    match row {
        Row::Dense(values) => {
            values.iter().enumerate().for_each(|(feature, &x)| each(feature, f64::from(x)));
        }
        Row::Sparse(columns, values) => {
            columns.iter().zip(values).for_each(|(&column, &x)| each(column as usize, x.into()));
        }
    }
}

fn add_scaled(by: f64, from: &[f64], into: &mut [f64]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into += by * from);
}
