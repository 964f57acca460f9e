//! Nyström's approximation (Williams and Seeger, "Using the Nyström method to speed up kernel machines", 2001): landmarks
//! are drawn from the rows, and a row's features are its kernels with the landmarks times K(landmarks)^(−1/2). Products
//! of features are then exact on the space that the landmarks span.
//!
//! Landmarks are drawn on the flock: every replica knows how many rows that count each shard has, draws the same ranks
//! among all of them, and whoever holds the row sends it.

use super::kernel::{GAMMA, Kernel, spread};
use crate::kernels::symmetric_roots::inverse_root;
use starlings_core::{Graph, Kind, Model, Op, Rng, Role, Rows, Tensor, Values};
use starlings_data::Batch;

/// The landmarks, one row each.
pub(super) const LANDMARKS: &str = "landmarks";
/// K(landmarks)^(−1/2).
const ROOT: &str = "root";
/// For each landmark its shard and its rank among the shard's rows that count; −1 where there is none.
const PLACES: &str = "kernel.places";

pub(super) fn init(model: &mut Model, features: usize, components: usize) {
    model.set(LANDMARKS, Tensor::zeros(Kind::F64, &[components, features], Role::Weight));
    model.set(ROOT, Tensor::zeros(Kind::F64, &[components, components], Role::Weight));
    model.set(PLACES, Tensor::zeros(Kind::I64, &[components, 2], Role::State));
}

/// Draws as many different rows as there are landmarks, from shards with `counts` rows each.
pub(super) fn draw(model: &mut Model, counts: &[f64], seed: u64) {
    let total: f64 = counts.iter().sum();
    let mut rng = Rng::named(seed, "landmarks", &[]);
    let places = model.i64_mut(PLACES);
    let wanted = places.len() / 2;
    let mut ranks: Vec<u64> = if total as usize <= 4 * wanted {
        let mut all: Vec<u64> = (0..total as u64).collect();
        rng.shuffle(&mut all);
        all
    } else {
        let mut drawn = std::collections::BTreeSet::new();
        while drawn.len() < wanted {
            drawn.insert(rng.below(total as u64));
        }
        drawn.into_iter().collect()
    };
    ranks.truncate(wanted);
    ranks.sort_unstable();
    places.fill(-1);
    for (place, rank) in places.chunks_exact_mut(2).zip(ranks) {
        let mut left = rank as f64;
        for (shard, count) in counts.iter().enumerate() {
            if left < *count {
                place.copy_from_slice(&[shard as i64, left as i64]);
                break;
            }
            left -= count;
        }
    }
}

/// The landmarks that this worker holds, standardised.
pub(super) fn held(model: &Model, batch: &Batch<'_>) -> Rows {
    let landmarks = model.get(LANDMARKS).expect("the model has landmarks");
    let (total, width) = (landmarks.rows() as u32, landmarks.width() as u32);
    let mut rows = Rows::none(Kind::F64, total, width);
    let (mut values, mut room) = (Vec::new(), vec![0.0; width as usize]);
    for (landmark, place) in model.i64(PLACES).chunks_exact(2).enumerate() {
        let slice = batch.slices.iter().find(|slice| i64::from(slice.shard.0) == place[0]);
        let counting = slice.map(|slice| slice.rows().filter(|&row| batch.table.weight(row) > 0.0));
        if let Some(row) = counting.and_then(|mut rows| rows.nth(place[1] as usize)) {
            spread(model, batch.table.row(row), &mut room);
            rows.index.push(landmark as u32);
            values.extend_from_slice(&room);
        }
    }
    rows.values = Values::F64(values);
    rows
}

/// Stores the landmarks and the root of their kernels.
pub(super) fn settle(model: &mut Model, kernel: Kernel, rows: &Rows) {
    let (width, gamma) = (rows.width as usize, model.f64(GAMMA)[0]);
    let values = rows.values.as_f64().unwrap_or(&[]);
    let landmarks = model.f64_mut(LANDMARKS);
    for (&landmark, row) in rows.index.iter().zip(values.chunks_exact(width)) {
        landmarks[landmark as usize * width..][..width].copy_from_slice(row);
    }
    let size = rows.total as usize;
    let mut kernels = vec![0.0; size * size];
    for (at, &i) in rows.index.iter().enumerate() {
        for (other, &j) in rows.index.iter().enumerate() {
            let (x, y) = (&values[at * width..][..width], &values[other * width..][..width]);
            kernels[i as usize * size + j as usize] = kernel.of(gamma, x, y);
        }
    }
    // Places without a landmark have kernels of zero, and so has their root.
    *model.f64_mut(ROOT) = inverse_root(&kernels, size);
}

pub(super) fn map(model: &Model, kernel: Kernel, x: &[f64], out: &mut [f64]) {
    let gamma = model.f64(GAMMA)[0];
    out.fill(0.0);
    let landmarks = model.f64(LANDMARKS).chunks_exact(x.len());
    for (landmark, root) in landmarks.zip(model.f64(ROOT).chunks_exact(out.len())) {
        let by = kernel.of(gamma, x, landmark);
        out.iter_mut().zip(root).for_each(|(out, root)| *out += by * root);
    }
}

pub(super) fn graph(model: &Model, kernel: Kernel, graph: &mut Graph, features: &str) -> String {
    let gamma = model.f64(GAMMA)[0];
    let (landmarks, root) = (model.f64(LANDMARKS), model.f64(ROOT));
    let count = model.get(LANDMARKS).map_or(1, Tensor::rows);
    let width = landmarks.len() / count;
    let turned: Vec<f64> =
        (0..landmarks.len()).map(|at| landmarks[(at % count) * width + at / count]).collect();
    let turned = graph.constant("landmarks", &[width, count], turned);
    let gamma = graph.constant("gamma", &[1], vec![gamma]);
    let products = graph.node(Op::MatMul, &[features, &turned]);
    let kernels = match kernel {
        Kernel::Rbf => {
            let squares = landmarks.chunks_exact(width).map(|l| l.iter().map(|x| x * x).sum());
            let squares = graph.constant("squares", &[count], squares.collect());
            let own = graph.node(Op::Mul, &[features, features]);
            let own = graph.node(Op::SumRows, &[&own]);
            let two = graph.constant("two", &[1], vec![2.0]);
            let products = graph.node(Op::Mul, &[&products, &two]);
            let distances = graph.node(Op::Add, &[&own, &squares]);
            let distances = graph.node(Op::Sub, &[&distances, &products]);
            let distances = graph.node(Op::Mul, &[&distances, &gamma]);
            let negative = graph.node(Op::Neg, &[&distances]);
            graph.node(Op::Exp, &[&negative])
        }
        Kernel::Polynomial { offset, .. } | Kernel::Sigmoid { offset } => {
            let offset = graph.constant("offset", &[1], vec![offset]);
            let scaled = graph.node(Op::Mul, &[&products, &gamma]);
            let shifted = graph.node(Op::Add, &[&scaled, &offset]);
            match kernel {
                Kernel::Polynomial { degree, .. } => {
                    let degree = graph.constant("degree", &[1], vec![f64::from(degree)]);
                    graph.node(Op::Pow, &[&shifted, &degree])
                }
                _ => graph.node(Op::Tanh, &[&shifted]),
            }
        }
    };
    let root = graph.constant("root", &[count, count], root.to_vec());
    graph.node(Op::MatMul, &[&kernels, &root])
}
