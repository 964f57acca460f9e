//! Whether labels are classes or numbers, for learners that can learn both where the job leaves it open.

use starlings_core::Result;
use starlings_data::{LabelNeed, Target, survey};
use starlings_engine::choices::Choices;
use starlings_engine::job::Job;

/// More values than this in a column of whole numbers means that they are amounts, not classes.
const CLASSES_MAX: usize = 100;

/// The job with its learner's task settled: numbers, if the labels are no classes and the job does not say otherwise.
///
/// # Errors
/// Bad words in the job.
pub(crate) fn settled(job: Job) -> Result<Job> {
    let learner = Choices::of(&job)?.learner;
    let Some((key, value)) = learner.for_numbers() else { return Ok(job) };
    let is_open = job.learner.given.get(key).is_none_or(|word| word.as_str() == Some("auto"));
    if !is_open {
        return Ok(job);
    }
    // What cannot be read as classes is told by the launcher, which reads it again.
    let found = survey(&job.train, learner.encoding(), LabelNeed::Class);
    match found.map(|survey| survey.schema.target) {
        Ok(Target::Classes(classes)) if are_amounts(&classes) => job.settling(key, value),
        _ => Ok(job),
    }
}

/// Whether the values of a label column are amounts: numbers that are not all whole, or too many to be classes.
fn are_amounts(values: &[String]) -> bool {
    let numbers: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok()).collect();
    numbers.is_some_and(|numbers| {
        numbers.len() > CLASSES_MAX || numbers.iter().any(|number| number.fract() != 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_and_many_numbers_are_amounts() {
        let texts = |values: &[&str]| values.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(!are_amounts(&texts(&["-1", "1"])));
        assert!(!are_amounts(&texts(&["0", "1", "2"])));
        assert!(!are_amounts(&texts(&["yes", "no", "0.5"])));
        assert!(are_amounts(&texts(&["0.5", "1"])));
        assert!(are_amounts(&(0..101).map(|number| number.to_string()).collect::<Vec<_>>()));
    }
}
