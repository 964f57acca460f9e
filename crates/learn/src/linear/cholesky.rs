//! Cholesky's factor of a symmetric positive matrix (Benoit, 1924): A = L·Lᵀ. Matrices are packed: row i of the
//! lower half has i + 1 numbers. Rows of L lie one after another, so that every inner loop is a dot product.

use pulp::{Arch, Simd, WithSimd};

/// A pivot below this share of its diagonal is rounding: the matrix is singular.
const PIVOT_MIN: f64 = 1e-10;

/// Where row `row` of a packed matrix starts.
pub(crate) fn start(row: usize) -> usize {
    row * (row + 1) / 2
}

/// The side of a packed matrix with so many numbers.
pub(crate) fn side(len: usize) -> usize {
    ((8.0 * len as f64 + 1.0).sqrt() as usize - 1) / 2
}

/// Factors a packed matrix in place. Gives the first row whose pivot is not positive, if there is one.
pub(crate) fn factor(matrix: &mut [f64]) -> Result<(), usize> {
    Arch::new().dispatch(Factor(matrix))
}

struct Factor<'a>(&'a mut [f64]);

impl WithSimd for Factor<'_> {
    type Output = Result<(), usize>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Result<(), usize> {
        let matrix = self.0;
        for row in 0..side(matrix.len()) {
            let (above, rest) = matrix.split_at_mut(start(row));
            let own = &mut rest[..=row];
            for column in 0..row {
                let other = &above[start(column)..=start(column) + column];
                let sum = dot(&own[..column], &other[..column]);
                own[column] = (own[column] - sum) / other[column];
            }
            let diagonal = own[row];
            let pivot = diagonal - dot(&own[..row], &own[..row]);
            if pivot.is_nan() || pivot <= PIVOT_MIN * diagonal.abs() {
                return Err(row);
            }
            own[row] = pivot.sqrt();
        }
        Ok(())
    }
}

/// Solves L·x = b in place, for `width` right sides that stand beside each other.
pub(crate) fn solve_lower(factor: &[f64], width: usize, b: &mut [f64]) {
    for row in 0..b.len() / width {
        let (above, rest) = b.split_at_mut(row * width);
        let own = &mut rest[..width];
        let factors = &factor[start(row)..=start(row) + row];
        for (other, by) in above.chunks_exact(width).zip(factors) {
            own.iter_mut().zip(other).for_each(|(own, other)| *own -= by * other);
        }
        own.iter_mut().for_each(|own| *own /= factors[row]);
    }
}

/// Solves Lᵀ·x = b in place, for `width` right sides that stand beside each other.
pub(crate) fn solve_upper(factor: &[f64], width: usize, b: &mut [f64]) {
    for row in (0..b.len() / width).rev() {
        let (above, rest) = b.split_at_mut(row * width);
        let own = &mut rest[..width];
        let factors = &factor[start(row)..=start(row) + row];
        own.iter_mut().for_each(|own| *own /= factors[row]);
        for (other, by) in above.chunks_exact_mut(width).zip(factors) {
            other.iter_mut().zip(&*own).for_each(|(other, own)| *other -= by * own);
        }
    }
}

/// Lᵀ·x in place: row i becomes Σ L[j][i]·x[j] over j ≥ i.
pub(crate) fn multiply_upper(factor: &[f64], width: usize, x: &mut [f64]) {
    for row in 0..x.len() / width {
        let (before, rest) = x.split_at_mut(row * width);
        let factors = &factor[start(row)..=start(row) + row];
        let own = &mut rest[..width];
        for (sum, by) in before.chunks_exact_mut(width).zip(factors) {
            sum.iter_mut().zip(&*own).for_each(|(sum, own)| *sum += by * own);
        }
        own.iter_mut().for_each(|own| *own *= factors[row]);
    }
}

/// A dot product in eight lanes, in a fixed order on every machine.
#[inline(always)]
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    let (a_parts, b_parts) = (a.chunks_exact(8), b[..a.len()].chunks_exact(8));
    let rest: f64 = a_parts.remainder().iter().zip(b_parts.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_parts.zip(b_parts) {
        for lane in 0..8 {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (b + f)) + ((c + g) + (d + h)) + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    /// A·x for a packed symmetric matrix.
    fn multiply(matrix: &[f64], x: &[f64]) -> Vec<f64> {
        let mut product = vec![0.0; x.len()];
        for row in 0..x.len() {
            let own = &matrix[start(row)..=start(row) + row];
            product[row] += dot(&own[..row], &x[..row]) + own[row] * x[row];
            for (sum, by) in product[..row].iter_mut().zip(own) {
                *sum += by * x[row];
            }
        }
        product
    }

    /// B·Bᵀ of a random matrix, packed.
    fn positive(side: usize) -> Vec<f64> {
        let mut rng = Rng::named(1, "positive", &[]);
        let b: Vec<f64> = (0..side * (side + 3)).map(|_| rng.normal()).collect();
        let row = |i: usize| &b[i * (side + 3)..(i + 1) * (side + 3)];
        (0..side)
            .flat_map(|i| (0..=i).map(move |j| (i, j)))
            .map(|(i, j)| dot(row(i), row(j)))
            .collect()
    }

    #[test]
    fn solutions_solve_at_every_size() {
        for size in [1, 2, 7, 8, 9, 33] {
            let matrix = positive(size);
            assert_eq!(side(matrix.len()), size);
            let mut lower = matrix.clone();
            factor(&mut lower).unwrap();
            let wanted: Vec<f64> = (0..size).map(|i| (i as f64).sin()).collect();
            let mut x = multiply(&matrix, &wanted);
            solve_lower(&lower, 1, &mut x);
            solve_upper(&lower, 1, &mut x);
            x.iter()
                .zip(&wanted)
                .for_each(|(x, w)| assert!((x - w).abs() < 1e-8, "{size}: {x} {w}"));
            let mut there = wanted.clone();
            multiply_upper(&lower, 1, &mut there);
            solve_upper(&lower, 1, &mut there);
            there.iter().zip(&wanted).for_each(|(x, w)| assert!((x - w).abs() < 1e-9));
        }
    }

    #[test]
    fn singular_matrices_name_the_row_that_repeats_others() {
        // The third row is the first.
        let mut matrix = vec![2.0, 1.0, 3.0, 2.0, 1.0, 2.0];
        assert_eq!(factor(&mut matrix), Err(2));
    }
}
