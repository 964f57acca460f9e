//! Where a run's events go: lines of JSON on standard output, a progress bar on a terminal, or plain lines in
//! a log. People's progress goes to standard error, so that standard output holds results only.

use crate::output::{complain, say};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use starlings::observe::{Plain, Progress, chrome_trace, remark, to_line};
use starlings::{Event, Observer, Seat, Span};
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Shows a run's events.
pub(crate) struct Screen {
    kind: Mutex<Kind>,
    traces: Mutex<Vec<(Seat, Vec<Span>)>>,
}

enum Kind {
    Json,
    Bar(ProgressBar, Progress),
    Lines(Plain),
}

impl Screen {
    /// Lines of JSON, or whatever suits standard error.
    pub(crate) fn new(json: bool) -> Screen {
        let kind = match json {
            true => Kind::Json,
            false if std::io::stderr().is_terminal() => Kind::Bar(spinner(), Progress::new()),
            false => Kind::Lines(Plain::new()),
        };
        Screen { kind: Mutex::new(kind), traces: Mutex::default() }
    }

    /// What the workers did when, as far as they have told.
    pub(crate) fn trace(&self) -> String {
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        traces.sort_by_key(|(rank, _)| *rank);
        chrome_trace(&traces)
    }

    /// Takes the bar away: what follows is a result or a fault.
    pub(crate) fn clear(&self) {
        if let Kind::Bar(bar, _) = &*self.kind.lock().unwrap_or_else(PoisonError::into_inner) {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Screen {
    fn on(&self, event: Event) {
        // A trace goes to its file, not to the screen.
        if let Event::Trace { rank, spans } = event {
            let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
            return traces.push((rank, spans));
        }
        match &mut *self.kind.lock().unwrap_or_else(PoisonError::into_inner) {
            // A standard output that cannot be written must not end the training: the model is worth more.
            Kind::Json => drop(say(&(to_line(&event) + "\n"))),
            Kind::Lines(plain) => {
                if let Some(line) = plain.on(&event) {
                    complain(&line);
                }
            }
            Kind::Bar(bar, progress) => show(bar, progress, &event),
        }
    }
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    bar.set_style(style("{spinner} {elapsed} {msg}"));
    bar.set_message("reading the data");
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

fn show(bar: &ProgressBar, progress: &mut Progress, event: &Event) {
    progress.on(event);
    match event {
        Event::Start { steps_max, .. } => {
            if let Some(steps) = steps_max {
                bar.set_length(*steps);
                bar.set_style(style("{elapsed} {bar:24.green} {pos}/{len} {msg}"));
            }
            bar.set_message("starting");
            bar.println(remark(event).unwrap_or_default());
        }
        // Where workers sit is worth a line only when something goes wrong, and then the fault tells it.
        Event::Worker { .. } | Event::Trace { .. } | Event::Report(_) => {}
        Event::Waiting { .. } => bar.set_message(progress.line()),
        Event::Fault(_)
        | Event::Regrouped { .. }
        | Event::Dealt { .. }
        | Event::Checkpoint { .. }
        | Event::Fold { .. } => bar.println(remark(event).unwrap_or_default()),
        Event::Step { .. } | Event::Epoch { .. } => {
            bar.set_position(progress.steps());
            let text = match progress.steps_max() {
                Some(_) => progress.pace().join(" · "),
                None => progress.line(),
            };
            bar.set_message(text);
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is a constant and well-formed")
}
