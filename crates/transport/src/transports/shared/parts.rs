//! What one sum is made of, and how it is cut. An update has several parts (blocks) of different kinds and lengths;
//! chunks are filled with them one after another, so that many small blocks cost one turn and not one each. The cut
//! depends on kinds and lengths alone: every seat makes the same. Chunks are counted from the end of the update: what was
//! written last is still in the caches when its turn comes first.
//!
//! Unsafe, because it hands raw pointers of checked ranges to the kernels.

#![allow(unsafe_code, reason = "pairs ranges of shared memory with ranges of the caller's slices")]

use super::heap;
use super::kernels::{Target, fold, let_go};
use super::layout::{LENT_MAX, LINE};
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
    lent: Lent,
}

/// Where peers find a part in the heap of this process; 0 where it lies elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Lent {
    pub(super) contribution: usize,
    pub(super) total: usize,
}

/// Where a seat's numbers lie: a part in its heap, if it lends it, else in a slot. Both are null for this seat itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) slot: *const u8,
    /// The beginning of each part that is lent; null for the others.
    pub(super) lent: &'a [*const u8],
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
        Part { kind, source, target, len: lens.0, lent: Lent::default() }
    }

    fn bytes(&self) -> usize {
        self.len * self.kind.bytes()
    }
}

impl Source<'_> {
    /// This seat's own numbers.
    pub(super) const OWN: Source<'static> = Source { slot: std::ptr::null(), lent: &[] };
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
        let bytes = parts.iter().map(Part::bytes).sum();
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
            turns: &[],
            borrowed: PhantomData,
        }
    }

    /// The same sum, whose large parts peers read where they are, as far as those lie in the heap of this process.
    pub(super) fn lending(mut self) -> Parts<'a> {
        if self.parts.len() <= LENT_MAX {
            for part in self.parts.iter_mut().filter(|part| part.bytes() >= heap::LARGE) {
                let offset = |place| heap::offset_of(place).filter(|at| at.is_multiple_of(LINE));
                let contribution = offset(part.source).unwrap_or(0);
                part.lent = Lent { contribution, total: offset(part.target).unwrap_or(0) };
            }
        }
        self
    }

    /// Where each part is lent.
    pub(super) fn lent(&self) -> impl Iterator<Item = Lent> {
        self.parts.iter().map(|part| part.lent)
    }

    /// Whether any part is lent.
    pub(super) fn is_lent(&self) -> bool {
        self.lent().any(|lent| lent != Lent::default())
    }

    /// The bytes of each part.
    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().map(Part::bytes)
    }

    /// The same sum, with numbers added in these orders.
    pub(super) fn ordered(mut self, turns: &'a [Vec<Turn>]) -> Parts<'a> {
        self.turns = turns;
        self
    }

    /// The same sum, told apart by numbers that are summed elsewhere at the same time.
    pub(super) fn beside(mut self, others: &[Numbers<'_>]) -> Parts<'a> {
        let kind = |numbers: &Numbers<'_>| match numbers {
            Numbers::F32(values) => (Kind::F32, values.len()),
            Numbers::F64(values) => (Kind::F64, values.len()),
            Numbers::I64(values) => (Kind::I64, values.len()),
        };
        self.shape = !(self.shape.rotate_left(1) ^ digest(others.iter().map(kind)));
        self
    }

    /// The order of a stretch that begins with this number, and where it ends.
    fn turn(&self, part: usize, number: usize) -> Option<&Turn> {
        let turns = self.turns.get(part)?;
        turns.get(turns.partition_point(|turn| turn.end <= number))
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

    /// Copies this seat's contribution to a slot, except what it lends.
    pub(super) fn post(&self, chunk: usize, bytes: Range<usize>, slot: *mut u8) {
        self.each(chunk, bytes, |index, numbers, at| {
            let part = &self.parts[index];
            if part.lent.contribution != 0 {
                return;
            }
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

    /// Folds contributions in their order into the sums and, where `second` is a slot, into it as well, except what is
    /// lent.
    pub(super) fn fold(
        &self,
        chunk: usize,
        bytes: Range<usize>,
        from: &[Source<'_>],
        second: *mut u8,
    ) {
        let mut sources = vec![std::ptr::null(); from.len()];
        self.each(chunk, bytes, |index, mut numbers, mut at| {
            let part = &self.parts[index];
            let size = part.kind.bytes();
            let is_lent = part.lent.total != 0;
            // What peers read where it is written stays in the caches.
            let is_read = from.len() > 1 && is_lent;
            let second = if is_lent { std::ptr::null_mut() } else { second };
            while !numbers.is_empty() {
                let turn = self.turn(index, numbers.start).filter(|_| from.len() > 1);
                let end = turn.map_or(numbers.end, |turn| turn.end.min(numbers.end));
                let skip = numbers.start * size;
                // SAFETY: `numbers` is within the part, wherever it is lent, and the same bytes within each slot; an
                // order names seats.
                unsafe {
                    for (place, source) in sources.iter_mut().enumerate() {
                        let Source { slot, lent } =
                            from[turn.map_or(place, |turn| turn.order[place])];
                        let lent = lent.get(index).copied().unwrap_or(std::ptr::null());
                        *source = match (lent.is_null(), slot.is_null()) {
                            (false, _) => lent.add(skip),
                            (true, false) => slot.add(at),
                            (true, true) => part.source.add(skip),
                        };
                    }
                    let second = if second.is_null() { second } else { second.add(at) };
                    let target = (part.target.add(skip), self.is_streamed && !is_read);
                    run(part.kind, &sources, target, second, end - numbers.start);
                }
                at += (end - numbers.start) * size;
                numbers.start = end;
            }
        });
    }

    /// Lets the lines of others go that a fold of the same range has read.
    pub(super) fn let_go(&self, chunk: usize, bytes: Range<usize>, from: &[Source<'_>]) {
        self.each(chunk, bytes, |index, numbers, at| {
            let size = self.parts[index].kind.bytes();
            for Source { slot, lent } in from {
                let lent = lent.get(index).copied().unwrap_or(std::ptr::null());
                // SAFETY: `numbers` is within the part, wherever it is lent, and the same bytes within each slot.
                unsafe {
                    let place = match (lent.is_null(), slot.is_null()) {
                        (false, _) => lent.add(numbers.start * size),
                        (true, false) => slot.add(at),
                        // This seat's own.
                        (true, true) => continue,
                    };
                    let_go(place, numbers.len() * size);
                }
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
