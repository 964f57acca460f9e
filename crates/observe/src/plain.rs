//! Lines for people whose output is not a terminal: a log file, a scheduler, a pipe. At most about one
//! progress line a second, everything else as it comes.

use crate::summary::metrics;
use crate::{Progress, figures};
use starlings_core::{Event, FaultReport};

const GAP_SECONDS: f64 = 1.0;

/// Turns events into lines.
#[derive(Clone, Debug, Default)]
pub struct Plain {
    progress: Progress,
    told: Option<f64>,
}

impl Plain {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new() -> Plain {
        Plain::default()
    }

    /// The line an event is worth, if any.
    pub fn on(&mut self, event: &Event) -> Option<String> {
        self.progress.on(event);
        match event {
            Event::Epoch { epoch, seconds, objective, .. } => {
                let due =
                    self.told.is_none_or(|told| !(0.0..GAP_SECONDS).contains(&(seconds - told)));
                due.then(|| {
                    self.told = Some(*seconds);
                    let mut parts = vec![format!("epoch {epoch}")];
                    parts.extend(objective.map(|it| format!("objective {}", figures::number(it))));
                    parts.push(format!("after {}", figures::duration(*seconds)));
                    parts.extend(
                        self.progress.pace().into_iter().filter(|it| !it.starts_with("obj")),
                    );
                    parts.join(" · ")
                })
            }
            Event::Step { seconds, .. } => {
                let gap = seconds - self.told.unwrap_or(0.0);
                (!(0.0..2.0 * GAP_SECONDS).contains(&gap)).then(|| {
                    self.told = Some(*seconds);
                    self.progress.line()
                })
            }
            other => remark(other),
        }
    }
}

/// The line of an event that is not mere progress.
#[must_use]
pub fn remark(event: &Event) -> Option<String> {
    match event {
        Event::Waiting { have, want, seconds_left, then } => {
            let missing = want.saturating_sub(*have);
            let come = if missing == 1 { "comes" } else { "come" };
            let until = seconds_left.map_or(String::new(), |seconds| {
                format!("; unless {missing} more {come} within {} s, {then}", seconds.ceil())
            });
            Some(format!("waiting for workers: {have} of {want} are here{until}"))
        }
        Event::Start { learner, workers, launcher, rows, features, .. } => Some(format!(
            "{learner} on {} rows of {} features · {workers} {} ({launcher}) · {}",
            figures::count(*rows),
            figures::count(*features),
            if *workers == 1 { "worker" } else { "workers" },
            words(event)
        )),
        Event::Worker { rank, pid, host, rows } => {
            Some(format!("{rank} is process {pid} on {host} with {} rows", figures::count(*rows)))
        }
        Event::Fault(fault) => Some(format!("fault: {}", fault_line(fault))),
        Event::Regrouped { workers, step, completion, .. } => Some(format!(
            "{workers} {} on with {step} ({completion})",
            if *workers == 1 { "worker goes" } else { "workers go" }
        )),
        Event::Dealt { step, holders } => {
            let last = holders.iter().max().map_or(0, |rank| rank + 1);
            let count = |rank| holders.iter().filter(|holder| **holder == rank).count().to_string();
            let counts: Vec<String> = (0..last).map(count).collect();
            Some(format!("from {step} on shards are dealt by speed: {}", counts.join(", ")))
        }
        Event::Checkpoint { step, path, bytes } => {
            Some(format!("checkpoint after {} steps: {path} ({})", step.0, figures::bytes(*bytes)))
        }
        Event::Fold { fold, folds, found } => Some(format!(
            "fold {} of {folds} held out ({} rows): {}",
            fold + 1,
            figures::count(found.rows),
            metrics(&found.metrics)
        )),
        Event::Step { .. } | Event::Epoch { .. } | Event::Trace { .. } | Event::Report(_) => None,
    }
}

fn words(event: &Event) -> String {
    match event {
        Event::Start { plan, topology, consistency, codec, .. } => {
            [plan, topology, consistency, codec].map(String::as_str).join(" × ")
        }
        _ => String::new(),
    }
}

/// A fault in one line: who, where, in which phase, and who says so.
fn fault_line(fault: &FaultReport) -> String {
    let who = match (&fault.rank, &fault.host) {
        (Some(rank), Some(host)) => format!("{rank} on {host}"),
        (Some(rank), None) => rank.to_string(),
        _ => String::new(),
    };
    // What the coordinator tells of a loss begins with who was lost.
    let is_named = who.is_empty() || fault.message.starts_with(&format!("{who} "));
    let who = if is_named { String::new() } else { format!("{who}: ") };
    let seen = fault.seen_by.filter(|seen| Some(*seen) != fault.rank);
    let seen = seen.map(|seen| format!(" (seen by {seen})")).unwrap_or_default();
    format!("{who}{}{seen}", fault.message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::from_line;

    #[test]
    fn epochs_are_told_at_most_once_a_second() {
        let mut plain = Plain::new();
        let mut told = 0;
        for epoch in 0..100 {
            let seconds = epoch as f64 * 0.1;
            let line = format!(
                r#"{{"event":"epoch","epoch":{epoch},"step":{epoch},"objective":0.5,"seconds":{seconds}}}"#
            );
            told += usize::from(plain.on(&from_line(&line).unwrap()).is_some());
        }
        assert!((9..=11).contains(&told), "{told} lines in ten seconds");
    }

    #[test]
    fn a_fault_says_who_where_and_who_saw_it() {
        let line = r#"{"event":"fault","rank":2,"host":"b","phase":"merge","step":7,"seen_by":0,
            "message":"merge of step 7: the link closed"}"#;
        let told = Plain::new().on(&from_line(line).unwrap()).unwrap();
        assert_eq!(told, "fault: rank 2 on b: merge of step 7: the link closed (seen by rank 0)");
        let loss = "rank 2 on b (process 9) was lost in step 7, the merge: its connection closed";
        let line = line.replace("merge of step 7: the link closed", loss);
        let told = Plain::new().on(&from_line(&line).unwrap()).unwrap();
        assert_eq!(told, format!("fault: {loss} (seen by rank 0)"));
    }

    #[test]
    fn the_first_line_tells_all_five_words() {
        let line = r#"{"event":"start","job":"1","learner":"k-means","workers":4,"launcher":"threads",
            "plan":"data-parallel","topology":"ring","consistency":"bsp","codec":"raw","seed":1,
            "rows":1000000,"features":4,"steps_max":null}"#;
        assert_eq!(
            Plain::new().on(&from_line(line).unwrap()).unwrap(),
            "k-means on 1,000,000 rows of 4 features · 4 workers (threads) · data-parallel × ring × bsp × raw"
        );
    }
}
