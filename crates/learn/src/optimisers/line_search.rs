//! A line search for the strong Wolfe conditions (Nocedal and Wright, "Numerical optimization", 2006,
//! algorithms 3.5 and 3.6), turned inside out: it is told the value and the slope at the step length it
//! asked for, and answers with the next one. Each probe can then be one exchange of the flock.
//!
//! Near the optimum the differences of values drown in rounding while slopes do not: there the
//! approximate conditions of Hager and Zhang (2005) decide.

/// Sufficient decrease: this share of what the first slope promises.
const DECREASE: f64 = 1e-4;
/// Sufficient flatness: this share of the first slope may remain.
const FLATNESS: f64 = 0.9;
/// Where values differ by no more than this share, slopes decide.
const ROUNDING: f64 = 1e-10;
/// More probes than this only meet rounding.
const PROBES_MAX: u32 = 20;

/// Value and slope at a step length.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Probe {
    pub(crate) length: f64,
    pub(crate) value: f64,
    pub(crate) slope: f64,
}

/// A search between two probes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Search {
    /// Value and slope at length zero.
    start: Probe,
    /// The best end of the interval; before one is found, the last probe.
    low: Probe,
    /// The other end of the interval, once there is one.
    high: Option<Probe>,
    /// The length to evaluate next.
    next: f64,
    probes: u32,
    /// The next probe is taken as it is: the search has come back to its best.
    settle: bool,
}

/// What the search wants.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Verdict {
    /// The probe will do.
    Accept,
    /// Evaluate at [`Search::length`].
    Probe,
    /// No length gives a decrease that can be told from rounding.
    Stuck,
}

impl Search {
    /// A search that first wants the value at `length`. The slope must be negative.
    pub(crate) fn new(value: f64, slope: f64, length: f64) -> Search {
        let start = Probe { length: 0.0, value, slope };
        Search { start, low: start, high: None, next: length, probes: 0, settle: false }
    }

    /// The step length to evaluate.
    pub(crate) fn length(&self) -> f64 {
        self.next
    }

    /// The next probe, at the same length as the last, is taken as it is.
    pub(crate) fn settle_here(&mut self) {
        self.settle = true;
    }

    /// Takes the value and the slope at [`length`](Search::length).
    pub(crate) fn tell(&mut self, value: f64, slope: f64) -> Verdict {
        let probe = Probe { length: self.next, value, slope };
        self.probes += 1;
        let finite = value.is_finite() && slope.is_finite();
        if finite && (self.settle || self.satisfies(probe)) {
            return Verdict::Accept;
        }
        if self.settle {
            return Verdict::Stuck;
        }
        self.narrow(probe, finite);
        self.next = match self.high {
            None => extrapolated(self.start, self.low),
            Some(high) => interpolated(self.low, high),
        };
        let exhausted = self.probes >= PROBES_MAX || self.next == self.low.length;
        if !exhausted {
            return Verdict::Probe;
        }
        if self.low.value < self.start.value {
            self.next = self.low.length;
            self.settle = true;
            return Verdict::Probe;
        }
        Verdict::Stuck
    }

    /// Moves the ends of the interval: it always contains a length that will do.
    fn narrow(&mut self, probe: Probe, finite: bool) {
        let too_far = !finite || !self.decreases(probe) || probe.value >= self.low.value;
        match self.high {
            _ if too_far => self.high = Some(probe),
            None if probe.slope >= 0.0 => (self.high, self.low) = (Some(self.low), probe),
            None => self.low = probe,
            Some(high) => {
                if probe.slope * (high.length - self.low.length) >= 0.0 {
                    self.high = Some(self.low);
                }
                self.low = probe;
            }
        }
    }

    fn decreases(&self, probe: Probe) -> bool {
        probe.value <= self.start.value + DECREASE * probe.length * self.start.slope
    }

    fn satisfies(&self, probe: Probe) -> bool {
        let wolfe = self.decreases(probe) && probe.slope.abs() <= -FLATNESS * self.start.slope;
        let difference = (probe.value - self.start.value).abs();
        let approximate = difference <= ROUNDING * self.start.value.abs()
            && probe.slope >= FLATNESS * self.start.slope
            && probe.slope <= (2.0 * DECREASE - 1.0) * self.start.slope;
        wolfe || approximate
    }

    /// As numbers, for the model.
    pub(crate) fn to_numbers(self) -> [f64; NUMBERS] {
        let high = self.high.unwrap_or_default();
        [
            self.start.value,
            self.start.slope,
            self.low.length,
            self.low.value,
            self.low.slope,
            high.length,
            high.value,
            high.slope,
            f64::from(u8::from(self.high.is_some())),
            self.next,
            f64::from(self.probes),
            f64::from(u8::from(self.settle)),
        ]
    }

    /// From the numbers that [`to_numbers`](Search::to_numbers) gave.
    pub(crate) fn from_numbers(numbers: &[f64]) -> Search {
        let probe = |at: usize| Probe {
            length: numbers[at],
            value: numbers[at + 1],
            slope: numbers[at + 2],
        };
        Search {
            start: Probe { length: 0.0, value: numbers[0], slope: numbers[1] },
            low: probe(2),
            high: (numbers[8] != 0.0).then(|| probe(5)),
            next: numbers[9],
            probes: numbers[10] as u32,
            settle: numbers[11] != 0.0,
        }
    }
}

/// How many numbers a search is.
pub(crate) const NUMBERS: usize = 12;

/// A longer step: where the slope would reach zero if it kept changing as it did, within reason.
fn extrapolated(start: Probe, last: Probe) -> f64 {
    let secant = last.length * start.slope / (start.slope - last.slope);
    let bends_up = secant.is_finite() && secant > 0.0;
    if bends_up { secant.clamp(2.0 * last.length, 10.0 * last.length) } else { 10.0 * last.length }
}

/// The minimum of the cubic through both ends, kept a tenth away from them; the middle if there is none.
fn interpolated(low: Probe, high: Probe) -> f64 {
    let width = high.length - low.length;
    let middle = low.length + 0.5 * width;
    let bend = low.slope + high.slope - 3.0 * (high.value - low.value) / width;
    let root = (bend * bend - low.slope * high.slope).sqrt() * width.signum();
    let cubic =
        high.length - width * (high.slope + root - bend) / (high.slope - low.slope + 2.0 * root);
    if !cubic.is_finite() {
        return middle;
    }
    let (near, far) = (low.length + 0.1 * width, low.length + 0.9 * width);
    cubic.clamp(near.min(far), near.max(far))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(f: impl Fn(f64) -> (f64, f64), first: f64) -> (f64, u32) {
        let (value, slope) = f(0.0);
        let mut search = Search::new(value, slope, first);
        loop {
            // Through numbers and back each time: a checkpoint between probes must change nothing.
            search = Search::from_numbers(&search.to_numbers());
            let (value, slope) = f(search.length());
            match search.tell(value, slope) {
                Verdict::Accept => return (search.length(), search.probes),
                Verdict::Probe => {}
                Verdict::Stuck => panic!("stuck at {search:?}"),
            }
        }
    }

    #[test]
    fn accepted_lengths_satisfy_the_wolfe_conditions_from_any_first_guess() {
        // The three test functions of Moré and Thuente (1994), table 1 and 2, and a steep wall.
        let functions: [fn(f64) -> (f64, f64); 4] = [
            |x| (-x / (x * x + 2.0), (x * x - 2.0) / (x * x + 2.0).powi(2)),
            |x| {
                (
                    (x + 0.004).powi(5) - 2.0 * (x + 0.004).powi(4),
                    5.0 * (x + 0.004).powi(4) - 8.0 * (x + 0.004).powi(3),
                )
            },
            |x| ((x - 3.0).powi(2), 2.0 * (x - 3.0)),
            |x| (-x + (x - 1.0).exp(), -1.0 + (x - 1.0).exp()),
        ];
        for (which, f) in functions.iter().enumerate() {
            for first in [1e-3, 0.1, 1.0, 10.0, 1e3] {
                let (length, probes) = search(f, first);
                let ((v0, s0), (v, s)) = (f(0.0), f(length));
                assert!(v <= v0 + 1e-4 * length * s0, "function {which} from {first}: {length}");
                assert!(s.abs() <= 0.9 * s0.abs(), "function {which} from {first}: {length}");
                assert!(probes <= 15, "function {which} from {first}: {probes} probes");
            }
        }
    }

    #[test]
    fn a_value_that_is_not_finite_shortens_the_step() {
        let f = |x: f64| {
            if x > 1.0 { (f64::NAN, f64::NAN) } else { ((x - 0.5).powi(2), 2.0 * (x - 0.5)) }
        };
        let (length, _) = search(f, 100.0);
        assert!(length < 1.0);
    }

    #[test]
    fn a_direction_that_only_climbs_is_given_up() {
        let mut search = Search::new(1.0, -1e-30, 1.0);
        let verdict = (0..100).map(|_| search.tell(2.0, 1.0)).find(|v| *v != Verdict::Probe);
        assert_eq!(verdict, Some(Verdict::Stuck));
    }
}
