//! Kernels, and the features whose products are the kernel or come close to it.

use super::{nystroem, random_features, tensor_sketch};
use starlings_core::{Graph, Model, Op};
use starlings_data::Row;

/// The width of the kernel: γ.
pub(super) const GAMMA: &str = "gamma";
/// Deviation and mean of each feature, where rows are standardised.
pub(super) const INPUT: &str = "input_scale";

/// How alike two rows are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Kernel {
    /// exp(−γ‖x − y‖²).
    Rbf,
    /// (γ·x·y + offset)^degree.
    Polynomial { degree: u32, offset: f64 },
    /// tanh(γ·x·y + offset); not positive definite.
    Sigmoid { offset: f64 },
}

/// How rows become features.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Approximation {
    RandomFeatures,
    Nystroem,
}

impl Kernel {
    /// The kernel of two rows.
    pub(super) fn of(self, gamma: f64, x: &[f64], y: &[f64]) -> f64 {
        let product = || x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        match self {
            Kernel::Rbf => {
                let squares: f64 = x.iter().zip(y).map(|(x, y)| (x - y).powi(2)).sum();
                (-gamma * squares).exp()
            }
            Kernel::Polynomial { degree, offset } => {
                (gamma * product() + offset).powi(degree as i32)
            }
            Kernel::Sigmoid { offset } => (gamma * product() + offset).tanh(),
        }
    }
}

/// A row with all its numbers, standardised where the model says so.
pub(super) fn spread(model: &Model, row: Row<'_>, into: &mut [f64]) {
    match row {
        Row::Dense(x) => into.iter_mut().zip(x).for_each(|(into, &x)| *into = f64::from(x)),
        Row::Sparse(columns, x) => {
            into.fill(0.0);
            columns.iter().zip(x).for_each(|(&c, &x)| into[c as usize] = f64::from(x));
        }
    }
    if model.get(INPUT).is_some() {
        let (deviations, means) = model.f64(INPUT).split_at(into.len());
        for ((x, deviation), mean) in into.iter_mut().zip(deviations).zip(means) {
            *x = (*x - mean) / deviation;
        }
    }
}

/// A feature map: a kernel and its approximation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct FeatureMap {
    pub(super) kernel: Kernel,
    pub(super) approximation: Approximation,
}

impl FeatureMap {
    /// The features of a row, in the order of the model's components.
    pub(super) fn map(self, model: &Model, x: &[f64], out: &mut [f64]) {
        let gamma = model.f64(GAMMA)[0];
        match (self.approximation, self.kernel) {
            (Approximation::Nystroem, kernel) => nystroem::map(model, kernel, x, out),
            (_, Kernel::Polynomial { offset, .. }) => {
                let mut long: Vec<f64> = x.iter().map(|x| x * gamma.sqrt()).collect();
                long.push(offset.sqrt());
                tensor_sketch::sketch(model, &long, out);
            }
            _ => random_features::map(model, gamma, x, out),
        }
    }

    /// Adds the map to a graph and gives the name of its value.
    pub(super) fn graph(
        self,
        model: &Model,
        graph: &mut Graph,
        features: &str,
        components: usize,
    ) -> String {
        let gamma = model.f64(GAMMA)[0];
        let mut input = features.to_string();
        if model.get(INPUT).is_some() {
            let (deviations, means) = model.f64(INPUT).split_at(model.f64(INPUT).len() / 2);
            let means = graph.constant("means", &[means.len()], means.to_vec());
            let deviations = graph.constant("deviations", &[deviations.len()], deviations.to_vec());
            input = graph.node(Op::Sub, &[&input, &means]);
            input = graph.node(Op::Div, &[&input, &deviations]);
        }
        match (self.approximation, self.kernel) {
            (Approximation::Nystroem, kernel) => nystroem::graph(model, kernel, graph, &input),
            (_, Kernel::Polynomial { offset, .. }) => {
                let root = graph.constant("root_gamma", &[1], vec![gamma.sqrt()]);
                let scaled = graph.node(Op::Mul, &[&input, &root]);
                // A column of the offset's root: anything times zero, plus it.
                let zero = graph.constant("zero", &[1], vec![0.0]);
                let column = graph.node(Op::Columns(vec![0]), &[&scaled]);
                let column = graph.node(Op::Mul, &[&column, &zero]);
                let root = graph.constant("root_offset", &[1], vec![offset.sqrt()]);
                let column = graph.node(Op::Add, &[&column, &root]);
                let long = graph.node(Op::Concat, &[&scaled, &column]);
                tensor_sketch::graph(model, graph, &long, components)
            }
            _ => random_features::graph(model, gamma, graph, &input, components),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::{Rng, Role, Tensor};

    const FEATURES: usize = 12;

    fn rows(count: usize) -> Vec<Vec<f64>> {
        let mut rng = Rng::named(2, "rows", &[]);
        (0..count).map(|_| (0..FEATURES).map(|_| rng.normal()).collect()).collect()
    }

    /// The root mean squared error of products of features, over all pairs of rows and some seeds.
    fn error(kernel: Kernel, components: usize) -> f64 {
        let (gamma, rows) = (0.1, rows(6));
        let (mut squares, mut count) = (0.0, 0.0);
        for seed in 0..200 {
            let mut model = Model::new();
            model.set(GAMMA, Tensor::of(&[1], vec![gamma], Role::Weight));
            match kernel {
                Kernel::Polynomial { degree, .. } => {
                    tensor_sketch::init(&mut model, FEATURES, (degree as usize, components), seed);
                }
                _ => random_features::init(&mut model, FEATURES, components, seed),
            }
            let map = FeatureMap { kernel, approximation: Approximation::RandomFeatures };
            let features: Vec<Vec<f64>> = rows
                .iter()
                .map(|row| {
                    let mut out = vec![0.0; components];
                    map.map(&model, row, &mut out);
                    out
                })
                .collect();
            for (x, zx) in rows.iter().zip(&features) {
                for (y, zy) in rows.iter().zip(&features) {
                    let product: f64 = zx.iter().zip(zy).map(|(a, b)| a * b).sum();
                    squares += (product - kernel.of(gamma, x, y)).powi(2);
                    count += 1.0;
                }
            }
        }
        (squares / count).sqrt()
    }

    #[test]
    fn errors_fall_with_the_root_of_the_number_of_features() {
        for kernel in [Kernel::Rbf, Kernel::Polynomial { degree: 3, offset: 1.0 }] {
            let (few, many) = (error(kernel, 32), error(kernel, 512));
            assert!((3.0..5.3).contains(&(few / many)), "{kernel:?}: {few} {many}");
        }
        assert!(error(Kernel::Rbf, 512) < 0.05);
    }

    /// On landmarks themselves the products of features are the kernel.
    #[test]
    fn nystroem_is_exact_where_all_rows_are_landmarks() {
        let rows = rows(9);
        let kernels = [Kernel::Rbf, Kernel::Polynomial { degree: 3, offset: 1.0 }];
        for kernel in kernels {
            let mut model = Model::new();
            model.set(GAMMA, Tensor::of(&[1], vec![0.3], Role::Weight));
            nystroem::init(&mut model, FEATURES, 9);
            let landmarks = starlings_core::Rows {
                total: 9,
                width: FEATURES as u32,
                index: (0..9).collect(),
                values: starlings_core::Values::F64(rows.concat()),
            };
            nystroem::settle(&mut model, kernel, &landmarks);
            let map = FeatureMap { kernel, approximation: Approximation::Nystroem };
            let mapped = |row: &[f64]| {
                let mut out = vec![0.0; 9];
                map.map(&model, row, &mut out);
                out
            };
            for x in &rows {
                for y in &rows {
                    let product: f64 = mapped(x).iter().zip(mapped(y)).map(|(a, b)| a * b).sum();
                    assert!((product - kernel.of(0.3, x, y)).abs() < 1e-6, "{kernel:?}");
                }
            }
        }
    }
}
