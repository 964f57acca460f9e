//! Spans as a trace that Chrome (`chrome://tracing`) and Perfetto show: one process a worker, in it one lane for
//! what it computes and waits for, and one for what travels beside it.

use crate::overlap::{Overlap, overlap};
use serde_json::{Value, json};
use starlings_core::{Seat, Span};

/// The trace of all workers, as the JSON of Chrome's trace event format.
#[must_use]
pub fn chrome_trace(workers: &[(Seat, Vec<Span>)]) -> String {
    let begin = workers.iter().flat_map(|(_, spans)| spans).map(|span| span.from).min();
    let begin = begin.unwrap_or(0);
    let mut events = Vec::new();
    for (rank, spans) in workers {
        let process = rank.0;
        events.push(json!({"ph": "M", "name": "process_name", "pid": process,
            "args": {"name": format!("rank {process}")}}));
        for (lane, name) in LANES.iter().enumerate() {
            events.push(json!({"ph": "M", "name": "thread_name", "pid": process, "tid": lane,
                "args": {"name": name}}));
        }
        events.extend(spans.iter().map(|span| event(process, span, begin)));
    }
    // How much was hidden, for whoever does not want to measure it on the picture.
    let Overlap { computation, communication, both, share } = overlap(workers);
    let hidden = json!({"computation": computation, "communication": communication, "both": both,
        "share": share});
    json!({"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"overlap": hidden}})
        .to_string()
}

const LANES: [&str; 2] = ["work", "wire"];

fn event(process: u32, span: &Span, begin: u64) -> Value {
    let lane = LANES.iter().position(|lane| *lane == span.lane).unwrap_or(LANES.len());
    json!({
        "ph": "X",
        "name": span.name,
        "cat": span.lane,
        "pid": process,
        "tid": lane,
        "ts": span.from - begin,
        "dur": span.to.saturating_sub(span.from),
        "args": {"step": span.step.0},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Step;

    #[test]
    fn spans_are_complete_events_in_their_workers_lanes() {
        let span = |lane: &str, from, to| Span {
            lane: lane.to_string(),
            name: "computation".to_string(),
            step: Step(3),
            from,
            to,
        };
        let text = chrome_trace(&[(Seat(1), vec![span("work", 100, 150), span("wire", 120, 130)])]);
        let trace: Value = serde_json::from_str(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let spans: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!(spans.len(), 2);
        assert_eq!((&spans[0]["ts"], &spans[0]["dur"]), (&json!(0), &json!(50)));
        assert_eq!((&spans[1]["pid"], &spans[1]["tid"]), (&json!(1), &json!(1)));
        assert_eq!(trace["otherData"]["overlap"]["computation"], json!(50));
    }
}
