//! Sums of outer products of rows, and lengths of rows after a triangular product: the two loops of everything that
//! has a covariance. Rows are taken in tiles of f64, centred and padded to whole vectors, so that a block of the sum
//! stays in registers while a tile passes.

use pulp::{Arch, Simd, WithSimd};
use starlings_data::{Row, Table};

/// Rows and columns are padded to multiples of this: one vector of AVX-512.
const GROUP: usize = 8;
/// Rows in a tile.
pub(crate) const TILE_ROWS: usize = 64;

/// Numbers that a row of a tile takes.
pub(crate) fn padded(width: usize) -> usize {
    width.next_multiple_of(GROUP)
}

/// Writes rows of a table less `centre` into a tile. The tile gets zeros up to a multiple of eight rows.
pub(crate) fn fill(table: &Table, rows: &[usize], centre: &[f64], tile: &mut Vec<f64>) {
    let stride = padded(centre.len());
    tile.clear();
    tile.resize(rows.len().next_multiple_of(GROUP) * stride, 0.0);
    for (&row, into) in rows.iter().zip(tile.chunks_exact_mut(stride)) {
        let into = &mut into[..centre.len()];
        match table.row(row) {
            Row::Dense(values) => Arch::new().dispatch(Centre { values, centre, into }),
            Row::Sparse(columns, values) => {
                into.iter_mut().zip(centre).for_each(|(x, c)| *x = -c);
                for (&column, &value) in columns.iter().zip(values) {
                    into[column as usize] += f64::from(value);
                }
            }
        }
    }
}

struct Centre<'a> {
    values: &'a [f32],
    centre: &'a [f64],
    into: &'a mut [f64],
}

impl WithSimd for Centre<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for ((into, x), c) in self.into.iter_mut().zip(self.values).zip(self.centre) {
            *into = f64::from(*x) - c;
        }
    }
}

/// Every row of a tile times its factor. Rows beyond the factors become zero.
pub(crate) fn scale_rows(tile: &[f64], stride: usize, factors: &[f64], into: &mut Vec<f64>) {
    into.clear();
    into.resize(tile.len(), 0.0);
    Arch::new().dispatch(ScaleRows { tile, stride, factors, into });
}

struct ScaleRows<'a> {
    tile: &'a [f64],
    stride: usize,
    factors: &'a [f64],
    into: &'a mut [f64],
}

impl WithSimd for ScaleRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let rows = self.tile.chunks_exact(self.stride).zip(self.into.chunks_exact_mut(self.stride));
        for ((row, into), factor) in rows.zip(self.factors) {
            into.iter_mut().zip(row).for_each(|(into, x)| *into = x * factor);
        }
    }
}

/// Adds Σ leftᵀ·right over the rows of two tiles onto a matrix of `stride` × `stride` numbers. Only the upper
/// triangle, in blocks, is summed: [`whole`] makes the rest.
pub(crate) fn add_products(left: &[f64], right: &[f64], stride: usize, into: &mut [f64]) {
    Arch::new().dispatch(Products { left, right, stride, into });
}

/// The symmetric matrix of `width` rows from the upper triangle of a padded one.
pub(crate) fn whole(upper: &[f64], width: usize) -> Vec<f64> {
    let stride = padded(width);
    let cell = |i: usize, j: usize| upper[i.min(j) * stride + i.max(j)];
    (0..width * width).map(|at| cell(at / width, at % width)).collect()
}

struct Products<'a> {
    left: &'a [f64],
    right: &'a [f64],
    stride: usize,
    into: &'a mut [f64],
}

impl WithSimd for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        // Rows of the block times vectors: as many sums as there are registers for.
        match S::F64_LANES {
            8 => triangle::<S, 8, 3, 1>(simd, &mut self),
            4 => triangle::<S, 4, 1, 2>(simd, &mut self),
            2 => triangle::<S, 4, 1, 4>(simd, &mut self),
            _ => triangle::<S, 1, 1, 8>(simd, &mut self),
        }
    }
}

#[inline(always)]
fn triangle<S: Simd, const I: usize, const J: usize, const W: usize>(
    simd: S,
    work: &mut Products<'_>,
) {
    let groups = work.stride / GROUP;
    for first in (0..work.stride).step_by(I) {
        let mut group = first / GROUP;
        while group + J <= groups {
            block::<S, I, J, W>(simd, work, (first, group));
            group += J;
        }
        match groups - group {
            2 => block::<S, I, 2, W>(simd, work, (first, group)),
            1 => block::<S, I, 1, W>(simd, work, (first, group)),
            _ => {}
        }
    }
}

#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "indices of constant bounds keep the block in registers"
)]
fn block<S: Simd, const I: usize, const J: usize, const W: usize>(
    simd: S,
    work: &mut Products<'_>,
    (first, group): (usize, usize),
) {
    let mut sums = [[[simd.splat_f64s(0.0); W]; J]; I];
    let rows = work.left.chunks_exact(work.stride).zip(work.right.chunks_exact(work.stride));
    for (left, right) in rows {
        let left: &[f64; I] = left[first..first + I].try_into().expect("I long");
        let right = S::as_simd_f64s(&right[group * GROUP..(group + J) * GROUP]).0;
        let right: &[[S::f64s; W]; J] = right.as_chunks::<W>().0.try_into().expect("J groups");
        for i in 0..I {
            let x = simd.splat_f64s(left[i]);
            for j in 0..J {
                for w in 0..W {
                    sums[i][j][w] = simd.mul_add_e_f64s(x, right[j][w], sums[i][j][w]);
                }
            }
        }
    }
    for i in 0..I {
        let from = (first + i) * work.stride + group * GROUP;
        let into = S::as_mut_simd_f64s(&mut work.into[from..from + J * GROUP]).0;
        let (into, _) = into.as_chunks_mut::<W>();
        for j in 0..J {
            for w in 0..W {
                into[j][w] = simd.add_f64s(into[j][w], sums[i][j][w]);
            }
        }
    }
}

/// Writes for each row z of a tile the squared length of z·U, where `upper` is upper triangular, `stride` × `stride`.
pub(crate) fn squared_lengths(tile: &[f64], upper: &[f64], stride: usize, out: &mut Vec<f64>) {
    out.clear();
    out.resize(tile.len() / stride, 0.0);
    Arch::new().dispatch(Lengths { tile, upper, stride, out });
}

struct Lengths<'a> {
    tile: &'a [f64],
    upper: &'a [f64],
    stride: usize,
    out: &'a mut [f64],
}

impl WithSimd for Lengths<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        match S::F64_LANES {
            8 => lengths::<S, 8, 3, 1>(simd, &mut self),
            4 => lengths::<S, 4, 1, 2>(simd, &mut self),
            2 => lengths::<S, 4, 1, 4>(simd, &mut self),
            _ => lengths::<S, 1, 1, 8>(simd, &mut self),
        }
    }
}

#[inline(always)]
fn lengths<S: Simd, const R: usize, const J: usize, const W: usize>(
    simd: S,
    work: &mut Lengths<'_>,
) {
    let groups = work.stride / GROUP;
    let (tile, upper, stride) = (work.tile, work.upper, work.stride);
    for (rows, out) in tile.chunks_exact(R * stride).zip(work.out.chunks_exact_mut(R)) {
        let mut squares = [simd.splat_f64s(0.0); R];
        let mut group = 0;
        while group + J <= groups {
            panel::<S, R, J, W>(simd, (rows, upper, stride), group, &mut squares);
            group += J;
        }
        match groups - group {
            2 => panel::<S, R, 2, W>(simd, (rows, upper, stride), group, &mut squares),
            1 => panel::<S, R, 1, W>(simd, (rows, upper, stride), group, &mut squares),
            _ => {}
        }
        for (out, squares) in out.iter_mut().zip(squares) {
            *out = simd.reduce_sum_f64s(squares);
        }
    }
}

#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "indices of constant bounds keep the block in registers"
)]
fn panel<S: Simd, const R: usize, const J: usize, const W: usize>(
    simd: S,
    (rows, upper, stride): (&[f64], &[f64], usize),
    group: usize,
    squares: &mut [S::f64s; R],
) {
    let mut sums = [[[simd.splat_f64s(0.0); W]; J]; R];
    // Below its diagonal the matrix is zero: later inputs do not reach these outputs.
    let inputs = (group + J) * GROUP;
    let rows: [&[f64]; R] = std::array::from_fn(|r| &rows[r * stride..r * stride + inputs]);
    for input in 0..inputs {
        let from = input * stride + group * GROUP;
        let right = S::as_simd_f64s(&upper[from..from + J * GROUP]).0;
        let right: &[[S::f64s; W]; J] = right.as_chunks::<W>().0.try_into().expect("J groups");
        for r in 0..R {
            let x = simd.splat_f64s(rows[r][input]);
            for j in 0..J {
                for w in 0..W {
                    sums[r][j][w] = simd.mul_add_e_f64s(x, right[j][w], sums[r][j][w]);
                }
            }
        }
    }
    for r in 0..R {
        for j in 0..J {
            for w in 0..W {
                squares[r] = simd.mul_add_e_f64s(sums[r][j][w], sums[r][j][w], squares[r]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;
    use starlings_data::Features;

    #[test]
    fn sums_of_products_and_lengths_are_those_of_plain_loops_at_every_width() {
        let mut rng = Rng::named(1, "scatter", &[]);
        for (rows, width) in [(1, 1), (5, 3), (16, 8), (21, 17), (64, 30), (7, 50)] {
            let values: Vec<f32> = (0..rows * width).map(|_| rng.normal() as f32).collect();
            let table = Table::new(Features::Dense { width, values: values.clone() }, vec![]);
            let centre: Vec<f64> = (0..width).map(|_| rng.normal()).collect();
            let places: Vec<usize> = (0..rows).collect();
            let factors: Vec<f64> = (0..rows).map(|_| rng.uniform()).collect();
            let (mut tile, mut scaled, mut lengths) = (vec![], vec![], vec![]);
            let stride = padded(width);
            fill(&table, &places, &centre, &mut tile);
            scale_rows(&tile, stride, &factors, &mut scaled);
            let mut sum = vec![0.0; stride * stride];
            add_products(&scaled, &tile, stride, &mut sum);
            let sum = whole(&sum, width);
            let z = |r: usize, i: usize| f64::from(values[r * width + i]) - centre[i];
            for i in 0..width {
                for j in 0..width {
                    let plain: f64 = (0..rows).map(|r| factors[r] * z(r, i) * z(r, j)).sum();
                    assert!((sum[i * width + j] - plain).abs() < 1e-12, "{width} {i} {j}");
                }
            }
            let mut upper = vec![0.0; stride * stride];
            for i in 0..width {
                (i..width).for_each(|j| upper[i * stride + j] = rng.normal());
            }
            squared_lengths(&tile, &upper, stride, &mut lengths);
            for (r, length) in lengths.iter().enumerate().take(rows) {
                let along =
                    |j: usize| -> f64 { (0..=j).map(|i| z(r, i) * upper[i * stride + j]).sum() };
                let plain: f64 = (0..width).map(|j| along(j).powi(2)).sum();
                assert!((length - plain).abs() < 1e-11 * plain.max(1.0));
            }
        }
    }
}
