//! What spreads to all seats in the fewest turns. In turn k each tells the seat 2^k places ahead, and hears the one as far
//! behind (Hensgen, Finkel and Manber, Two Algorithms for Barrier Synchronization, 1988): of two, each waits for one
//! message, where a sum would be a message there and one back. A seat may hear of another twice, which a barrier does not
//! mind and a maximum neither. A sum does: its seats, a power of two of them, pair up with the one whose number differs in
//! bit k (recursive doubling: Thakur, Rabenseifner and Gropp, 2005), and since the two sides then add in different orders
//! its numbers must be whole.

use super::Merger;
use crate::choices::raw;
use crate::net::Arrival;
use starlings_codec::Into as Put;
use starlings_core::{Block, Body, Deadline, Fault, Kind, Result, Seat, Update, Values};
use starlings_transport::{Header, Lane};

/// Longer sums are made by a topology: it cuts them, so that a seat folds only a part.
const DOUBLED_BYTES_MAX: usize = 16 << 10;

/// Whom a seat tells, and whom it hears, over a distance.
type Partners = fn(seats: usize, me: usize, distance: usize) -> (usize, usize);

const AROUND: Partners =
    |seats, me, distance| ((me + distance) % seats, (me + seats - distance) % seats);
const PAIRED: Partners = |_, me, distance| (me ^ distance, me ^ distance);

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
        self.spread(Vec::new(), AROUND, |_, heard| heard.is_empty()).map(drop)
    }

    /// The largest of each number over the group, of an update that is whole numbers throughout.
    ///
    /// # Errors
    /// As [`merge`](Merger::merge).
    ///
    /// # Panics
    /// If the update holds anything else.
    pub fn largest(&mut self, mine: Update) -> Result<Update> {
        self.combined(mine, AROUND, i64::max)
    }

    /// Whether [`doubled`](Merger::doubled) sums such an update, and sooner than a topology would.
    pub(super) fn is_doubled(&self, update: &Update) -> bool {
        let is_whole = |block: &Block| matches!(block.body, Body::Dense(Values::I64(_)));
        self.group.len().is_power_of_two()
            && update.bytes() <= DOUBLED_BYTES_MAX
            && update.blocks.iter().all(is_whole)
    }

    /// The sum of whole numbers over the group.
    pub(super) fn doubled(&mut self, mine: Update) -> Result<Update> {
        let sum = self.combined(mine, PAIRED, i64::wrapping_add)?;
        self.parting = self.parting.map(|sums| sums + 1);
        Ok(sum)
    }

    /// Puts the numbers of all seats together, those of two at a time.
    fn combined(
        &mut self,
        mut mine: Update,
        partners: Partners,
        both: impl Fn(i64, i64) -> i64,
    ) -> Result<Update> {
        let mut said = Vec::with_capacity(mine.bytes());
        for block in &mut mine.blocks {
            let numbers = numbers_of(block);
            raw().encode(numbers, 0, numbers.len(), &mut said);
        }
        let all = self.spread(said, partners, |told, heard| {
            for (told, heard) in told.as_chunks_mut().0.iter_mut().zip(heard.as_chunks().0) {
                *told = both(i64::from_le_bytes(*told), i64::from_le_bytes(*heard)).to_le_bytes();
            }
            told.len() == heard.len()
        })?;
        let mut rest = &all[..];
        for block in &mut mine.blocks {
            let numbers = numbers_of(block);
            let (here, after) = rest.split_at(numbers.len() * Kind::I64.bytes());
            let range = 0..numbers.len();
            raw().decode(here, numbers, range, Put::Put).expect("as many as were told");
            rest = after;
        }
        Ok(mine)
    }

    /// Tells others what is told so far, which `hear` adds to: false where that cannot be.
    fn spread(
        &mut self,
        mut told: Vec<u8>,
        partners: Partners,
        hear: impl Fn(&mut [u8], &[u8]) -> bool,
    ) -> Result<Vec<u8>> {
        let (count, by) = (self.next_count(), Deadline::after(self.patience));
        let (me, seats) = (self.me.index(), self.group.len());
        let turns = (0..).map(|turn| (turn, 1 << turn)).take_while(|&(_, reach)| reach < seats);
        for (turn, reach) in turns {
            let (to, from) = partners(seats, me, reach);
            let (to, from) = (Seat(to as u32), self.group[from]);
            self.bytes_raw += told.len() as u64;
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

fn numbers_of(block: &mut Block) -> &mut Values {
    match &mut block.body {
        Body::Dense(numbers @ Values::I64(_)) => numbers,
        _ => panic!("'{}' has no whole numbers", block.name),
    }
}
