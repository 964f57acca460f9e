//! The inverse square root of a symmetric matrix, by its eigenvectors: rows are rotated in pairs until all are orthogonal
//! (Hestenes, "Inversion of matrices by biorthogonalization and related results", 1958), then each row is an eigenvector
//! times its eigenvalue. Directions whose eigenvalue is not clearly positive are left out.
//!
//! Cost: about 6·size³ operations a sweep and some eight sweeps; meant for sizes up to a thousand or so.

use pulp::{Arch, Simd, WithSimd};

/// Rows count as orthogonal when their cosine is below this.
const ORTHOGONAL: f64 = 1e-13;
/// Eigenvalues below this share of the largest are rounding.
const SMALLEST: f64 = 1e-12;
const SWEEPS_MAX: usize = 40;

/// K^(−1/2) on the space where K is positive; zero elsewhere.
pub(crate) fn inverse_root(matrix: &[f64], size: usize) -> Vec<f64> {
    let mut rows = matrix.to_vec();
    Arch::new().dispatch(Orthogonalise { rows: &mut rows, size });
    let norms: Vec<f64> = rows.chunks_exact(size).map(|row| dot(row, row).sqrt()).collect();
    let largest = norms.iter().fold(0.0f64, |largest, norm| largest.max(*norm));
    let mut root = vec![0.0; size * size];
    for (row, norm) in rows.chunks_exact_mut(size).zip(&norms) {
        if *norm <= SMALLEST * largest {
            continue;
        }
        row.iter_mut().for_each(|x| *x /= norm);
        let image = matrix.chunks_exact(size).map(|line| dot(line, row));
        let value: f64 = image.zip(&*row).map(|(image, x)| image * x).sum();
        // The norm is the eigenvalue's magnitude; a kernel that is not positive definite has negative ones too.
        if value <= SMALLEST * largest {
            continue;
        }
        let by = 1.0 / value.sqrt();
        for (into, &x) in root.chunks_exact_mut(size).zip(&*row) {
            into.iter_mut().zip(&*row).for_each(|(into, y)| *into += by * x * y);
        }
    }
    root
}

struct Orthogonalise<'a> {
    rows: &'a mut [f64],
    size: usize,
}

impl WithSimd for Orthogonalise<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for _ in 0..SWEEPS_MAX {
            let mut turned = false;
            for i in 0..self.size {
                let (above, below) = self.rows.split_at_mut((i + 1) * self.size);
                let first = &mut above[i * self.size..];
                for second in below.chunks_exact_mut(self.size) {
                    turned |= turn(first, second);
                }
            }
            if !turned {
                return;
            }
        }
    }
}

/// Rotates two rows until they are orthogonal. Says whether there was anything to do.
#[inline(always)]
fn turn(first: &mut [f64], second: &mut [f64]) -> bool {
    let (aa, bb, ab) = (dot(first, first), dot(second, second), dot(first, second));
    if ab == 0.0 || ab * ab <= ORTHOGONAL * ORTHOGONAL * aa * bb {
        return false;
    }
    let zeta = (bb - aa) / (2.0 * ab);
    let tangent = zeta.signum() / (zeta.abs() + (1.0 + zeta * zeta).sqrt());
    let cosine = 1.0 / (1.0 + tangent * tangent).sqrt();
    let sine = cosine * tangent;
    for (x, y) in first.iter_mut().zip(second) {
        (*x, *y) = (cosine * *x - sine * *y, sine * *x + cosine * *y);
    }
    true
}

/// Eight sums at once, so that additions do not wait for each other.
#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    for (a, b) in a.iter().zip(b) {
        for lane in 0..8 {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    lanes.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    fn product(a: &[f64], b: &[f64], size: usize) -> Vec<f64> {
        let cell = |i: usize, j: usize| (0..size).map(|k| a[i * size + k] * b[k * size + j]).sum();
        (0..size * size).map(|at| cell(at / size, at % size)).collect()
    }

    #[test]
    fn the_root_of_a_positive_matrix_inverts_it() {
        let mut rng = Rng::named(1, "roots", &[]);
        for size in [1, 2, 9, 24] {
            let half: Vec<f64> = (0..size * size).map(|_| rng.normal()).collect();
            let transposed: Vec<f64> =
                (0..size * size).map(|at| half[(at % size) * size + at / size]).collect();
            let mut matrix = product(&half, &transposed, size);
            (0..size).for_each(|i| matrix[i * size + i] += 0.1);
            let root = inverse_root(&matrix, size);
            let one = product(&product(&root, &matrix, size), &root, size);
            for (at, found) in one.iter().enumerate() {
                let expected = f64::from(u8::from(at / size == at % size));
                assert!((found - expected).abs() < 1e-9, "{size}: {found} at {at}");
            }
        }
    }

    #[test]
    fn negative_directions_are_left_out() {
        // Eigenvalues 4 along (1, 1) and −2 along (1, −1).
        let root = inverse_root(&[1.0, 3.0, 3.0, 1.0], 2);
        root.iter().for_each(|found| assert!((found - 0.25).abs() < 1e-12, "{root:?}"));
        assert_eq!(inverse_root(&[0.0; 4], 2), [0.0; 4]);
    }
}
