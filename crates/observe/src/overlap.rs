//! How much of what travels is hidden behind what is computed, as a trace shows it: the point of wait-free back-propagation
//! (Zhang et al., "Poseidon", 2017). A worker computes in spans of the lane `work`; numbers travel while a bucket is summed
//! in the lane `wire`, and while the worker itself merges.

use starlings_core::{Seat, Span};

/// What a worker does between `contribute` and the next step.
const MERGE: &str = "the merge";
const COMPUTATION: &str = "computation";
/// What a courier does beside it.
const BUCKET: &str = "sum of a bucket";

/// Microseconds of all workers together.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Overlap {
    /// Computing.
    pub computation: u64,
    /// Something travels.
    pub communication: u64,
    /// Both at once.
    pub both: u64,
    /// `both` as a share of the lesser of the two: 1 is all that could be.
    pub share: f64,
}

/// The overlap of a trace.
#[must_use]
pub fn overlap(workers: &[(Seat, Vec<Span>)]) -> Overlap {
    let mut sums = Overlap::default();
    for (_, spans) in workers {
        let of = |wanted: &dyn Fn(&Span) -> bool| {
            union(spans.iter().filter(|span| wanted(span)).map(|span| (span.from, span.to)))
        };
        let computed = of(&|span| span.lane == "work" && span.name == COMPUTATION);
        let travelled = of(&|span| {
            (span.lane == "wire" && span.name == BUCKET)
                || (span.lane == "work" && span.name == MERGE)
        });
        sums.computation += length(&computed);
        sums.communication += length(&travelled);
        sums.both += length(&common(&computed, &travelled));
    }
    let lesser = sums.computation.min(sums.communication);
    sums.share = if lesser == 0 { 0.0 } else { sums.both as f64 / lesser as f64 };
    sums
}

type Times = Vec<(u64, u64)>;

/// Times without overlaps among themselves, in order.
fn union(times: impl Iterator<Item = (u64, u64)>) -> Times {
    let mut times: Times = times.collect();
    times.sort_unstable();
    let mut joined: Times = Vec::with_capacity(times.len());
    for (from, to) in times {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// Times that are in both.
fn common(a: &Times, b: &Times) -> Times {
    let (mut at, mut found) = ((0, 0), Vec::new());
    while let (Some(&(from_a, to_a)), Some(&(from_b, to_b))) = (a.get(at.0), b.get(at.1)) {
        let (from, to) = (from_a.max(from_b), to_a.min(to_b));
        found.extend((from < to).then_some((from, to)));
        if to_a < to_b { at.0 += 1 } else { at.1 += 1 }
    }
    found
}

fn length(times: &Times) -> u64 {
    times.iter().map(|(from, to)| to.saturating_sub(*from)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Step;

    fn span(lane: &str, name: &str, from: u64, to: u64) -> Span {
        Span { lane: lane.to_string(), name: name.to_string(), step: Step(0), from, to }
    }

    #[test]
    fn both_at_once_is_counted_once() {
        let spans = vec![
            span("work", "computation", 0, 100),
            span("work", "the merge", 100, 130),
            span("work", "the gate", 130, 140),
            span("work", "computation", 140, 200),
            // Two buckets at once, the second until after the computation; and how long sending them took.
            span("wire", "sum of a bucket", 40, 80),
            span("wire", "sum of a bucket", 60, 120),
            span("wire", "send", 0, 200),
        ];
        let found = overlap(&[(Seat(0), spans.clone()), (Seat(1), spans)]);
        assert_eq!((found.computation, found.communication, found.both), (320, 180, 120));
        assert!((found.share - 120.0 / 180.0).abs() < 1e-12);
    }

    #[test]
    fn a_worker_alone_has_none() {
        let found = overlap(&[(Seat(0), vec![span("work", "computation", 5, 9)])]);
        assert_eq!((found.both, found.share), (0, 0.0));
    }
}
