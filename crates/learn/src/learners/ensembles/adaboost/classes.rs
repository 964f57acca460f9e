//! SAMME: a member's say is ln((1−e)/e) + ln(K−1), where e is the share of the weight that it got wrong, and what it got
//! wrong weighs e^say as much from then on. A member no better than chance ends it.

use super::super::method::Method;
use super::super::verdict::largest;
use super::rounds::{State, sums_of};
use super::{AdaBoost, rounds};
use crate::{Work, by_shard};
use starlings_core::{Block, Fault, Model, Result, Update};
use starlings_data::Batch;

impl AdaBoost {
    /// Says what share of the weight the round's member got wrong; for numbers, see `numbers`.
    pub(super) fn judge(&self, work: &mut Work<'_>, state: &State) -> Result<()> {
        if !self.is_classification() {
            return self.judge_numbers(work, state);
        }
        let (batch, model, width) = (work.batch, work.model, self.outputs(work.model));
        let memory = &mut *work.memory;
        let rows = by_shard::sums(batch, (state.shards, 2), |slice, sums| {
            let one = super::alone(batch, slice);
            let said = self.crew.said_seen(model, state.round, &one)?;
            let weights = rounds::kept(memory.shard(slice.shard));
            let answers = said.chunks_exact(width).zip(one.rows()).zip(weights);
            for ((said, row), weight) in answers {
                sums[0] += weight;
                if largest(said) != batch.table.labels[row] as usize {
                    sums[1] += weight;
                }
            }
            Ok(())
        })?;
        work.outbox.emit(Block::rows("judged", rows));
        Ok(())
    }

    /// Gives the round's member its say. Says whether boosting is over.
    pub(super) fn settle(
        &self,
        model: &mut Model,
        update: &Update,
        state: &mut State,
    ) -> Result<bool> {
        if !self.is_classification() {
            return self.settle_numbers(model, update, state);
        }
        let sums = sums_of(update);
        let (total, wrong) = (sums[0], sums[1]);
        let (error, classes) = (wrong / total, self.outputs(model) as f64);
        if error >= 1.0 - 1.0 / classes {
            if self.rounds(model) == 0 {
                return Err(Fault::caller(format!(
                    "adaboost: the first member is wrong on {:.1} % of the weight, which is no better than chance",
                    100.0 * error
                ))
                .hint("give it a learner that can learn more from these rows"));
            }
            self.drop_from(model, state.round);
            return Ok(true);
        }
        // A member that is never wrong would have an endless say; it is the last, and as in scikit-learn says 1.
        let perfect = error <= 0.0;
        let say = if perfect { 1.0 } else { say(error, classes, self.rate) };
        super::numbers::push(model, "says", &[say]);
        super::numbers::push(model, "errors", &[error]);
        state.next(total - wrong + say.exp() * wrong);
        let over = perfect || state.round >= self.crew.fits.len();
        if over {
            self.drop_from(model, state.round);
        }
        Ok(over)
    }

    /// Forgets the members from this round on: they have no say.
    pub(super) fn drop_from(&self, model: &mut Model, round: usize) {
        for fit in round..self.crew.fits.len() {
            super::super::parts::drop_all(model, &super::super::parts::prefix(fit));
        }
    }
}

fn say(error: f64, classes: f64, rate: f64) -> f64 {
    rate * (((1.0 - error) / error).ln() + (classes - 1.0).ln())
}

/// What was wrong weighs more.
pub(super) fn raise(
    said: &[f64],
    width: usize,
    (batch, say): (&Batch<'_>, f64),
    weights: &mut [f64],
) {
    let factor = say.exp();
    let answers = said.chunks_exact(width).zip(batch.rows()).zip(weights);
    for ((said, row), weight) in answers {
        if largest(said) != batch.table.labels[row] as usize {
            *weight *= factor;
        }
    }
}

/// The chances of classes: softmax of the members' votes, each 1 for its class and −1/(K−1) for the others.
pub(super) fn answer(
    said: &[Vec<f64>],
    says: &[f64],
    (rows, width): (usize, usize),
    out: &mut Vec<f64>,
) {
    let others = (width - 1) as f64;
    let total: f64 = says.iter().sum();
    let total = if total > 0.0 { total } else { 1.0 };
    for row in 0..rows {
        let mut scores = vec![0.0; width];
        for (said, say) in said.iter().zip(says) {
            let vote = largest(&said[row * width..(row + 1) * width]);
            for (class, score) in scores.iter_mut().enumerate() {
                *score += if class == vote { *say } else { -say / others };
            }
        }
        let powers = scores.iter().map(|score| (score / total / others).exp());
        let powers: Vec<f64> = powers.collect();
        let sum: f64 = powers.iter().sum();
        out.extend(powers.iter().map(|power| power / sum));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_say_is_that_of_the_paper() {
        // Zhu et al., algorithm 2, step (c): log((1 − err)/err) + log(K − 1).
        assert!((say(0.25, 2.0, 1.0) - 3f64.ln()).abs() < 1e-15);
        assert!((say(0.25, 3.0, 0.5) - 0.5 * 6f64.ln()).abs() < 1e-15);
        assert!(say(2.0 / 3.0, 3.0, 1.0).abs() < 1e-12, "chance has no say");
    }
}
