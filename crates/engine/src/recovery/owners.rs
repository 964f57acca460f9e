//! Where the model is when an owner of rows is lost: what members tell each other of the shards they had, and who gives
//! which rows. Pure: everyone sees the same numbers and comes to the same answer.
//!
//! Only the shards of the newest epoch count. Each old seat's rows come from its owner, or else from its backup, and under
//! a barrier all go back to the smallest step that any of them has: owners differ by at most one, and what somebody
//! was shown is at every owner and every backup. Where neither is left, the rows are those of the epoch's start as
//! long as some owner has finished no step of it, for then nobody was shown one; else they are lost.

use starlings_core::{Seat, planted};

/// What a member tells of the shard that it had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Telling {
    /// The epoch in which it had it.
    pub generation: u64,
    /// Which seat it had then.
    pub seat: Seat,
    /// Of how many.
    pub world: u32,
    /// The first step of that epoch.
    pub start: u64,
    /// Steps that are in its own rows, under a barrier.
    pub own: u64,
    /// Steps that are in its copy of the rows of the seat before.
    pub kept: u64,
}

impl Telling {
    /// Numbers that a telling takes.
    pub const WIDTH: usize = 6;

    /// As numbers, which are never all zeros.
    #[must_use]
    pub fn write(&self) -> [i64; Telling::WIDTH] {
        let Telling { generation, seat, world, start, own, kept } = *self;
        [generation, seat.0.into(), world.into(), start, own, kept].map(|number| number as i64)
    }

    /// Reads what [`write`](Telling::write) wrote; a member that had no shard has left zeros.
    #[must_use]
    pub fn read(numbers: &[i64]) -> Option<Telling> {
        let &[generation, seat, world, start, own, kept] = numbers else { return None };
        let short = |number: i64| u32::try_from(number).ok();
        let long = |number: i64| u64::try_from(number).ok();
        let telling = Telling {
            generation: long(generation)?,
            seat: Seat(short(seat)?),
            world: short(world)?,
            start: long(start)?,
            own: long(own)?,
            kept: long(kept)?,
        };
        (telling.seat.0 < telling.world).then_some(telling)
    }
}

/// Where the model is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Located {
    /// The epoch whose shards it is put together from.
    pub generation: u64,
    /// The step that all go back to, under a barrier.
    pub step: u64,
    /// Who gives the rows of each seat of that epoch: seats of this one.
    pub holders: Vec<Seat>,
}

/// Where the model is, from what each seat tells; `None` when a part of it is lost.
#[must_use]
pub fn locate(tellings: &[Option<Telling>], barrier: bool) -> Option<Located> {
    let told = || tellings.iter().flatten();
    let newest = told().max_by_key(|telling| telling.generation)?;
    let (generation, world) = (newest.generation, newest.world);
    let find = |old: u32| {
        let has = |telling: &Option<Telling>| {
            telling.is_some_and(|it| it.generation == generation && it.seat.0 == old)
        };
        tellings.iter().position(has)
    };
    let holder = |old: u32| {
        let step =
            |at: usize, which: fn(&Telling) -> u64| (at, tellings[at].as_ref().map_or(0, which));
        let own = find(old).map(|at| step(at, |it| it.own));
        let backup = || find((old + 1) % world).map(|at| step(at, |it| it.kept));
        own.or_else(backup)
    };
    let found: Vec<Option<(usize, u64)>> = (0..world).map(holder).collect();
    let steps = found.iter().flatten().map(|(_, step)| *step);
    let step = if planted!("furthest-owner") { steps.max()? } else { steps.min()? };
    let first = tellings.iter().position(|it| it.is_some_and(|it| it.generation == generation))?;
    let untouched = barrier && step == newest.start;
    let holders = found.into_iter().map(|found| match found {
        Some((at, _)) => Some(Seat(at as u32)),
        None => untouched.then_some(Seat(first as u32)),
    });
    Some(Located { generation, step, holders: holders.collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    fn telling(generation: u64, (seat, world): (u32, u32), own: u64, kept: u64) -> Option<Telling> {
        Some(Telling { generation, seat: Seat(seat), world, start: 4, own, kept })
    }

    #[test]
    fn tellings_survive_the_wire_and_zeros_are_nobody() {
        let told = telling(9, (2, 3), 7, 6);
        assert_eq!(Telling::read(&told.unwrap().write()), told);
        assert_eq!(Telling::read(&[0; Telling::WIDTH]), None);
        let first = Telling { generation: 0, seat: Seat(0), world: 1, start: 0, own: 0, kept: 0 };
        assert_eq!(Telling::read(&first.write()), Some(first));
        assert_eq!(Telling::read(&[0, 3, 3, 0, 0, 0]), None);
        assert_eq!(Telling::read(&[-1, 0, 1, 0, 0, 0]), None);
    }

    #[test]
    fn rows_of_the_lost_come_from_the_next_seat_and_all_go_back_to_the_smallest_step() {
        // Seat 1 of three is lost; a newcomer sits between the others.
        let tellings = [telling(1, (2, 3), 8, 7), None, telling(1, (0, 3), 8, 8)];
        let found = locate(&tellings, true).unwrap();
        assert_eq!((found.step, found.generation), (7, 1));
        assert_eq!(found.holders, [Seat(2), Seat(0), Seat(0)]);
        // What the backup of a living owner has does not matter.
        let tellings = [telling(1, (0, 2), 8, 7), telling(1, (1, 2), 8, 7)];
        assert_eq!(locate(&tellings, true).unwrap().step, 8);
    }

    #[test]
    fn an_owner_that_is_lost_with_its_backup_takes_its_rows_along_unless_nobody_has_begun() {
        let tellings = |own| [telling(1, (0, 4), own, own), telling(1, (3, 4), own, own)];
        for barrier in [true, false] {
            assert_eq!(locate(&tellings(7), barrier), None);
        }
        // Four is where the epoch began: anyone has the rows of seat 1, whose backup is gone, too.
        let found = locate(&tellings(4), true).unwrap();
        assert_eq!((found.step, found.holders), (4, [0, 0, 1, 1].map(Seat).to_vec()));
        assert_eq!(locate(&tellings(4), false), None, "without a barrier they may have changed");
        assert_eq!(locate(&[None, None], true), None);
    }

    #[test]
    fn shards_of_an_older_epoch_do_not_count() {
        // One has sat down in epoch 5, the other has not, and a third is gone.
        let tellings = [telling(1, (1, 4), 3, 3), telling(5, (0, 3), 4, 4)];
        let found = locate(&tellings, true).unwrap();
        assert_eq!((found.generation, found.step), (5, 4));
        assert_eq!(found.holders, [Seat(1); 3]);
    }

    /// Owners are at step s or s + 1, backups between s and their owner: whoever is left goes back to at least s, has the
    /// rows of everyone, and nobody is asked for a step that it does not have.
    #[test]
    fn whoever_is_left_finds_a_step_that_all_have() {
        for seed in 0..2_000 {
            let mut rng = Rng::named(seed, "owners", &[]);
            let world = 1 + rng.below(6) as u32;
            let shown = 4 + rng.below(3);
            let own: Vec<u64> = (0..world).map(|_| shown + rng.below(2)).collect();
            let mirror: Vec<u64> = own.iter().map(|it| shown + rng.below(it - shown + 1)).collect();
            let lives: Vec<bool> = (0..world).map(|_| rng.below(3) > 0).collect();
            let before = |seat: u32| (seat + world - 1) % world;
            let told = |seat: u32| {
                let kept = mirror[before(seat) as usize];
                let telling = telling(3, (seat, world), own[seat as usize], kept);
                lives[seat as usize].then_some(telling).flatten()
            };
            let tellings: Vec<_> = (0..world).map(told).collect();
            let pair = |seat: u32| lives[seat as usize] || lives[((seat + 1) % world) as usize];
            let Some(found) = locate(&tellings, true) else {
                let gone = !(0..world).all(pair) || !lives.contains(&true);
                assert!(gone, "seed {seed}: {tellings:?}");
                continue;
            };
            assert!((shown..=shown + 1).contains(&found.step), "seed {seed}: {found:?}");
            for (old, holder) in found.holders.iter().enumerate() {
                let it = tellings[holder.index()].unwrap();
                let has = match it.seat.index() == old {
                    true => it.own,
                    false if before(it.seat.0) as usize == old => it.kept,
                    false => it.start,
                };
                assert!(has >= found.step && has <= found.step + 1, "seed {seed}: {found:?}");
                assert!(!lives[old] || it.seat.index() == old, "seed {seed}: the owner lives");
            }
        }
    }
}
