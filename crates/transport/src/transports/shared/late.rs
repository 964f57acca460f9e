//! Sums of two seats that are made where they are used. Each lends its large parts, and whoever needs the sum of some numbers
//! adds its own to its neighbour's on the way, a few at a time. Nothing is written down and read again, nobody waits for the
//! other's half, and as many bytes cross from core to core as in any other sum of two: of more seats they would be more, so this
//! is for two. Small parts are copied into a slot and summed at once.
//!
//! Whoever uses sums on the way cannot throw them away again, as a sum that fails is. So a contribution stays as it was posted until
//! all others have done with it, or are no members any more: the next sum waits for that ([`Circle::settle`]), and a seat that
//! gives up must keep its contribution where it is (the engine parks it).

#![allow(unsafe_code, reason = "numbers that a neighbour lends are read by address")]

use super::circle::Circle;
use super::heap;
use super::kernels::{Target, fold};
use super::layout::{LENT_MAX, LINE, Port, WITHDRAWN};
use super::lenders::Lenders;
use super::parts::{Numbers, NumbersMut, Parts};
use super::waiting::Patience;
use starlings_core::{Fault, Result};
use std::marker::PhantomData;
use std::sync::atomic::{Ordering, fence};

/// Seats of such a sum.
const SEATS: usize = 2;
/// What a seat says of a chunk of such a sum: whether the others can read all its large parts where they are. Other sums
/// say 0 or 1.
const READABLE: u64 = 2;
const NOT_READABLE: u64 = 3;

/// Large parts whose sums are made when they are asked for.
#[derive(Debug)]
pub struct LateSum<'a> {
    circle: &'a mut Circle,
    /// Where both seats' numbers of each part lie, in the order of seats, and how many.
    parts: Vec<([*const f32; SEATS], usize)>,
    borrowed: PhantomData<Numbers<'a>>,
}

impl Numbers<'_> {
    /// Whether a part is large enough to be lent.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.bytes() >= heap::LARGE
    }

    fn bytes(&self) -> usize {
        match self {
            Numbers::F32(values) => size_of_val(*values),
            Numbers::F64(values) => size_of_val(*values),
            Numbers::I64(values) => size_of_val(*values),
        }
    }
}

impl Circle {
    /// Waits until nobody reads any more what this seat lent for a [`LateSum`]. The sums of this circle do so first; whoever
    /// wants its contribution's memory back before asks.
    ///
    /// # Errors
    /// A peer that is late or lost: what was lent must stay as it is.
    pub fn settle(&mut self, patience: &Patience<'_>) -> Result<()> {
        if self.is_late {
            return Err(Fault::peer(None, "an earlier sum in shared memory failed"));
        }
        if self.owes {
            self.wait(Port::taken, self.begun, "the use", patience)?;
            self.owes = false;
        }
        Ok(())
    }

    /// Whether nobody reads any more what was lent.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let mut others = self.views.iter().enumerate().filter(|(seat, _)| *seat != self.me);
        let has_taken = |(_, view): (usize, &super::segment::View)| {
            let taken = view.mapping.word(self.port.taken()).load(Ordering::Acquire);
            taken.wrapping_sub(self.begun as u32) <= u32::MAX / 2
        };
        !self.is_late && (!self.owes || others.all(has_taken))
    }

    /// Begins such a sum: small parts are summed, and true is said where [`Circle::late`] can make the sums of the large
    /// ones, which are f32. Every seat calls it with the same kinds and lengths, and all are told the same. Where it is false, the
    /// small ones have not been summed either.
    ///
    /// # Errors
    /// As [`Circle::sum`]. The contribution must then stay as it is: a peer may have begun to read it.
    ///
    /// # Panics
    /// If small contributions and totals differ in kind or length.
    pub fn begin_late(
        &mut self,
        (small, sums): (&[Numbers<'_>], &mut [NumbersMut<'_>]),
        large: &[Numbers<'_>],
        patience: &Patience<'_>,
    ) -> Result<bool> {
        if self.is_broken {
            return Err(Fault::peer(None, "an earlier sum in shared memory failed"));
        }
        let are_floats = large.iter().all(|part| matches!(part, Numbers::F32(_)));
        let parts = Parts::cut(small, sums, self.tuning.chunk_bytes, usize::MAX);
        let suits = are_floats && !large.is_empty() && large.len() <= LENT_MAX;
        if self.views.len() != SEATS || !self.sums_late || !suits || parts.chunks() > 1 {
            return Ok(false);
        }
        let outcome = self.begun_late(&parts.beside(large), large, patience);
        if outcome.is_err() {
            self.is_broken = true;
            self.withdraw();
        }
        outcome
    }

    fn begun_late(
        &mut self,
        parts: &Parts<'_>,
        large: &[Numbers<'_>],
        patience: &Patience<'_>,
    ) -> Result<bool> {
        self.settle(patience)?;
        let place = |part: &Numbers<'_>| match part {
            Numbers::F32(values) => heap::offset_of(values.as_ptr().cast()),
            _ => None,
        };
        let places = large.iter().map(|part| place(part).filter(|at| at.is_multiple_of(LINE)));
        let places: Option<Vec<usize>> = places.collect();
        let mapping = self.mine.mapping();
        for (part, &at) in places.iter().flatten().enumerate() {
            mapping.long(self.port.lent(part).0).store(at as u64, Ordering::Relaxed);
            mapping.long(self.port.lent(part).1).store(0, Ordering::Relaxed);
        }
        let word = if self.lends && places.is_some() { READABLE } else { NOT_READABLE };
        self.is_late = true;
        self.post_saying(parts, (0, false), word, patience)?;
        self.await_posted(parts, 0, patience)?;
        let is_lent = self.port.is_lent(self.begun);
        let said = self.views.iter().map(|view| view.mapping.long(is_lent).load(Ordering::Relaxed));
        self.sums_late = said.into_iter().all(|word| word == READABLE);
        if self.sums_late {
            let nobody = Lenders::default();
            let from = self.contributions(0, &nobody);
            parts.fold(0, parts.slice(0, 0, 1), &from, std::ptr::null_mut());
        } else {
            self.take_leave();
        }
        Ok(self.sums_late)
    }

    /// The sums of the large parts, which were just [begun](Circle::begin_late).
    ///
    /// # Errors
    /// A peer that lends what is not there.
    ///
    /// # Panics
    /// If they are others than those.
    pub fn late<'a>(&'a mut self, large: &[Numbers<'a>]) -> Result<LateSum<'a>> {
        let lengths: Vec<usize> = large.iter().map(Numbers::bytes).collect();
        let other = 1 - self.me;
        let theirs = self.lent_by(&self.views[other], &lengths)?;
        let both = |(part, theirs): (&Numbers<'a>, *const u8)| {
            let Numbers::F32(own) = part else { panic!("only f32 are summed late") };
            let mut places = [own.as_ptr(); SEATS];
            places[other] = theirs.cast();
            (places, own.len())
        };
        assert!(theirs.iter().all(|place| !place.is_null()), "all are lent, as was said");
        let parts = large.iter().zip(theirs).map(both).collect();
        Ok(LateSum { circle: self, parts, borrowed: PhantomData })
    }

    /// Says that this seat has done with such a sum.
    fn take_leave(&mut self) {
        self.publish(Port::taken, 0);
        self.begun += 1;
        (self.is_late, self.owes) = (false, true);
    }
}

impl LateSum<'_> {
    /// Puts the sums of some numbers of a part, from a place on, into others.
    ///
    /// # Panics
    /// If the part has fewer.
    pub fn sums(&self, part: usize, from: usize, into: &mut [f32]) {
        let (places, len) = self.parts[part];
        assert!(from.checked_add(into.len()).is_some_and(|end| end <= len), "beyond the part");
        let places = places.map(|place| place.wrapping_add(from));
        let target =
            Target { first: into.as_mut_ptr(), is_streamed: false, second: std::ptr::null_mut() };
        // SAFETY: own numbers are borrowed, those of the neighbour were checked to lie in its heap, as many of each; `into` is
        // this caller's alone. Numbers that a neighbour changes against the rules are numbers all the same.
        unsafe { fold::<f32>(&places, target, into.len()) };
    }

    /// Ends it: the neighbour may have its numbers back.
    ///
    /// # Errors
    /// A neighbour that has changed its numbers meanwhile, against the rules: whatever was made of the sums is spoilt.
    pub fn done(self) -> Result<()> {
        // The loads of the numbers come before the load of the sequence.
        fence(Ordering::Acquire);
        let count = self.circle.begun;
        let view = &self.circle.views[1 - self.circle.me];
        let sequence = view.mapping.long(self.circle.port.sequence(count)).load(Ordering::Acquire);
        // Who has given the sum up keeps its numbers where they are.
        let is_unchanged = sequence == 2 * count + 2 || sequence == WITHDRAWN;
        let seat = view.seat;
        self.circle.take_leave();
        match is_unchanged {
            true => Ok(()),
            false => {
                let what = format!("{seat} rewrote its numbers while they were being used");
                Err(Fault::machine(what))
            }
        }
    }
}

#[cfg(test)]
#[path = "late_tests.rs"]
mod tests;
