//! The played exchange: a pure machine that plays a topology's moves for one sum. Events in, commands out;
//! no socket, no clock, no thread. The blocking shell (`merge.rs`) and the simulator drive the same code.
//!
//! Moves on one chunk happen in the order of the topology's list, whatever the order of arrival: frames that
//! come early wait. So the fold order, and with it every bit of the sum, is fixed by the topology.

mod coding;
mod lent;
mod work;

pub use lent::{Landing, Lent};
pub use work::Work;
pub(crate) use work::{after_all, before_all};

use super::cut::{Part, cut};
use coding::Coding;
use starlings_codec::{Codec, Into as Put, Law, Malformed, Shapes};
use starlings_core::{Body, Seat, Update, Values, planted};
use starlings_topology::{Act, Move};
use starlings_transport::shared::{Number, add, put_around, sum_around, sum_beside};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why no factors come here.
const PLAYED: &str = "factors are multiplied out before their sum is played";

/// What happens to the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The sum may begin.
    Begin,
    /// A peer's partial or total sum of a chunk has arrived.
    Frame {
        /// From whom.
        from: Seat,
        /// Which chunk.
        chunk: usize,
        /// Whether it is the total (or else a partial sum).
        total: bool,
        /// The encoded numbers.
        payload: Vec<u8>,
    },
    /// A peer is gone.
    Lost {
        /// Which.
        seat: Seat,
        /// How we know.
        why: String,
    },
}

/// What the machine wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Send a chunk as it is now: [`Scheduled::payload`] has its bytes until the next event.
    Send {
        /// To whom.
        to: Seat,
        /// Which chunk.
        chunk: usize,
        /// Whether it is the total (or else a partial sum).
        total: bool,
    },
    /// The sum is complete: [`Scheduled::take`] it.
    Done,
    /// The sum cannot be had.
    Fail {
        /// Who is to blame.
        seat: Seat,
        /// What was being done.
        phase: String,
        /// What went wrong.
        why: String,
    },
}

/// The machine for one sum. Seats are places in the group that sums, 0 to world − 1.
pub struct Scheduled {
    coding: Coding,
    update: Update,
    /// Where the contribution is wanted back: then the sum is made in other memory, chunk by chunk.
    contribution: Option<Update>,
    /// Whether a chunk of the sum has its numbers already.
    begun: Vec<bool>,
    chunks: Vec<Vec<Part>>,
    moves: Vec<Vec<Move>>,
    next: Vec<usize>,
    settled: Vec<bool>,
    /// How often each chunk is still to be sent: the shell says what has left.
    owed: Vec<u32>,
    /// Chunks that this seat was the first to send and has no total of yet, and how many they are.
    abroad: Vec<bool>,
    abroad_count: usize,
    early: BTreeMap<(usize, Seat, bool), Vec<u8>>,
    /// The payload that has become what its chunk is now, and from whom it came: it is sent on from the caches, where the
    /// chunk itself is not.
    warm: Option<(usize, Seat, Vec<u8>)>,
    /// Payloads that have been absorbed, and from whom they came.
    spent: Vec<(Seat, Vec<u8>)>,
    around: Around,
    working: Option<work::Working>,
    /// Whether links may write into the sum.
    lends: bool,
    /// Bytes that the sum touches: its own, and those of a contribution that stays as it is.
    touched: usize,
    left: usize,
    over: bool,
}

/// Absorbed payloads that are kept for whoever wants their memory back.
const SPENT_MAX: usize = 32;

/// Sums in smaller chunks are not lent: their frames are read many at a time.
const LENT_BYTES: usize = 32 << 10;

/// From how many touched bytes on results are written around the caches: they would not stay there until they are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Around {
    /// Sums that are made beside a contribution, and would else be read before they are written.
    pub sums_from: usize,
    /// Totals of others.
    pub totals_from: usize,
}

/// What was found by measurement.
const AROUND: Around = Around { sums_from: 32 << 20, totals_from: 64 << 20 };

impl Scheduled {
    /// A machine that will sum `update` over the group. `moves(chunks)` gives this seat's moves for that
    /// many chunks; `grain` is the topology's.
    pub fn new(
        update: Update,
        codec: Arc<dyn Codec>,
        grain: usize,
        moves: impl FnOnce(usize) -> Vec<Move>,
    ) -> Scheduled {
        let (chunks, bytes) = (cut(&update, grain), update.bytes());
        let mut by_chunk = vec![Vec::new(); chunks.len()];
        let list = moves(chunks.len());
        let left = list.len();
        for step in list {
            by_chunk[step.chunk].push(step);
        }
        let lends = codec.is_memory() && bytes / chunks.len() >= LENT_BYTES;
        Scheduled {
            coding: Coding::all(codec, update.blocks.len()),
            update,
            contribution: None,
            begun: vec![true; chunks.len()],
            next: vec![0; chunks.len()],
            settled: vec![false; chunks.len()],
            owed: vec![0; chunks.len()],
            abroad: vec![false; chunks.len()],
            abroad_count: 0,
            chunks,
            moves: by_chunk,
            early: BTreeMap::new(),
            warm: None,
            spent: Vec::new(),
            around: AROUND,
            working: None,
            lends,
            touched: bytes,
            left,
            over: false,
        }
    }

    /// Leaves the contribution as it is and makes the sum in `room`, which has its shape. What is added first goes beside the
    /// contribution in the same pass.
    #[must_use]
    pub fn keeping(mut self, room: Update) -> Scheduled {
        self.contribution = Some(std::mem::replace(&mut self.update, room));
        self.begun.fill(false);
        self.touched *= 2;
        self
    }

    /// Only blocks of these names go through the codec: all others are statistics, and travel as they are.
    #[must_use]
    pub fn compressing(mut self, named: &Shapes) -> Scheduled {
        self.coding.only(&self.update, named);
        self
    }

    /// Writes around the caches in other cases than was found best.
    #[must_use]
    pub fn around(mut self, around: Around) -> Scheduled {
        self.around = around;
        self
    }

    /// Feeds an event. After `Done` or `Fail` further events are ignored.
    pub fn on(&mut self, event: Event, out: &mut Vec<Command>) {
        if self.over {
            return;
        }
        match event {
            Event::Begin => {
                for chunk in 0..self.chunks.len() {
                    self.advance(chunk, out);
                }
                self.finish_if_done(out);
            }
            Event::Frame { from, chunk, total, payload } => {
                if !self.expects(from, chunk, total) {
                    let why = format!("sent chunk {chunk}, which nobody waits for");
                    return self.fail(from, why, out);
                }
                self.early.insert((chunk, from, total), payload);
                self.advance(chunk, out);
                self.finish_if_done(out);
            }
            Event::Lost { seat, why } => self.fail(seat, why, out),
        }
    }

    /// The bytes of a chunk as it is now. `scratch` is used where they are not contiguous in memory.
    pub fn payload<'a>(&'a self, chunk: usize, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        if let Some((of, _, payload)) = &self.warm
            && *of == chunk
        {
            return payload;
        }
        let update = match &self.contribution {
            Some(contribution) if !self.begun[chunk] => contribution,
            _ => &self.update,
        };
        bytes_of(&self.coding, update, &self.chunks[chunk], scratch)
    }

    /// The sum so far; the whole sum after `Done`.
    #[must_use]
    pub fn sum(&self) -> &Update {
        &self.update
    }

    /// The sum, after `Done`.
    #[must_use]
    pub fn take(self) -> Update {
        self.take_both().0
    }

    /// The sum, after `Done` and when all has been sent, and the contribution where it was kept.
    #[must_use]
    pub fn take_both(mut self) -> (Update, Option<Update>) {
        // A sum that failed is thrown away, and its seats have others to find.
        if self.left == 0 {
            self.work_out();
        }
        (self.update, self.contribution)
    }

    /// Payloads that are no longer needed, with the seats they came from: their memory is warm.
    pub fn spent(&mut self) -> impl Iterator<Item = (Seat, Vec<u8>)> {
        self.spent.drain(..)
    }

    /// As [`Scheduled::spent`], when all has been sent.
    pub fn spent_last(&mut self) -> impl Iterator<Item = (Seat, Vec<u8>)> {
        self.cool();
        self.spent.drain(..)
    }

    /// Bytes that a chunk has in memory as it is now.
    #[must_use]
    pub fn bytes_raw(&self, chunk: usize) -> u64 {
        let bytes = |part: &Part| match &self.update.blocks[part.block].body {
            Body::Dense(values) => (part.to - part.from) * values.kind().bytes(),
            Body::Rows(rows) => {
                let first = rows.index.partition_point(|&row| (row as usize) < part.from);
                let last = rows.index.partition_point(|&row| (row as usize) < part.to);
                (last - first) * (4 + rows.width as usize * rows.values.kind().bytes())
            }
            Body::Factors(_) => unreachable!("{PLAYED}"),
        };
        self.chunks[chunk].iter().map(bytes).sum::<usize>() as u64
    }

    /// What this seat waits for at the moment, for messages and reports.
    #[must_use]
    pub fn waiting(&self) -> Option<(Seat, usize)> {
        (0..self.chunks.len()).find_map(|chunk| {
            let step = self.moves[chunk].get(self.next[chunk])?;
            matches!(step.act, Act::Fold | Act::Replace).then_some((step.peer, chunk))
        })
    }

    fn expects(&self, from: Seat, chunk: usize, total: bool) -> bool {
        let act = if total { Act::Replace } else { Act::Fold };
        chunk < self.chunks.len()
            && !self.early.contains_key(&(chunk, from, total))
            && self.moves[chunk][self.next[chunk]..]
                .iter()
                .any(|step| step.peer == from && step.act == act)
    }

    /// Plays the moves of a chunk as far as the frames that have arrived allow.
    fn advance(&mut self, chunk: usize, out: &mut Vec<Command>) {
        while let Some(&Move { peer, act, .. }) = self.moves[chunk].get(self.next[chunk]) {
            match act {
                Act::SendPartial => {
                    self.owed[chunk] += 1;
                    out.push(Command::Send { to: peer, chunk, total: false });
                }
                Act::SendTotal => {
                    self.settle(chunk);
                    self.owed[chunk] += 1;
                    if planted!("done-before-sent") && self.left == 1 {
                        self.over = true;
                        out.push(Command::Done);
                    }
                    out.push(Command::Send { to: peer, chunk, total: true });
                }
                Act::Fold | Act::Replace => {
                    let total = act == Act::Replace;
                    let Some(payload) = self.early.remove(&(chunk, peer, total)) else { return };
                    if let Err(malformed) = self.take_in(chunk, (peer, payload), total) {
                        return self.fail(peer, malformed.0.to_string(), out);
                    }
                    self.settled[chunk] |= total;
                }
            }
            self.next[chunk] += 1;
            self.left -= 1;
        }
        self.abroad_count -= usize::from(std::mem::take(&mut self.abroad[chunk]));
        self.work_after(chunk);
    }

    /// A lossy codec changes what the others will read, so the seat that completes a chunk reads it back
    /// itself: all seats end with the same bits.
    fn settle(&mut self, chunk: usize) {
        if !self.settled[chunk] && self.coding.law() != Law::Exact {
            self.begin(chunk);
            let mut bytes = Vec::new();
            for part in &self.chunks[chunk] {
                encode_part(&self.coding, &self.update, part, &mut bytes);
            }
            self.absorb(chunk, &mut bytes, true).expect("a codec reads what it wrote");
        }
        self.settled[chunk] = true;
    }

    /// Absorbs a payload, and keeps it as long as it is what will be sent next.
    fn take_in(
        &mut self,
        chunk: usize,
        (peer, mut payload): (Seat, Vec<u8>),
        total: bool,
    ) -> Result<(), Malformed> {
        self.cool();
        match total {
            true => self.work_replaced(chunk),
            false => self.work_before(chunk),
        }
        let is_current = self.absorb(chunk, &mut payload, total)?;
        let after = self.moves[chunk].get(self.next[chunk] + 1).map(|step| step.act);
        if is_current && matches!(after, Some(Act::SendPartial | Act::SendTotal)) {
            self.warm = Some((chunk, peer, payload));
        } else {
            self.spend(peer, payload);
        }
        Ok(())
    }

    fn spend(&mut self, peer: Seat, payload: Vec<u8>) {
        if self.spent.len() < SPENT_MAX {
            self.spent.push((peer, payload));
        }
    }

    /// What was sent from the caches is there no longer.
    fn cool(&mut self) {
        if let Some((_, peer, payload)) = self.warm.take() {
            self.spend(peer, payload);
        }
    }

    /// Adds a payload to its chunk, or puts it in its place. True where the payload is now what the chunk is.
    fn absorb(&mut self, chunk: usize, payload: &mut [u8], total: bool) -> Result<bool, Malformed> {
        // What is added to a contribution that stays as it is goes beside it at once; a total replaces it anyway.
        let is_first = !std::mem::replace(&mut self.begun[chunk], true) && !total;
        let base = self.contribution.as_ref().filter(|_| is_first);
        // What more will be added to must stay in the caches.
        let after = self.moves[chunk].get(self.next[chunk] + 1).map(|step| step.act);
        let Around { sums_from, totals_from } = self.around;
        let from = if total { totals_from } else { sums_from };
        let around = self.touched >= from && after != Some(Act::Fold);
        let is_memory = self.coding.is_memory();
        let (mut rest, mut is_current) = (payload, around && is_memory);
        for part in &self.chunks[chunk] {
            let body = base.map(|base| &base.blocks[part.block].body);
            let how = match body {
                Some(Body::Dense(base)) => How::Beside(base),
                _ if total && !planted!("total-added") => How::Put,
                _ => How::Add,
            };
            if is_memory
                && let Some(len) = fold_memory(&mut self.update, part, rest, (how, around))?
            {
                is_current &= !matches!(how, How::Add);
                rest = &mut rest[len..];
                continue;
            }
            is_current = false;
            let left = decode_part(&self.coding, &mut self.update, part, rest, how)?.len();
            let read = rest.len() - left;
            rest = &mut rest[read..];
        }
        if rest.is_empty() { Ok(is_current) } else { Err(Malformed("a chunk is too long")) }
    }

    /// Copies a chunk of the contribution to where it is summed, unless it is there. Rows are there from the start.
    fn begin(&mut self, chunk: usize) {
        if std::mem::replace(&mut self.begun[chunk], true) {
            return;
        }
        let contribution = self.contribution.as_ref().expect("kept where a chunk has not begun");
        for part in &self.chunks[chunk] {
            let from = &contribution.blocks[part.block].body;
            match (&mut self.update.blocks[part.block].body, from) {
                (Body::Dense(to), Body::Dense(from)) => to.copy_range(from, part.from..part.to),
                (Body::Rows(_), Body::Rows(_)) => {}
                _ => unreachable!("room has the shape of its contribution"),
            }
        }
    }

    fn finish_if_done(&mut self, out: &mut Vec<Command>) {
        if self.left == 0 && !self.over {
            (0..self.chunks.len()).for_each(|chunk| self.begin(chunk));
            self.over = true;
            out.push(Command::Done);
        }
    }

    fn fail(&mut self, seat: Seat, why: String, out: &mut Vec<Command>) {
        self.over = true;
        let phase = match self.waiting() {
            Some((peer, chunk)) => format!("waiting for chunk {chunk} of {peer}"),
            None => "sending chunks".to_string(),
        };
        out.push(Command::Fail { seat, phase, why });
    }
}

/// What becomes of numbers that have arrived.
enum How<'a, B: ?Sized = Values> {
    /// They are added to what is there.
    Add,
    /// They replace what is there.
    Put,
    /// They are added to these, which stay as they are, and the sums replace what is there.
    Beside(&'a B),
}

impl<B: ?Sized> Clone for How<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: ?Sized> Copy for How<'_, B> {}

/// The bytes of a chunk: as they lie in memory where the codec allows it, else encoded into `scratch`.
fn bytes_of<'a>(
    coding: &Coding,
    update: &'a Update,
    chunk: &[Part],
    scratch: &'a mut Vec<u8>,
) -> &'a [u8] {
    if let [part] = *chunk
        && let Body::Dense(values) = &update.blocks[part.block].body
        && let Some(bytes) = coding.of(part.block).borrow(values, part.from, part.to)
    {
        return bytes;
    }
    scratch.clear();
    chunk.iter().for_each(|part| encode_part(coding, update, part, scratch));
    scratch
}

fn encode_part(coding: &Coding, update: &Update, part: &Part, out: &mut Vec<u8>) {
    let codec = coding.of(part.block);
    match &update.blocks[part.block].body {
        Body::Dense(values) => codec.encode(values, part.from, part.to, out),
        Body::Rows(rows) => {
            // Rows have no fixed length, so theirs goes before them.
            let at = out.len();
            out.extend_from_slice(&[0; 4]);
            codec.encode_rows(&rows.range(part.from as u32, part.to as u32), out);
            let len = (out.len() - at - 4) as u32;
            out[at..at + 4].copy_from_slice(&len.to_le_bytes());
        }
        Body::Factors(_) => unreachable!("{PLAYED}"),
    }
}

/// Adds or puts numbers that travel as they lie in memory; how many bytes they were. What is written around the caches is then
/// in `bytes`, too. `None` for rows, and where the bytes do not lie as numbers must.
fn fold_memory(
    update: &mut Update,
    part: &Part,
    bytes: &mut [u8],
    (how, around): (How<'_>, bool),
) -> Result<Option<usize>, Malformed> {
    let Body::Dense(values) = &mut update.blocks[part.block].body else { return Ok(None) };
    let range = part.from..part.to;
    let len = range.len() * values.kind().bytes();
    let mine = bytes.get_mut(..len).ok_or(Malformed("a chunk is too short"))?;
    macro_rules! fold {
        ($kind:ident, $into:expr) => {{
            let how = match how {
                How::Add => How::Add,
                How::Put => How::Put,
                How::Beside(Values::$kind(base)) => How::Beside(&base[range.clone()]),
                How::Beside(_) => unreachable!("room has the shape of its contribution"),
            };
            fold_slice(&mut $into[range], mine, how, around)
        }};
    }
    let is_done = match values {
        Values::F32(into) => fold!(F32, into),
        Values::F64(into) => fold!(F64, into),
        Values::I64(into) => fold!(I64, into),
    };
    Ok(is_done.then_some(len))
}

/// False where the bytes do not lie as numbers must.
fn fold_slice<T: Number + bytemuck::Pod>(
    into: &mut [T],
    bytes: &mut [u8],
    how: How<'_, [T]>,
    around: bool,
) -> bool {
    let Ok(theirs) = bytemuck::try_cast_slice_mut::<u8, T>(bytes) else { return false };
    match how {
        How::Add => add(into, theirs),
        How::Put if around => put_around(theirs, into),
        How::Put => into.copy_from_slice(theirs),
        How::Beside(base) if around => sum_around(base, theirs, into),
        How::Beside(base) => sum_beside(base, theirs, into),
    }
    true
}

fn decode_part<'a>(
    coding: &Coding,
    update: &mut Update,
    part: &Part,
    bytes: &'a [u8],
    how: How<'_>,
) -> Result<&'a [u8], Malformed> {
    let codec = coding.of(part.block);
    match &mut update.blocks[part.block].body {
        Body::Dense(values) => {
            let range = part.from..part.to;
            let len = codec.encoded_len(values.kind(), range.len());
            let (mine, rest) =
                bytes.split_at_checked(len).ok_or(Malformed("a chunk is too short"))?;
            match how {
                How::Add => codec.decode(mine, values, range, Put::Add)?,
                How::Put => codec.decode(mine, values, range, Put::Put)?,
                How::Beside(base) => codec.decode_beside(mine, base, values, range)?,
            }
            Ok(rest)
        }
        Body::Rows(rows) => {
            let (len, rest) =
                bytes.split_first_chunk::<4>().ok_or(Malformed("a chunk is too short"))?;
            let len = u32::from_le_bytes(*len) as usize;
            let (mine, rest) =
                rest.split_at_checked(len).ok_or(Malformed("a chunk is too short"))?;
            let theirs = codec.decode_rows(mine, rows)?;
            let (from, to) = (part.from as u32, part.to as u32);
            if theirs.index.iter().any(|row| !(from..to).contains(row)) {
                return Err(Malformed("a row outside its chunk"));
            }
            let folded = match how {
                How::Put => replace(rows, &theirs, from, to),
                How::Add | How::Beside(_) => rows.fold(&theirs),
            };
            folded.map_err(|_| Malformed("rows of another table"))?;
            Ok(rest)
        }
        Body::Factors(_) => unreachable!("{PLAYED}"),
    }
}

/// Puts `theirs` in the place of the rows `from..to`.
fn replace(
    rows: &mut starlings_core::Rows,
    theirs: &starlings_core::Rows,
    from: u32,
    to: u32,
) -> Result<(), starlings_core::FoldError> {
    let mut merged = rows.range(0, from);
    let after = rows.range(to, u32::MAX);
    for piece in [theirs, &after] {
        merged.index.extend_from_slice(&piece.index);
        append(&mut merged.values, &piece.values)?;
    }
    *rows = merged;
    Ok(())
}

fn append(into: &mut Values, from: &Values) -> Result<(), starlings_core::FoldError> {
    match (into, from) {
        (Values::F32(a), Values::F32(b)) => a.extend_from_slice(b),
        (Values::F64(a), Values::F64(b)) => a.extend_from_slice(b),
        (Values::I64(a), Values::I64(b)) => a.extend_from_slice(b),
        _ => return Err(starlings_core::FoldError::Kind),
    }
    Ok(())
}

#[cfg(test)]
#[path = "scheduled_tests.rs"]
mod tests;
