//! How far a run is, how fast it goes and how long it may still take, from its events alone.

use crate::{figures, remark};
use starlings_core::Event;
use std::collections::VecDeque;

/// Seconds over which speed is measured: long enough to be steady, short enough to notice a slow worker.
const WINDOW_SECONDS: f64 = 10.0;
/// Moments kept in the window; step events come at most twenty a second.
const MOMENTS_MAX: usize = 256;

/// Where a run was at one moment.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Moment {
    seconds: f64,
    steps: u64,
    samples: u64,
}

/// How far a run is.
///
/// ```
/// use starlings_core::{Event, Step};
/// use starlings_observe::Progress;
/// let mut progress = Progress::new();
/// for (step, seconds) in [(9, 1.0), (19, 2.0)] {
///     let samples = (step + 1) * 100;
///     progress.on(&Event::Step { step: Step(step), epoch: 0, objective: Some(0.5), samples, seconds });
/// }
/// assert_eq!(progress.samples_per_second(), Some(1000.0));
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    steps_max: Option<u64>,
    rows: u64,
    epoch: u64,
    steps: u64,
    objective: Option<f64>,
    moments: VecDeque<Moment>,
    /// What is told while workers are missing.
    waiting: Option<String>,
}

impl Progress {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new() -> Progress {
        Progress::default()
    }

    /// Takes an event.
    pub fn on(&mut self, event: &Event) {
        match event {
            Event::Waiting { .. } => self.waiting = remark(event),
            Event::Start { steps_max, rows, .. } => {
                (self.steps_max, self.rows) = (*steps_max, *rows);
            }
            Event::Worker { .. } | Event::Regrouped { .. } => self.waiting = None,
            Event::Step { step, epoch, objective, samples, seconds } => {
                self.epoch = *epoch;
                self.objective = objective.or(self.objective);
                self.note(Moment { seconds: *seconds, steps: step.0 + 1, samples: *samples });
            }
            Event::Epoch { step, objective, .. } => {
                self.steps = step.0;
                self.objective = objective.or(self.objective);
            }
            Event::Fault(_)
            | Event::Dealt { .. }
            | Event::Checkpoint { .. }
            | Event::Fold { .. }
            | Event::Trace { .. }
            | Event::Report(_) => {}
        }
    }

    /// Steps done.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Steps that will be run at most, where this is known.
    #[must_use]
    pub fn steps_max(&self) -> Option<u64> {
        self.steps_max
    }

    /// Rows a second over the last seconds; `None` before two moments are known.
    #[must_use]
    pub fn samples_per_second(&self) -> Option<f64> {
        let (first, last, seconds) = self.span()?;
        Some(last.samples.saturating_sub(first.samples) as f64 / seconds)
    }

    /// Seconds that are left at most if it goes on as in the last seconds. A learner may converge earlier.
    #[must_use]
    pub fn seconds_left(&self) -> Option<f64> {
        let (first, last, seconds) = self.span()?;
        let done = last.steps.saturating_sub(first.steps);
        let left = self.steps_max?.saturating_sub(self.steps);
        (done > 0).then(|| left as f64 * seconds / done as f64)
    }

    /// Everything in one line: `step 120/560 · epoch 3 · objective 0.1234 · 45.6 k rows/s · at most 3.2 s left`.
    #[must_use]
    pub fn line(&self) -> String {
        if let Some(waiting) = &self.waiting {
            return waiting.clone();
        }
        let mut parts = vec![match self.steps_max {
            Some(max) => format!("step {}/{max}", self.steps()),
            None => format!("step {}", self.steps()),
        }];
        parts.push(format!("epoch {}", self.epoch));
        parts.extend(self.pace());
        parts.join(" · ")
    }

    /// Objective, speed and time left, as far as they are known.
    #[must_use]
    pub fn pace(&self) -> Vec<String> {
        let objective = self.objective.map(|it| format!("objective {}", figures::number(it)));
        let speed = self.samples_per_second().map(|it| format!("{} rows/s", figures::rate(it)));
        let left = self.seconds_left().map(|it| format!("at most {} left", figures::duration(it)));
        [objective, speed, left].into_iter().flatten().collect()
    }

    fn note(&mut self, moment: Moment) {
        self.waiting = None;
        self.steps = moment.steps;
        // A restart of the clock (loading is over) makes older moments meaningless.
        if self.moments.back().is_some_and(|last| last.seconds > moment.seconds) {
            self.moments.clear();
        }
        self.moments.push_back(moment);
        let old = |first: &Moment| moment.seconds - first.seconds > WINDOW_SECONDS;
        while self.moments.len() > MOMENTS_MAX
            || (self.moments.len() > 2 && self.moments.front().is_some_and(old))
        {
            self.moments.pop_front();
        }
    }

    fn span(&self) -> Option<(Moment, Moment, f64)> {
        let (first, last) = (*self.moments.front()?, *self.moments.back()?);
        let seconds = last.seconds - first.seconds;
        (seconds > 0.0).then_some((first, last, seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::from_line;

    fn after(lines: &[&str]) -> Progress {
        let mut progress = Progress::new();
        lines.iter().for_each(|line| progress.on(&from_line(line).unwrap()));
        progress
    }

    const START: &str = r#"{"event":"start","job":"1","learner":"k-means","workers":2,"launcher":"threads",
        "plan":"data-parallel","topology":"ring","consistency":"bsp","codec":"raw","seed":1,"rows":1000,
        "features":4,"steps_max":100}"#;

    fn step(step: u64, samples: u64, seconds: f64) -> String {
        format!(
            r#"{{"event":"step","step":{step},"epoch":2,"objective":0.25,"samples":{samples},"seconds":{seconds}}}"#
        )
    }

    #[test]
    fn speed_and_time_left_come_from_the_last_seconds() {
        let slow_start =
            [step(0, 100, 1.0), step(1, 200, 50.0), step(11, 1200, 55.0), step(21, 2200, 60.0)];
        let mut lines = vec![START];
        lines.extend(slow_start.iter().map(String::as_str));
        let progress = after(&lines);
        assert_eq!(progress.samples_per_second(), Some(200.0));
        assert_eq!(progress.seconds_left(), Some(39.0));
        assert_eq!(
            progress.line(),
            "step 22/100 · epoch 2 · objective 0.25 · 200 rows/s · at most 39.0 s left"
        );
    }

    #[test]
    fn nothing_is_promised_before_it_is_known() {
        let progress = after(&[START, &step(0, 100, 1.0)]);
        assert_eq!((progress.samples_per_second(), progress.seconds_left()), (None, None));
        assert_eq!(progress.line(), "step 1/100 · epoch 2 · objective 0.25");
        let waiting = after(&[r#"{"event":"waiting","have":1,"want":4}"#]);
        assert_eq!(waiting.line(), "waiting for workers: 1 of 4 are here");
        let waiting = after(&[
            r#"{"event":"waiting","have":1,"want":4,"seconds_left":59.5,"then":"the job ends"}"#,
        ]);
        assert_eq!(
            waiting.line(),
            "waiting for workers: 1 of 4 are here; unless 3 more come within 60 s, the job ends"
        );
    }

    #[test]
    fn a_resumed_run_is_not_credited_with_steps_of_the_one_before() {
        let progress = after(&[START, &step(50, 5100, 1.0), &step(60, 6100, 2.0)]);
        assert_eq!(progress.samples_per_second(), Some(1000.0));
        assert_eq!(progress.steps(), 61);
    }

    #[test]
    fn memory_is_bounded() {
        let mut progress = Progress::new();
        for at in 0..10_000 {
            progress.on(&from_line(&step(at, at, at as f64 * 1e-3)).unwrap());
        }
        assert!(progress.moments.len() <= MOMENTS_MAX);
    }
}
