//! What one sum is made of, and how it is cut. An update has several parts (blocks) of different kinds and lengths;
//! chunks are filled with them one after another, so that many small blocks cost one turn and not one each. The cut
//! depends on kinds and lengths alone: every seat makes the same. Chunks are counted from the end of the update: what was
//! written last is still in the caches when its turn comes first.
//!
//! Unsafe, because it hands raw pointers of checked ranges to the kernels.

#![allow(unsafe_code, reason = "pairs ranges of shared memory with ranges of the caller's slices")]

use super::kernels::{Target, fold};
use super::layout::LINE;
use std::marker::PhantomData;
use std::ops::Range;

/// Numbers that a seat contributes.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    /// 32-bit floats.
    F32(&'a [f32]),
    /// 64-bit floats.
    F64(&'a [f64]),
    /// 64-bit integers.
    I64(&'a [i64]),
}

/// Where their sums go: never where they come from, for a sum that fails is repeated from the contributions.
#[derive(Debug)]
pub enum NumbersMut<'a> {
    /// 32-bit floats.
    F32(&'a mut [f32]),
    /// 64-bit floats.
    F64(&'a mut [f64]),
    /// 64-bit integers.
    I64(&'a mut [i64]),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    F32 = 1,
    F64 = 2,
    I64 = 3,
}

/// One part: its numbers and the room for their sums.
#[derive(Clone, Copy, Debug)]
struct Part {
    kind: Kind,
    source: *const u8,
    target: *mut u8,
    len: usize,
}

/// A piece of a part within a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    part: usize,
    /// The first number.
    from: usize,
    /// How many numbers.
    len: usize,
    /// The byte of the slot where it begins.
    at: usize,
}

/// In which order the seats' numbers of a stretch of a part are added. What follows the last stretch is added in the
/// order of seats.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turn {
    /// The number of the part before which the stretch ends.
    pub end: usize,
    /// The seats' places in the circle, the first to be added first.
    pub order: Vec<usize>,
}

/// One sum, cut into chunks. Borrows what it sums.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    parts: Vec<Part>,
    pieces: Vec<Piece>,
    /// The end of each chunk: after which piece, and at which byte of its slot.
    chunks: Vec<(usize, usize)>,
    /// Bytes of all numbers.
    pub(super) bytes: usize,
    /// A digest of kinds and lengths: seats that sum different shapes find out.
    pub(super) shape: u64,
    is_streamed: bool,
    /// Whether peers read the sums where they are written: then only copies go around the caches.
    is_resident: bool,
    /// Stretches of each part that are not added in the order of seats.
    turns: &'a [Vec<Turn>],
    borrowed: PhantomData<&'a mut [u8]>,
}

impl Kind {
    fn bytes(self) -> usize {
        match self {
            Kind::F32 => 4,
            Kind::F64 | Kind::I64 => 8,
        }
    }
}

impl Part {
    /// # Panics
    /// If the two are of different kinds or lengths.
    fn of(source: Numbers<'_>, target: &mut NumbersMut<'_>) -> Part {
        let (kind, source, target, lens) = match (source, target) {
            (Numbers::F32(a), NumbersMut::F32(b)) => {
                (Kind::F32, a.as_ptr().cast(), b.as_mut_ptr().cast(), (a.len(), b.len()))
            }
            (Numbers::F64(a), NumbersMut::F64(b)) => {
                (Kind::F64, a.as_ptr().cast(), b.as_mut_ptr().cast(), (a.len(), b.len()))
            }
            (Numbers::I64(a), NumbersMut::I64(b)) => {
                (Kind::I64, a.as_ptr().cast(), b.as_mut_ptr().cast(), (a.len(), b.len()))
            }
            _ => panic!("numbers and their sums are of the same kind"),
        };
        assert_eq!(lens.0, lens.1, "there is a sum for every number");
        Part { kind, source, target, len: lens.0 }
    }
}

impl<'a> Parts<'a> {
    /// Cuts into chunks of at most `chunk_bytes`, a multiple of a line.
    pub(super) fn cut(
        sources: &[Numbers<'a>],
        targets: &'a mut [NumbersMut<'_>],
        chunk_bytes: usize,
        streamed_from: usize,
    ) -> Parts<'a> {
        assert_eq!(sources.len(), targets.len(), "every part has its sums");
        let parts: Vec<Part> =
            sources.iter().zip(targets).map(|(&source, target)| Part::of(source, target)).collect();
        let bytes = parts.iter().map(|part| part.len * part.kind.bytes()).sum();
        let (mut pieces, mut chunks, mut at) = (Vec::with_capacity(parts.len()), Vec::new(), 0);
        for (index, part) in parts.iter().enumerate() {
            let size = part.kind.bytes();
            let mut from = 0;
            while from < part.len {
                if at == chunk_bytes {
                    chunks.push((pieces.len(), at));
                    at = 0;
                }
                let len = ((chunk_bytes - at) / size).min(part.len - from);
                pieces.push(Piece { part: index, from, len, at });
                from += len;
                at = (at + len * size).next_multiple_of(LINE);
            }
        }
        // A sum of nothing has one empty chunk: it is still a meeting.
        chunks.push((pieces.len(), at));
        let shape = digest(parts.iter().map(|part| (part.kind, part.len)));
        let is_streamed = bytes >= streamed_from;
        Parts {
            parts,
            pieces,
            chunks,
            bytes,
            shape,
            is_streamed,
            is_resident: false,
            turns: &[],
            borrowed: PhantomData,
        }
    }

    /// The same sum, whose totals peers read where they are written.
    pub(super) fn resident(mut self) -> Parts<'a> {
        self.is_resident = true;
        self
    }

    /// The same sum, with numbers added in these orders.
    pub(super) fn ordered(mut self, turns: &'a [Vec<Turn>]) -> Parts<'a> {
        self.turns = turns;
        self
    }

    /// The order of a stretch that begins with this number, and where it ends.
    fn turn(&self, part: usize, number: usize) -> Option<&Turn> {
        let turns = self.turns.get(part)?;
        turns.get(turns.partition_point(|turn| turn.end <= number))
    }

    /// The byte of a single part at which a chunk begins.
    pub(super) fn offset(&self, chunk: usize, chunk_bytes: usize) -> usize {
        assert_eq!(self.parts.len(), 1, "several parts do not lie one after another");
        self.place(chunk) * chunk_bytes
    }

    /// How many chunks.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// The bytes of a chunk's slot that one of `seats` reduces, all of it for a single one.
    pub(super) fn slice(&self, chunk: usize, seat: usize, seats: usize) -> Range<usize> {
        let used = self.chunks[self.place(chunk)].1;
        let bound = |seat: usize| (used / LINE * seat / seats) * LINE;
        bound(seat)..if seat + 1 == seats { used } else { bound(seat + 1) }
    }

    /// Copies this seat's contribution to a slot.
    pub(super) fn post(&self, chunk: usize, bytes: Range<usize>, slot: *mut u8) {
        self.each(chunk, bytes, |index, numbers, at| {
            let part = &self.parts[index];
            // SAFETY: `numbers` is within the part, and the same bytes within the slot.
            unsafe {
                let source = part.source.add(numbers.start * part.kind.bytes());
                run(
                    part.kind,
                    &[source],
                    (slot.add(at), false),
                    std::ptr::null_mut(),
                    numbers.len(),
                );
            }
        });
    }

    /// Folds contributions in their order into the sums and, where `second` is a slot, into it as well. A null
    /// slot stands for this seat's own contribution.
    pub(super) fn fold(
        &self,
        chunk: usize,
        bytes: Range<usize>,
        slots: &[*const u8],
        second: *mut u8,
    ) {
        let mut sources = vec![std::ptr::null(); slots.len()];
        let is_streamed = self.is_streamed && (slots.len() == 1 || !self.is_resident);
        self.each(chunk, bytes, |index, mut numbers, mut at| {
            let part = &self.parts[index];
            let size = part.kind.bytes();
            while !numbers.is_empty() {
                let turn = self.turn(index, numbers.start).filter(|_| slots.len() > 1);
                let end = turn.map_or(numbers.end, |turn| turn.end.min(numbers.end));
                let skip = numbers.start * size;
                // SAFETY: `numbers` is within the part, and the same bytes within each slot; an order names slots.
                unsafe {
                    for (place, source) in sources.iter_mut().enumerate() {
                        let slot = slots[turn.map_or(place, |turn| turn.order[place])];
                        *source = if slot.is_null() { part.source.add(skip) } else { slot.add(at) };
                    }
                    let second = if second.is_null() { second } else { second.add(at) };
                    let target = (part.target.add(skip), is_streamed);
                    run(part.kind, &sources, target, second, end - numbers.start);
                }
                at += (end - numbers.start) * size;
                numbers.start = end;
            }
        });
    }

    /// Where a chunk lies: the first one is the last in memory.
    fn place(&self, chunk: usize) -> usize {
        self.chunks.len() - 1 - chunk
    }

    /// Every piece of a chunk that meets a range of bytes: its part, the numbers of it, and where they lie.
    fn each(
        &self,
        chunk: usize,
        bytes: Range<usize>,
        mut visit: impl FnMut(usize, Range<usize>, usize),
    ) {
        let place = self.place(chunk);
        let first = place.checked_sub(1).map_or(0, |before| self.chunks[before].0);
        for piece in &self.pieces[first..self.chunks[place].0] {
            let part = &self.parts[piece.part];
            let size = part.kind.bytes();
            let end = (piece.at + piece.len * size).min(bytes.end);
            let start = piece.at.max(bytes.start);
            if start < end {
                let from = piece.from + (start - piece.at) / size;
                visit(piece.part, from..from + (end - start) / size, start);
            }
        }
    }
}

/// # Safety
/// As [`fold`], for numbers of this kind.
unsafe fn run(
    kind: Kind,
    sources: &[*const u8],
    (first, is_streamed): (*mut u8, bool),
    second: *mut u8,
    len: usize,
) {
    /// # Safety
    /// As [`fold`].
    unsafe fn typed<T: super::kernels::Number>(
        sources: &[*const u8],
        target: Target<u8>,
        len: usize,
    ) {
        let Target { first, is_streamed, second } = target;
        let target = Target { first: first.cast::<T>(), is_streamed, second: second.cast() };
        // SAFETY: pointers to the same places; `*const u8` and `*const T` are alike in memory.
        unsafe {
            let sources = std::slice::from_raw_parts(sources.as_ptr().cast(), sources.len());
            fold::<T>(sources, target, len);
        }
    }
    let target = Target { first, is_streamed, second };
    // SAFETY: as the caller promised.
    unsafe {
        match kind {
            Kind::F32 => typed::<f32>(sources, target, len),
            Kind::F64 => typed::<f64>(sources, target, len),
            Kind::I64 => typed::<i64>(sources, target, len),
        }
    }
}

/// FNV-1a over kinds and lengths: it finds mistakes, not malice.
fn digest(parts: impl Iterator<Item = (Kind, usize)>) -> u64 {
    let step = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x0100_0000_01b3);
    parts.fold(0xcbf2_9ce4_8422_2325, |hash, (kind, len)| step(step(hash, kind as u64), len as u64))
}
