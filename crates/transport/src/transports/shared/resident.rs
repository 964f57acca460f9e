//! Sums of buffers that live in shared memory already: the sliced way without slots. Each seat says where its two
//! buffers lie, folds its slice of every chunk straight from all contributions into its own total, and copies the other
//! slices from the totals of those who folded them. Nothing else moves: (2P−1)/P · n bytes are read and n written.

use super::buffer::SharedBuffer;
use super::circle::Circle;
use super::layout::{ARENA, LINE, Port, SLOTS};
use super::parts::{Numbers, NumbersMut, Parts};
use super::segment::View;
use super::waiting::Patience;
use starlings_core::{Fault, Result};
use std::ptr::null_mut;
use std::sync::atomic::{Ordering, fence};

/// Where the two buffers of a seat lie in its segment.
#[derive(Clone, Copy)]
struct Places {
    contribution: usize,
    total: usize,
}

impl Circle {
    /// Sums buffers of this seat's segment over all seats, in the order of [`Circle::sum`]. Every seat calls it with
    /// buffers of the same length. On return no peer reads them any more.
    ///
    /// # Errors
    /// As [`Circle::sum`].
    ///
    /// # Panics
    /// If a buffer lies in another segment, or lengths differ.
    pub fn sum_buffers(
        &mut self,
        contribution: &SharedBuffer,
        total: &mut SharedBuffer,
        patience: &Patience<'_>,
    ) -> Result<()> {
        let own = self.mine.mapping();
        assert!(contribution.is_in(own) && total.is_in(own), "buffers of this seat's own segment");
        if self.is_broken || self.views.len() == 1 {
            let into = &mut [NumbersMut::F32(total.as_mut_slice())];
            return self.sum(&[Numbers::F32(contribution.as_slice())], into, patience);
        }
        let places = Places { contribution: contribution.offset(), total: total.offset() };
        let mut into = [NumbersMut::F32(total.as_mut_slice())];
        let from = [Numbers::F32(contribution.as_slice())];
        let (chunk_bytes, streamed) = (self.tuning.chunk_bytes, self.tuning.streamed_from);
        let parts = Parts::cut(&from, &mut into, chunk_bytes, streamed).resident();
        let outcome = self.exchange(&parts, places, patience);
        self.begun += parts.chunks() as u64;
        self.is_broken = outcome.is_err();
        outcome
    }

    fn exchange(&mut self, parts: &Parts<'_>, own: Places, patience: &Patience<'_>) -> Result<()> {
        let last = parts.chunks() - 1;
        if let Some(before) = (self.begun + 1).checked_sub(SLOTS as u64) {
            self.wait(Port::taken, before, "the use", patience)?;
        }
        self.announce(parts.shape, own, last);
        self.wait(Port::posted, self.begun + last as u64 + 1, "the contribution", patience)?;
        self.check_unchanged(0, Port::sequence)?;
        let places: Result<Vec<Places>> =
            (0..self.views.len()).map(|seat| self.places(seat, parts)).collect();
        let places = places?;
        for turn in 0..=last + 1 {
            if turn <= last {
                let slots = |seat| self.slot(seat, places[seat].contribution, parts, turn);
                let slots: Vec<*const u8> = (0..self.views.len()).map(slots).collect();
                let slice = parts.slice(turn, self.me, self.views.len());
                parts.fold(turn, slice, &slots, null_mut());
                self.publish(Port::reduced, turn);
            }
            if let Some(chunk) = turn.checked_sub(1) {
                self.collect(parts, &places, chunk, patience)?;
            }
        }
        self.check_unchanged(0, Port::sequence)?;
        self.publish(Port::taken, last);
        // Whoever returns may write its buffers again.
        self.wait(Port::taken, self.begun + last as u64 + 1, "the end", patience)
    }

    fn announce(&self, shape: u64, own: Places, last: usize) {
        let (mapping, port, count) = (self.mine.mapping(), self.port, self.begun);
        let sequence = mapping.long(port.sequence(count));
        sequence.store(2 * count + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        mapping.long(port.shape(count)).store(shape, Ordering::Relaxed);
        let (contribution, total) = port.places(count);
        mapping.long(contribution).store(own.contribution as u64, Ordering::Relaxed);
        mapping.long(total).store(own.total as u64, Ordering::Relaxed);
        sequence.store(2 * count + 2, Ordering::Release);
        self.publish(Port::posted, last);
    }

    /// Where a seat says that its buffers are. The only offsets that are ever taken from a peer, and so checked.
    fn places(&self, seat: usize, parts: &Parts<'_>) -> Result<Places> {
        let View { mapping, seat } = &self.views[seat];
        let read = |offset| mapping.long(offset).load(Ordering::Relaxed);
        let (contribution, total) = self.port.places(self.begun);
        let shape = read(self.port.shape(self.begun));
        let inside = |offset: u64| {
            let offset = usize::try_from(offset).ok().filter(|at| at.is_multiple_of(LINE))?;
            let end = offset.checked_add(parts.bytes)?;
            (offset >= ARENA && end <= mapping.bytes()).then_some(offset)
        };
        match (inside(read(contribution)), inside(read(total))) {
            (Some(contribution), Some(total)) if shape == parts.shape => {
                Ok(Places { contribution, total })
            }
            _ => {
                let what = format!("{seat} sums other buffers than this worker");
                Err(Fault::peer(Some(*seat), what))
            }
        }
    }

    /// A chunk of a seat's buffer; null stands for this seat's own.
    fn slot(&self, seat: usize, buffer: usize, parts: &Parts<'_>, chunk: usize) -> *const u8 {
        if seat == self.me {
            return std::ptr::null();
        }
        let skip = parts.offset(chunk, self.tuning.chunk_bytes);
        self.views[seat]
            .mapping
            .range(buffer + skip, parts.slice(chunk, 0, 1).len().min(parts.bytes - skip))
    }

    fn collect(
        &mut self,
        parts: &Parts<'_>,
        places: &[Places],
        chunk: usize,
        patience: &Patience<'_>,
    ) -> Result<()> {
        let (me, seats) = (self.me, self.views.len());
        for seat in (1..seats).map(|ahead| (me + ahead) % seats) {
            let count = self.begun + chunk as u64;
            self.wait_for(seat, Port::reduced, count + 1, "the slice", patience)?;
            let slot = self.slot(seat, places[seat].total, parts, chunk);
            parts.fold(chunk, parts.slice(chunk, seat, seats), &[slot], null_mut());
        }
        Ok(())
    }
}
