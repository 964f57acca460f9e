//! Random Fourier features (Rahimi and Recht, "Random features for large-scale kernel machines", 2007): √(2/D)·cos(ω·x + b)
//! with ω drawn from the kernel's Fourier transform, for the RBF kernel a normal distribution of variance 2γ, and b
//! from the circle. The error of the kernel falls as 1/√D.

use starlings_core::{Graph, Model, Op, Rng, Role, Tensor};
use std::f64::consts::TAU;

/// ω/√(2γ): one row a feature, one column a component.
const DIRECTIONS: &str = "directions";
/// b.
const PHASES: &str = "phases";

pub(super) fn init(model: &mut Model, features: usize, components: usize, seed: u64) {
    let mut rng = Rng::named(seed, "random features", &[]);
    let directions = (0..features * components).map(|_| rng.normal()).collect();
    model.set(DIRECTIONS, Tensor::of(&[features, components], directions, Role::Weight));
    let phases = (0..components).map(|_| TAU * rng.uniform()).collect();
    model.set(PHASES, Tensor::of(&[components], phases, Role::Weight));
}

/// Features of the rows.
pub(super) fn input_width(model: &Model) -> usize {
    model.get(DIRECTIONS).map_or(0, Tensor::rows)
}

pub(super) fn map(model: &Model, gamma: f64, x: &[f64], out: &mut [f64]) {
    let width = (2.0 * gamma).sqrt();
    let mut angles = model.f64(PHASES).to_vec();
    for (x, directions) in x.iter().zip(model.f64(DIRECTIONS).chunks_exact(out.len())) {
        if *x != 0.0 {
            let by = width * x;
            angles.iter_mut().zip(directions).for_each(|(angle, d)| *angle += by * d);
        }
    }
    let height = (2.0 / out.len() as f64).sqrt();
    out.iter_mut().zip(angles).for_each(|(out, angle)| *out = height * angle.cos());
}

pub(super) fn graph(
    model: &Model,
    gamma: f64,
    graph: &mut Graph,
    features: &str,
    components: usize,
) -> String {
    let width = (2.0 * gamma).sqrt();
    let directions: Vec<f64> = model.f64(DIRECTIONS).iter().map(|d| d * width).collect();
    let rows = directions.len() / components;
    let directions = graph.constant("directions", &[rows, components], directions);
    let phases = graph.constant("phases", &[components], model.f64(PHASES).to_vec());
    let height = graph.constant("height", &[1], vec![(2.0 / components as f64).sqrt()]);
    let angles = graph.node(Op::MatMul, &[features, &directions]);
    let angles = graph.node(Op::Add, &[&angles, &phases]);
    let waves = graph.node(Op::Cos, &[&angles]);
    graph.node(Op::Mul, &[&waves, &height])
}
