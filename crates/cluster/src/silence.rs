//! Links between two members that have fallen silent while the coordinator hears both: a cable, a switch or a firewall
//! that loses packets without a word, in both directions or in one. Nobody is dead, but the two cannot work together, so
//! one of them goes, by a law that depends on nothing but what was reported.
//!
//! Law: whoever has more silent links goes first, so that one with a bad connection does not cost its healthy peers
//! their seats; of equals the one whom more do not hear (in a one-way cut only the far end notices); of equals the one
//! with the highest seat, who came last. A link that is heard again before it is judged costs nobody anything.

use starlings_core::{Seat, planted};
use std::collections::{BTreeMap, BTreeSet};

/// Which member does not hear which other, and since when that is reported.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Silences {
    reports: BTreeMap<(Seat, Seat), u64>,
    /// When this was last asked.
    asked: u64,
    /// Until when nobody knows who is heard: the judge itself stood still.
    unsure_until: u64,
}

impl Silences {
    /// All that `by` does not hear now. Whoever is not listed is heard again.
    pub(crate) fn report(&mut self, now: u64, by: Seat, unheard: &[Seat]) {
        self.reports.retain(|(witness, of), _| *witness != by || unheard.contains(of));
        for &of in unheard.iter().filter(|of| **of != by) {
            self.reports.entry((by, of)).or_insert(now);
        }
    }

    /// Nothing is known any more: seats have changed.
    pub(crate) fn clear(&mut self) {
        self.reports.clear();
    }

    /// Whether the coordinator itself stood still a moment ago. What was said meanwhile is heard only then, also of those who
    /// stand still by now, so that for a while it cannot tell who is silent to all: its pause counts against no link.
    fn stood_still(&mut self, now: u64, grace_ms: u64) -> bool {
        let pause = now.saturating_sub(self.asked);
        self.asked = now;
        if pause > grace_ms / 2 {
            self.unsure_until = now + grace_ms;
        }
        now < self.unsure_until
    }

    /// Who must go, each with a witness, so that no link between those who stay has been silent for `grace_ms`.
    /// To be asked several times within that time. Only links between two of whom the coordinator has heard something in that time
    /// are judged, and only the time counts in which it was so: whoever stands still is silent to all, and others do not pay for
    /// it, nor in the moment in which it moves again and has not been heard by all.
    pub(crate) fn judge(
        &mut self,
        now: u64,
        grace_ms: u64,
        is_heard: impl Fn(Seat) -> bool,
    ) -> Vec<(Seat, Seat)> {
        let knows = !self.stood_still(now, grace_ms);
        let mut all = BTreeSet::new();
        for ((by, of), since) in &mut self.reports {
            if knows && (planted!("frozen-judged") || (is_heard(*by) && is_heard(*of))) {
                all.insert((*by, *of));
            } else {
                *since = now;
            }
        }
        let mut lasting = self.reports.clone();
        lasting.retain(|_, since| now.saturating_sub(*since) >= grace_ms);
        let mut gone = Vec::new();
        while !lasting.is_empty() {
            let ends = lasting.keys().flat_map(|(by, of)| [*by, *of]);
            let worst = ends.max_by_key(|seat| weight(&all, *seat)).expect("there is a link");
            let of = |(by, of): &&(Seat, Seat)| (*of == worst).then_some(*by);
            let from = |(by, of): &&(Seat, Seat)| (*by == worst).then_some(*of);
            let witness = all.iter().find_map(|it| of(&it)).or(all.iter().find_map(|it| from(&it)));
            gone.push((worst, witness.expect("a silent link has two ends")));
            all.retain(|(by, of)| *by != worst && *of != worst);
            lasting.retain(|(by, of), _| *by != worst && *of != worst);
        }
        gone
    }
}

/// Silent links of a seat, those who do not hear it, and the seat: the largest goes.
fn weight(all: &BTreeSet<(Seat, Seat)>, seat: Seat) -> (usize, usize, Seat) {
    let unheard = all.iter().filter(|(_, of)| *of == seat).count();
    let deaf = all.iter().filter(|(by, of)| *by == seat && !all.contains(&(*of, *by))).count();
    (unheard + deaf, unheard, seat)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GRACE: u64 = 500;

    /// Judges reports that are all old enough.
    fn judged(reports: &[(u32, &[u32])]) -> Vec<(u32, u32)> {
        let mut silences = Silences::default();
        for (by, unheard) in reports {
            let unheard: Vec<Seat> = unheard.iter().copied().map(Seat).collect();
            silences.report(0, Seat(*by), &unheard);
        }
        let mut judged = Vec::new();
        (0..=GRACE).step_by(100).for_each(|now| judged = silences.judge(now, GRACE, |_| true));
        judged.into_iter().map(|(gone, by)| (gone.0, by.0)).collect()
    }

    /// Judges every 50 ms; gives the last judgement.
    fn judged_until(silences: &mut Silences, from: u64, to: u64) -> Vec<(Seat, Seat)> {
        let mut judged = Vec::new();
        (from..=to).step_by(50).for_each(|now| judged = silences.judge(now, GRACE, |_| true));
        judged
    }

    #[test]
    fn of_two_who_do_not_hear_each_other_the_later_one_goes() {
        assert_eq!(judged(&[(0, &[2]), (2, &[0])]), [(2, 0)]);
        assert_eq!(judged(&[(2, &[0]), (0, &[2])]), [(2, 0)], "whoever spoke first");
    }

    #[test]
    fn in_a_one_way_cut_the_one_who_is_not_heard_goes() {
        assert_eq!(judged(&[(2, &[0])]), [(0, 2)]);
        assert_eq!(judged(&[(0, &[2])]), [(2, 0)]);
    }

    #[test]
    fn one_with_a_bad_connection_does_not_cost_others_their_seats() {
        // Seat 0 is the first of all, but hears nobody and is heard by nobody.
        assert_eq!(judged(&[(0, &[1, 2]), (1, &[0]), (2, &[0])]), [(0, 1)]);
        // One that hears nobody though all hear it is deaf: it goes, not they.
        assert_eq!(judged(&[(0, &[1, 2, 3])]), [(0, 1)]);
    }

    #[test]
    fn of_two_halves_one_is_left() {
        let halves: &[(u32, &[u32])] = &[(0, &[2, 3]), (1, &[2, 3]), (2, &[0, 1]), (3, &[0, 1])];
        assert_eq!(judged(halves), [(3, 0), (2, 0)]);
    }

    #[test]
    fn a_link_that_is_heard_again_costs_nobody_anything() {
        let mut silences = Silences::default();
        silences.report(1_000, Seat(0), &[Seat(1)]);
        assert_eq!(judged_until(&mut silences, 1_000, 1_400), []);
        silences.report(1_400, Seat(0), &[]);
        silences.report(1_450, Seat(0), &[Seat(1)]);
        assert_eq!(judged_until(&mut silences, 1_450, 1_900), [], "silence is counted anew");
        // Said again and again it is the same silence.
        silences.report(1_900, Seat(0), &[Seat(1)]);
        assert_eq!(judged_until(&mut silences, 1_900, 1_950), [(Seat(1), Seat(0))]);
    }

    #[test]
    fn a_pause_of_the_judge_is_held_against_no_link() {
        let mut silences = Silences::default();
        assert_eq!(judged_until(&mut silences, 0, 1_000), []);
        silences.report(1_000, Seat(0), &[Seat(1)]);
        assert_eq!(
            silences.judge(9_000, GRACE, |_| true),
            [],
            "what came meanwhile has not been heard yet"
        );
        silences.report(9_000, Seat(0), &[]);
        assert_eq!(judged_until(&mut silences, 9_050, 12_000), []);
    }

    #[test]
    fn after_a_pause_of_the_judge_those_who_stand_still_have_time_to_be_heard_again() {
        let mut silences = Silences::default();
        assert_eq!(judged_until(&mut silences, 0, 100), []);
        // Seats 0 and 1 froze while the judge stood still, who takes what they said before for a sign of life; they thaw at
        // 2,450 ms, and seat 2 has heard both again some time after that.
        assert_eq!(silences.judge(2_000, GRACE, |_| true), []);
        silences.report(2_000, Seat(2), &[Seat(0), Seat(1)]);
        assert_eq!(judged_until(&mut silences, 2_050, 2_900), []);
        let deaf = judged_until(&mut silences.clone(), 2_950, 3_000);
        assert_eq!(deaf, [(Seat(2), Seat(0))], "if it never hears them again");
        silences.report(2_950, Seat(2), &[]);
        assert_eq!(judged_until(&mut silences, 2_950, 5_000), []);
    }

    #[test]
    fn whoever_stands_still_costs_nobody_else_a_seat() {
        let mut silences = Silences::default();
        let mut judge = |now: u64| silences.judge(now, GRACE, |seat| seat != Seat(0));
        judge(0);
        // Seat 2 hears neither the frozen seat 0 nor seat 1, which it really does not hear.
        silences.report(0, Seat(2), &[Seat(0)]);
        let judged = |silences: &mut Silences, from: u64| {
            let judge = |now| silences.judge(now, GRACE, |seat| seat != Seat(0));
            (from..from + 1_000).step_by(100).map(judge).last()
        };
        assert_eq!(judged(&mut silences, 100), Some(vec![]));
        silences.report(1_100, Seat(2), &[Seat(0), Seat(1)]);
        assert_eq!(judged(&mut silences, 1_100), Some(vec![(Seat(1), Seat(2))]));
    }

    #[test]
    fn whoever_moves_again_has_all_the_time_to_be_heard() {
        let mut silences = Silences::default();
        silences.report(0, Seat(2), &[Seat(0)]);
        let mut judge =
            |now: u64, moves: bool| silences.judge(now, GRACE, |seat| moves || seat != Seat(0));
        (0..=450).step_by(50).for_each(|now| assert_eq!(judge(now, false), []));
        (500..=900).step_by(50).for_each(|now| assert_eq!(judge(now, true), [], "at {now} ms"));
        // Seat 2 still does not hear it.
        assert_eq!(judge(950, true), [(Seat(0), Seat(2))]);
    }

    #[test]
    fn nobody_is_silent_to_itself() {
        assert!(judged(&[(1, &[1])]).is_empty());
    }

    proptest! {
        #[test]
        fn those_who_stay_hear_each_other(reports in proptest::collection::btree_set((0u32..6, 0u32..6), 0..20)) {
            let mut silences = Silences::default();
            for by in 0..6 {
                let unheard: Vec<Seat> =
                    reports.iter().filter(|it| it.0 == by).map(|it| Seat(it.1)).collect();
                silences.report(0, Seat(by), &unheard);
            }
            let gone = judged_until(&mut silences, 0, GRACE);
            let is_gone = |seat: u32| gone.iter().any(|(it, _)| it.0 == seat);
            for &(by, of) in reports.iter().filter(|(by, of)| by != of) {
                prop_assert!(is_gone(by) || is_gone(of), "{by} does not hear {of}, and both stay");
            }
            for (seat, witness) in &gone {
                let told = reports.contains(&(witness.0, seat.0)) || reports.contains(&(seat.0, witness.0));
                prop_assert!(told, "{seat} goes for {witness}'s sake, and nobody said so");
            }
        }
    }
}
