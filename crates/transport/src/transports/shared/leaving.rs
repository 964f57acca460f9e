//! What becomes of a neighbour's lines once they have been read. They stay in the reader's cache, and their owner, who
//! writes them again in the next sum, has to take them back from there. Where the two cores share no cache that can take
//! many times as long as reading did: on processors made of several dies 27 ns a line, whatever is asked for ahead,
//! for reading 3 ns. A reader who lets lines go (writes them back and out of all caches) pays some 3 ns a line instead.
//! Where cores share a cache, and for sums that are short, keeping them is cheaper.
//!
//! Which it is depends on where two workers run at the moment, and nothing tells: virtual processors move, too. So both
//! are tried now and then, and the cheaper one is used until the next trial. All seats try the same at the same time,
//! for it is one seat that reads and another that pays. Bits do not depend on it.

/// Sums of a trial, and those at its beginning that do not count: they still write what was read in the other manner.
const TRIAL: u64 = 16;
const SETTLING: u64 = 4;
/// Sums from one pair of trials to the next.
const PERIOD: u64 = 512;
/// Letting go must be cheaper by this much: a tie would change its mind with every trial.
const MARGIN: f64 = 0.95;

/// One circle's way of leaving lines behind.
#[derive(Clone, Default, Debug)]
pub(super) struct Leaving {
    sums: u64,
    /// What the counted sums of the running trials took a byte, keeping lines and letting them go.
    trials: [Vec<f64>; 2],
    lets_go: bool,
}

impl Leaving {
    /// Whether the next sum lets lines go.
    pub(super) fn lets_go(&self) -> bool {
        match self.sums % PERIOD / TRIAL {
            0 => false,
            1 => true,
            _ => self.lets_go,
        }
    }

    /// What a sum took of the time that is not spent waiting, a byte, in any unit.
    pub(super) fn took(&mut self, a_byte: f64) {
        let at = self.sums % PERIOD;
        if let Some(trial) = self.trials.get_mut((at / TRIAL) as usize)
            && at % TRIAL >= SETTLING
        {
            trial.push(a_byte);
        }
        self.sums += 1;
        if at + 1 == 2 * TRIAL {
            let [kept, let_go] = self.trials.each_mut().map(median);
            self.lets_go = let_go < MARGIN * kept;
        }
    }
}

/// The middle of what was measured: a sum in which the core was taken away says nothing. Empties it.
fn median(times: &mut Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    let middle = times.get(times.len() / 2).copied().unwrap_or_default();
    times.clear();
    middle
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs sums that take `kept` a byte after sums that kept lines, else `let_go`; true where lines are let go in the end.
    fn settles(leaving: &mut Leaving, (kept, let_go): (f64, f64), sums: u64) -> bool {
        let mut before = leaving.lets_go();
        for sum in 0..sums {
            let now = leaving.lets_go();
            // What a sum writes was read in the sum before it; now and then somebody takes the core away.
            let cost = if before { let_go } else { kept };
            leaving.took(if sum % 7 == 0 { 50.0 * cost } else { cost });
            before = now;
        }
        leaving.lets_go()
    }

    #[test]
    fn the_cheaper_manner_is_found_and_found_again_when_workers_move() {
        let mut leaving = Leaving::default();
        assert!(settles(&mut leaving, (27.0, 6.0), PERIOD - 1));
        assert!(!settles(&mut leaving, (3.0, 6.0), PERIOD));
        assert!(settles(&mut leaving, (27.0, 6.0), PERIOD));
    }

    #[test]
    fn lines_are_kept_where_it_makes_no_difference() {
        assert!(!settles(&mut Leaving::default(), (5.0, 5.0), PERIOD - 1));
    }

    #[test]
    fn both_manners_are_tried_whatever_was_found_before() {
        let mut leaving = Leaving::default();
        let mut tried = Vec::new();
        for _ in 0..2 * PERIOD {
            tried.push(leaving.lets_go());
            leaving.took(if leaving.lets_go() { 1.0 } else { 9.0 });
        }
        let trial = TRIAL as usize;
        let second = &tried[PERIOD as usize..][..2 * trial];
        assert!(second[..trial].iter().all(|it| !it) && second[trial..].iter().all(|it| *it));
        assert!(tried[2 * trial..PERIOD as usize].iter().all(|it| *it));
    }
}
