//! The order in which a stage of a pipeline takes its micro-batches. Weights change after the last of a step only (a flush),
//! so that all micro-batches of a step meet the same version of them. With p stages and m micro-batches a step takes
//! 2(m + p − 1) slots, in 2m of which a stage works: the others, a share of (p − 1)/(m + p − 1), are the bubble.
//!
//! | schedule | | micro-batches that stage s keeps |
//! |---|---|---|
//! | `gpipe` (Huang et al., 2019) | all forward, then all back | m |
//! | `1f1b` (Narayanan et al., "Memory-efficient pipeline-parallel DNN training", 2021: PipeDream-Flush) | back as soon as something can come back | min(m, p − s) |

use starlings_core::Turn;

/// A schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Schedule {
    /// All forward, then all back.
    AllForward,
    /// One forward, one back.
    OneByOne,
}

/// The names of schedules.
pub(crate) const SCHEDULES: &[&str] = &["1f1b", "gpipe"];

impl Schedule {
    /// By its name.
    pub(crate) fn of(name: &str) -> Schedule {
        match name {
            "gpipe" => Schedule::AllForward,
            _ => Schedule::OneByOne,
        }
    }

    /// What stage `stage` of `stages` does in a step. Gradients come back in the same order in all schedules, so that their
    /// sums have the same bits.
    pub(crate) fn turns(self, stage: u32, stages: u32, micro_batches: u32) -> Vec<Turn> {
        let ahead = match self {
            Schedule::AllForward => micro_batches,
            Schedule::OneByOne => micro_batches.min(stages - stage - 1),
        };
        let mut turns: Vec<Turn> = (0..ahead).map(Turn::Forward).collect();
        for number in 0..micro_batches {
            turns.extend((ahead + number < micro_batches).then(|| Turn::Forward(ahead + number)));
            turns.push(Turn::Backward(number));
        }
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Slots until all stages are done, where each turn takes one and waits for the neighbour it needs.
    fn slots(schedule: Schedule, stages: u32, micro_batches: u32) -> u32 {
        let mut left: Vec<Vec<Turn>> =
            (0..stages).map(|stage| schedule.turns(stage, stages, micro_batches)).collect();
        left.iter_mut().for_each(|turns| turns.reverse());
        let (mut done, mut slots) = (BTreeSet::new(), 0);
        while left.iter().any(|turns| !turns.is_empty()) {
            let ready = |stage: u32, turn: Turn| match turn {
                Turn::Forward(number) => stage == 0 || done.contains(&(stage - 1, 0, number)),
                Turn::Backward(number) => {
                    stage + 1 == stages || done.contains(&(stage + 1, 1, number))
                }
            };
            let now: Vec<(u32, Turn)> = (0..stages)
                .filter_map(|stage| Some((stage, *left[stage as usize].last()?)))
                .filter(|&(stage, turn)| ready(stage, turn))
                .collect();
            assert!(!now.is_empty(), "all wait for each other");
            for (stage, turn) in now {
                left[stage as usize].pop();
                let way = u8::from(matches!(turn, Turn::Backward(_)));
                done.insert((stage, way, turn.micro_batch()));
            }
            slots += 1;
        }
        slots
    }

    /// The most micro-batches that a stage keeps at once.
    fn kept(turns: &[Turn]) -> i64 {
        let change = |turn: &Turn| if matches!(turn, Turn::Forward(_)) { 1 } else { -1 };
        let mut now = 0;
        turns
            .iter()
            .map(|turn| {
                now += change(turn);
                now
            })
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn the_bubble_is_what_the_formula_says() {
        for schedule in [Schedule::AllForward, Schedule::OneByOne] {
            for (stages, micros) in [(1, 1), (2, 1), (2, 4), (3, 2), (4, 8), (5, 3), (8, 32)] {
                let slots = slots(schedule, stages, micros);
                assert_eq!(slots, 2 * (micros + stages - 1), "{schedule:?} {stages} {micros}");
                let bubble = 1.0 - f64::from(2 * micros) / f64::from(slots);
                let formula = f64::from(stages - 1) / f64::from(micros + stages - 1);
                assert!((bubble - formula).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn schedules_differ_in_what_a_stage_keeps() {
        for stage in 0..4 {
            assert_eq!(kept(&Schedule::AllForward.turns(stage, 4, 8)), 8);
            assert_eq!(kept(&Schedule::OneByOne.turns(stage, 4, 8)), i64::from(4 - stage));
            assert_eq!(kept(&Schedule::OneByOne.turns(stage, 4, 2)), i64::from(2.min(4 - stage)));
        }
    }

    #[test]
    fn every_micro_batch_goes_forward_once_and_then_back_in_the_same_order() {
        for schedule in SCHEDULES.iter().map(|name| Schedule::of(name)) {
            for (stage, stages, micros) in [(0, 1, 3), (0, 3, 5), (1, 3, 5), (2, 3, 5), (0, 6, 2)] {
                let turns = schedule.turns(stage, stages, micros);
                let way = |back: bool| -> Vec<u32> {
                    let this = |turn: &&Turn| matches!(turn, Turn::Backward(_)) == back;
                    turns.iter().filter(this).map(|turn| turn.micro_batch()).collect()
                };
                assert_eq!(way(false), (0..micros).collect::<Vec<_>>());
                assert_eq!(way(true), (0..micros).collect::<Vec<_>>());
                let place = |turn| turns.iter().position(|other| *other == turn);
                (0..micros).for_each(|micro| {
                    assert!(place(Turn::Forward(micro)) < place(Turn::Backward(micro)));
                });
            }
        }
    }
}
