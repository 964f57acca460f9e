//! Partial gradient exchange (Watcharapichat et al., 2016: Ako): a gradient is cut into p parts, and each
//! round a worker sends one part of what it has gathered to all others; what is not sent stays and adds up.
//! Everything arrives within p rounds, no round sends more than the links carry, and there is no server.
//!
//! p is the smallest number for which a part reaches all others within the time of a step:
//! `p = ⌈(P−1) · n / (bandwidth · step)⌉`. Seat s sends part `(s + r) mod p` in round r, so that at any time
//! all parts are under way.
//!
//! Cost of a round for a gradient of `n` bytes: 1 round, `(P−1) · n / p` bytes sent by each seat, `P(P−1) · n / p` by all.
//! Parts of a gradient that p does not divide differ by a number, so this is the mean of p rounds.

use super::BuildTopology;
use crate::{Cost, Form, Pace, Partial};
use starlings_core::{Ability, Entry, Param, ParamKind, Seat};

pub(super) const ENTRY: Entry<BuildTopology> = Entry {
    name: "ako",
    summary: "Each round one part of the gathered gradient goes to all, as large as the links carry",
    reference: "Watcharapichat et al.: Ako: decentralised deep learning with partial gradient exchange, SoCC 2016",
    params: &[Param {
        name: "partitions",
        kind: ParamKind::Integer { min: 0, max: PARTS_MAX as i64 },
        default: Some("0"),
        help: "parts of a gradient; 0 chooses from the measured bandwidth and the time of a step",
    }],
    gives: &[Ability::Anytime],
    needs: &[Ability::Unbounded, Ability::LocalSteps, Ability::Elementwise],
    build: |params| Ok(Form::Partial(Box::new(Ako { fixed: params.size("partitions") as u32 }))),
};

/// More parts would leave gradients lying for longer than learning tolerates.
const PARTS_MAX: u32 = 64;

struct Ako {
    /// Zero: from bandwidth.
    fixed: u32,
}

impl Partial for Ako {
    fn parts(&self, world: u32, bytes: u64, pace: Pace) -> u32 {
        if world < 2 {
            return 1;
        }
        if self.fixed > 0 {
            return self.fixed;
        }
        let to_send = f64::from(world - 1) * bytes as f64;
        let parts = (to_send / (pace.bytes_per_second * pace.step_seconds)).ceil();
        // An empty gradient over an unmeasured link is no number, and one part.
        if parts.is_nan() { 1 } else { parts.clamp(1.0, f64::from(PARTS_MAX)) as u32 }
    }

    fn part(&self, seat: Seat, round: u64, parts: u32) -> u32 {
        ((u64::from(seat.0) + round % u64::from(parts)) % u64::from(parts)) as u32
    }

    fn cost(&self, world: u32, bytes: u64, parts: u32) -> Cost {
        if world < 2 {
            return Cost::NOTHING;
        }
        let sent = f64::from(world - 1) * bytes as f64 / f64::from(parts);
        Cost { rounds: 1, bytes_sent_max: sent, bytes_sent_total: f64::from(world) * sent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { bytes_per_second: 1e6, step_seconds: 0.1 };

    #[test]
    fn a_part_fits_in_a_step_and_one_part_fewer_would_not() {
        let ako = Ako { fixed: 0 };
        for (world, bytes) in [(4, 100_000), (4, 100_001), (5, 1), (9, 123_456)] {
            let parts = ako.parts(world, bytes, PACE);
            let seconds = |parts: u32| {
                let sent = u64::from(world - 1) * bytes;
                sent as f64 / f64::from(parts) / PACE.bytes_per_second
            };
            assert!(seconds(parts) <= PACE.step_seconds, "world {world}, {bytes} bytes: {parts}");
            assert!(parts == 1 || seconds(parts - 1) > PACE.step_seconds);
            let sent = ako.cost(world, bytes, parts).bytes_sent_max;
            assert!(
                sent <= PACE.bytes_per_second * PACE.step_seconds,
                "the cost fits, too: {sent}"
            );
        }
        assert_eq!(ako.parts(4, 100_000, PACE), 3);
    }

    #[test]
    fn links_that_were_not_measured_or_are_hopeless_get_the_most_parts() {
        let ako = Ako { fixed: 0 };
        assert_eq!(ako.parts(1024, u64::MAX, PACE), PARTS_MAX);
        assert_eq!(ako.parts(2, 1, Pace { bytes_per_second: 0.0, ..PACE }), PARTS_MAX);
        assert_eq!(ako.parts(2, 0, Pace { bytes_per_second: 0.0, ..PACE }), 1);
        assert_eq!((Ako { fixed: 7 }).parts(2, 1, PACE), 7);
    }
}
