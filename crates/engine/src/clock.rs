//! The clock of one worker: times the run, knows the phase it is in, and tells observers. Step events come
//! at most twenty times a second, and only from seat 0, which speaks for all under a barrier.

use crate::trace::{Tracer, microseconds};
use crate::walk::Walk;
use starlings_core::{Event, Fault, Pace, Seat, Step};
use starlings_learn::Outcome;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Whoever wants to know what happens.
pub trait Observer: Send + Sync {
    /// Takes an event. Must not block for long.
    fn on(&self, event: Event);
}

impl<F: Fn(Event) + Send + Sync> Observer for F {
    fn on(&self, event: Event) {
        self(event);
    }
}

/// Where a worker is at the moment; shared with whatever reports its heartbeat.
#[derive(Clone, Default)]
pub struct Whereabouts {
    place: Arc<Mutex<(String, Step)>>,
    bytes: Arc<AtomicU64>,
    first: Arc<Mutex<Option<First>>>,
}

/// Called with the first phase of the first step.
type First = Box<dyn FnOnce(String, Step) + Send>;

impl Whereabouts {
    /// The first phase is told at once, before anything of that step can reach a peer: whoever dies then is not taken
    /// for one that never began.
    pub(crate) fn at_first(&self, tell: impl FnOnce(String, Step) + Send + 'static) {
        if let Ok(mut first) = self.first.lock() {
            *first = Some(Box::new(tell));
        }
    }

    /// The phase and the step.
    #[must_use]
    pub fn get(&self) -> (String, Step) {
        self.place.lock().map(|inner| inner.clone()).unwrap_or_default()
    }

    /// Whether that is waiting for others.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.place.lock().map_or(true, |inner| inner.0 != COMPUTATION)
    }

    /// Bytes sent so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// So many bytes have been sent so far.
    pub fn sent(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// From now on it is here.
    pub(crate) fn set(&self, phase: &str, step: Step) {
        if let Ok(mut inner) = self.place.lock() {
            phase.clone_into(&mut inner.0);
            inner.1 = step;
        }
        let first = self.first.lock().ok().and_then(|mut first| first.take());
        if let Some(tell) = first {
            tell(phase.to_string(), step);
        }
    }
}

/// Waiting to be admitted to a step.
pub const GATE: &str = "the gate";
/// Computing a contribution.
pub const COMPUTATION: &str = "computation";
/// Exchanging it.
pub const MERGE: &str = "the merge";

const STEP_EVENTS_GAP: Duration = Duration::from_millis(50);

/// Times a worker's run and tells of it.
pub struct Clock {
    seat: Seat,
    observer: Arc<dyn Observer>,
    whereabouts: Whereabouts,
    begun: Instant,
    told: Option<Instant>,
    pass_sum: f64,
    pass_count: u64,
    iterations: u64,
    tracer: Tracer,
    /// The phase under way, since when, and what others took.
    phase: Option<(&'static str, Step, Instant, u64)>,
    spent: BTreeMap<&'static str, f64>,
    /// Seconds of the last computation.
    computation: f64,
    /// What happened in the last step: told when the next is done, for only then do all others have it, too.
    held: Vec<Event>,
    /// The counts of the pass before that step.
    before: (f64, u64, u64),
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start(
        seat: Seat,
        observer: Arc<dyn Observer>,
        whereabouts: Whereabouts,
        tracer: Tracer,
    ) -> Clock {
        Clock {
            seat,
            observer,
            whereabouts,
            begun: now(),
            told: None,
            pass_sum: 0.0,
            pass_count: 0,
            iterations: 0,
            tracer,
            phase: None,
            spent: BTreeMap::new(),
            computation: 0.0,
            held: Vec::new(),
            before: (0.0, 0, 0),
        }
    }

    /// The last step is taken again: nothing is told of it yet.
    pub fn take_back(&mut self) {
        self.held.clear();
        (self.pass_sum, self.pass_count, self.iterations) = self.before;
    }

    /// So many bytes have been sent so far.
    pub fn sent(&self, bytes: u64) {
        self.whereabouts.sent(bytes);
    }

    /// This worker has another seat.
    pub fn sit(&mut self, seat: Seat) {
        self.seat = seat;
    }

    /// Tells what was held back: everyone has the last step.
    pub fn committed(&mut self) {
        for event in std::mem::take(&mut self.held) {
            self.tell(event);
        }
    }

    /// Forgets what was held back: this worker has gone back to an earlier step.
    pub fn forget(&mut self) {
        self.held.clear();
        (self.pass_sum, self.pass_count, self.iterations) = (0.0, 0, 0);
    }

    /// Starts anew: loading is over, training begins.
    pub fn restart(&mut self) {
        self.begun = now();
        self.spent.clear();
    }

    /// Seconds since the start.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        (now() - self.begun).as_secs_f64()
    }

    /// A new phase of a step.
    pub fn enter(&mut self, phase: &'static str, step: Step) {
        let now = now();
        if let Some((before, step, since, from)) = self.phase.take() {
            let seconds = (now - since).as_secs_f64();
            *self.spent.entry(before).or_default() += seconds;
            if before == COMPUTATION {
                self.computation = seconds;
            }
            self.tracer.ends("work", before, step, from);
        }
        let from = if self.tracer.is_on() { microseconds() } else { 0 };
        self.phase = Some((phase, step, now, from));
        self.whereabouts.set(phase, step);
    }

    /// Seconds of the last computation that is over.
    #[must_use]
    pub fn last_computation(&self) -> f64 {
        self.computation
    }

    /// How long this worker has spent on what.
    #[must_use]
    pub fn pace(&self) -> Pace {
        let spent = |phase: &str| self.spent.get(phase).copied().unwrap_or(0.0);
        Pace {
            rank: self.seat,
            computation: spent(COMPUTATION),
            gate: spent(GATE),
            merge: spent(MERGE),
        }
    }

    /// Says in a fault what was being done.
    #[must_use]
    pub fn during(&self, fault: Fault) -> Fault {
        let (phase, step) = self.whereabouts.get();
        fault.during(format!("{phase} of {step}"))
    }

    /// Tells an event.
    pub fn tell(&self, event: Event) {
        self.observer.on(event);
    }

    /// Checkpoints are complete (on seat 0; others have nothing to tell).
    pub fn kept(&self, events: Vec<Event>) {
        events.into_iter().for_each(|event| self.tell(event));
    }

    /// A step is done.
    pub fn step_done(&mut self, walk: &Walk, outcome: &Outcome) {
        self.committed();
        if self.seat != Seat(0) {
            return;
        }
        self.before = (self.pass_sum, self.pass_count, self.iterations);
        if let Some(objective) = outcome.objective {
            self.pass_sum += objective;
            self.pass_count += 1;
        }
        let last = walk.next_step().is_none();
        let at = now();
        if last || self.told.is_none_or(|told| at - told >= STEP_EVENTS_GAP) {
            self.told = Some(at);
            self.held.push(Event::Step {
                step: Step(walk.steps() - 1),
                epoch: walk.passes(),
                objective: outcome.objective,
                samples: walk.samples(),
                seconds: self.seconds(),
            });
        }
        let complete = match outcome.iterations {
            // Learners that count their own iterations may need several steps for one.
            Some(iterations) => iterations > self.iterations,
            None => walk.pass_complete(),
        };
        if complete || (last && outcome.iterations.is_none()) {
            self.iterations = walk.passes();
            self.pass_done(walk, outcome);
        }
    }

    fn pass_done(&mut self, walk: &Walk, outcome: &Outcome) {
        let mean = (self.pass_count > 0).then(|| self.pass_sum / self.pass_count as f64);
        let objective = if outcome.iterations.is_some() { outcome.objective } else { mean };
        (self.pass_sum, self.pass_count) = (0.0, 0);
        self.held.push(Event::Epoch {
            epoch: walk.passes().saturating_sub(1),
            step: Step(walk.steps()),
            objective,
            seconds: self.seconds(),
        });
    }
}

#[expect(clippy::disallowed_methods, reason = "the engine's own stopwatch")]
fn now() -> Instant {
    Instant::now()
}

/// Seconds of processor time that this process has used.
#[must_use]
pub fn process_cpu_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 * 1e-9
}
