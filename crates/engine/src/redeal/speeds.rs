//! When speeds are compared, and which deal of shards they ask for: pure.
//!
//! A worker that is far slower than the others shows it at once: the first comparison is after three steps, and the deal that
//! follows from it is nearly right already. What so few steps say may also be a hiccup, so that a first deal must be worth
//! more than later ones, and every deal must be worth it by the usual step as well as by the mean one: one long step
//! among many raises the mean alone.

use starlings_core::Seat;
use starlings_learn::Appetite;

/// A new deal must shorten the step by this share, or nothing moves.
const GAIN: f64 = 0.05;
/// Of a deal after fewer than [`STEPS_FEW`] measured steps so much is asked.
const GAIN_FIRST: f64 = 0.25;
/// So many measured steps are enough to believe small differences.
const STEPS_FEW: usize = 4;
/// Speeds of mini-batches are first compared after so many steps, of which the first does not count.
const FIRST: u64 = 3;
/// Each comparison is twice as far from the one before, up to so many steps: speeds that keep changing are noise.
pub(super) const APART_MAX: u64 = 64;

/// How fast a worker was, in rows a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Speed {
    /// All its rows by all its seconds.
    pub(super) mean: f64,
    /// Of its steps the one in the middle; of two the better.
    pub(super) usual: f64,
}

/// Measures this worker's speed, and says when it is time to compare.
#[derive(Debug)]
pub(super) struct Speeds {
    /// Rows and seconds of each step since speeds were last compared or shards moved.
    steps: Vec<(u64, f64)>,
    /// Steps done when the next comparison is due.
    due: u64,
    /// Steps from one comparison to the next.
    apart: u64,
    /// Fewer measured steps than these must show more.
    few: usize,
}

impl Speeds {
    /// From the first deal, `done` steps after the beginning.
    pub(super) fn new(appetite: Appetite, done: u64) -> Speeds {
        // Hiccups are short beside a pass over all rows.
        let (apart, few) = match appetite {
            Appetite::Passes => (1, 0),
            Appetite::Batches => (FIRST, STEPS_FEW),
        };
        Speeds { steps: Vec::new(), due: done + apart, apart, few }
    }

    /// This worker has computed a contribution from so many rows.
    pub(super) fn computed(&mut self, rows: u64, seconds: f64) {
        // While rows are on their way nobody compares.
        if (self.steps.len() as u64) <= APART_MAX {
            self.steps.push((rows, seconds));
        }
    }

    /// Whether speeds are to be compared after so many steps.
    pub(super) fn are_due(&self, done: u64) -> bool {
        done >= self.due
    }

    /// The steps that count. The first after a beginning or a change does not where there are others: its memory is fresh.
    fn counted(&self) -> &[(u64, f64)] {
        if self.steps.len() > 1 { &self.steps[1..] } else { &self.steps }
    }

    /// This worker's own speed.
    pub(super) fn own(&self) -> Speed {
        let counted = self.counted();
        let (rows, seconds) =
            counted.iter().fold((0, 0.0), |(r, s), step| (r + step.0, s + step.1));
        let mut each: Vec<f64> = counted.iter().map(|(rows, s)| *rows as f64 / s).collect();
        each.sort_by(f64::total_cmp);
        let usual = each.get(each.len() / 2).copied().unwrap_or(f64::NAN);
        Speed { mean: rows as f64 / seconds, usual }
    }

    /// Seconds of a step of this worker.
    pub(super) fn seconds(&self) -> f64 {
        let counted = self.counted();
        counted.iter().map(|step| step.1).sum::<f64>() / counted.len().max(1) as f64
    }

    /// Who should have each shard, by the speeds of all; and the next comparison is further off.
    pub(super) fn compare(&mut self, done: u64, all: &[Speed], holders: &[Seat]) -> Vec<Seat> {
        let gain = if self.counted().len() < self.few { GAIN_FIRST } else { GAIN };
        self.apart = (2 * self.apart).min(APART_MAX);
        self.begin_anew(done);
        let by = |of: &dyn Fn(&Speed) -> f64| {
            dealt(&all.iter().map(of).collect::<Vec<_>>(), holders, gain)
        };
        let by_usual = by(&|speed| speed.usual);
        if by(&|speed| speed.mean) == holders { holders.to_vec() } else { by_usual }
    }

    /// Speeds are measured from here on, and compared after a while.
    pub(super) fn begin_anew(&mut self, done: u64) {
        self.steps.clear();
        self.due = done + self.apart;
    }
}

/// Who should have each shard, given rows a second of each seat. The old deal stays where the speeds are not known or
/// the gain is small; otherwise as few shards move as the new numbers need. Where there are enough, everyone has one:
/// whoever has none shows no speed, and would never get any again.
fn dealt(speeds: &[f64], holders: &[Seat], gain: f64) -> Vec<Seat> {
    if speeds.iter().any(|speed| !(speed.is_finite() && *speed > 0.0)) {
        return holders.to_vec();
    }
    let each = usize::from(holders.len() >= speeds.len());
    let mut counts = vec![each; speeds.len()];
    for _ in each * speeds.len()..holders.len() {
        // The next shard goes where it would be finished first.
        let time = |seat: &usize| (counts[*seat] + 1) as f64 / speeds[*seat];
        let first = (0..speeds.len()).min_by(|a, b| time(a).total_cmp(&time(b)));
        counts[first.expect("there are seats")] += 1;
    }
    let longest = |counts: &[usize]| {
        counts.iter().zip(speeds).map(|(&count, speed)| count as f64 / speed).fold(0.0, f64::max)
    };
    let now: Vec<usize> = (0..speeds.len())
        .map(|seat| holders.iter().filter(|holder| holder.index() == seat).count())
        .collect();
    if longest(&counts) > (1.0 - gain) * longest(&now) {
        return holders.to_vec();
    }
    let mut dealt = holders.to_vec();
    let mut room: Vec<usize> = counts.clone();
    let mut homeless = Vec::new();
    for (shard, holder) in dealt.iter().enumerate() {
        match room[holder.index()].checked_sub(1) {
            Some(left) => room[holder.index()] = left,
            None => homeless.push(shard),
        }
    }
    for shard in homeless {
        let free = room.iter().position(|&room| room > 0).expect("counts add up to all shards");
        room[free] -= 1;
        dealt[shard] = Seat(free as u32);
    }
    dealt
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use starlings_core::Rng;

    pub(crate) fn even(world: u32, shards: u32) -> Vec<Seat> {
        (0..shards).map(|shard| Seat(shard * world / shards)).collect()
    }

    pub(crate) fn counts(holders: &[Seat], world: usize) -> Vec<usize> {
        let count = |seat| holders.iter().filter(|holder| holder.index() == seat).count();
        (0..world).map(count).collect()
    }

    #[test]
    fn a_worker_three_times_slower_gets_a_third() {
        let dealt = dealt(&[3.0, 1.0], &even(2, 16), GAIN);
        assert_eq!(counts(&dealt, 2), [12, 4]);
        // Only four shards have moved.
        assert_eq!(dealt.iter().zip(even(2, 16)).filter(|(a, b)| **a != *b).count(), 4);
    }

    #[test]
    fn the_step_takes_less_than_a_tenth_over_the_ideal_with_enough_shards() {
        for speeds in [vec![1.0, 3.0, 3.0, 3.0], vec![1.0, 1.0, 3.0], vec![1.0, 2.0, 4.0, 8.0]] {
            let world = speeds.len();
            let shards = 40 * world as u32;
            let dealt = dealt(&speeds, &even(world as u32, shards), GAIN);
            let ideal = f64::from(shards) / speeds.iter().sum::<f64>();
            for (count, speed) in counts(&dealt, world).iter().zip(&speeds) {
                assert!(*count as f64 / speed <= 1.1 * ideal, "{speeds:?}");
            }
        }
    }

    /// Whoever gives rows waits until they are taken: one that had to take some first would wait for ever.
    #[test]
    fn nobody_gives_and_takes_at_once() {
        let mut moved = 0;
        for seed in 0..300 {
            let mut rng = Rng::named(seed, "speeds", &[]);
            let world = 2 + seed as usize % 4;
            let speeds: Vec<f64> = (0..world).map(|_| 0.1 + rng.uniform()).collect();
            let before: Vec<Seat> =
                (0..40).map(|_| Seat((rng.uniform() * world as f64) as u32)).collect();
            let after = dealt(&speeds, &before, GAIN);
            let moves = || before.iter().zip(&after).filter(|(from, to)| from != to);
            moved += moves().count();
            assert!(moves().all(|(from, _)| moves().all(|(_, to)| from != to)), "{speeds:?}");
        }
        assert!(moved > 1_000, "{moved}");
    }

    #[test]
    fn equals_and_unknown_speeds_move_nothing() {
        for speeds in [[1.0, 1.0], [1.0, 1.05], [f64::NAN, 1.0], [0.0, 1.0], [1.0, f64::INFINITY]] {
            assert_eq!(dealt(&speeds, &even(2, 16), GAIN), even(2, 16));
        }
    }

    #[test]
    fn everyone_keeps_a_shard_however_slow_and_gets_its_share_back_when_it_is_not() {
        let few = dealt(&[1.0, 1e-6], &even(2, 16), GAIN);
        assert_eq!(counts(&few, 2), [15, 1]);
        assert_eq!(counts(&dealt(&[1.0, 1.0], &few, GAIN), 2), [8, 8]);
        // Fewer shards than workers cannot be dealt so.
        assert_eq!(counts(&dealt(&[1.0, 1.0, 9.0], &even(3, 2), GAIN), 3), [0, 0, 2]);
    }

    /// The deals of a run, with the steps after which they were found, where rows travel at once. `time` is how much longer
    /// than by its speed a step of a seat takes.
    fn deals(
        speeds: &[f64],
        steps: u64,
        mut time: impl FnMut(u64, usize) -> f64,
    ) -> Vec<(u64, Vec<usize>)> {
        let world = speeds.len();
        let mut holders = even(world as u32, 64);
        let mut seats: Vec<Speeds> =
            (0..world).map(|_| Speeds::new(Appetite::Batches, 0)).collect();
        let mut deals = Vec::new();
        for done in 1..=steps {
            for (seat, count) in counts(&holders, world).into_iter().enumerate() {
                let seconds = count as f64 / speeds[seat] * time(done, seat);
                seats[seat].computed(count as u64, seconds);
            }
            if !seats[0].are_due(done) {
                continue;
            }
            let all: Vec<Speed> = seats.iter().map(Speeds::own).collect();
            let new: Vec<Vec<Seat>> =
                seats.iter_mut().map(|seat| seat.compare(done, &all, &holders)).collect();
            assert!(new.iter().all(|deal| *deal == new[0]), "all conclude the same");
            if new[0] != holders {
                holders.clone_from(&new[0]);
                deals.push((done, counts(&holders, world)));
            }
        }
        deals
    }

    #[test]
    fn a_worker_three_times_slower_is_found_after_three_steps_and_nothing_moves_again() {
        // The first step, in which memory is fresh, says nothing.
        let first = |done, seat| if done == 1 && seat == 0 { 3.0 } else { 1.0 };
        assert_eq!(deals(&[3.0, 1.0], 500, first), [(3, vec![48, 16])]);
        let three = deals(&[4.0, 4.0, 1.0], 500, first);
        assert_eq!((three.len(), three[0].0), (1, 3));
        assert!(three[0].1[2] <= 8, "{three:?}");
    }

    #[test]
    fn with_noise_the_deal_is_within_a_tenth_of_the_ideal_after_nine_steps() {
        for seed in 0..200 {
            let mut rng = Rng::named(seed, "noise", &[]);
            let found = deals(&[3.0, 1.0], 9, |_, _| 0.9 + 0.2 * rng.uniform());
            let (_, counts) = found.last().expect("three times is no noise");
            let longest = (counts[0] as f64 / 3.0).max(counts[1] as f64);
            assert!(longest <= 1.1 * 16.0, "seed {seed}: {found:?}");
        }
    }

    #[test]
    fn equal_workers_with_noisy_times_are_left_alone() {
        let (mut runs, mut moved) = (0, 0);
        for seed in 0..200 {
            for world in [2, 3, 4] {
                let mut rng = Rng::named(seed, "noise", &[]);
                // Every step a little longer or shorter, and one in fifty ten times as long.
                let time = |_, _| {
                    let hiccup = if rng.uniform() < 0.02 { 10.0 } else { 1.0 };
                    hiccup * (0.95 + 0.1 * rng.uniform())
                };
                let found = deals(&vec![1.0; world], 400, time);
                runs += 1;
                moved += u32::from(!found.is_empty());
                // Who had more long steps than others looks slow for good, until the next comparison.
                if let Some((_, last)) = found.last() {
                    let (few, many) = (last.iter().min(), last.iter().max());
                    let even = 64.0 / world as f64;
                    let is_even = few.zip(many).is_some_and(|(few, many)| {
                        *few as f64 > 0.9 * even && (*many as f64) < 1.1 * even
                    });
                    assert!(is_even, "seed {seed}, {world} workers: {found:?}");
                }
            }
        }
        assert!(100 * moved <= runs, "{moved} of {runs} flocks were dealt anew");
    }

    #[test]
    fn a_hiccup_in_the_first_steps_moves_nothing() {
        for long in 1..=3 {
            let time = |done, seat| if done == long && seat == 1 { 20.0 } else { 1.0 };
            assert!(deals(&[1.0, 1.0], 100, time).is_empty());
        }
    }
}
