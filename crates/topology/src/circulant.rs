//! Circulant graphs: seat i sends to i + o (mod P) for each offset o of a fixed set. All seats are alike, so
//! equal weights make the mixing matrix doubly stochastic for every world, directed or not.

use crate::Cost;
use starlings_core::Seat;

/// Whom a seat sends to, in the order of seats.
pub(crate) fn sends_to(offsets: &[u32], seat: Seat, world: u32) -> Vec<Seat> {
    let mut peers: Vec<Seat> =
        offsets.iter().map(|offset| Seat((seat.0 + offset) % world)).collect();
    peers.sort_unstable();
    peers
}

/// What a seat mixes: all that it is sent, and its own, with equal weights, in the order of seats.
pub(crate) fn weights(offsets: &[u32], seat: Seat, world: u32) -> Vec<(Seat, f64)> {
    let backwards: Vec<u32> = offsets.iter().map(|offset| world - offset).chain([0]).collect();
    let weight = 1.0 / backwards.len() as f64;
    sends_to(&backwards, seat, world).into_iter().map(|source| (source, weight)).collect()
}

/// Rounds after which news of one seat has reached all, when round r uses `offsets(r)`.
///
/// # Panics
/// If it never does: the offsets do not connect the world.
pub(crate) fn rounds_max(world: u32, offsets: impl Fn(u64) -> Vec<u32>) -> u64 {
    let mut reached = vec![false; world as usize];
    reached[0] = true;
    let mut rounds = 0;
    while reached.contains(&false) {
        assert!(rounds <= u64::from(world), "the offsets do not connect a world of {world}");
        let before: Vec<u32> = (0..world).filter(|&seat| reached[seat as usize]).collect();
        for offset in offsets(rounds) {
            before.iter().for_each(|seat| reached[((seat + offset) % world) as usize] = true);
        }
        rounds += 1;
    }
    rounds
}

/// What a round costs in which every seat sends `bytes` to `degree` peers.
pub(crate) fn cost(world: u32, bytes: u64, degree: usize) -> Cost {
    let sent = degree as f64 * bytes as f64;
    Cost {
        rounds: u64::from(degree > 0),
        bytes_sent_max: sent,
        bytes_sent_total: f64::from(world) * sent,
    }
}

/// Offsets in order, once each, and never a seat itself.
pub(crate) fn tidy(world: u32, offsets: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut tidy: Vec<u32> =
        offsets.into_iter().map(|offset| offset % world).filter(|&offset| offset > 0).collect();
    tidy.sort_unstable();
    tidy.dedup();
    tidy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_mixes_what_it_is_sent() {
        assert_eq!(sends_to(&[1, 3], Seat(4), 5), [Seat(0), Seat(2)]);
        let third = 1.0 / 3.0;
        let expected = [(Seat(1), third), (Seat(3), third), (Seat(4), third)];
        assert_eq!(weights(&[1, 3], Seat(4), 5), expected);
    }

    #[test]
    fn news_travels_as_far_as_the_offsets_carry_it() {
        assert_eq!(rounds_max(7, |_| vec![1]), 6);
        assert_eq!(rounds_max(7, |_| vec![1, 6]), 3);
        assert_eq!(rounds_max(1, |_| Vec::new()), 0);
    }

    #[test]
    #[should_panic(expected = "do not connect")]
    fn offsets_that_leave_seats_out_are_a_bug() {
        let _ = rounds_max(6, |_| vec![2, 4]);
    }
}
