//! Expectation: how likely each component made each row, and the sums over rows of what follows from it. Sums are
//! taken about the component's present mean, not the origin, so that the covariance that comes of them does not
//! cancel; near the end, when means hardly move, it is as good as one about the new mean.

use super::shape::{Covariance, Measure};
use crate::kernels::scatter::{TILE_ROWS, add_products, fill, padded, scale_rows, squared_lengths};
use crate::{Learner, Work};
use pulp::{Arch, Simd, WithSimd};
use starlings_core::{Block, FEATURES, Graph, Model, Op, Result, Tensor};
use starlings_data::{Batch, Slice, Table};

/// The densities of all components, ready to measure rows.
pub(super) struct Densities<'a> {
    means: &'a [f64],
    width: usize,
    components: Vec<Component>,
}

/// ln(weight) + ln density = `constant` − ½‖(x − mean)·U‖².
struct Component {
    measure: Measure,
    constant: f64,
}

/// Some rows, measured.
pub(super) struct Tile<'a> {
    /// The rows as numbers in the table.
    pub(super) rows: &'a [usize],
    /// The logarithm of each row's density.
    pub(super) densities: &'a [f64],
    /// For each component the chances that it made each row.
    chances: &'a [Vec<f64>],
    /// For each component the rows less its mean.
    centred: &'a [Vec<f64>],
}

impl Tile<'_> {
    /// The chance that a component made the row at a place.
    pub(super) fn chance(&self, component: usize, place: usize) -> f64 {
        self.chances[component][place]
    }
}

impl<'a> Densities<'a> {
    /// From a model whose covariances have been checked.
    pub(super) fn new(covariance: Covariance, model: &'a Model) -> Densities<'a> {
        let width = model.get("means").map_or(0, Tensor::width);
        let whole = width as f64 * (2.0 * std::f64::consts::PI).ln();
        let component = |(component, weight): (usize, &f64)| {
            let (measure, determinant) =
                covariance.measure(model, component).expect("singular covariances are refused");
            Component { measure, constant: weight.ln() + determinant - 0.5 * whole }
        };
        let components = model.f64("weights").iter().enumerate().map(component).collect();
        Densities { means: model.f64("means"), width, components }
    }

    /// Measures all rows of a slice, tile by tile in their order.
    pub(super) fn visit(&self, table: &Table, slice: &Slice, mut each: impl FnMut(&Tile<'_>)) {
        let count = self.components.len();
        let rows: Vec<usize> = slice.rows().collect();
        let (mut centred, mut chances) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        let mut densities = Vec::new();
        for rows in rows.chunks(TILE_ROWS) {
            for (k, component) in self.components.iter().enumerate() {
                let mean = &self.means[k * self.width..(k + 1) * self.width];
                fill(table, rows, mean, &mut centred[k]);
                component.log_densities(&centred[k], self.width, &mut chances[k]);
            }
            normalise(&mut chances, rows.len(), &mut densities);
            each(&Tile { rows, densities: &densities, chances: &chances, centred: &centred });
        }
    }

    /// The densities as operators.
    pub(super) fn graph(&self) -> Graph {
        let mut graph = Graph::new();
        let half = graph.constant("half", &[1], vec![-0.5]);
        let mut logs = Vec::new();
        for (k, component) in self.components.iter().enumerate() {
            let mean = self.means[k * self.width..(k + 1) * self.width].to_vec();
            let mean = graph.constant(&format!("mean_{k}"), &[self.width], mean);
            let constant = graph.constant(&format!("constant_{k}"), &[1], vec![component.constant]);
            let z = graph.node(Op::Sub, &[FEATURES, &mean]);
            let turned = component.turn(&mut graph, &z, (k, self.width));
            let squares = graph.node(Op::Mul, &[&turned, &turned]);
            let length = graph.node(Op::SumRows, &[&squares]);
            let log = graph.node(Op::Mul, &[&length, &half]);
            logs.push(graph.node(Op::Add, &[&log, &constant]));
        }
        let logs = graph.node(Op::Concat, &logs.iter().map(String::as_str).collect::<Vec<_>>());
        let largest = graph.node(Op::MaxRows, &[&logs]);
        let lower = graph.node(Op::Sub, &[&logs, &largest]);
        let powers = graph.node(Op::Exp, &[&lower]);
        let sum = graph.node(Op::SumRows, &[&powers]);
        let log = graph.node(Op::Log, &[&sum]);
        let density = graph.node(Op::Add, &[&log, &largest]);
        let chances = graph.node(Op::Softmax, &[&logs]);
        graph.node(Op::Concat, &[&chances, &density]);
        graph
    }
}

impl Component {
    fn log_densities(&self, tile: &[f64], width: usize, out: &mut Vec<f64>) {
        let stride = padded(width);
        match &self.measure {
            Measure::Triangle(upper) => squared_lengths(tile, upper, stride, out),
            Measure::Diagonal(squares) => {
                out.clear();
                out.resize(tile.len() / stride, 0.0);
                Arch::new().dispatch(WeightedLengths { tile, stride, squares, out });
            }
        }
        out.iter_mut().for_each(|length| *length = self.constant - 0.5 * *length);
    }

    fn turn(&self, graph: &mut Graph, z: &str, (k, width): (usize, usize)) -> String {
        match &self.measure {
            Measure::Triangle(upper) => {
                let stride = padded(width);
                let rows = upper.chunks_exact(stride).take(width);
                let matrix = rows.flat_map(|row| &row[..width]).copied().collect();
                let matrix = graph.constant(&format!("factor_{k}"), &[width, width], matrix);
                graph.node(Op::MatMul, &[z, &matrix])
            }
            Measure::Diagonal(squares) => {
                let roots = squares.iter().map(|square| square.sqrt()).collect();
                let roots = graph.constant(&format!("factor_{k}"), &[width], roots);
                graph.node(Op::Mul, &[z, &roots])
            }
        }
    }
}

struct WeightedLengths<'a> {
    tile: &'a [f64],
    stride: usize,
    squares: &'a [f64],
    out: &'a mut [f64],
}

impl WithSimd for WeightedLengths<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (row, out) in self.tile.chunks_exact(self.stride).zip(self.out) {
            let (row_chunks, row_rest) = row[..self.squares.len()].as_chunks::<8>();
            let (by_chunks, by_rest) = self.squares.as_chunks::<8>();
            let mut lanes = [0.0; 8];
            for (z, by) in row_chunks.iter().zip(by_chunks) {
                for lane in 0..8 {
                    lanes[lane] += z[lane] * z[lane] * by[lane];
                }
            }
            let rest: f64 = row_rest.iter().zip(by_rest).map(|(z, by)| z * z * by).sum();
            *out = lanes.iter().sum::<f64>() + rest;
        }
    }
}

/// From the logarithms of all components' densities to their chances and the logarithm of the sum.
fn normalise(logs: &mut [Vec<f64>], rows: usize, densities: &mut Vec<f64>) {
    densities.clear();
    let equal = 1.0 / logs.len() as f64;
    for place in 0..rows {
        let largest = logs.iter().fold(f64::NEG_INFINITY, |largest, log| largest.max(log[place]));
        // Where every density vanishes, the chances are equal and the logarithm is −∞.
        let lower = if largest.is_finite() { largest } else { 0.0 };
        let mut sum = 0.0;
        for log in &mut *logs {
            log[place] = (log[place] - lower).exp();
            sum += log[place];
        }
        for log in &mut *logs {
            log[place] = if sum > 0.0 { log[place] / sum } else { equal };
        }
        densities.push(lower + sum.ln());
    }
}

/// The contribution of an iteration: sums weighted by the chances.
pub(super) fn soft(covariance: Covariance, work: &mut Work<'_>) {
    let densities = Densities::new(covariance, work.model);
    let mut sums = Sums::new(covariance, (densities.components.len(), densities.width));
    let table = work.batch.table;
    for slice in &work.batch.slices {
        densities.visit(table, slice, |tile| {
            sums.weigh(table, tile.rows, tile.densities);
            for (k, centred) in tile.centred.iter().enumerate() {
                sums.add(table, tile.rows, k, (centred, &tile.chances[k]));
            }
        });
    }
    sums.emit(work);
}

/// The contribution of the first iteration: every row belongs to the component of its cluster alone.
pub(super) fn hard(
    covariance: Covariance,
    clusters: &dyn Learner,
    work: &mut Work<'_>,
) -> Result<()> {
    let means = work.model.f64("means");
    let count = work.model.f64("weights").len();
    let (table, width) = (work.batch.table, means.len() / count);
    let mut sums = Sums::new(covariance, (count, width));
    let mut centred = Vec::new();
    for slice in &work.batch.slices {
        let one = Batch { table, slices: vec![slice.clone()], rows_step: work.batch.rows_step };
        let mut found = Vec::new();
        clusters.predict(work.model, &one, &mut found)?;
        let rows: Vec<usize> = slice.rows().collect();
        for (rows, found) in rows.chunks(TILE_ROWS).zip(found.chunks(2 * TILE_ROWS)) {
            sums.weigh(table, rows, &vec![0.0; rows.len()]);
            for k in 0..count {
                let chances: Vec<f64> = found
                    .chunks_exact(2)
                    .map(|pair| f64::from(u8::from(pair[0] as usize == k)))
                    .collect();
                if chances.contains(&1.0) {
                    fill(table, rows, &means[k * width..(k + 1) * width], &mut centred);
                    sums.add(table, rows, k, (&centred, &chances));
                }
            }
        }
    }
    sums.emit(work);
    Ok(())
}

/// Sums about the present means.
struct Sums {
    covariance: Covariance,
    width: usize,
    likelihood: f64,
    weight: f64,
    mass: Vec<f64>,
    /// Σ r·(x − mean), padded.
    first: Vec<f64>,
    /// Σ r·(x − mean)(x − mean)ᵀ, padded, upper; or its diagonal.
    second: Vec<f64>,
    factors: Vec<f64>,
    scaled: Vec<f64>,
}

impl Sums {
    fn new(covariance: Covariance, (count, width): (usize, usize)) -> Sums {
        let stride = padded(width);
        let second = match covariance {
            Covariance::Full => count * stride * stride,
            Covariance::Tied => stride * stride,
            Covariance::Diagonal | Covariance::Spherical => count * stride,
        };
        Sums {
            covariance,
            width,
            likelihood: 0.0,
            weight: 0.0,
            mass: vec![0.0; count],
            first: vec![0.0; count * stride],
            second: vec![0.0; second],
            factors: Vec::new(),
            scaled: Vec::new(),
        }
    }

    fn weigh(&mut self, table: &Table, rows: &[usize], densities: &[f64]) {
        for (&row, density) in rows.iter().zip(densities) {
            let weight = table.weight(row);
            self.weight += weight;
            if weight > 0.0 {
                self.likelihood += weight * density;
            }
        }
    }

    /// Adds a tile of rows less the mean of component k, with their chances.
    fn add(&mut self, table: &Table, rows: &[usize], k: usize, (tile, chances): (&[f64], &[f64])) {
        let stride = padded(self.width);
        let pairs = rows.iter().zip(chances);
        self.factors.clear();
        self.factors.extend(pairs.map(|(&row, chance)| table.weight(row) * chance));
        self.mass[k] += self.factors.iter().sum::<f64>();
        scale_rows(tile, stride, &self.factors, &mut self.scaled);
        let first = &mut self.first[k * stride..(k + 1) * stride];
        Arch::new().dispatch(AddTile { tile: &self.scaled, first });
        let second = match self.covariance {
            Covariance::Tied => &mut self.second[..],
            Covariance::Full => &mut self.second[k * stride * stride..(k + 1) * stride * stride],
            _ => &mut self.second[k * stride..(k + 1) * stride],
        };
        match self.covariance.is_matrix() {
            true => add_products(&self.scaled, tile, stride, second),
            false => Arch::new().dispatch(AddSquares { scaled: &self.scaled, tile, second }),
        }
    }

    fn emit(self, work: &mut Work<'_>) {
        let (width, stride) = (self.width, padded(self.width));
        let trimmed = |rows: &[f64]| -> Vec<f64> {
            rows.chunks_exact(stride).flat_map(|row| &row[..width]).copied().collect()
        };
        let second = match self.covariance.is_matrix() {
            true => {
                let matrices = self.second.chunks_exact(stride * stride);
                let upper = matrices.flat_map(|matrix| {
                    (0..width).flat_map(|i| &matrix[i * stride + i..i * stride + width])
                });
                upper.copied().collect()
            }
            false => trimmed(&self.second),
        };
        work.outbox.emit(Block::dense("mass", self.mass));
        work.outbox.emit(Block::dense("first", trimmed(&self.first)));
        work.outbox.emit(Block::dense("second", second));
        work.outbox.emit(Block::dense("likelihood", vec![self.likelihood]));
        work.outbox.emit(Block::dense("weight", vec![self.weight]));
    }
}

struct AddTile<'a> {
    tile: &'a [f64],
    first: &'a mut [f64],
}

impl WithSimd for AddTile<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for row in self.tile.chunks_exact(self.first.len()) {
            self.first.iter_mut().zip(row).for_each(|(sum, z)| *sum += z);
        }
    }
}

struct AddSquares<'a> {
    scaled: &'a [f64],
    tile: &'a [f64],
    second: &'a mut [f64],
}

impl WithSimd for AddSquares<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let stride = self.second.len();
        for (a, b) in self.scaled.chunks_exact(stride).zip(self.tile.chunks_exact(stride)) {
            for ((sum, a), b) in self.second.iter_mut().zip(a).zip(b) {
                *sum += a * b;
            }
        }
    }
}
