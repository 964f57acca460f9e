//! AdaBoost.R2: errors as shares of the largest, L the mean loss, β = L/(1−L). A member's say is ln(1/β), a row that it
//! got right by 1−l weighs β^(1−l) as much from then on, and the answer is the weighted median of what members say.

use super::rounds::{Loss, Stage, State, sums_of};
use super::{AdaBoost, rounds};
use crate::{Work, by_shard};
use starlings_core::{Block, Fault, Model, Result, Update, Values};
use starlings_data::Batch;

impl AdaBoost {
    pub(super) fn judge_numbers(&self, work: &mut Work<'_>, state: &State) -> Result<()> {
        let (batch, model, memory) = (work.batch, work.model, &mut *work.memory);
        let rows = by_shard::sums(batch, (state.shards, 2), |slice, sums| {
            let one = super::alone(batch, slice);
            let said = self.crew.said_seen(model, state.round, &one)?;
            let weights = rounds::kept(memory.shard(slice.shard));
            for ((said, row), weight) in said.iter().zip(one.rows()).zip(weights) {
                if weight <= 0.0 {
                    continue;
                }
                let error = (said - f64::from(batch.table.labels[row])).abs();
                let loss = self.loss.of(error / state.largest.max(f64::MIN_POSITIVE));
                match state.stage {
                    Stage::Largest => sums[0] = sums[0].max(error),
                    Stage::Mean => sums[0] += weight * loss,
                    _ => sums[0] += weight * factor(state.mean, loss, self.rate),
                }
            }
            Ok(())
        })?;
        work.outbox.emit(Block::rows("judged", rows));
        Ok(())
    }

    pub(super) fn settle_numbers(
        &self,
        model: &mut Model,
        update: &Update,
        state: &mut State,
    ) -> Result<bool> {
        match state.stage {
            Stage::Largest => {
                let rows = update.rows("judged").and_then(|rows| rows.values.as_f64());
                let errors = rows.unwrap_or(&[]).chunks_exact(2).map(|row| row[0]);
                state.largest = errors.fold(0.0, f64::max);
                if !state.largest.is_finite() {
                    return Err(Fault::caller(
                        "adaboost: a member's answer is not a finite number",
                    ));
                }
                state.stage = Stage::Mean;
                if state.largest > 0.0 {
                    return Ok(false);
                }
                // Never wrong: it is the last.
                self.have_say(model, (1.0, 0.0), state);
                state.next(state.total);
                self.drop_from(model, state.round);
                Ok(true)
            }
            Stage::Mean => {
                state.mean = sums_of(update)[0] / state.total;
                if state.mean >= 0.5 {
                    // No better than chance: it is left out, unless there is no other.
                    let alone = self.rounds(model) == 0;
                    if alone {
                        self.have_say(model, (1.0, state.mean), state);
                    }
                    self.drop_from(model, state.round + usize::from(alone));
                    return Ok(true);
                }
                state.stage = Stage::Left;
                Ok(false)
            }
            _ => {
                let beta = state.mean / (1.0 - state.mean);
                self.have_say(model, (self.rate * (1.0 / beta).ln(), state.mean), state);
                state.next(sums_of(update)[0]);
                let over = state.round >= self.crew.fits.len();
                Ok(over)
            }
        }
    }

    fn have_say(&self, model: &mut Model, (say, error): (f64, f64), state: &State) {
        push(model, "says", &[say]);
        push(model, "errors", &[error]);
        push(model, "told", &[state.largest, state.mean]);
    }
}

/// Adds numbers to a list in the model.
pub(super) fn push(model: &mut Model, name: &str, more: &[f64]) {
    if let Some(tensor) = model.get_mut(name) {
        tensor.shape[0] += more.len();
        if let Values::F64(values) = &mut tensor.values {
            values.extend_from_slice(more);
        }
    }
}

/// β^((1−l)·rate).
fn factor(mean: f64, loss: f64, rate: f64) -> f64 {
    (mean / (1.0 - mean)).powf((1.0 - loss) * rate)
}

/// What was right weighs less. `told` has the largest error and the mean loss of the round.
pub(super) fn lower(
    said: &[f64],
    (batch, told): (&Batch<'_>, &[f64]),
    (loss, rate): (Loss, f64),
    weights: &mut [f64],
) {
    let (largest, mean) = (told[0].max(f64::MIN_POSITIVE), told[1]);
    for ((said, row), weight) in said.iter().zip(batch.rows()).zip(weights) {
        let error = (said - f64::from(batch.table.labels[row])).abs() / largest;
        *weight *= factor(mean, loss.of(error), rate);
    }
}

/// The weighted median of what the members say of each row.
pub(super) fn answer(said: &[Vec<f64>], says: &[f64], rows: usize, out: &mut Vec<f64>) {
    let half = 0.5 * says.iter().sum::<f64>();
    for row in 0..rows {
        let mut answers: Vec<(f64, f64)> =
            said.iter().zip(says).map(|(said, say)| (said[row], *say)).collect();
        answers.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut sum = 0.0;
        let middle = answers.iter().find(|(_, say)| {
            sum += say;
            sum >= half
        });
        out.push(middle.or(answers.last()).map_or(0.0, |(answer, _)| *answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_leans_to_whoever_has_more_say() {
        let said = [vec![1.0], vec![5.0], vec![9.0]];
        let mut out = Vec::new();
        answer(&said, &[1.0, 1.0, 1.0], 1, &mut out);
        answer(&said, &[1.0, 1.0, 3.0], 1, &mut out);
        assert_eq!(out, [5.0, 9.0]);
    }

    #[test]
    fn a_row_that_is_right_loses_the_factor_of_the_paper() {
        // Drucker 1997, step 8: w · β^(1 − L).
        assert!((factor(0.2, 0.0, 1.0) - 0.25).abs() < 1e-15);
        assert!((factor(0.2, 1.0, 1.0) - 1.0).abs() < 1e-15);
    }
}
