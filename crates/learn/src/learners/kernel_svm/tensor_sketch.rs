//! TensorSketch (Pham and Pagh, "Fast and scalable polynomial kernels via explicit feature maps", 2013): the count sketch
//! of a tensor power is the circular convolution of independent count sketches of the vector. Products of sketches
//! estimate (γ·x·y + c)ᵖ without bias, at p·(features + components·log components) operations a row.
//!
//! The offset c is one more feature, √c. Model: for each of the p factors and each feature a bucket and a sign.

use starlings_core::{Graph, Model, Op, Rng, Role, Tensor, Values};
use std::f64::consts::TAU;

const BUCKETS: &str = "buckets";
const SIGNS: &str = "signs";

/// Draws buckets and signs for `features` features and the offset.
pub(super) fn init(
    model: &mut Model,
    features: usize,
    (degree, components): (usize, usize),
    seed: u64,
) {
    let mut rng = Rng::named(seed, "tensor sketch", &[]);
    let len = degree * (features + 1);
    let buckets = (0..len).map(|_| rng.below(components as u64) as i64).collect();
    let signs = (0..len).map(|_| if rng.below(2) == 0 { 1.0 } else { -1.0 }).collect();
    let shape = vec![degree, features + 1];
    model.set(BUCKETS, Tensor { shape, values: Values::I64(buckets), role: Role::Weight });
    model.set(SIGNS, Tensor::of(&[degree, features + 1], signs, Role::Weight));
}

/// Features of the rows, the offset not counted.
pub(super) fn input_width(model: &Model) -> usize {
    model.get(BUCKETS).map_or(0, |buckets| buckets.width() - 1)
}

/// The sketch of a row's tensor power. `x` ends with the offset's feature.
pub(super) fn sketch(model: &Model, x: &[f64], out: &mut [f64]) {
    let components = out.len();
    let factors =
        model.i64(BUCKETS).chunks_exact(x.len()).zip(model.f64(SIGNS).chunks_exact(x.len()));
    let mut product: Option<Vec<f64>> = None;
    for (buckets, signs) in factors {
        let mut counts = vec![0.0; components];
        for ((&x, &bucket), sign) in x.iter().zip(buckets).zip(signs) {
            counts[bucket as usize] += sign * x;
        }
        product = Some(match product {
            None => counts,
            Some(before) => convolved(&before, &counts),
        });
    }
    out.copy_from_slice(&product.unwrap_or_default());
}

/// The circular convolution of two vectors of the same length, through Fourier transforms of twice that length.
fn convolved(a: &[f64], b: &[f64]) -> Vec<f64> {
    let (len, size) = (a.len(), (2 * a.len()).next_power_of_two());
    let padded = |from: &[f64]| {
        let mut values: Vec<(f64, f64)> = from.iter().map(|&x| (x, 0.0)).collect();
        values.resize(size, (0.0, 0.0));
        transform(&mut values, 1.0);
        values
    };
    let (mut a, b) = (padded(a), padded(b));
    a.iter_mut().zip(b).for_each(|(a, b)| *a = times(*a, b));
    transform(&mut a, -1.0);
    let mut out = vec![0.0; len];
    for (at, (value, _)) in a.iter().enumerate().take(2 * len) {
        out[at % len] += value / size as f64;
    }
    out
}

fn times(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

/// The discrete Fourier transform in place (Cooley and Tukey, 1965), unscaled; `sign` −1 gives the inverse.
fn transform(values: &mut [(f64, f64)], sign: f64) {
    let size = values.len();
    let bits = size.trailing_zeros();
    for at in 0..size {
        let other = at.reverse_bits() >> (usize::BITS - bits).min(usize::BITS - 1);
        if bits > 0 && at < other {
            values.swap(at, other);
        }
    }
    let mut span = 2;
    while span <= size {
        let angle = -sign * TAU / span as f64;
        for group in values.chunks_exact_mut(span) {
            let (low, high) = group.split_at_mut(span / 2);
            for (k, (low, high)) in low.iter_mut().zip(high).enumerate() {
                let turn = angle * k as f64;
                let turned = times(*high, (turn.cos(), turn.sin()));
                (*low, *high) =
                    ((low.0 + turned.0, low.1 + turned.1), (low.0 - turned.0, low.1 - turned.1));
            }
        }
        span *= 2;
    }
}

/// The sketch as a graph: the transform of a count sketch is a product with a matrix, and so is the way back.
pub(super) fn graph(model: &Model, graph: &mut Graph, features: &str, components: usize) -> String {
    let width = model.get(BUCKETS).map_or(1, Tensor::width);
    let factors = model.i64(BUCKETS).chunks_exact(width).zip(model.f64(SIGNS).chunks_exact(width));
    let mut product: Option<(String, String)> = None;
    for (factor, (buckets, signs)) in factors.enumerate() {
        let entry = |wave: fn(f64) -> f64| {
            let entries = buckets.iter().zip(signs).flat_map(move |(&bucket, &sign)| {
                (0..components).map(move |k| {
                    sign * wave(TAU * (bucket as usize * k % components) as f64 / components as f64)
                })
            });
            entries.collect::<Vec<f64>>()
        };
        let real = graph.constant(&format!("real_{factor}"), &[width, components], entry(f64::cos));
        let imaginary = graph.constant(
            &format!("imaginary_{factor}"),
            &[width, components],
            entry(|angle| -angle.sin()),
        );
        let real = graph.node(Op::MatMul, &[features, &real]);
        let imaginary = graph.node(Op::MatMul, &[features, &imaginary]);
        product = Some(match product {
            None => (real, imaginary),
            Some((a, b)) => {
                let (ac, bd) =
                    (graph.node(Op::Mul, &[&a, &real]), graph.node(Op::Mul, &[&b, &imaginary]));
                let (ad, bc) =
                    (graph.node(Op::Mul, &[&a, &imaginary]), graph.node(Op::Mul, &[&b, &real]));
                (graph.node(Op::Sub, &[&ac, &bd]), graph.node(Op::Add, &[&ad, &bc]))
            }
        });
    }
    let (real, imaginary) = product.unwrap_or_default();
    let back = |wave: fn(f64) -> f64| -> Vec<f64> {
        let angle = |at: usize| TAU * ((at / components) * (at % components) % components) as f64;
        (0..components * components)
            .map(|at| wave(angle(at) / components as f64) / components as f64)
            .collect()
    };
    let cosines = graph.constant("back_real", &[components, components], back(f64::cos));
    let sines = graph.constant("back_imaginary", &[components, components], back(f64::sin));
    let real = graph.node(Op::MatMul, &[&real, &cosines]);
    let imaginary = graph.node(Op::MatMul, &[&imaginary, &sines]);
    graph.node(Op::Sub, &[&real, &imaginary])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn convolutions_are_those_of_the_definition() {
        for len in [1, 2, 5, 8, 13] {
            let a: Vec<f64> = (0..len).map(|at| (at as f64).sin() + 1.0).collect();
            let b: Vec<f64> = (0..len).map(|at| (at as f64 * 1.7).cos()).collect();
            let found = convolved(&a, &b);
            for (k, found) in found.iter().enumerate() {
                let plain: f64 = (0..len).map(|i| a[i] * b[(k + len - i) % len]).sum();
                assert!((found - plain).abs() < 1e-10, "{len}: {found} {plain}");
            }
        }
    }
}
