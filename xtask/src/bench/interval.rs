//! What turns say of the median behind them: an interval by the sign test, which asks nothing of how their noise is
//! distributed, and a verdict that a goal is met, missed, or that there were too few turns or too much noise to tell.
//! Thompson (1936), On confidence ranges for the median and other expectation distributions.

use super::turns::median;

/// How likely the interval holds the median, at least.
const CONFIDENCE: f64 = 0.95;

/// The median of some turns, and between which of them the true one lies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Interval {
    pub(super) low: f64,
    pub(super) middle: f64,
    pub(super) high: f64,
}

impl Interval {
    /// With fewer than six turns none is that likely: the interval is then all numbers.
    pub(super) fn of_median(values: &[f64]) -> Interval {
        let middle = median(values.to_vec());
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        match left_out(values.len()) {
            Some(out) => {
                Interval { low: values[out], middle, high: values[values.len() - 1 - out] }
            }
            None => Interval { low: f64::NEG_INFINITY, middle, high: f64::INFINITY },
        }
    }

    /// Whether what should be below a goal is.
    pub(super) fn below(&self, goal: f64) -> Verdict {
        match self {
            Interval { high, .. } if *high < goal => Verdict::Yes,
            Interval { low, .. } if *low > goal => Verdict::No,
            _ => Verdict::Undecided,
        }
    }
}

/// What a measurement says of its goal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Yes,
    No,
    Undecided,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Verdict::Yes => "yes",
            Verdict::No => "no",
            Verdict::Undecided => "undecided",
        }
    }
}

/// How many of the sorted values may be left out at either end: as long as so few on one side of the median are less
/// likely than half of what may go wrong.
fn left_out(count: usize) -> Option<usize> {
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let (mut probability, mut cumulated) = (0.5_f64.powi(i32::try_from(count).ok()?), 0.0);
    let mut out = None;
    for at in 0..count / 2 {
        cumulated += probability;
        if cumulated > tail {
            break;
        }
        out = Some(at);
        probability *= (count - at) as f64 / (at + 1) as f64;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_left_out_as_the_tables_of_the_sign_test_say() {
        let table = [(1, None), (5, None), (6, Some(0)), (8, Some(0)), (9, Some(1)), (12, Some(2))];
        for (count, out) in table.into_iter().chain([(15, Some(3)), (20, Some(5)), (25, Some(7))]) {
            assert_eq!(left_out(count), out, "{count} turns");
        }
    }

    #[test]
    fn an_interval_lies_between_turns_and_one_that_is_far_off_does_not_move_it() {
        let mut turns: Vec<f64> = (1..=12).map(f64::from).collect();
        let interval = Interval { low: 3.0, middle: 6.5, high: 10.0 };
        assert_eq!(Interval::of_median(&turns), interval);
        turns[11] = 1e9;
        turns.reverse();
        assert_eq!(Interval::of_median(&turns), interval);
    }

    #[test]
    fn a_goal_is_met_or_missed_by_the_whole_interval_or_undecided() {
        let interval = |low, high| Interval { low, middle: f64::midpoint(low, high), high };
        assert_eq!(interval(-0.02, 0.04).below(0.05), Verdict::Yes);
        assert_eq!(interval(0.06, 0.09).below(0.05), Verdict::No);
        assert_eq!(interval(0.01, 0.06).below(0.05), Verdict::Undecided);
        assert_eq!(Interval::of_median(&[0.0; 5]).below(0.05), Verdict::Undecided);
    }
}
