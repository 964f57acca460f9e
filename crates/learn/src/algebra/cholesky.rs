//! The Cholesky factor of a positive definite matrix and its inverse (Golub and Van Loan, Matrix Computations, 4.2).

/// The lower triangular L with L·Lᵀ = `matrix`; `None` when the matrix is not positive definite.
pub(crate) fn factor(matrix: &[f64], order: usize) -> Option<Vec<f64>> {
    let mut lower = vec![0.0; order * order];
    for i in 0..order {
        for j in 0..=i {
            let (row_i, row_j) =
                (&lower[i * order..i * order + j], &lower[j * order..j * order + j]);
            let product: f64 = row_i.iter().zip(row_j).map(|(a, b)| a * b).sum();
            let rest = matrix[i * order + j] - product;
            lower[i * order + j] = match i == j {
                // NaN fails the comparison too.
                true if rest > 0.0 => rest.sqrt(),
                true => return None,
                false => rest / lower[j * order + j],
            };
        }
    }
    lower.iter().all(|x| x.is_finite()).then_some(lower)
}

/// The inverse of a lower triangular matrix: lower triangular again.
pub(crate) fn invert(lower: &[f64], order: usize) -> Vec<f64> {
    let mut inverse = vec![0.0; order * order];
    for i in 0..order {
        let pivot = lower[i * order + i];
        let mut row = vec![0.0; i + 1];
        for k in 0..i {
            let by = lower[i * order + k];
            let above = &inverse[k * order..k * order + k + 1];
            row.iter_mut().zip(above).for_each(|(sum, x)| *sum -= by * x);
        }
        row[i] = 1.0;
        row.iter_mut().for_each(|x| *x /= pivot);
        inverse[i * order..i * order + i + 1].copy_from_slice(&row);
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_times_itself_is_the_matrix_and_its_inverse_undoes_it() {
        let matrix = [4.0, 2.0, 0.6, 2.0, 5.0, 1.0, 0.6, 1.0, 3.0];
        let lower = factor(&matrix, 3).unwrap();
        let inverse = invert(&lower, 3);
        for i in 0..3 {
            for j in 0..3 {
                let again: f64 = (0..3).map(|k| lower[i * 3 + k] * lower[j * 3 + k]).sum();
                assert!((again - matrix[i * 3 + j]).abs() < 1e-14);
                let one: f64 = (0..3).map(|k| lower[i * 3 + k] * inverse[k * 3 + j]).sum();
                assert!((one - f64::from(u8::from(i == j))).abs() < 1e-14);
            }
        }
    }

    #[test]
    fn a_matrix_that_is_not_positive_definite_has_no_factor() {
        assert!(factor(&[1.0, 2.0, 2.0, 1.0], 2).is_none());
        assert!(factor(&[1.0, 1.0, 1.0, 1.0], 2).is_none());
        assert!(factor(&[f64::NAN], 1).is_none());
    }
}
