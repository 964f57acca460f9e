//! What spreads to all seats in the fewest turns. In turn k each tells the seat 2^k places ahead, and hears the one as far
//! behind (Hensgen, Finkel and Manber, Two Algorithms for Barrier Synchronization, 1988): of two, each waits for one
//! message, where a sum would be a message there and one back. A seat may hear of another twice, which a barrier does not
//! mind and a maximum neither, as a sum would.

use super::Merger;
use crate::net::Arrival;
use starlings_core::{Block, Body, Deadline, Fault, Result, Seat, Update, Values};
use starlings_transport::{Header, Lane};

impl Merger {
    /// Returns when all seats have called it.
    ///
    /// # Errors
    /// As [`merge`](Merger::merge).
    pub fn meet(&mut self) -> Result<()> {
        if self.shared.is_some() {
            let here = Update { blocks: vec![Block::counts("here", vec![1])] };
            return self.merge_by(here, true).map(drop);
        }
        self.spread(Vec::new(), |_, heard| heard.is_empty()).map(drop)
    }

    /// The largest of each number over the group, of an update that is whole numbers throughout.
    ///
    /// # Errors
    /// As [`merge`](Merger::merge).
    ///
    /// # Panics
    /// If the update holds anything else.
    pub fn largest(&mut self, mut mine: Update) -> Result<Update> {
        let numbers = mine.blocks.iter_mut().flat_map(|block| numbers_of(block).iter());
        let said = numbers.flat_map(|number| number.to_le_bytes()).collect();
        let all = self.spread(said, |told, heard| {
            for (told, heard) in told.as_chunks_mut().0.iter_mut().zip(heard.as_chunks().0) {
                if i64::from_le_bytes(*heard) > i64::from_le_bytes(*told) {
                    *told = *heard;
                }
            }
            told.len() == heard.len()
        })?;
        let numbers = mine.blocks.iter_mut().flat_map(|block| numbers_of(block).iter_mut());
        for (number, largest) in numbers.zip(all.as_chunks().0) {
            *number = i64::from_le_bytes(*largest);
        }
        Ok(mine)
    }

    /// Tells others what is told so far, which `hear` adds to: false where that cannot be.
    fn spread(
        &mut self,
        mut told: Vec<u8>,
        hear: impl Fn(&mut [u8], &[u8]) -> bool,
    ) -> Result<Vec<u8>> {
        let (count, by) = (self.next_count(), Deadline::after(self.patience));
        let (me, seats) = (self.me.index(), self.group.len());
        let ways = (0..).map(|turn| (turn, 1 << turn)).take_while(|&(_, ahead)| ahead < seats);
        for (turn, ahead) in ways {
            let to = Seat(((me + ahead) % seats) as u32);
            let from = self.group[(me + seats - ahead) % seats];
            self.send(to, (turn, false, count), &told, by)?;
            let wanted =
                Header { lane: Lane::Exchange, kind: self.kind, step: count, tag: turn as u32 };
            let is_here = |arrival: &Arrival| arrival.from == from && arrival.header == wanted;
            let host = self.net.host(from);
            let heard = self
                .net
                .next(Lane::Exchange, is_here, by)
                .map_err(|fault| fault.during(format!("waiting for word of {from} on {host}")))?;
            if !hear(&mut told, &heard.payload) {
                let what = format!("{from} on {host} spoke of something else");
                return Err(Fault::peer(Some(from), what));
            }
            self.net.recycle(from, heard.payload);
        }
        Ok(told)
    }
}

fn numbers_of(block: &mut Block) -> &mut [i64] {
    match &mut block.body {
        Body::Dense(Values::I64(numbers)) => numbers,
        _ => panic!("'{}' has no whole numbers", block.name),
    }
}
