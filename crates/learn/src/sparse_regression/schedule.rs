//! The schedule of STRADS: which coordinates may move together. Candidates are drawn by priority, the recent change of a
//! coordinate and a little more for all; of the candidates those stay that no chosen one is correlated with; and a
//! block is full when its work is that of the average block (Lee et al., "On model parallelization and scheduling
//! strategies for distributed machine learning", NIPS 2014; Kim et al., "STRADS", EuroSys 2016). Pure decisions.

use starlings_core::Rng;

/// Draws `count` different coordinates with chances in proportion to their priorities, the first drawn first
/// (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006). A priority of zero is never drawn.
pub(crate) fn draw(priorities: &[f64], count: usize, rng: &mut Rng) -> Vec<usize> {
    let key = |(coordinate, &priority): (usize, &f64)| {
        // An exponential waiting time at the rate of the priority: the first to ring are drawn.
        let wait = -(1.0 - rng.uniform()).ln();
        (wait / priority, coordinate)
    };
    let mut keys: Vec<(f64, usize)> = priorities.iter().enumerate().map(key).collect();
    keys.retain(|(wait, _)| wait.is_finite());
    let count = count.min(keys.len());
    if count > 0 && count < keys.len() {
        keys.select_nth_unstable_by(count - 1, |a, b| a.0.total_cmp(&b.0));
        keys.truncate(count);
    }
    keys.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    keys.into_iter().map(|(_, coordinate)| coordinate).collect()
}

/// How large a block may be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Room {
    /// Largest number of coordinates.
    pub(crate) block: usize,
    /// Coordinates whose correlation is this or more never move together.
    pub(crate) theta: f64,
    /// Largest work of all coordinates of a block, unless one alone has more.
    pub(crate) work: f64,
}

/// Chooses a block of candidates, in their order: those whose correlation with all chosen before is below theta, while
/// there is room. `correlation(a, b)` and `work(a)` are asked by the places of candidates.
pub(crate) fn choose(
    candidates: usize,
    room: Room,
    correlation: impl Fn(usize, usize) -> f64,
    work: impl Fn(usize) -> f64,
) -> Vec<usize> {
    let mut chosen: Vec<usize> = Vec::new();
    let mut used = 0.0;
    for candidate in 0..candidates {
        if chosen.len() == room.block {
            break;
        }
        let fits = chosen.is_empty() || used + work(candidate) <= room.work;
        if fits && chosen.iter().all(|&other| correlation(candidate, other) < room.theta) {
            used += work(candidate);
            chosen.push(candidate);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_drawn_in_proportion_to_their_priority() {
        let priorities = [1.0, 3.0, 0.0, 4.0];
        let mut firsts = [0u32; 4];
        let mut rng = Rng::named(1, "draw", &[]);
        for _ in 0..20_000 {
            let drawn = draw(&priorities, 2, &mut rng);
            assert!(drawn.len() == 2 && drawn[0] != drawn[1] && !drawn.contains(&2));
            firsts[drawn[0]] += 1;
        }
        for (first, share) in firsts.iter().zip([0.125, 0.375, 0.0, 0.5]) {
            assert!((f64::from(*first) / 20_000.0 - share).abs() < 0.015, "{firsts:?}");
        }
        assert_eq!(draw(&priorities, 9, &mut rng).len(), 3);
    }

    #[test]
    fn correlated_coordinates_are_never_chosen_together() {
        // Pairs (0, 1), (2, 3) … are correlated, others hardly.
        let correlation = |a: usize, b: usize| if a / 2 == b / 2 { 0.9 } else { 0.05 };
        let room = Room { block: 4, theta: 0.1, work: f64::INFINITY };
        assert_eq!(choose(10, room, correlation, |_| 1.0), [0, 2, 4, 6]);
        let unchecked = Room { theta: f64::INFINITY, ..room };
        assert_eq!(choose(10, unchecked, correlation, |_| 1.0), [0, 1, 2, 3]);
    }

    #[test]
    fn blocks_are_filled_by_work_and_not_by_number() {
        let work = |candidate: usize| [9.0, 1.0, 1.0, 3.0, 1.0, 1.0][candidate];
        let room = Room { block: 4, theta: 1.0, work: 5.0 };
        assert_eq!(choose(1, room, |_, _| 0.0, work), [0], "a heavy one goes alone");
        assert_eq!(
            choose(6, room, |_, _| 0.0, |c| if c == 0 { 1.0 } else { work(c) }),
            [0, 1, 2, 4]
        );
    }
}
