//! Eigenvalues and eigenvectors of a symmetric matrix: Householder's reduction to three diagonals, then QL iterations
//! with implicit shifts (Martin and Wilkinson, 1968; Bowdler, Martin, Reinsch and Wilkinson, 1968). Everything that
//! is done n³ times runs along rows, where numbers lie side by side.

/// Iterations that one eigenvalue may take; three are usual.
const ITERATIONS_MAX: usize = 80;

/// Eigenvalues, the largest first, and their eigenvectors of length 1.
pub(crate) struct Eigen {
    /// The values, descending.
    pub(crate) values: Vec<f64>,
    /// The vectors, one after the other in the order of the values.
    pub(crate) vectors: Vec<f64>,
}

/// The eigenvalues and vectors of a symmetric matrix of `order` rows, all of it given.
pub(crate) fn eigen(matrix: &[f64], order: usize) -> Eigen {
    assert_eq!(matrix.len(), order * order, "a square matrix");
    let (mut diagonal, mut below, mut rows) = tridiagonal(matrix.to_vec(), order);
    iterate(&mut diagonal, &mut below, &mut rows);
    let mut places: Vec<usize> = (0..order).collect();
    places.sort_by(|&a, &b| diagonal[b].total_cmp(&diagonal[a]));
    let values = places.iter().map(|&place| diagonal[place]).collect();
    let vectors = places
        .iter()
        .flat_map(|&place| &rows[place * order..(place + 1) * order])
        .copied()
        .collect();
    Eigen { values, vectors }
}

/// Each vector turned so that its number of largest magnitude is positive: scikit-learn's `svd_flip`.
pub(crate) fn turn(vectors: &mut [f64], width: usize) {
    for vector in vectors.chunks_exact_mut(width.max(1)) {
        let largest =
            vector.iter().fold(0.0f64, |best, x| if x.abs() > best.abs() { *x } else { best });
        if largest < 0.0 {
            vector.iter_mut().for_each(|x| *x = -*x);
        }
    }
}

/// The diagonal, what stands below it, and the rows of the basis in which the matrix has only these.
fn tridiagonal(mut a: Vec<f64>, n: usize) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (mut diagonal, mut below) = (vec![0.0; n], vec![0.0; n]);
    let mut mirrors: Vec<(f64, Vec<f64>)> = Vec::new();
    for k in 0..n.saturating_sub(2) {
        diagonal[k] = a[k * n + k];
        let mut v = a[k * n + k + 1..(k + 1) * n].to_vec();
        let largest = v.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
        let rest = v[1..].iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
        if rest == 0.0 {
            below[k] = v[0];
            mirrors.push((0.0, v));
            continue;
        }
        // Scaled, so that squares neither overflow nor vanish.
        v.iter_mut().for_each(|x| *x /= largest);
        let norm = dot(&v, &v).sqrt();
        let target = -norm.copysign(v[0]);
        v[0] -= target;
        let beta = 2.0 / dot(&v, &v);
        below[k] = target * largest;
        reflect_both_sides(&mut a, (n, k + 1), &v, beta);
        mirrors.push((beta, v));
    }
    for k in n.saturating_sub(2)..n {
        diagonal[k] = a[k * n + k];
        if k + 1 < n {
            below[k] = a[k * n + k + 1];
        }
    }
    (diagonal, below, basis(&mirrors, n))
}

/// The part of the matrix from row and column `from` on, mirrored from both sides.
fn reflect_both_sides(a: &mut [f64], (n, from): (usize, usize), v: &[f64], beta: f64) {
    let p: Vec<f64> =
        (from..n).map(|row| beta * dot(&a[row * n + from..(row + 1) * n], v)).collect();
    let half = 0.5 * beta * dot(v, &p);
    let w: Vec<f64> = p.iter().zip(v).map(|(p, v)| p - half * v).collect();
    for (row, (&vr, &wr)) in (from..n).zip(v.iter().zip(&w)) {
        let numbers = &mut a[row * n + from..(row + 1) * n];
        for ((x, v), w) in numbers.iter_mut().zip(v).zip(&w) {
            *x -= vr * w + wr * v;
        }
    }
}

/// The product of all mirrors, the last first.
fn basis(mirrors: &[(f64, Vec<f64>)], n: usize) -> Vec<f64> {
    let mut rows = vec![0.0; n * n];
    (0..n).for_each(|i| rows[i * n + i] = 1.0);
    for (k, (beta, v)) in mirrors.iter().enumerate().rev() {
        if *beta > 0.0 {
            for row in k + 1..n {
                let numbers = &mut rows[row * n + k + 1..(row + 1) * n];
                let by = beta * dot(numbers, v);
                numbers.iter_mut().zip(v).for_each(|(x, v)| *x -= by * v);
            }
        }
    }
    rows
}

/// QL iterations with implicit shifts; the rows turn with them.
fn iterate(d: &mut [f64], e: &mut [f64], rows: &mut [f64]) {
    let n = d.len();
    for l in 0..n {
        for _ in 0..ITERATIONS_MAX {
            let small = |m: usize| e[m].abs() <= f64::EPSILON * (d[m].abs() + d[m + 1].abs());
            let m = (l..n - 1).find(|&m| small(m)).unwrap_or(n - 1);
            if m == l {
                break;
            }
            sweep(d, e, rows, (l, m));
        }
    }
}

fn sweep(d: &mut [f64], e: &mut [f64], rows: &mut [f64], (l, m): (usize, usize)) {
    let n = d.len();
    let slope = (d[l + 1] - d[l]) / (2.0 * e[l]);
    let mut g = d[m] - d[l] + e[l] / (slope + slope.hypot(1.0).copysign(slope));
    let (mut s, mut c, mut p) = (1.0, 1.0, 0.0);
    for i in (l..m).rev() {
        let (f, b) = (s * e[i], c * e[i]);
        let r = f.hypot(g);
        e[i + 1] = r;
        if r == 0.0 {
            d[i + 1] -= p;
            e[m] = 0.0;
            return;
        }
        (s, c) = (f / r, g / r);
        g = d[i + 1] - p;
        let r = (d[i] - g) * s + 2.0 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        let (upper, lower) = rows[i * n..(i + 2) * n].split_at_mut(n);
        for (x, y) in upper.iter_mut().zip(lower) {
            (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
        }
    }
    d[l] -= p;
    e[l] = g;
    e[m] = 0.0;
}

/// A dot product in eight lanes, in a fixed order.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a_chunks, a_rest) = a.as_chunks::<8>();
    let (b_chunks, b_rest) = b.as_chunks::<8>();
    let mut lanes = [0.0; 8];
    for (a, b) in a_chunks.iter().zip(b_chunks) {
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

    fn check(matrix: &[f64], n: usize) {
        let found = eigen(matrix, n);
        let scale = matrix.iter().fold(f64::MIN_POSITIVE, |m, x| m.max(x.abs()));
        for (place, vector) in found.vectors.chunks_exact(n).enumerate() {
            for (row, x) in matrix.chunks_exact(n).zip(vector) {
                let off = (dot(row, vector) - found.values[place] * x).abs();
                assert!(off < 1e-12 * scale * n as f64, "{n}: {off}");
            }
            for (other, against) in found.vectors.chunks_exact(n).enumerate() {
                let product = dot(vector, against);
                assert!((product - f64::from(u8::from(place == other))).abs() < 1e-12);
            }
        }
        assert!(found.values.windows(2).all(|pair| pair[0] >= pair[1]));
    }

    #[test]
    fn vectors_are_orthonormal_and_only_stretched() {
        let mut rng = Rng::named(1, "eigen", &[]);
        for n in [1, 2, 3, 5, 17, 64] {
            let half: Vec<f64> = (0..n * n).map(|_| rng.normal()).collect();
            let matrix: Vec<f64> =
                (0..n * n).map(|at| half[at] + half[at % n * n + at / n]).collect();
            check(&matrix, n);
            check(&matrix.iter().map(|x| x * 1e-200).collect::<Vec<_>>(), n);
        }
    }

    #[test]
    fn equal_and_vanishing_values_do_no_harm() {
        check(&[0.0; 9], 3);
        check(&[2.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 2.0], 3);
        check(&[1.0; 25], 5);
    }

    #[test]
    fn the_number_of_largest_magnitude_becomes_positive() {
        let mut vectors = [0.5, -2.0, 1.0, 3.0, -1.0, -2.0];
        turn(&mut vectors, 3);
        assert_eq!(vectors, [-0.5, 2.0, -1.0, 3.0, -1.0, -2.0]);
    }
}
