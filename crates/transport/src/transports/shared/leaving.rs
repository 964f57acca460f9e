//! What becomes of a neighbour's lines once they have been read. They stay in the reader's cache, and their owner, who
//! writes them again in the next sum, has to take them back from there. Where the two cores share no cache that can take
//! many times as long as reading did: on processors made of several dies 27 ns a line, whatever is asked for ahead,
//! for reading 3 ns. A reader who lets lines go (writes them back and out of all caches) pays some 3 ns a line instead.
//! Where cores share a cache, and for sums that are short, keeping them is cheaper.
//!
//! Which it is depends on where two workers run at the moment, and nothing tells: virtual processors move, too. So both
//! are tried now and then, and the cheaper one is used until the next trial. All seats try the same at the same time,
//! for it is one seat that reads and another that pays. Bits do not depend on it.

/// Chunks of a trial, and those at its beginning that do not count: they still write what was read in the other manner.
/// Slots are written again after a few chunks, lent vectors in the next sum or the one after it.
const TRIAL: u64 = 64;
const SETTLING: u64 = 32;
/// Chunks from one pair of trials to the next.
const PERIOD: u64 = 4096;
/// Letting go must be cheaper by this much: a tie would change its mind with every trial.
const MARGIN: f64 = 0.95;

/// One circle's way of leaving lines behind. Chunks are counted over all sums, on all seats alike.
#[derive(Clone, Default, Debug)]
pub(super) struct Leaving {
    /// What the counted chunks of the running trials took a byte, keeping lines and letting them go.
    trials: [Vec<f64>; 2],
    lets_go: bool,
}

impl Leaving {
    /// Whether lines of a chunk are let go.
    pub(super) fn lets_go(&self, chunk: u64) -> bool {
        match chunk % PERIOD / TRIAL {
            0 => false,
            1 => true,
            _ => self.lets_go,
        }
    }

    /// What a chunk took of the time that is not spent waiting, a byte, in any unit.
    pub(super) fn took(&mut self, chunk: u64, a_byte: f64) {
        let at = chunk % PERIOD;
        match self.trials.get_mut((at / TRIAL) as usize) {
            Some(trial) if at % TRIAL >= SETTLING => trial.push(a_byte),
            Some(_) => {}
            None => self.decide(),
        }
    }

    /// Compares the trials, where both have been made since the last time.
    fn decide(&mut self) {
        if self.trials.iter().all(|trial| !trial.is_empty()) {
            let [kept, let_go] = self.trials.each_mut().map(median);
            self.lets_go = let_go < MARGIN * kept;
        }
    }
}

/// The middle of what was measured: a chunk in which the core was taken away says nothing. Empties it.
fn median(times: &mut Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    let middle = times.get(times.len() / 2).copied().unwrap_or_default();
    times.clear();
    middle
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a period of chunks that take `kept` a byte where lines of the chunk three before were kept, else `let_go`; true
    /// where lines are let go in the end.
    fn settles(leaving: &mut Leaving, period: u64, (kept, let_go): (f64, f64)) -> bool {
        let first = period * PERIOD;
        for chunk in first..first + PERIOD {
            // What a chunk writes was read a while ago; now and then somebody takes the core away.
            let cost = if leaving.lets_go(chunk.saturating_sub(3)) { let_go } else { kept };
            leaving.took(chunk, if chunk % 7 == 0 { 50.0 * cost } else { cost });
        }
        leaving.lets_go(first + PERIOD - 1)
    }

    #[test]
    fn the_cheaper_manner_is_found_and_found_again_when_workers_move() {
        let mut leaving = Leaving::default();
        assert!(settles(&mut leaving, 0, (27.0, 6.0)));
        assert!(!settles(&mut leaving, 1, (3.0, 6.0)));
        assert!(settles(&mut leaving, 2, (27.0, 6.0)));
    }

    #[test]
    fn lines_are_kept_where_it_makes_no_difference() {
        assert!(!settles(&mut Leaving::default(), 0, (5.0, 5.0)));
    }

    #[test]
    fn both_manners_are_tried_whatever_was_found_before() {
        let mut leaving = Leaving::default();
        assert!(settles(&mut leaving, 0, (27.0, 6.0)));
        let tried: Vec<bool> = (PERIOD..PERIOD + 2 * TRIAL).map(|at| leaving.lets_go(at)).collect();
        let (first, second) = tried.split_at(TRIAL as usize);
        assert!(first.iter().all(|it| !it) && second.iter().all(|it| *it));
    }

    #[test]
    fn a_trial_that_was_cut_short_decides_nothing() {
        let mut leaving = Leaving::default();
        assert!(settles(&mut leaving, 0, (27.0, 6.0)));
        // Chunks of short sums are not measured: this time only the second trial was.
        leaving.took(PERIOD + 2 * TRIAL - 1, 1.0);
        leaving.took(PERIOD + 2 * TRIAL, 1.0);
        assert!(leaving.lets_go(2 * PERIOD - 1));
    }
}
