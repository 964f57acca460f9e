//! How a flock agrees on the exponents of the reproducible fold: the largest of each bucket. They are few, so that waiting
//! costs more than bytes: in a small flock everyone tells everyone, which takes as long as one message; in a large one a
//! tree does it.

use crate::choices::{Carriage, summing};
use crate::exchange::reproducible::Peaks;
use crate::merge::{MergeOptions, Merger};
use crate::net::{Arrival, Net};
use starlings_codec::{Codec, Into as Put};
use starlings_core::{Body, Deadline, Fault, Result, Seat, Step, Update};
use starlings_transport::{Header, Lane};
use std::sync::Arc;
use std::time::Duration;

/// The kind of these messages on the exchange lane.
const KIND: u8 = 7;
/// In larger flocks a tree sends fewer messages.
const SEATS_MAX: u32 = 8;

/// Agrees on the largest exponents, one sum after another.
pub struct PeakTalk {
    net: Arc<Net>,
    tree: Merger,
    patience: Duration,
    count: u64,
}

impl PeakTalk {
    /// Among all seats of a net.
    ///
    /// # Errors
    /// When there is no tree.
    pub fn new(net: &Arc<Net>, patience: Duration) -> Result<PeakTalk> {
        let tree = MergeOptions::exact(KIND, net, summing("tree", "")?, patience);
        let carriage = Carriage::Numbers(Arc::new(Peaks));
        let tree = Merger::new(net.clone(), MergeOptions { carriage, ..tree });
        Ok(PeakTalk { net: net.clone(), tree, patience, count: 0 })
    }

    /// The largest of everyone's exponents.
    ///
    /// # Errors
    /// A lost peer, an abort, the deadline, or a peer that broke the protocol.
    pub fn agree(&mut self, own: Update) -> Result<Update> {
        if self.net.world() > SEATS_MAX {
            return self.tree.merge(own);
        }
        self.count += 1;
        let (me, by) = (self.net.seat(), Deadline::after(self.patience));
        let others = (0..self.net.world()).map(Seat).filter(|seat| *seat != me);
        let header = Header { lane: Lane::Exchange, kind: KIND, step: Step(self.count), tag: 0 };
        let mut bytes = Vec::new();
        for block in &own.blocks {
            if let Body::Dense(exponents) = &block.body {
                Peaks.encode(exponents, 0, exponents.len(), &mut bytes);
            }
        }
        for to in others.clone() {
            self.net.send(to, header, &bytes, by)?;
        }
        let mut largest = own;
        for _ in others {
            let mine = |arrival: &Arrival| {
                arrival.header.kind == KIND && arrival.header.step == header.step
            };
            let arrival = self.net.next(Lane::Exchange, mine, by);
            let arrival = arrival.map_err(|fault| fault.during("agreeing on exponents"))?;
            raise(&mut largest, &arrival)?;
            self.net.recycle(arrival.from, arrival.payload);
        }
        Ok(largest)
    }
}

/// Takes another seat's exponents where they are larger.
fn raise(largest: &mut Update, arrival: &Arrival) -> Result<()> {
    let broken = || {
        let from = arrival.from;
        Fault::peer(Some(from), format!("{from} sent exponents of other blocks"))
    };
    let mut rest = &arrival.payload[..];
    for block in &mut largest.blocks {
        let Body::Dense(exponents) = &mut block.body else { return Err(broken()) };
        let (kind, len) = (exponents.kind(), exponents.len());
        let (theirs, after) =
            rest.split_at_checked(Peaks.encoded_len(kind, len)).ok_or_else(broken)?;
        Peaks.decode(theirs, exponents, 0..len, Put::Add).map_err(|_| broken())?;
        rest = after;
    }
    if rest.is_empty() { Ok(()) } else { Err(broken()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::adder::{PATIENCE, perches, run_all};
    use starlings_core::Block;

    fn exponents(seat: i64, step: i64) -> Update {
        let first = vec![seat, -seat, step, i64::MIN, if seat == 1 { i64::MAX } else { 3 }];
        Update { blocks: vec![Block::counts("a", first), Block::counts("b", vec![7 * seat])] }
    }

    #[test]
    fn everyone_has_the_largest_of_all_in_small_flocks_and_in_large_ones() {
        for world in [1, 2, 3, 8, 9] {
            let found = run_all(&perches(world), |perch| {
                let mut talk = PeakTalk::new(&perch.net, PATIENCE).unwrap();
                let agree = |step| talk.agree(exponents(perch.seat() as i64, step)).unwrap();
                (0..3).map(agree).collect::<Vec<Update>>()
            });
            let last = i64::from(world) - 1;
            for agreed in found {
                for (step, agreed) in agreed.iter().enumerate() {
                    let top = if last > 0 { i64::MAX } else { 3 };
                    assert_eq!(agreed.i64("a"), [last, 0, step as i64, i64::MIN, top]);
                    assert_eq!(agreed.i64("b"), [7 * last]);
                }
            }
        }
    }

    #[test]
    fn exponents_of_other_blocks_are_refused() {
        let header = Header { lane: Lane::Exchange, kind: KIND, step: Step(1), tag: 0 };
        for len in [0, 8, 47, 49] {
            let arrival = Arrival { from: Seat(1), header, payload: vec![0; len] };
            assert!(raise(&mut exponents(0, 0), &arrival).is_err(), "{len}");
        }
    }
}
