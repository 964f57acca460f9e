//! Ownership as moves: how an owner map becomes a sum under a barrier. Which owner keeps which rows of a table is
//! in `keys.rs`.

use crate::{Act, Move, Pattern};
use starlings_core::Seat;

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

#[cfg(test)]
mod tests {
    use super::*;

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
