//! A run as lines of JSON, one event each: written while it runs, and read again later.

use starlings_core::{Event, Fault, Result};
use std::io::{BufRead, Write};

/// Longest line that is read: reports list faults, so they are not short, but nothing is a mebibyte.
const LINE_BYTES_MAX: usize = 1 << 20;

/// An event as one line, without its end.
#[must_use]
pub fn to_line(event: &Event) -> String {
    serde_json::to_string(event).expect("events are plain data with text keys")
}

/// Reads a line that [`to_line`] wrote.
///
/// # Errors
/// A line that is no event.
pub fn from_line(line: &str) -> Result<Event> {
    serde_json::from_str(line)
        .map_err(|error| Fault::caller("this line is not an event of Starlings").caused_by(error))
}

/// Writes events as they come.
pub struct Recorder<W: Write> {
    out: W,
}

impl<W: Write> Recorder<W> {
    /// Records into `out`.
    pub fn new(out: W) -> Recorder<W> {
        Recorder { out }
    }

    /// Records one event and makes it visible to whoever reads along.
    ///
    /// # Errors
    /// The writer's.
    pub fn on(&mut self, event: &Event) -> std::io::Result<()> {
        let mut line = to_line(event);
        line.push('\n');
        self.out.write_all(line.as_bytes())?;
        self.out.flush()
    }
}

/// The events of a recorded run, in order. Each line that is no event gives an error with its number.
pub fn replay(lines: impl BufRead) -> impl Iterator<Item = Result<Event>> {
    lines.split(b'\n').enumerate().map(|(at, line)| {
        let at = at + 1;
        let line = line.map_err(|error| Fault::machine(format!("line {at}")).caused_by(error))?;
        let text = std::str::from_utf8(&line).ok().filter(|text| text.len() <= LINE_BYTES_MAX);
        let text =
            text.ok_or_else(|| Fault::caller(format!("line {at} is not an event of Starlings")))?;
        from_line(text).map_err(|fault| fault.during(format!("line {at}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::{FaultReport, Report, Seat, Step};

    fn events() -> Vec<Event> {
        let fault = FaultReport {
            rank: Some(Seat(2)),
            host: Some("b".to_string()),
            phase: "merge".to_string(),
            step: Some(Step(7)),
            seen_by: None,
            message: "lost\nwith a second line".to_string(),
        };
        vec![
            Event::Waiting {
                have: 1,
                want: 2,
                seconds_left: Some(60.0),
                then: "the job ends".to_string(),
            },
            Event::Step { step: Step(3), epoch: 0, objective: None, samples: 9, seconds: 0.5 },
            Event::Fault(fault.clone()),
            Event::Checkpoint { step: Step(4), path: "x".to_string(), bytes: 10 },
            Event::Report(Box::new(Report {
                faults: vec![fault],
                objective: 0.1,
                ..Report::default()
            })),
        ]
    }

    #[test]
    fn a_recorded_run_replays_exactly() {
        let mut recorder = Recorder::new(Vec::new());
        events().iter().for_each(|event| recorder.on(event).unwrap());
        let replayed: Vec<Event> = replay(recorder.out.as_slice()).map(Result::unwrap).collect();
        assert_eq!(replayed, events());
    }

    #[test]
    fn a_broken_line_is_named_and_the_others_are_read() {
        let text = b"{\"event\":\"waiting\",\"have\":1,\"want\":2}\n{\"event\":\"wat\n\xff\n";
        let read: Vec<Result<Event>> = replay(text.as_slice()).collect();
        assert!(read[0].is_ok());
        assert!(read[1].as_ref().unwrap_err().to_string().starts_with("line 2: "));
        assert!(read[2].as_ref().unwrap_err().to_string().starts_with("line 3 "));
    }
}
