//! Products of features with each other over rows: what makes a linear least-squares problem a small one, and what
//! tells solvers how features are correlated. Features are centred and divided by their deviation first, so that
//! nothing cancels and no sum is above the weight of all rows: sums travel exactly, on one grid.

use super::cholesky::start;
use super::exact::{Collector, Fold, grid};
use super::pass::alone;
use pulp::{Arch, Simd, WithSimd};
use starlings_core::{Block, Update};
use starlings_data::{Batch, Row};

/// How features are centred and scaled.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Scaling {
    /// What is subtracted; empty for nothing.
    pub(crate) means: Vec<f64>,
    /// What the rest is divided by.
    pub(crate) scales: Vec<f64>,
    /// The weight of all rows.
    pub(crate) weight: f64,
    /// Every so many rows of a shard are taken.
    pub(crate) stride: usize,
}

impl Scaling {
    fn mean(&self, feature: usize) -> f64 {
        self.means.get(feature).copied().unwrap_or(0.0)
    }

    fn fold(&self) -> Fold {
        Fold::Grids { grids: vec![grid(self.weight)], width: self.len() + 1 }
    }

    /// Numbers of the packed lower half.
    fn len(&self) -> usize {
        start(self.scales.len())
    }
}

/// The products of a worker's rows, and the weight of the rows that were taken.
pub(crate) fn block(scaling: &Scaling, batch: &Batch<'_>) -> Block {
    let fold = scaling.fold();
    let mut collector = Collector::new(&fold, scaling.len() + 1);
    let mut sums = vec![0.0; scaling.len() + 1];
    for slice in &batch.slices {
        sums.fill(0.0);
        let batch = alone(batch, slice);
        let (products, weight) = sums.split_at_mut(scaling.len());
        weight[0] = match batch.table.dense_rows(0, 0) {
            Some(_) => Arch::new().dispatch(Dense { scaling, batch: &batch, products }),
            None => sparse(scaling, &batch, products),
        };
        collector.add(slice.shard, &sums);
    }
    collector.block("products")
}

/// The mean products over the rows that were taken, packed; `None` when none were.
pub(crate) fn read(scaling: &Scaling, update: &Update) -> Option<Vec<f64>> {
    let mut sums = super::exact::read(&scaling.fold(), update, "products");
    let weight = sums.pop().filter(|weight| *weight > 0.0)?;
    sums.iter_mut().for_each(|sum| *sum /= weight);
    Some(sums)
}

/// Rows taken together: each product's sum is then read and written once for all of them.
const TOGETHER: usize = 8;

struct Dense<'a> {
    scaling: &'a Scaling,
    batch: &'a Batch<'a>,
    products: &'a mut [f64],
}

impl WithSimd for Dense<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let width = self.scaling.scales.len();
        let inverse: Vec<f64> = self.scaling.scales.iter().map(|scale| 1.0 / scale).collect();
        let means: Vec<f64> = (0..width).map(|feature| self.scaling.mean(feature)).collect();
        let mut room = vec![0.0; TOGETHER * width];
        let (mut count, mut total) = (0, 0.0);
        for row in self.batch.rows().step_by(self.scaling.stride) {
            let weight = self.batch.table.weight(row);
            let Row::Dense(x) = self.batch.table.row(row) else { continue };
            total += weight;
            let root = weight.sqrt();
            let into = &mut room[count * width..(count + 1) * width];
            for feature in 0..width {
                into[feature] = root * (f64::from(x[feature]) - means[feature]) * inverse[feature];
            }
            count += 1;
            if count == TOGETHER {
                add_products(&room, width, self.products);
                count = 0;
            }
        }
        room[count * width..].fill(0.0);
        add_products(&room, width, self.products);
        total
    }
}

/// Adds the products of eight rows.
#[inline(always)]
fn add_products(rows: &[f64], width: usize, products: &mut [f64]) {
    if width == 0 {
        return;
    }
    let mut chunks = rows.chunks_exact(width);
    let rows: [&[f64]; TOGETHER] = std::array::from_fn(|_| chunks.next().expect("eight rows"));
    for row in 0..width {
        let by = rows.map(|values| values[row]);
        let into = &mut products[start(row)..=start(row) + row];
        let rows = rows.map(|values| &values[..=row]);
        for (column, into) in into.iter_mut().enumerate() {
            let mut sum = 0.0;
            for n in 0..TOGETHER {
                sum += rows[n][column] * by[n];
            }
            *into += sum;
        }
    }
}

/// Products of entries only, centred afterwards: Σ (x − m)(x − m)ᵀ = Σ x xᵀ − m sᵀ − s mᵀ + W m mᵀ.
fn sparse(scaling: &Scaling, batch: &Batch<'_>, products: &mut [f64]) -> f64 {
    let width = scaling.scales.len();
    let mut sums = vec![0.0; width];
    let mut total = 0.0;
    for row in batch.rows().step_by(scaling.stride) {
        let weight = batch.table.weight(row);
        let Row::Sparse(columns, values) = batch.table.row(row) else { continue };
        total += weight;
        for (at, (&column, &value)) in columns.iter().zip(values).enumerate() {
            let column = column as usize;
            let x = weight * f64::from(value) / scaling.scales[column];
            sums[column] += x;
            let into = &mut products[start(column)..=start(column) + column];
            for (&other, &value) in columns[..=at].iter().zip(values) {
                into[other as usize] += x * f64::from(value) / scaling.scales[other as usize];
            }
        }
    }
    if !scaling.means.is_empty() {
        let means: Vec<f64> = (0..width).map(|j| scaling.mean(j) / scaling.scales[j]).collect();
        for row in 0..width {
            let into = &mut products[start(row)..=start(row) + row];
            for (column, into) in into.iter_mut().enumerate() {
                *into += total * means[row] * means[column]
                    - means[row] * sums[column]
                    - means[column] * sums[row];
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;
    use starlings_data::{Dealer, Features, Holding, Table};
    use std::sync::Arc;

    /// Dense and sparse rows give the plain double loop over centred, scaled features, weights and stride counted.
    #[test]
    fn products_are_those_of_plain_loops() {
        let mut rng = Rng::named(1, "gram", &[]);
        let values: Vec<f32> = (0..33 * 3).map(|_| 1.0 + rng.normal() as f32).collect();
        let weights: Vec<f32> = (0..33).map(|row| 0.5 + (row % 3) as f32).collect();
        let dense = Features::Dense { width: 3, values: values.clone() };
        let sparse = Features::Sparse {
            width: 3,
            starts: (0..=33).map(|row| 3 * row).collect(),
            columns: [0, 1, 2].repeat(33),
            values: values.clone(),
        };
        let (means, scales) = (vec![1.0, 0.9, 1.1], vec![2.0, 1.0, 0.5]);
        for stride in [1, 4] {
            let scaling =
                Scaling { means: means.clone(), scales: scales.clone(), weight: 1e4, stride };
            let x = |row: usize, feature: usize| {
                (f64::from(values[row * 3 + feature]) - means[feature]) / scales[feature]
            };
            for features in [dense.clone(), sparse.clone()] {
                let table = Table { weights: weights.clone(), ..Table::new(features, vec![]) };
                let dealer = Dealer::new(Holding::whole(Arc::new(table), 1), 1, 1);
                let update = Update { blocks: vec![block(&scaling, &dealer.everything())] };
                let found = read(&scaling, &update).expect("rows were taken");
                let taken = || (0..33).step_by(stride);
                let total: f64 = taken().map(|row| f64::from(weights[row])).sum();
                let pairs = (0..3).flat_map(|i| (0..=i).map(move |j| (i, j)));
                for (found, (i, j)) in found.iter().zip(pairs) {
                    let product = |row: usize| f64::from(weights[row]) * x(row, i) * x(row, j);
                    let plain = taken().map(product).sum::<f64>() / total;
                    assert!((found - plain).abs() < 1e-12, "{i} {j}: {found} {plain}");
                }
            }
        }
    }
}
