//! An orthonormal basis of the space that some vectors span: Gram and Schmidt's method, each vector cleaned twice
//! ("twice is enough": Giraud, Langou and Rozložník, 2005).

use super::symmetric::dot;

/// A vector that loses this much of its length lies in the space of those before it.
const VANISHED: f64 = 1e-12;

/// Makes vectors of `width` numbers, one after the other, orthonormal. One that depends on those before it becomes
/// zero.
pub(crate) fn orthonormalise(vectors: &mut [f64], width: usize) {
    for place in 0..vectors.len() / width.max(1) {
        let (before, rest) = vectors.split_at_mut(place * width);
        let vector = &mut rest[..width];
        let length = dot(vector, vector).sqrt();
        for _ in 0..2 {
            for other in before.chunks_exact(width) {
                let along = dot(other, vector);
                vector.iter_mut().zip(other).for_each(|(x, o)| *x -= along * o);
            }
        }
        let left = dot(vector, vector).sqrt();
        let scale = if left > VANISHED * length { 1.0 / left } else { 0.0 };
        vector.iter_mut().for_each(|x| *x *= scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_become_orthonormal_and_dependent_ones_vanish() {
        let mut vectors = [3.0, 4.0, 0.0, 6.0, 8.0, 0.0, 1.0, 1.0, 1.0];
        orthonormalise(&mut vectors, 3);
        let expected = [0.6, 0.8, 0.0, 0.0, 0.0, 0.0];
        assert!(vectors.iter().zip(expected).all(|(x, wanted)| (x - wanted).abs() < 1e-15));
        let last = &vectors[6..];
        assert!(dot(last, &[0.6, 0.8, 0.0]).abs() < 1e-15 && (dot(last, last) - 1.0).abs() < 1e-15);
    }
}
