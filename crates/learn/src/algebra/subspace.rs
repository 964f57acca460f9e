//! The leading eigenvectors of XᵀX for a wide X, by subspace iteration from a random start (Halko, Martinsson and
//! Tropp, "Finding structure with randomness", SIAM Review 2011, algorithm 4.4, on the side of the columns). A pass
//! over the rows gives Y = XᵀXQ for a basis Q of a few more columns than are wanted; QᵀY holds the eigenvalues as
//! far as Q knows them, and Y, made orthonormal, is the next and better Q.

use super::orthonormal::orthonormalise;
use super::symmetric::{Eigen, dot, eigen};
use pulp::{Arch, Simd, WithSimd};
use starlings_core::Rng;
use starlings_data::{Batch, Row};

/// A random orthonormal basis of `columns` vectors of `width` numbers, one after the other.
pub(crate) fn start(width: usize, columns: usize, seed: u64) -> Vec<f64> {
    let mut basis = vec![0.0; columns * width];
    for (column, vector) in basis.chunks_exact_mut(width).enumerate() {
        let mut rng = Rng::named(seed, "range finder", &[column as u64]);
        vector.iter_mut().for_each(|x| *x = rng.normal());
    }
    orthonormalise(&mut basis, width);
    basis
}

/// What one pass over rows sums: XᵀXQ feature by feature, and the sums of the rows' own coordinates.
pub(crate) struct Product {
    /// `width` × `columns` numbers.
    pub(crate) image: Vec<f64>,
    /// `columns` numbers: Σ (x − mean)ᵀQ, which vanishes but for rounding where the mean is that of the rows.
    pub(crate) coordinates: Vec<f64>,
}

/// The product of the rows' second moments about `mean` with a basis. Sparse rows stay sparse.
pub(crate) fn product(batch: &Batch<'_>, mean: &[f64], basis: &[f64]) -> Product {
    let width = mean.len();
    let columns = basis.len() / width;
    let by_feature = transposed(basis, width);
    let offset: Vec<f64> = basis.chunks_exact(width).map(|q| dot(q, mean)).collect();
    let mut sums = Product { image: vec![0.0; basis.len()], coordinates: vec![0.0; columns] };
    let mut room = vec![0.0; columns];
    for row in batch.rows() {
        Arch::new().dispatch(OneRow {
            row: batch.table.row(row),
            weight: batch.table.weight(row),
            basis: &by_feature,
            offset: &offset,
            room: &mut room,
            sums: &mut sums,
        });
    }
    sums
}

struct OneRow<'a> {
    row: Row<'a>,
    weight: f64,
    basis: &'a [f64],
    offset: &'a [f64],
    room: &'a mut [f64],
    sums: &'a mut Product,
}

impl WithSimd for OneRow<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let OneRow { row, weight, basis, offset, room, sums } = self;
        let columns = room.len();
        room.iter_mut().zip(offset).for_each(|(t, o)| *t = -o);
        let mut entry = |feature: usize, x: f32| {
            let stretch = &basis[feature * columns..(feature + 1) * columns];
            room.iter_mut().zip(stretch).for_each(|(t, q)| *t += f64::from(x) * q);
        };
        match row {
            Row::Dense(values) => values.iter().enumerate().for_each(|(f, &x)| entry(f, x)),
            Row::Sparse(at, values) => {
                at.iter().zip(values).for_each(|(&f, &x)| entry(f as usize, x));
            }
        }
        room.iter_mut().for_each(|t| *t *= weight);
        sums.coordinates.iter_mut().zip(&*room).for_each(|(sum, t)| *sum += t);
        let mut add = |feature: usize, x: f32| {
            let stretch = &mut sums.image[feature * columns..(feature + 1) * columns];
            stretch.iter_mut().zip(&*room).for_each(|(y, t)| *y += f64::from(x) * t);
        };
        match row {
            Row::Dense(values) => values.iter().enumerate().for_each(|(f, &x)| add(f, x)),
            Row::Sparse(at, values) => {
                at.iter().zip(values).for_each(|(&f, &x)| add(f as usize, x));
            }
        }
    }
}

/// What a pass has found: the eigenvalues and vectors as far as the basis knows them, and the next basis.
pub(crate) struct Found {
    /// Values and vectors of `width` numbers, the largest first.
    pub(crate) eigen: Eigen,
    /// The next basis.
    pub(crate) next: Vec<f64>,
}

/// Eigenvalues, vectors and the next basis from the sums of all rows.
pub(crate) fn advance(image: &[f64], coordinates: &[f64], mean: &[f64], basis: &[f64]) -> Found {
    let width = mean.len();
    let columns = basis.len() / width;
    let mut next = transposed(image, columns);
    for (vector, sum) in next.chunks_exact_mut(width).zip(coordinates) {
        vector.iter_mut().zip(mean).for_each(|(y, m)| *y -= m * sum);
    }
    let inner = |a: usize, b: usize| {
        dot(&basis[a * width..(a + 1) * width], &next[b * width..(b + 1) * width])
    };
    let mut small = vec![0.0; columns * columns];
    for a in 0..columns {
        for b in a..columns {
            let mean = 0.5 * (inner(a, b) + inner(b, a));
            (small[a * columns + b], small[b * columns + a]) = (mean, mean);
        }
    }
    let Eigen { values, vectors: turns } = eigen(&small, columns);
    let mut vectors = vec![0.0; basis.len()];
    for (vector, turn) in vectors.chunks_exact_mut(width).zip(turns.chunks_exact(columns)) {
        for (q, by) in basis.chunks_exact(width).zip(turn) {
            vector.iter_mut().zip(q).for_each(|(v, q)| *v += by * q);
        }
    }
    orthonormalise(&mut next, width);
    Found { eigen: Eigen { values, vectors }, next }
}

fn transposed(matrix: &[f64], width: usize) -> Vec<f64> {
    let rows = matrix.len() / width.max(1);
    (0..matrix.len()).map(|at| matrix[at % rows * width + at / rows]).collect()
}
