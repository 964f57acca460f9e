//! Memory of a sum that is lent to links while the sum is made: what arrives is read from the system straight to where it
//! belongs, instead of into a payload that is then copied or added from.
//!
//! A chunk is lent to one peer at a time, the one whose frame is its next move, and only when all that this seat had to send of
//! it before has left. So a frame that turns out to be damaged spoils nothing: its link ends, the chunk stays incomplete, and
//! with it the sum.

use super::{Act, Command, Part, Scheduled, bytes_of, encode_part};
use starlings_core::{Body, Seat, Update, Values};
use starlings_topology::Move;
use starlings_transport::shared::add_to;

/// Sums of so many bytes are not lent even where no contribution is kept.
const LENT_BELOW: usize = 128 << 20;

/// What a machine has lent.
pub struct Lent<'a> {
    plan: Plan<'a>,
    blocks: Vec<Free<'a>>,
}

/// What says which chunk waits for whom.
struct Plan<'a> {
    chunks: &'a [Vec<Part>],
    moves: &'a [Vec<Move>],
    next: &'a [usize],
    begun: &'a [bool],
    owed: &'a [u32],
    /// Whether the sum is made beside a contribution.
    is_beside: bool,
}

/// The bytes of a block before and after those that are being sent. Blocks that are not dense have none.
struct Free<'a> {
    width: usize,
    before: &'a mut [u8],
    after: &'a mut [u8],
    after_from: usize,
}

/// A frame of a sum, some of which may lie where it was lent memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Landing {
    /// From whom.
    pub from: Seat,
    /// Which chunk.
    pub chunk: usize,
    /// Whether it is the total (or else a partial sum).
    pub total: bool,
    /// Bytes that lie in the memory that was lent.
    pub placed: usize,
    /// The bytes after those.
    pub rest: Vec<u8>,
}

impl Lent<'_> {
    /// Where a frame of a chunk shall lie, if it is the one that the chunk waits for and has as many bytes.
    pub fn room(
        &mut self,
        from: Seat,
        (chunk, total): (usize, bool),
        length: usize,
    ) -> Option<&mut [u8]> {
        let part = self.plan.awaited(from, chunk, total)?;
        let Free { width, before, after, after_from } = self.blocks.get_mut(part.block)?;
        let (from, to) = (part.from * *width, part.to * *width);
        if to - from != length {
            return None;
        }
        match to <= before.len() {
            true => Some(&mut before[from..to]),
            false => after.get_mut(from.checked_sub(*after_from)?..to - *after_from),
        }
    }
}

impl Plan<'_> {
    /// The one part of a chunk whose next move is to take such a frame.
    fn awaited(&self, from: Seat, chunk: usize, total: bool) -> Option<Part> {
        let next = self.moves.get(chunk)?.get(self.next[chunk])?;
        let is_next = match next.act {
            Act::Replace => total,
            Act::Fold => !total && self.is_beside && !self.begun[chunk],
            Act::SendPartial | Act::SendTotal => false,
        };
        let is_awaited = is_next && next.peer == from && self.owed[chunk] == 0;
        match self.chunks[chunk][..] {
            [part] if is_awaited => Some(part),
            _ => None,
        }
    }
}

impl<'a> Lent<'a> {
    /// Lends all of a sum but the part that is being sent, whose bytes it gives.
    fn of(plan: Plan<'a>, sum: &'a mut Update, sent: Option<Part>) -> (&'a [u8], Lent<'a>) {
        let mut bytes: &[u8] = &[];
        let blocks = sum.blocks.iter_mut().enumerate().map(|(block, content)| {
            let (width, all) = match &mut content.body {
                Body::Dense(values) => (values.kind().bytes(), memory(values)),
                Body::Rows(_) | Body::Factors(_) => (1, &mut [][..]),
            };
            let sent = sent.filter(|part| part.block == block);
            let (from, to) = sent
                .map_or((all.len(), all.len()), |Part { from, to, .. }| (from * width, to * width));
            let (before, rest) = all.split_at_mut(from);
            let (between, after) = rest.split_at_mut(to - from);
            if sent.is_some() {
                bytes = between;
            }
            Free { width, before, after, after_from: to }
        });
        let blocks = blocks.collect();
        (bytes, Lent { plan, blocks })
    }

    fn nothing() -> Lent<'a> {
        let plan =
            Plan { chunks: &[], moves: &[], next: &[], begun: &[], owed: &[], is_beside: false };
        Lent { plan, blocks: Vec::new() }
    }
}

impl Scheduled {
    /// Whether anything is lent. What the system writes goes through the caches: a large sum is better written around them,
    /// from payloads, unless it is worked on afterwards.
    fn is_lent(&self) -> bool {
        let below = match &self.contribution {
            Some(_) => self.around.sums_from,
            None if self.working.is_some() => usize::MAX,
            None => LENT_BELOW,
        };
        self.lends && self.touched < below
    }

    /// Lends what may be written while this seat waits.
    pub fn lend(&mut self) -> Lent<'_> {
        if !self.is_lent() {
            return Lent::nothing();
        }
        let Scheduled { update, contribution, chunks, moves, next, begun, owed, .. } = self;
        let is_beside = contribution.is_some();
        Lent::of(Plan { chunks, moves, next, begun, owed, is_beside }, update, None).1
    }

    /// As [`Scheduled::payload`], and lends what may be written while it is sent.
    pub fn payload_and_lend<'a>(
        &'a mut self,
        chunk: usize,
        scratch: &'a mut Vec<u8>,
    ) -> (&'a [u8], Lent<'a>) {
        self.work_before(chunk);
        if !self.is_lent() {
            return (self.payload(chunk, scratch), Lent::nothing());
        }
        let Scheduled {
            update, contribution, warm, coding, chunks, moves, next, begun, owed, ..
        } = self;
        let is_beside = contribution.is_some();
        let plan = Plan { chunks, moves, next, begun, owed, is_beside };
        if let Some((of, _, payload)) = warm
            && *of == chunk
        {
            return (payload, Lent::of(plan, update, None).1);
        }
        let parts = &chunks[chunk][..];
        if let Some(kept) = contribution.as_ref().filter(|_| !begun[chunk]) {
            return (bytes_of(coding, kept, parts, scratch), Lent::of(plan, update, None).1);
        }
        if let [part] = *parts
            && matches!(update.blocks[part.block].body, Body::Dense(_))
        {
            return Lent::of(plan, update, Some(part));
        }
        scratch.clear();
        parts.iter().for_each(|part| encode_part(coding, update, part, scratch));
        (scratch, Lent::of(plan, update, None).1)
    }

    /// How many chunks this seat was the first to send and has no total of yet.
    #[must_use]
    pub fn abroad(&self) -> usize {
        self.abroad_count
    }

    /// A chunk that was wanted to be sent has left.
    pub fn sent(&mut self, chunk: usize) {
        let moves = &self.moves[chunk];
        if moves[0].act == Act::SendPartial && self.next[chunk] < moves.len() {
            self.abroad_count += usize::from(!std::mem::replace(&mut self.abroad[chunk], true));
        }
        self.owed[chunk] = self.owed[chunk].saturating_sub(1);
        self.work_after(chunk);
    }

    /// Takes a frame that arrived where it was lent memory. After `Done` or `Fail` it is ignored.
    pub fn land(&mut self, landing: Landing, out: &mut Vec<Command>) {
        let Landing { from, chunk, total, placed, rest } = landing;
        if self.over {
            return;
        }
        self.cool();
        match self.lend().room(from, (chunk, total), placed + rest.len()) {
            Some(place) => place[placed..].copy_from_slice(&rest),
            None => {
                let why = format!("sent chunk {chunk}, which nobody waits for");
                return self.fail(from, why, out);
            }
        }
        match total {
            true => self.work_replaced(chunk),
            false => self.add_contribution(chunk),
        }
        self.begun[chunk] = true;
        self.settled[chunk] |= total;
        self.next[chunk] += 1;
        self.left -= 1;
        self.advance(chunk, out);
        self.finish_if_done(out);
    }

    /// Adds the contribution to the partial sum that lies where the sum will be.
    fn add_contribution(&mut self, chunk: usize) {
        let contribution = self.contribution.as_ref().expect("partial sums land beside one");
        for part in &self.chunks[chunk] {
            let range = part.from..part.to;
            let base = &contribution.blocks[part.block].body;
            let (Body::Dense(base), Body::Dense(into)) =
                (base, &mut self.update.blocks[part.block].body)
            else {
                unreachable!("only dense blocks are lent");
            };
            match (base, into) {
                (Values::F32(base), Values::F32(into)) => {
                    add_to(&base[range.clone()], &mut into[range]);
                }
                (Values::F64(base), Values::F64(into)) => {
                    add_to(&base[range.clone()], &mut into[range]);
                }
                (Values::I64(base), Values::I64(into)) => {
                    add_to(&base[range.clone()], &mut into[range]);
                }
                _ => unreachable!("room has the shape of its contribution"),
            }
        }
    }
}

/// Numbers as the bytes that they are.
fn memory(values: &mut Values) -> &mut [u8] {
    match values {
        Values::F32(values) => bytemuck::cast_slice_mut(values),
        Values::F64(values) => bytemuck::cast_slice_mut(values),
        Values::I64(values) => bytemuck::cast_slice_mut(values),
    }
}
