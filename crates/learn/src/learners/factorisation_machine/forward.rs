//! The score of a row and its gradient in time proportional to its features times the components (Rendle, 2010, lemma
//! 3.1): Σ ⟨vᵢ, vⱼ⟩ xᵢxⱼ = ½ Σ_f ((Σ vᵢf xᵢ)² − Σ vᵢf² xᵢ²). The slope by vᵢf is xᵢ·(Σ vⱼf xⱼ − vᵢf xᵢ).

use starlings_data::{Batch, Row};

/// What labels are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// Numbers, by half the squared error.
    Number,
    /// Two classes, by log-loss.
    Class,
}

/// The parameters: for each feature its weight and then its factors.
#[derive(Clone, Copy)]
pub(super) struct Machine<'a> {
    pub(super) bias: f64,
    pub(super) weights: &'a [f64],
    pub(super) components: usize,
}

/// Weighted sums over rows.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Sums {
    pub(super) loss: f64,
    pub(super) weight: f64,
    /// Of magnitudes of errors.
    pub(super) error: f64,
    /// Of right answers.
    pub(super) correct: f64,
}

impl Machine<'_> {
    /// The score of a row; `sums` gets Σ vⱼf xⱼ of each component.
    #[inline]
    pub(super) fn score(&self, row: Row<'_>, sums: &mut [f64]) -> f64 {
        let width = 1 + self.components;
        let (mut linear, mut own) = (self.bias, 0.0);
        sums.fill(0.0);
        each_entry(row, |feature, x| {
            let (weight, factors) =
                self.weights[feature * width..(feature + 1) * width].split_at(1);
            linear += weight[0] * x;
            let mut squares = 0.0;
            for (sum, factor) in sums.iter_mut().zip(factors) {
                let part = factor * x;
                *sum += part;
                squares += part * part;
            }
            own += squares;
        });
        let all: f64 = sums.iter().map(|sum| sum * sum).sum();
        linear + 0.5 * (all - own)
    }

    /// Calls `visit` with each row's number in the table and its score.
    pub(super) fn each(&self, batch: &Batch<'_>, mut visit: impl FnMut(usize, f64)) {
        let mut sums = vec![0.0; self.components];
        for row in batch.rows() {
            visit(row, self.score(batch.table.row(row), &mut sums));
        }
    }

    /// Sums over rows without a gradient.
    pub(super) fn evaluate(&self, target: Target, batch: &Batch<'_>) -> Sums {
        let mut totals = Sums::default();
        self.each(batch, |row, score| {
            let label = f64::from(batch.table.labels[row]);
            totals.add(target, score, label, batch.table.weight(row));
        });
        totals
    }

    /// Adds the gradients of all rows: of the bias, and of the features' rows at `place(feature)`.
    pub(super) fn gradient(
        &self,
        target: Target,
        batch: &Batch<'_>,
        (bias, gradient): (&mut f64, &mut [f64]),
        place: impl Fn(usize) -> usize,
    ) -> Sums {
        let width = 1 + self.components;
        let (mut totals, mut sums) = (Sums::default(), vec![0.0; self.components]);
        for row in batch.rows() {
            let weight = batch.table.weight(row);
            if weight == 0.0 {
                continue;
            }
            let entries = batch.table.row(row);
            let score = self.score(entries, &mut sums);
            let label = f64::from(batch.table.labels[row]);
            let slope = totals.add(target, score, label, weight);
            *bias += slope;
            each_entry(entries, |feature, x| {
                let at = place(feature) * width;
                let (linear, into) = gradient[at..at + width].split_at_mut(1);
                let factors = &self.weights[feature * width + 1..(feature + 1) * width];
                let by = slope * x;
                linear[0] += by;
                for ((into, sum), factor) in into.iter_mut().zip(&sums).zip(factors) {
                    *into += by * (sum - factor * x);
                }
            });
        }
        totals
    }
}

impl Sums {
    /// Adds a row and gives the weighted slope of its loss by the score.
    #[inline]
    fn add(&mut self, target: Target, score: f64, label: f64, weight: f64) -> f64 {
        self.weight += weight;
        match target {
            Target::Number => {
                let error = score - label;
                self.loss += 0.5 * weight * error * error;
                self.error += weight * error.abs();
                weight * error
            }
            Target::Class => {
                self.loss +=
                    weight * (score.max(0.0) - label * score + (-score.abs()).exp().ln_1p());
                self.correct += weight * f64::from(u8::from((score > 0.0) == (label > 0.5)));
                weight * (logistic(score) - label)
            }
        }
    }
}

/// 1 / (1 + e⁻ᶻ).
pub(super) fn logistic(score: f64) -> f64 {
    let small = (-score.abs()).exp();
    if score > 0.0 { 1.0 / (1.0 + small) } else { small / (1.0 + small) }
}

/// The features that the entries of a sparse batch touch, increasing.
pub(super) fn touched(batch: &Batch<'_>) -> Vec<u32> {
    let mut features: Vec<u32> = Vec::new();
    for row in batch.rows() {
        if let Row::Sparse(columns, _) = batch.table.row(row) {
            features.extend_from_slice(columns);
        }
    }
    features.sort_unstable();
    features.dedup();
    features
}

/// The entries of a row that are not zero.
#[inline]
fn each_entry(row: Row<'_>, mut visit: impl FnMut(usize, f64)) {
    match row {
        Row::Dense(values) => {
            for (feature, &x) in values.iter().enumerate().filter(|(_, x)| **x != 0.0) {
                visit(feature, f64::from(x));
            }
        }
        Row::Sparse(columns, values) => {
            columns.iter().zip(values).for_each(|(&c, &x)| visit(c as usize, f64::from(x)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::{Rng, Shard};
    use starlings_data::{Features, Picked, Slice, Table};

    const FEATURES: usize = 5;

    fn normals(rng: &mut Rng, count: usize) -> Vec<f64> {
        (0..count).map(|_| rng.normal()).collect()
    }

    /// A term for every pair, as the model is defined.
    fn by_definition(machine: Machine<'_>, x: &[f64]) -> f64 {
        let width = 1 + machine.components;
        let row = |feature: usize| &machine.weights[feature * width..(feature + 1) * width];
        let mut score = machine.bias;
        for i in 0..x.len() {
            score += row(i)[0] * x[i];
            for j in i + 1..x.len() {
                let product: f64 = row(i)[1..].iter().zip(&row(j)[1..]).map(|(a, b)| a * b).sum();
                score += product * x[i] * x[j];
            }
        }
        score
    }

    #[test]
    fn the_score_is_the_sum_over_all_pairs() {
        let mut rng = Rng::named(1, "pairs", &[]);
        for components in [0, 1, 3, 16] {
            let weights = normals(&mut rng, FEATURES * (1 + components));
            let machine = Machine { bias: 0.3, weights: &weights, components };
            let x: Vec<f32> = normals(&mut rng, FEATURES).iter().map(|x| *x as f32).collect();
            let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
            let mut sums = vec![0.0; components];
            let found = machine.score(Row::Dense(&x), &mut sums);
            let expected = by_definition(machine, &wide);
            assert!((found - expected).abs() < 1e-12, "{components}: {found} {expected}");
            let sparse = machine.score(Row::Sparse(&[1, 4], &[x[1], x[4]]), &mut sums);
            let zeroed = [0.0, wide[1], 0.0, 0.0, wide[4]];
            assert!((sparse - by_definition(machine, &zeroed)).abs() < 1e-12);
        }
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        let mut rng = Rng::named(2, "differences", &[]);
        let components = 3;
        let mut weights = normals(&mut rng, FEATURES * (1 + components));
        let values = normals(&mut rng, 4 * FEATURES).iter().map(|x| *x as f32).collect();
        let mut table =
            Table::new(Features::Dense { width: FEATURES, values }, vec![0.0, 1.0, 1.0, 0.0]);
        table.weights = vec![1.0, 0.5, 0.0, 2.0];
        let slice = Slice { shard: Shard(0), start: 0, origin: 0, picked: Picked::All(4) };
        let batch = Batch { table: &table, slices: vec![slice], rows_step: 4 };
        for target in [Target::Number, Target::Class] {
            let (mut bias, mut gradient) = (0.0, vec![0.0; weights.len()]);
            let machine = Machine { bias: 0.1, weights: &weights, components };
            machine.gradient(target, &batch, (&mut bias, &mut gradient), |feature| feature);
            let step = 1e-6;
            let loss = |bias: f64, weights: &[f64]| {
                Machine { bias, weights, components }.evaluate(target, &batch).loss
            };
            let numeric = (loss(0.1 + step, &weights) - loss(0.1 - step, &weights)) / (2.0 * step);
            assert!((numeric - bias).abs() < 1e-7, "{numeric} {bias}");
            for (at, exact) in gradient.iter().enumerate() {
                let kept = weights[at];
                weights[at] = kept + step;
                let above = loss(0.1, &weights);
                weights[at] = kept - step;
                let below = loss(0.1, &weights);
                weights[at] = kept;
                let numeric = (above - below) / (2.0 * step);
                assert!((numeric - exact).abs() < 1e-6 * exact.abs().max(1.0), "{numeric} {exact}");
            }
        }
    }
}
