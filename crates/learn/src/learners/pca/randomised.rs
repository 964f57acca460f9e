//! The leading principal components of wide rows: subspace iteration from a random start (see
//! `algebra/subspace.rs`), where each product with the centred covariance is one exchange of width · (components +
//! oversampling) numbers. Sparse rows stay sparse: the mean is taken off the products instead of the rows.

use super::finish;
use crate::algebra::subspace::{advance, product, start};
use crate::{Facts, Outcome, Work};
use starlings_core::{Block, Model, Role, Tensor, Update};

/// The directions followed.
pub(super) const BASIS: &str = "basis";
/// The values found last, to see whether they still change.
const VALUES: &str = "values";

/// How the passes go.
pub(super) struct Passes {
    /// Passes after the first.
    pub(super) power_iterations: usize,
    /// Directions beyond those wanted.
    pub(super) oversampling: usize,
    /// Relative change of the values at which they are taken as found.
    pub(super) tolerance: f64,
}

impl Passes {
    /// Sets the random start.
    pub(super) fn init(&self, model: &mut Model, (count, width): (usize, usize), facts: &Facts) {
        let columns = (count + self.oversampling).min(width);
        let basis = start(width, columns, facts.seed);
        model.set(BASIS, Tensor::of(&[columns, width], basis, Role::State));
        model.set(VALUES, Tensor::of(&[count], vec![0.0; count], Role::State));
    }

    /// Takes a pass into account: it is done when the values stand still or the passes are used up.
    pub(super) fn apply(&self, model: &mut Model, update: &Update, pass: u64) -> Outcome {
        let (image, coordinates) = (update.f64("image"), update.f64("coordinates"));
        let found = advance(image, coordinates, model.f64("mean"), model.f64(BASIS));
        let count = model.f64(VALUES).len();
        let values = &found.eigen.values[..count];
        let still = values.iter().zip(model.f64(VALUES)).all(|(new, old)| {
            (new - old).abs() <= self.tolerance * new.abs().max(f64::MIN_POSITIVE)
        });
        let done = still || pass > self.power_iterations as u64;
        model.f64_mut(VALUES).copy_from_slice(values);
        *model.f64_mut(BASIS) = found.next;
        let weight = model.f64("weight")[0];
        let total = update.f64("total")[0] / (weight - 1.0);
        finish(model, found.eigen, count, (weight, total));
        Outcome { objective: None, done, iterations: Some(pass) }
    }
}

/// A product of this worker's rows with the basis, and Σw‖x − mean‖².
pub(super) fn contribute(work: &mut Work<'_>) {
    let mean = work.model.f64("mean");
    let sums = product(work.batch, mean, work.model.f64(BASIS));
    let total = crate::projection::Projection { mean, components: &[], scale: Vec::new() };
    let total = total.score(work.batch).map_or(f64::NAN, |sums| sums[0]);
    work.outbox.emit(Block::dense("image", sums.image));
    work.outbox.emit(Block::dense("coordinates", sums.coordinates));
    work.outbox.emit(Block::dense("total", vec![total]));
}
