//! Ownership as moves and as rows: how an owner map becomes a sum under a barrier, and which owner keeps
//! which rows of a table (range sharding, as in Li et al., 2014).

use crate::{Act, Move, Pattern};
use starlings_core::Seat;
use std::ops::Range;

/// The moves of `seat`, whichever way the pattern is told.
///
/// ```
/// use starlings_core::Seat;
/// use starlings_topology::{Act, Move, Pattern, moves};
/// let pattern = Pattern::Owners(vec![Seat(0)]);
/// let expected = [Act::SendPartial, Act::Replace].map(|act| Move { chunk: 0, peer: Seat(0), act });
/// assert_eq!(moves(&pattern, Seat(1), 2), expected);
/// ```
#[must_use]
pub fn moves(pattern: &Pattern, seat: Seat, world: u32) -> Vec<Move> {
    match pattern {
        Pattern::Moves(moves) => moves.clone(),
        Pattern::Owners(owners) => owners_to_moves(owners, seat, world),
        Pattern::Everyone => panic!("contributions to everyone are collected, not played as moves"),
    }
}

/// The moves of `seat` when each chunk is summed at its owner under a barrier. Fold order: the owner's own
/// contribution first, then the others in the order of their seats.
#[must_use]
pub fn owners_to_moves(owners: &[Seat], seat: Seat, world: u32) -> Vec<Move> {
    let mut moves = Vec::new();
    // Everyone starts at another chunk, so that the flock does not fall upon one owner after the other.
    let first = if owners.is_empty() { 0 } else { (seat.index() + 1) % owners.len() };
    let from_first = || (first..owners.len()).chain(0..first);
    for chunk in from_first().filter(|&chunk| owners[chunk] != seat) {
        moves.push(Move { chunk, peer: owners[chunk], act: Act::SendPartial });
    }
    for chunk in from_first().filter(|&chunk| owners[chunk] == seat) {
        for act in [Act::Fold, Act::SendTotal] {
            let others = (0..world).map(Seat).filter(|&peer| peer != seat);
            moves.extend(others.map(|peer| Move { chunk, peer, act }));
        }
    }
    for chunk in from_first().filter(|&chunk| owners[chunk] != seat) {
        moves.push(Move { chunk, peer: owners[chunk], act: Act::Replace });
    }
    moves
}

/// The owner of a row of a table of `total` rows: the seat whose [`owned_rows`] hold it.
///
/// # Panics
/// If the table has no such row.
#[must_use]
pub fn row_owner(row: u32, total: u32, world: u32) -> Seat {
    assert!(row < total, "row {row} of a table of {total}");
    // The last owner whose range starts at or before the row: ⌊owner · total / world⌋ ≤ row.
    let owner = ((u64::from(row) + 1) * u64::from(world) - 1) / u64::from(total);
    Seat(owner as u32)
}

/// The rows of a table of `total` rows that `owner` keeps: neighbouring rows, as many as any other owner's or
/// one more. In the order of seats the ranges make up the table.
///
/// ```
/// use starlings_core::Seat;
/// use starlings_topology::{owned_rows, row_owner};
/// assert_eq!([0, 1, 2].map(|owner| owned_rows(Seat(owner), 10, 3)), [0..3, 3..6, 6..10]);
/// assert_eq!(row_owner(6, 10, 3), Seat(2));
/// ```
#[must_use]
pub fn owned_rows(owner: Seat, total: u32, world: u32) -> Range<u32> {
    let start = |seat: u32| (u64::from(seat) * u64::from(total) / u64::from(world)) as u32;
    start(owner.0)..start(owner.0 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_make_up_the_table_evenly_and_rows_find_their_owner() {
        for world in 1..=17 {
            for total in [0, 1, 5, 16, 17, 1000] {
                let mut end = 0;
                for owner in (0..world).map(Seat) {
                    let rows = owned_rows(owner, total, world);
                    assert_eq!(rows.start, end);
                    assert!(
                        (total / world..=total.div_ceil(world)).contains(&(rows.end - rows.start))
                    );
                    assert!(rows.clone().all(|row| row_owner(row, total, world) == owner));
                    end = rows.end;
                }
                assert_eq!(end, total);
            }
        }
    }

    #[test]
    fn the_largest_tables_and_flocks_do_not_overflow() {
        let (total, world) = (u32::MAX, u32::MAX - 1);
        let last = owned_rows(Seat(world - 1), total, world);
        assert_eq!(last.end, total);
        assert_eq!(row_owner(total - 1, total, world), Seat(world - 1));
    }

    #[test]
    fn the_owner_folds_others_in_the_order_of_seats_and_answers_all() {
        let made = owners_to_moves(&[Seat(1)], Seat(1), 4);
        let expected = [(0, Act::Fold), (2, Act::Fold), (3, Act::Fold)].into_iter();
        let expected = expected.chain([0, 2, 3].map(|peer| (peer, Act::SendTotal)));
        let expected: Vec<Move> =
            expected.map(|(peer, act)| Move { chunk: 0, peer: Seat(peer), act }).collect();
        assert_eq!(made, expected);
    }
}
