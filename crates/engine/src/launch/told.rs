//! What has been told of a job where no step is promised (`continue`: local steps, gossip, asynchronous ones). Workers are
//! not at the same step there: should the one that tells be lost while it is ahead, the next begins with steps that
//! have been told. Whoever listens hears of each step and each pass once, in order. Elsewhere every step is let
//! through: there, one that is told twice is a fault that must be seen. Of each loss everybody hears once: a coordinator
//! that follows another cannot know which of them have been heard.

use crate::recovery::Completion;
use starlings_core::{Event, FaultReport, Step};

/// How far a job has been told.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// Whether tellers may be behind one another.
    is_uneven: bool,
    step: Option<Step>,
    pass: Option<u64>,
    /// Faults: a coordinator that follows another tells of all that it may have left untold.
    faults: Vec<FaultReport>,
}

impl Told {
    /// Nothing yet, of a job whose steps end in this way when a member is lost.
    pub(super) fn new(completion: Completion) -> Told {
        let (step, pass, faults) = Default::default();
        Told { is_uneven: completion == Completion::Continue, step, pass, faults }
    }

    /// Whether the event says something that has not been told.
    pub(super) fn is_new(&mut self, event: &Event) -> bool {
        match event {
            // Those who went back to a checkpoint take its steps again, and say so.
            Event::Regrouped { completion, .. } if completion == Completion::Restore.name() => {
                (self.step, self.pass) = (None, None);
                true
            }
            Event::Fault(report) => {
                let is_new = !self.faults.contains(report);
                if is_new {
                    self.faults.push(report.clone());
                }
                is_new
            }
            Event::Step { step, .. } if self.is_uneven => grows(&mut self.step, *step),
            Event::Epoch { epoch, .. } if self.is_uneven => grows(&mut self.pass, *epoch),
            _ => true,
        }
    }
}

fn grows<T: Ord>(furthest: &mut Option<T>, next: T) -> bool {
    let is_new = furthest.as_ref().is_none_or(|before| next > *before);
    if is_new {
        *furthest = Some(next);
    }
    is_new
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Epoch;

    fn step(step: u64) -> Event {
        Event::Step { step: Step(step), epoch: 0, objective: None, samples: 0, seconds: 0.0 }
    }

    fn pass(epoch: u64) -> Event {
        Event::Epoch { epoch, step: Step(0), objective: None, seconds: 0.0 }
    }

    fn regrouped(completion: Completion) -> Event {
        let completion = completion.name().to_string();
        Event::Regrouped { epoch: Epoch(1), workers: 2, step: Step(0), completion }
    }

    fn heard(told: &mut Told, events: &[Event]) -> Vec<bool> {
        events.iter().map(|event| told.is_new(event)).collect()
    }

    #[test]
    fn a_teller_that_is_behind_the_lost_one_repeats_nothing() {
        let mut told = Told::new(Completion::Continue);
        let events = [step(50), step(51), regrouped(Completion::Continue), step(51), step(52)];
        assert_eq!(heard(&mut told, &events), [true, true, true, false, true]);
        let events = [pass(0), step(53), pass(0), pass(1)];
        assert_eq!(heard(&mut told, &events), [true, true, false, true]);
    }

    #[test]
    fn a_fault_that_the_next_coordinator_tells_again_is_heard_once() {
        let fault = |rank| {
            let (rank, message) = (Some(starlings_core::Seat(rank)), "it was lost".to_string());
            Event::Fault(FaultReport { rank, message, ..FaultReport::default() })
        };
        let mut told = Told::new(Completion::Reweigh);
        let events = [fault(1), fault(2), fault(1), fault(2), fault(3)];
        assert_eq!(heard(&mut told, &events), [true, true, false, false, true]);
    }

    #[test]
    fn what_is_taken_again_from_a_checkpoint_is_told_again() {
        let mut told = Told::new(Completion::Continue);
        let events = [step(51), pass(3), regrouped(Completion::Restore), step(40), pass(2)];
        assert_eq!(heard(&mut told, &events), [true; 5]);
    }

    #[test]
    fn where_steps_are_promised_a_repeated_one_is_not_hidden() {
        for completion in [Completion::Reweigh, Completion::Recompute, Completion::Restore] {
            let mut told = Told::new(completion);
            assert_eq!(heard(&mut told, &[step(51), step(51), pass(1), pass(1)]), [true; 4]);
        }
    }
}
