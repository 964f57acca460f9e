//! A large matrix and a few vectors: M v and Mᵀ u for several at once, and M ± Σ uᵢ vᵢᵀ. The matrix lies row after row,
//! the vectors one after another.

use super::widest;
use crate::float::Float;

/// Partial sums side by side: enough for the widest vectors, and a fixed order of additions.
const LANES: usize = 16;

/// M v for each `v` of `rights`, as long as a row: one product after another, each as long as a column.
pub(crate) fn times<T: Float>(matrix: &[T], columns: usize, rights: &[T]) -> Vec<T> {
    let rows = matrix.len() / columns;
    let mut products = vec![T::default(); rows * (rights.len() / columns)];
    widest(
        #[inline(always)]
        || {
            for (number, row) in matrix.chunks_exact(columns).enumerate() {
                for (right, product) in
                    rights.chunks_exact(columns).zip(products.chunks_exact_mut(rows))
                {
                    product[number] = dot(row, right);
                }
            }
        },
    );
    products
}

/// Mᵀ u for each `u` of `lefts`, as long as a column: one product after another, each as long as a row.
pub(crate) fn transposed_times<T: Float>(matrix: &[T], columns: usize, lefts: &[T]) -> Vec<T> {
    let rows = matrix.len() / columns;
    let mut products = vec![T::default(); columns * (lefts.len() / rows)];
    widest(
        #[inline(always)]
        || {
            for (number, row) in matrix.chunks_exact(columns).enumerate() {
                for (left, product) in
                    lefts.chunks_exact(rows).zip(products.chunks_exact_mut(columns))
                {
                    let scale = left[number];
                    product.iter_mut().zip(row).for_each(|(sum, value)| *sum += scale * *value);
                }
            }
        },
    );
    products
}

/// Adds Σ uᵢ vᵢᵀ onto the matrix, whose rows are `columns` long.
pub(crate) fn add_products<T: Float>(matrix: &mut [T], columns: usize, lefts: &[T], rights: &[T]) {
    let rows = matrix.len() / columns;
    widest(
        #[inline(always)]
        || {
            for (number, row) in matrix.chunks_exact_mut(columns).enumerate() {
                for (left, right) in lefts.chunks_exact(rows).zip(rights.chunks_exact(columns)) {
                    let scale = left[number];
                    row.iter_mut().zip(right).for_each(|(value, other)| *value += scale * *other);
                }
            }
        },
    );
}

/// Takes Σ uᵢ vᵢᵀ away from the matrix.
pub(crate) fn subtract_products<T: Float>(
    matrix: &mut [T],
    columns: usize,
    lefts: &[T],
    rights: &[T],
) {
    let rights: Vec<T> = rights.iter().map(|&value| T::default() - value).collect();
    add_products(matrix, columns, lefts, &rights);
}

/// Makes the vectors, each `len` long, orthonormal (modified Gram-Schmidt, twice: Giraud et al., 2005). One of which
/// less than `least` of its length is left lies among those before it: `spare` gives another instead.
pub(crate) fn orthonormalise(
    vectors: &mut [f64],
    len: usize,
    least: f64,
    mut spare: impl FnMut(usize) -> Vec<f64>,
) {
    for number in 0..vectors.len() / len {
        let (before, rest) = vectors.split_at_mut(number * len);
        let vector = &mut rest[..len];
        let whole = dot(vector, vector).sqrt();
        remove(before, vector);
        // Written so that NaN is kept: what is not finite must arrive.
        if dot(vector, vector).sqrt() <= least * whole {
            vector.copy_from_slice(&spare(number));
            remove(before, vector);
        }
        normalise(vector);
        remove(before, vector);
        normalise(vector);
    }
}

fn remove(before: &[f64], vector: &mut [f64]) {
    for other in before.chunks_exact(vector.len()) {
        let share = dot(vector, other);
        vector.iter_mut().zip(other).for_each(|(value, other)| *value -= share * other);
    }
}

fn normalise(vector: &mut [f64]) {
    let length = dot(vector, vector).sqrt();
    vector.iter_mut().for_each(|value| *value /= length);
}

#[inline(always)]
fn dot<T: Float>(a: &[T], b: &[T]) -> T {
    let mut lanes = [T::default(); LANES];
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| *a * *b);
    lanes.into_iter().chain(rest).fold(T::default(), |sum, product| sum + product)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_the_definition() {
        // Two rows of three.
        let matrix = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(times(&matrix, 3, &[1.0, 0.0, 0.0, 1.0, -1.0, 2.0]), [1.0, 4.0, 5.0, 11.0]);
        assert_eq!(transposed_times(&matrix, 3, &[1.0, 10.0]), [41.0, 52.0, 63.0]);
        let mut rest = matrix;
        subtract_products(&mut rest, 3, &[1.0, 4.0, 0.0, 1.0], &[1.0, 2.0, 3.0, 0.0, 1.0, 0.0]);
        assert_eq!(rest, [0.0, 0.0, 0.0, 0.0, -4.0, -6.0]);
    }

    #[test]
    fn a_vector_among_the_others_is_replaced() {
        let mut vectors = [3.0, 4.0, 0.0, 6.0, 8.0, 0.0, 0.0, 0.0, 0.0];
        let mut replaced = Vec::new();
        orthonormalise(&mut vectors, 3, 1e-9, |number| {
            replaced.push(number);
            vec![1.0, number as f64, 1.0]
        });
        assert_eq!(replaced, [1, 2]);
        for (a, b) in [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)] {
            let product = dot(&vectors[3 * a..3 * a + 3], &vectors[3 * b..3 * b + 3]);
            assert!((product - f64::from(a == b)).abs() < 1e-14, "{a} {b}: {product}");
        }
    }
}
