//! What members find out about each other in a new epoch, and what follows from it. Pure: everyone sees the same
//! numbers and comes to the same answer.
//!
//! Under a barrier nobody is more than one step ahead of another: whoever has finished step k has had a part of
//! everyone's contribution, and nobody can finish step k + 1 before all have finished k. So the furthest
//! member's model is that of the last step that anybody saw the end of; the others take it over, and the step
//! after it is done by all who are left. Where workers take steps of their own, all become one model between two steps, too:
//! at a checkpoint and at the end. Whoever has had such an ending is further than one who broke off in it.

use starlings_cluster::deal::Deal;
use starlings_core::{Seat, Step, planted};
use std::collections::BTreeSet;

/// Shards that one number can name without touching its sign.
const SHARDS_A_WORD: usize = 62;

/// What a member says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// How many steps it has done; `None` for a newcomer, which has no model yet.
    pub steps: Option<u64>,
    /// How many endings of exchanges it has had.
    pub endings: u64,
    /// The shards whose rows it has.
    pub held: BTreeSet<u32>,
}

impl Standing {
    /// Numbers that a standing takes.
    #[must_use]
    pub fn width(shards: u32) -> usize {
        2 + (shards as usize).div_ceil(SHARDS_A_WORD)
    }

    /// As numbers, into a place of its own among those of all members.
    pub fn write(&self, into: &mut [i64]) {
        into[0] = self.steps.map_or(0, |steps| steps as i64 + 1);
        into[1] = self.endings as i64;
        for &shard in &self.held {
            let at = shard as usize;
            into[2 + at / SHARDS_A_WORD] |= 1 << (at % SHARDS_A_WORD);
        }
    }

    /// Reads what [`write`](Standing::write) wrote.
    #[must_use]
    pub fn read(numbers: &[i64]) -> Standing {
        let steps = u64::try_from(numbers[0] - 1).ok();
        let bits = numbers[2..].iter().enumerate().flat_map(|(word, &bits)| {
            let named = (0..SHARDS_A_WORD).filter(move |bit| bits & (1 << bit) != 0);
            named.map(move |bit| (word * SHARDS_A_WORD + bit) as u32)
        });
        Standing { steps, endings: numbers[1] as u64, held: bits.collect() }
    }

    /// How far it is; newcomers are nowhere yet.
    fn reached(&self) -> Option<(u64, u64)> {
        self.steps.map(|steps| (steps, self.endings))
    }
}

/// What follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolution {
    /// The next step, and who has the model before it; `None` when nobody has a model.
    pub from: Option<(Step, Seat)>,
    /// How many steps each has done; none for those who are new.
    pub steps: Vec<Option<u64>>,
    /// Those who have an older model, or none.
    pub behind: Vec<Seat>,
    /// Those who have none.
    pub newcomers: Vec<Seat>,
    /// Who works on each shard until the new deal is in force; `None` where nobody has its rows.
    pub active: Vec<Option<Seat>>,
}

impl Resolution {
    /// The shards that a seat works on until the new deal is in force.
    #[must_use]
    pub fn shards_of(&self, seat: Seat) -> Vec<u32> {
        let mine = self.active.iter().enumerate().filter(|(_, holder)| **holder == Some(seat));
        mine.map(|(shard, _)| shard as u32).collect()
    }

    /// The step that each goes on with, where everyone keeps its own and newcomers take over that of the furthest.
    #[must_use]
    pub fn clocks(&self) -> Vec<u64> {
        let furthest = self.from.map_or(0, |(step, _)| step.0);
        self.steps.iter().map(|steps| steps.unwrap_or(furthest)).collect()
    }

    /// The shards whose rows nobody has.
    #[must_use]
    pub fn missing(&self) -> Vec<u32> {
        let missing = self.active.iter().enumerate().filter(|(_, holder)| holder.is_none());
        missing.map(|(shard, _)| shard as u32).collect()
    }
}

/// What follows from what all members say of themselves. A shard stays with whom the new deal names, if it has the
/// rows already; else with the first who has them.
#[must_use]
pub fn resolve(standings: &[Standing], deal: &Deal, shards: u32) -> Resolution {
    let mut furthest: Option<((u64, u64), Seat)> = None;
    for (seat, standing) in standings.iter().enumerate() {
        if let Some(reached) = standing.reached()
            && furthest.is_none_or(|(most, _)| reached > most || planted!("last-not-furthest"))
        {
            furthest = Some((reached, Seat(seat as u32)));
        }
    }
    let from = furthest.map(|((steps, _), seat)| (Step(steps), seat));
    let behind = standings.iter().enumerate().filter(|(_, standing)| {
        let behind = |reached, most| reached < most && !planted!("behind-ignored");
        furthest.is_some_and(|(most, _)| standing.reached().is_none_or(|it| behind(it, most)))
    });
    let behind = behind.map(|(seat, _)| Seat(seat as u32)).collect();
    let newcomers = (0..standings.len()).filter(|seat| standings[*seat].steps.is_none());
    let newcomers = newcomers.map(|seat| Seat(seat as u32)).collect();
    let active = (0..shards).map(|shard| {
        let has = |seat: &usize| standings[*seat].held.contains(&shard);
        let dealt = deal.iter().position(|shards| shards.contains(&shard));
        let holder = dealt.filter(has).or_else(|| (0..standings.len()).find(has));
        holder.map(|seat| Seat(seat as u32))
    });
    let steps = standings.iter().map(|standing| standing.steps).collect();
    Resolution { from, steps, behind, newcomers, active: active.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(steps: Option<u64>, held: &[u32]) -> Standing {
        Standing { steps, endings: 0, held: held.iter().copied().collect() }
    }

    #[test]
    fn standings_survive_the_wire() {
        for standing in [
            standing(None, &[]),
            standing(Some(0), &[0, 61, 62, 99]),
            Standing { endings: 7, ..standing(Some(1 << 40), &(0..100).collect::<Vec<_>>()) },
        ] {
            let mut numbers = vec![0; Standing::width(100)];
            standing.write(&mut numbers);
            assert!(numbers.iter().all(|&number| number >= 0));
            assert_eq!(Standing::read(&numbers), standing);
        }
    }

    #[test]
    fn those_behind_take_over_from_the_first_who_is_furthest() {
        let standings = [
            standing(Some(4), &[0]),
            standing(Some(5), &[1]),
            standing(Some(5), &[2]),
            standing(None, &[]),
        ];
        let found = resolve(&standings, &vec![vec![0], vec![1], vec![2], vec![3]], 4);
        assert_eq!(found.from, Some((Step(5), Seat(1))));
        assert_eq!(
            (found.behind.clone(), found.newcomers.clone()),
            (vec![Seat(0), Seat(3)], vec![Seat(3)])
        );
        assert_eq!(found.missing(), [3]);
        assert_eq!(found.shards_of(Seat(2)), [2]);
    }

    #[test]
    fn whoever_broke_off_in_an_ending_is_behind_one_who_has_had_it() {
        let at = |steps, endings| Standing { endings, ..standing(Some(steps), &[]) };
        let found = resolve(&[at(4, 1), at(4, 2), at(3, 1), at(4, 2)], &vec![], 0);
        assert_eq!(found.from, Some((Step(4), Seat(1))));
        assert_eq!(found.behind, [Seat(0), Seat(2)]);
        // Steps count first: between two endings each goes at its own pace.
        assert_eq!(resolve(&[at(4, 1), at(5, 1)], &vec![], 0).from, Some((Step(5), Seat(1))));
    }

    #[test]
    fn a_shard_that_two_have_is_worked_on_by_the_one_it_is_dealt_to() {
        let standings = [standing(Some(1), &[0, 1, 2, 3]), standing(None, &[2, 3])];
        let found = resolve(&standings, &vec![vec![0, 1, 3], vec![2]], 4);
        assert_eq!(found.shards_of(Seat(0)), [0, 1, 3]);
        assert_eq!(found.shards_of(Seat(1)), [2]);
        // The deal names someone who has not read it yet: it stays where it is.
        let found =
            resolve(&[standing(Some(1), &[0]), standing(Some(1), &[])], &vec![vec![], vec![0]], 1);
        assert_eq!(found.shards_of(Seat(0)), [0]);
    }

    #[test]
    fn nobody_with_a_model_means_starting_from_what_was_kept() {
        let found = resolve(&[standing(None, &[0])], &vec![vec![0]], 1);
        assert_eq!((found.from, found.behind), (None, vec![]));
    }
}
