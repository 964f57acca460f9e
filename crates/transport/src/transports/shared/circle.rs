//! Seats of one host that sum together. Each contributes in its own segment, and everybody reads there: what moves is
//! one copy of the contribution into a slot that is still in the cache when peers fold it, and one write of the sum. What
//! lies in the heap that a process shares is not even copied (`lenders.rs`).
//!
//! Order of every sum, whatever its length: seat 0's number first, then those of the others in the order of seats (or
//! in the order that a topology has, where it is told one), so all seats hold the same bits. Two ways, which differ in nothing but cost:
//!
//! - *flat*, for short sums: everybody folds everything, and one wait is enough;
//! - *sliced*, for long ones: each folds its slice of a chunk and the others copy it (Rabenseifner's
//!   reduce-scatter and gather, ICCS 2004, with loads in place of messages).
//!
//! A chunk is posted while the one before it is folded. Its slot has a sequence, odd while it is written, which readers
//! check before and after: a writer that came back from the dead is found, and its numbers are thrown away.

use super::kernels::{can_let_go, ticks};
use super::layout::{LINE, Port, SLOT_BYTES, SLOTS, WITHDRAWN};
use super::leaving::Leaving;
use super::lenders::Lenders;
use super::parts::{Numbers, NumbersMut, Parts, Source, Turn};
use super::segment::{Segment, View};
use super::waiting::{Patience, Waiter, publish};
use starlings_core::{Fault, Result};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// What was found by measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// Bytes of a chunk, at most those of a slot.
    pub chunk_bytes: usize,
    /// Sums up to this are flat.
    pub flat_bytes_max: usize,
    /// From this on sums are written around the caches: they would not stay there until they are used.
    pub streamed_from: usize,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning { chunk_bytes: SLOT_BYTES, flat_bytes_max: 16 << 10, streamed_from: 32 << 20 }
    }
}

/// The seats that sum together through shared memory, as one of them sees it.
#[derive(Debug)]
pub struct Circle {
    pub(super) mine: Arc<Segment>,
    /// All of them in the order of seats, this one's own included.
    pub(super) views: Vec<View>,
    pub(super) me: usize,
    pub(super) port: Port,
    waiter: Waiter,
    pub(super) tuning: Tuning,
    /// Chunks of all sums so far.
    pub(super) begun: u64,
    pub(super) is_broken: bool,
    /// Whether all others read the heap of this seat's process.
    pub(super) lends: bool,
    /// Whether sums may be made where they are used: until somebody says that its parts cannot be read (`late.rs`).
    pub(super) sums_late: bool,
    /// Whether such a sum is under way, or was left without its end.
    pub(super) is_late: bool,
    /// Whether others may still read what this seat lent for such a sum.
    pub(super) owes: bool,
    /// How lines that were read are left, where there is a choice.
    leaving: Option<Leaving>,
    /// Ticks that folding its slice has taken of a chunk and of the one before.
    reducing: [u64; 2],
}

impl Circle {
    /// A circle of the seats whose segments are given, in the order of seats; `mine` is among them. Circles of the
    /// same seats that are used at the same time have different ports. `cores` is how many this host has.
    ///
    /// # Panics
    /// If `mine` is not among the views, or there is no such port.
    #[must_use]
    pub fn new(mine: Arc<Segment>, views: Vec<View>, port: usize, cores: usize) -> Circle {
        let seat = mine.identity().seat;
        let me = views.iter().position(|view| view.seat == seat);
        let me = me.expect("a seat is in its own circle");
        let waiter = Waiter::new(views.len() > cores);
        Circle {
            mine,
            views,
            me,
            port: Port::new(port),
            waiter,
            tuning: Tuning::default(),
            begun: 0,
            is_broken: false,
            lends: false,
            sums_late: true,
            is_late: false,
            owes: false,
            leaving: can_let_go().then(Leaving::default),
            reducing: [0; 2],
        }
    }

    /// Whether what lies in the heap of this process is lent instead of copied into slots. All others must be able to read
    /// that heap.
    #[must_use]
    pub fn lending(mut self, lends: bool) -> Circle {
        self.lend(lends);
        self
    }

    /// The same of a circle that is there.
    pub fn lend(&mut self, lends: bool) {
        self.lends = lends;
    }

    /// Sums in another way than was found best here.
    #[must_use]
    pub fn tuned(mut self, tuning: Tuning) -> Circle {
        let chunk_bytes = tuning.chunk_bytes.clamp(LINE, SLOT_BYTES) / LINE * LINE;
        self.tuning = Tuning { chunk_bytes, ..tuning };
        self
    }

    /// Sums contributions over all seats. Every seat calls it with the same kinds and lengths; contributions stay as
    /// they are.
    ///
    /// # Errors
    /// A peer that is late, lost, or sums something else. After it the circle is of no more use.
    ///
    /// # Panics
    /// If contributions and totals differ in kind or length.
    pub fn sum(
        &mut self,
        contributions: &[Numbers<'_>],
        totals: &mut [NumbersMut<'_>],
        patience: &Patience<'_>,
    ) -> Result<()> {
        self.sum_in_turns(contributions, totals, &[], patience)
    }

    /// As [`Circle::sum`], with the numbers of stretches of each contribution added in other orders than that of seats:
    /// as a topology would have added them. All seats give the same.
    ///
    /// # Errors
    /// As [`Circle::sum`].
    ///
    /// # Panics
    /// As [`Circle::sum`], and if an order is not one of all seats.
    pub fn sum_in_turns(
        &mut self,
        contributions: &[Numbers<'_>],
        totals: &mut [NumbersMut<'_>],
        turns: &[Vec<Turn>],
        patience: &Patience<'_>,
    ) -> Result<()> {
        let seats = self.views.len();
        let is_order = |turn: &Turn| {
            let mut order = turn.order.clone();
            order.sort_unstable();
            order.into_iter().eq(0..seats)
        };
        assert!(turns.iter().flatten().all(is_order), "an order has every seat once");
        if self.is_broken {
            return Err(Fault::peer(None, "an earlier sum in shared memory failed"));
        }
        let settled = self.settle(patience);
        self.is_broken = settled.is_err();
        settled?;
        let Tuning { chunk_bytes, streamed_from, .. } = self.tuning;
        let parts = Parts::cut(contributions, totals, chunk_bytes, streamed_from).ordered(turns);
        if self.views.len() == 1 {
            (0..parts.chunks()).for_each(|chunk| {
                let whole = parts.slice(chunk, 0, 1);
                parts.fold(chunk, whole, &[Source::OWN], std::ptr::null_mut());
            });
            return Ok(());
        }
        let (is_flat, chunks) = (parts.bytes <= self.tuning.flat_bytes_max, parts.chunks());
        let outcome = match is_flat {
            true => self.flat(&parts, patience),
            false if self.lends => self.lent(&parts.lending(), patience),
            false => self.sliced(&parts, patience),
        };
        self.begun += chunks as u64;
        self.is_broken = outcome.is_err();
        outcome
    }

    fn flat(&mut self, parts: &Parts<'_>, patience: &Patience<'_>) -> Result<()> {
        let (chunks, nobody) = (parts.chunks(), Lenders::default());
        for turn in 0..=chunks {
            if turn < chunks {
                self.post(parts, turn, false, patience)?;
            }
            if let Some(chunk) = turn.checked_sub(1) {
                self.await_posted(parts, chunk, patience)?;
                let whole = parts.slice(chunk, 0, 1);
                let from = self.contributions(chunk, &nobody);
                parts.fold(chunk, whole, &from, std::ptr::null_mut());
                self.check_unchanged(chunk, Port::sequence)?;
                self.publish(Port::taken, chunk);
            }
        }
        Ok(())
    }

    pub(super) fn sliced(&mut self, parts: &Parts<'_>, patience: &Patience<'_>) -> Result<()> {
        let chunks = parts.chunks();
        let mut lenders = Lenders::default();
        for turn in 0..chunks + 2 {
            if turn < chunks {
                self.post(parts, turn, true, patience)?;
            }
            if let Some(chunk) = turn.checked_sub(1).filter(|&chunk| chunk < chunks) {
                self.await_posted(parts, chunk, patience)?;
                if chunk == 0 {
                    lenders = self.lenders(parts)?;
                }
                self.reduce(parts, chunk, &lenders)?;
            }
            if let Some(chunk) = turn.checked_sub(2) {
                self.gather(parts, chunk, &lenders, patience)?;
            }
        }
        Ok(())
    }

    /// Puts a chunk of this seat's contribution into its slot, as soon as all have done with what was there.
    fn post(
        &mut self,
        parts: &Parts<'_>,
        chunk: usize,
        is_sliced: bool,
        patience: &Patience<'_>,
    ) -> Result<()> {
        self.post_saying(parts, (chunk, is_sliced), u64::from(parts.is_lent()), patience)
    }

    /// The same, with a word beside it of what is lent.
    pub(super) fn post_saying(
        &mut self,
        parts: &Parts<'_>,
        (chunk, is_sliced): (usize, bool),
        is_lent: u64,
        patience: &Patience<'_>,
    ) -> Result<()> {
        let count = self.begun + chunk as u64;
        if let Some(before) = (count + 1).checked_sub(SLOTS as u64) {
            self.wait(Port::taken, before, "the use", patience)?;
        }
        let mapping = self.mine.mapping();
        let sequence = mapping.long(self.port.sequence(count));
        sequence.store(2 * count + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        mapping.long(self.port.shape(count)).store(parts.shape, Ordering::Relaxed);
        mapping.long(self.port.is_lent(count)).store(is_lent, Ordering::Relaxed);
        let slot = mapping.range_mut(self.port.numbers(count), SLOT_BYTES);
        let whole = parts.slice(chunk, 0, 1);
        if is_sliced {
            // Nobody else folds this seat's own slice.
            let own = parts.slice(chunk, self.me, self.views.len());
            parts.post(chunk, whole.start..own.start, slot);
            parts.post(chunk, own.end..whole.end, slot);
        } else {
            parts.post(chunk, whole, slot);
        }
        sequence.store(2 * count + 2, Ordering::Release);
        self.publish(Port::posted, chunk);
        Ok(())
    }

    /// Folds this seat's slice of a chunk, for itself and for the others.
    fn reduce(&mut self, parts: &Parts<'_>, chunk: usize, lenders: &Lenders) -> Result<()> {
        let count = self.begun + chunk as u64;
        let mapping = self.mine.mapping();
        let sequence = mapping.long(self.port.total_sequence(count));
        sequence.store(2 * count + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let own = parts.slice(chunk, self.me, self.views.len());
        let slot = mapping.range_mut(self.port.numbers(count), SLOT_BYTES);
        let from = self.contributions(chunk, lenders);
        let began = ticks();
        parts.fold(chunk, own.clone(), &from, slot);
        sequence.store(2 * count + 2, Ordering::Release);
        self.check_unchanged(chunk, Port::sequence)?;
        self.publish(Port::reduced, chunk);
        if self.lets_go(chunk) {
            // After the others were told: they wait for the sums, not for this.
            parts.let_go(chunk, own, &from);
        }
        self.reducing[chunk % 2] = ticks() - began;
        Ok(())
    }

    /// Copies the slices that the others have folded.
    fn gather(
        &mut self,
        parts: &Parts<'_>,
        chunk: usize,
        lenders: &Lenders,
        patience: &Patience<'_>,
    ) -> Result<()> {
        let count = self.begun + chunk as u64;
        // Begins with the next seat: all reading from the same one would wait for its memory.
        let (me, seats) = (self.me, self.views.len());
        let mut taken = self.reducing[chunk % 2];
        for seat in (1..seats).map(|ahead| (me + ahead) % seats) {
            self.wait_for(seat, Port::reduced, count + 1, "the slice", patience)?;
            let place = self.port.numbers(count);
            let slot = self.views[seat].mapping.range(place, SLOT_BYTES);
            let slice = parts.slice(chunk, seat, seats);
            let from = [Source { slot, lent: lenders.totals(seat) }];
            let began = ticks();
            parts.fold(chunk, slice.clone(), &from, std::ptr::null_mut());
            if self.lets_go(chunk) {
                parts.let_go(chunk, slice, &from);
            }
            taken += ticks() - began;
        }
        if let Some(leaving) = &mut self.leaving {
            leaving.took(count, taken as f64 / parts.slice(chunk, 0, 1).len().max(1) as f64);
        }
        self.check_unchanged(chunk, Port::total_sequence)?;
        self.publish(Port::taken, chunk);
        Ok(())
    }

    /// Whether lines of a chunk are let go when they have been read.
    fn lets_go(&self, chunk: usize) -> bool {
        let count = self.begun + chunk as u64;
        self.leaving.as_ref().is_some_and(|leaving| leaving.lets_go(count))
    }

    /// Where everybody's contribution to a chunk lies.
    pub(super) fn contributions<'a>(&self, chunk: usize, lenders: &'a Lenders) -> Vec<Source<'a>> {
        let place = self.port.numbers(self.begun + chunk as u64);
        let slot = |(seat, view): (usize, &View)| match seat == self.me {
            true => Source::OWN,
            false => {
                let slot = view.mapping.range(place, SLOT_BYTES);
                Source { slot, lent: lenders.contributions(seat) }
            }
        };
        self.views.iter().enumerate().map(slot).collect()
    }

    pub(super) fn await_posted(
        &mut self,
        parts: &Parts<'_>,
        chunk: usize,
        patience: &Patience<'_>,
    ) -> Result<()> {
        let count = self.begun + chunk as u64;
        self.wait(Port::posted, count + 1, "the contribution", patience)?;
        self.check_unchanged(chunk, Port::sequence)?;
        let others = self.views.iter().enumerate().filter(|(seat, _)| *seat != self.me);
        for (_, view) in others {
            let shape = view.mapping.long(self.port.shape(count)).load(Ordering::Relaxed);
            if shape != parts.shape {
                let what = format!("{} sums other blocks than this worker", view.seat);
                return Err(Fault::peer(Some(view.seat), what));
            }
        }
        Ok(())
    }

    /// Slots must hold the chunk that they held when it was published: a writer that follows the protocol waits until
    /// all have taken it.
    pub(super) fn check_unchanged(
        &self,
        chunk: usize,
        sequence: fn(Port, u64) -> usize,
    ) -> Result<()> {
        // The loads of the numbers come before the load of the sequence.
        fence(Ordering::Acquire);
        let count = self.begun + chunk as u64;
        let place = sequence(self.port, count);
        let others = self.views.iter().enumerate().filter(|(seat, _)| *seat != self.me);
        for (_, view) in others {
            match view.mapping.long(place).load(Ordering::Acquire) {
                sequence if sequence == 2 * count + 2 => {}
                WITHDRAWN => {
                    // It is alive, and has found somebody else lost.
                    return Err(Fault::peer(None, format!("{} gave up this sum", view.seat)));
                }
                _ => {
                    let what =
                        format!("{} rewrote its numbers while they were being summed", view.seat);
                    return Err(Fault::peer(Some(view.seat), what));
                }
            }
        }
        Ok(())
    }

    pub(super) fn wait(
        &mut self,
        counter: fn(Port) -> usize,
        wanted: u64,
        what: &str,
        patience: &Patience<'_>,
    ) -> Result<()> {
        let me = self.me;
        (0..self.views.len())
            .filter(|&seat| seat != me)
            .try_for_each(|seat| self.wait_for(seat, counter, wanted, what, patience))
    }

    #[expect(clippy::too_many_arguments, reason = "whom, what and until when of one wait")]
    pub(super) fn wait_for(
        &mut self,
        seat: usize,
        counter: fn(Port) -> usize,
        wanted: u64,
        what: &str,
        patience: &Patience<'_>,
    ) -> Result<()> {
        let asleep = self.mine.mapping().word(self.port.asleep());
        let view = &self.views[seat];
        let counter = view.mapping.word(counter(self.port));
        // Counters are the low half of the count; they wrap around.
        let waited = self.waiter.until(counter, wanted as u32, asleep, patience);
        waited.map_err(|why| why.fault(view.seat, what))
    }

    pub(super) fn publish(&self, counter: fn(Port) -> usize, chunk: usize) {
        let value = (self.begun + chunk as u64 + 1) as u32;
        let others = self.views.iter().enumerate().filter(|(seat, _)| *seat != self.me);
        let sleepers = others.map(|(_, view)| view.mapping.word(self.port.asleep()));
        publish(self.mine.mapping().word(counter(self.port)), value, sleepers);
    }
}
