//! What a worker did when, for a picture of computation and communication beside each other. Off unless the job
//! asks for it; then at most so many spans are kept, the first ones.

use starlings_core::{Span, Step};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// Spans beyond this are left out: a picture of more cannot be looked at.
const SPANS_MAX: usize = 100_000;

/// Records spans, or nothing.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Option<Arc<Mutex<Vec<Span>>>>);

impl Tracer {
    /// A tracer that records if asked to.
    #[must_use]
    pub fn new(on: bool) -> Tracer {
        Tracer(on.then(Arc::default))
    }

    /// Whether anything is recorded.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records that something began at `from` and ends now.
    pub fn ends(&self, lane: &str, name: &str, step: Step, from: u64) {
        let Some(spans) = &self.0 else { return };
        let to = microseconds();
        if let Ok(mut spans) = spans.lock()
            && spans.len() < SPANS_MAX
        {
            let (lane, name) = (lane.to_string(), name.to_string());
            spans.push(Span { lane, name, step, from, to });
        }
    }

    /// Everything recorded, in the order of beginning.
    #[must_use]
    pub fn take(&self) -> Vec<Span> {
        let Some(spans) = &self.0 else { return Vec::new() };
        let mut spans =
            spans.lock().map(|mut spans| std::mem::take(&mut *spans)).unwrap_or_default();
        spans.sort_by_key(|span| span.from);
        spans
    }
}

/// The host's clock: hosts of one flock agree as well as their clocks do.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "spans of several processes need one clock")]
pub fn microseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as u64
}
