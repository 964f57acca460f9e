//! Whether training still goes down. A rate that is too high makes the objective grow by a factor in every step: long before
//! it is no number any more, nothing is left of what was learned. Ordinary training is noisy and may rise for a while, so
//! only what no noise does counts: several steps in a row, each above the one before, all far above where the job began.
//! The same numbers tell which checkpoints are good to go back to.

use serde_json::{Value, json};
use starlings_core::{Fault, Result, Step};
use starlings_learn::DIVERGED;

/// How many times where it began the objective must be.
const TIMES: f64 = 1e4;
/// Steps that tell where it began: the highest of their objectives counts.
const FIRST: u32 = 3;
/// Steps in a row that must be that high, each higher than the one before.
const ROW: u32 = 3;
/// A checkpoint is good if the step after it had an objective of at most so many times the lowest after any.
const GOOD_TIMES: f64 = 10.0;

/// What is known of the objective so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Descent {
    /// The highest of the first objectives, and how many those are.
    began: f64,
    first: u32,
    /// Steps in a row that are far above, and the last objective.
    row: u32,
    last: f64,
}

impl Descent {
    /// Looks at the objective of a step.
    ///
    /// # Errors
    /// It has left all bounds.
    pub(crate) fn see(&mut self, step: Step, objective: Option<f64>) -> Result<()> {
        let Some(objective) = objective else { return Ok(()) };
        let rises = objective > self.last;
        self.last = objective;
        if self.first < FIRST {
            self.began = if self.first == 0 { objective } else { self.began.max(objective) };
            self.first += 1;
            return Ok(());
        }
        // What begins at zero or below is no loss of which there is a multiple.
        let far = self.began > 0.0 && objective > TIMES * self.began;
        self.row = if far && (rises || self.row == 0) { self.row + 1 } else { u32::from(far) };
        if self.row < ROW {
            return Ok(());
        }
        Err(Fault::caller(format!(
            "{DIVERGED}: the objective has risen to {objective:.3e} at {step}, and began at {:.3e}",
            self.began
        ))
        .hint("lower learning_rate, set clip_norm = 1.0 where the learner has it, or scale the features"))
    }
}

/// Looks at the objective of the trained model: steps tell theirs before models are blended, so that what the last blend did
/// shows here first.
///
/// # Errors
/// It is no number, and so the model is none.
pub(crate) fn check_end(objective: f64) -> Result<()> {
    if objective.is_finite() {
        return Ok(());
    }
    Err(Fault::caller(format!("{DIVERGED}: the objective of the trained model is {objective}"))
        .hint("lower learning_rate, set clip_norm = 1.0 where the learner has it, or scale the features"))
}

/// Which of a job's checkpoints is the last good one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Goodness {
    /// The checkpoint of which the next step has not told its objective yet.
    unjudged: Option<Step>,
    /// The lowest objective of a step after a checkpoint.
    lowest: Option<f64>,
    /// The newest whose next step had an objective near it.
    good: Option<Step>,
}

impl Goodness {
    /// What the manifest of a checkpoint that is gone on from says; that one itself is not judged yet.
    pub(crate) fn resumed(step: Step, progress: &Value) -> Goodness {
        let lowest = progress.get("lowest").and_then(Value::as_f64);
        let good = progress.get("good").and_then(Value::as_u64).map(Step);
        Goodness { unjudged: Some(step), lowest, good: good.filter(|good| *good <= step) }
    }

    /// A checkpoint was cut before this step.
    pub(crate) fn kept(&mut self, step: Step) {
        self.unjudged = Some(step);
    }

    /// The objective of a step: that of the weights before it.
    pub(crate) fn judge(&mut self, step: Step, objective: Option<f64>) {
        let (Some(kept), Some(objective)) = (self.unjudged, objective) else { return };
        if step < kept || !objective.is_finite() {
            return;
        }
        let lowest = self.lowest.map_or(objective, |lowest| lowest.min(objective));
        self.lowest = Some(lowest);
        if objective <= lowest + (GOOD_TIMES - 1.0) * lowest.abs() {
            self.good = Some(kept);
        }
        self.unjudged = None;
    }

    /// The last good one.
    pub(crate) fn good(&self) -> Option<Step> {
        self.good
    }

    /// For a manifest: which checkpoint must stay, and by what it was chosen.
    pub(crate) fn told(&self, pace: &str) -> Value {
        json!({ "good": self.good.map(|step| step.0), "lowest": self.lowest, "pace": pace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    fn stops(objectives: impl IntoIterator<Item = f64>) -> Option<u64> {
        let mut descent = Descent::default();
        let mut steps = (0..).map(Step).zip(objectives);
        steps.find(|(step, it)| descent.see(*step, Some(*it)).is_err()).map(|(step, _)| step.0)
    }

    #[test]
    fn what_grows_by_a_factor_is_stopped_while_it_is_finite() {
        let found = stops((0..).map(|step| 3f64.powi(step))).unwrap();
        assert_eq!(found, 13, "9 · 10⁴ is passed at step 11, and two more rise");
        let mut descent = Descent::default();
        let fault =
            (0..40).find_map(|step| descent.see(Step(step), Some(9f64.powi(step as i32))).err());
        let told = fault.unwrap().to_string();
        assert!(told.contains("training diverged") && told.contains("at step"), "{told}");
    }

    #[test]
    fn noise_peaks_and_plateaus_are_not_stopped() {
        let mut rng = Rng::named(4, "descent", &[]);
        let mut noise = || rng.normal().abs() * 100.0 + 1e-9;
        assert_eq!(stops((0..100_000).map(|step| noise() / f64::from(step + 1))), None);
        // Single batches with outliers, however large.
        assert_eq!(stops((0..999).map(|step| if step % 5 == 4 { 1e9 } else { 1.0 })), None);
        // From almost nothing back to where it began.
        assert_eq!(
            stops((0..99).map(|step| if (9..50).contains(&step) { 1e-9 } else { 1.0 })),
            None
        );
        assert_eq!(stops((0..99).map(|step| f64::from(step) * 1e9 - 3e9)), None);
    }

    #[test]
    fn the_last_good_checkpoint_is_the_newest_before_the_objective_rose() {
        let mut goodness = Goodness::default();
        for (step, objective) in (0..8).map(Step).zip([5.0, 1.0, 2.0, 4.0, 8.0, 30.0, 900.0, 1e9]) {
            goodness.kept(step);
            goodness.judge(step, Some(objective));
        }
        assert_eq!(goodness.good(), Some(Step(4)));
        let told = goodness.told("");
        assert_eq!(Goodness::resumed(Step(6), &told).good(), Some(Step(4)));
        assert_eq!(Goodness::resumed(Step(6), &Value::Null).good(), None);
    }
}
