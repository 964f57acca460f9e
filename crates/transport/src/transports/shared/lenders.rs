//! Parts of a sum that seats lend: vectors in the heap of their process, which peers read where they are instead of in
//! slots. A seat that lends says where its parts lie before its first chunk, and leaves a sum only when all others have
//! done with them. Whether it lends is its own affair: others may do so, or copy, in the same sum.

use super::circle::Circle;
use super::heap;
use super::layout::{LINE, Port, SLOTS, WITHDRAWN};
use super::parts::{Lent, Parts};
use super::segment::View;
use super::waiting::Patience;
use starlings_core::{Fault, Result};
use std::ptr::null;
use std::sync::atomic::{Ordering, fence};

/// What each seat lends in a sum, in the order of seats; nothing for those who do not lend.
#[derive(Default, Debug)]
pub(super) struct Lenders {
    seats: Vec<Lender>,
}

/// The beginning of each part; null where it is not lent.
#[derive(Default, Debug)]
struct Lender {
    contributions: Vec<*const u8>,
    totals: Vec<*const u8>,
}

impl Lenders {
    pub(super) fn contributions(&self, seat: usize) -> &[*const u8] {
        self.seats.get(seat).map_or(&[], |lender| &lender.contributions)
    }

    pub(super) fn totals(&self, seat: usize) -> &[*const u8] {
        self.seats.get(seat).map_or(&[], |lender| &lender.totals)
    }
}

impl Circle {
    /// A sum of which this seat lends what it can.
    pub(super) fn lent(&mut self, parts: &Parts<'_>, patience: &Patience<'_>) -> Result<()> {
        if !parts.is_lent() {
            return self.sliced(parts, patience);
        }
        let mapping = self.mine.mapping();
        // Nobody reads the places of an earlier sum any more: this seat has waited for that.
        for (part, Lent { contribution, total }) in parts.lent().enumerate() {
            let places = self.port.lent(part);
            mapping.long(places.0).store(contribution as u64, Ordering::Relaxed);
            mapping.long(places.1).store(total as u64, Ordering::Relaxed);
        }
        let end = self.begun + parts.chunks() as u64;
        let outcome = self
            .sliced(parts, patience)
            .and_then(|()| self.wait(Port::taken, end, "the end", patience));
        if outcome.is_err() {
            self.withdraw();
        }
        outcome
    }

    /// Tells peers that this seat's numbers may change from now on.
    pub(super) fn withdraw(&self) {
        let mapping = self.mine.mapping();
        for slot in 0..SLOTS as u64 {
            mapping.long(self.port.sequence(slot)).store(WITHDRAWN, Ordering::Relaxed);
            mapping.long(self.port.total_sequence(slot)).store(WITHDRAWN, Ordering::Relaxed);
        }
        // Before any of the numbers does.
        fence(Ordering::Release);
    }

    /// What the others lend, as soon as all have posted their first chunk.
    pub(super) fn lenders(&self, parts: &Parts<'_>) -> Result<Lenders> {
        let lender = |(seat, view): (usize, &View)| {
            let is_lent = view.mapping.long(self.port.is_lent(self.begun)).load(Ordering::Relaxed);
            match seat == self.me || is_lent == 0 {
                true => Ok(Lender::default()),
                false => self.lender(view, parts),
            }
        };
        let seats: Result<Vec<Lender>> = self.views.iter().enumerate().map(lender).collect();
        Ok(Lenders { seats: seats? })
    }

    /// Where a seat says that its parts lie.
    fn lender(&self, view: &View, parts: &Parts<'_>) -> Result<Lender> {
        let lengths: Vec<usize> = parts.lengths().collect();
        let totals = (0..lengths.len()).map(|part| self.port.lent(part).1);
        let totals = places(view, totals.zip(lengths.iter().copied()))?;
        Ok(Lender { contributions: self.lent_by(view, &lengths)?, totals })
    }

    /// Where a seat says that its contributions to parts of such lengths lie; null for those that it does not lend.
    pub(super) fn lent_by(&self, view: &View, lengths: &[usize]) -> Result<Vec<*const u8>> {
        let contributions = (0..lengths.len()).map(|part| self.port.lent(part).0);
        places(view, contributions.zip(lengths.iter().copied()))
    }
}

/// Places in the heap of a seat, at offsets that it has written: they are taken from a peer, and so checked.
fn places(view: &View, written: impl Iterator<Item = (usize, usize)>) -> Result<Vec<*const u8>> {
    let lost = || {
        let what = format!("{} lends what is not in its heap", view.seat);
        Fault::peer(Some(view.seat), what)
    };
    let heap = view.heap.as_ref().ok_or_else(lost)?;
    let place = |(at, bytes): (usize, usize)| match view.mapping.long(at).load(Ordering::Relaxed) {
        0 => Ok(null()),
        offset => {
            let offset = usize::try_from(offset).map_err(|_| lost())?;
            let end = offset.checked_add(bytes).filter(|&end| end <= heap.bytes());
            match end.is_some() && offset >= heap::FIRST && offset.is_multiple_of(LINE) {
                true => Ok(heap.range(offset, bytes)),
                false => Err(lost()),
            }
        }
    };
    written.map(place).collect()
}
