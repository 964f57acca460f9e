//! Circles: sums of a blend that some seats make without the others, each time others. Everybody counts them, also those who
//! are not in them, and a sum travels under its number. Between two circles lies a sum of the whole flock, so that nobody
//! is still in the one when another begins the next; who is ahead by that much sends frames that wait under their number.

use crate::merge::{MergeOptions, Merger};
use crate::net::Net;
use crate::net::kinds::CIRCLES;
use starlings_core::{Result, Seat, Update};
use std::sync::Arc;

/// The circles of one seat. They sum over links, also within a host: shared memory is laid out for groups that stay.
pub struct Circles {
    net: Arc<Net>,
    options: MergeOptions,
    /// Circles there have been, with this seat or without it.
    count: u64,
    bytes_raw: u64,
}

impl Circles {
    /// Circles whose members sum as a group would under these options.
    #[must_use]
    pub fn new(net: Arc<Net>, options: MergeOptions) -> Circles {
        let options = MergeOptions { kind: CIRCLES, ..options };
        Circles { net, options, count: 0, bytes_raw: 0 }
    }

    /// A circle that this seat is not in.
    pub fn pass(&mut self) {
        self.count += 1;
    }

    /// Sums an update over a circle that this seat is in. All members get the same bits.
    ///
    /// # Errors
    /// As [`Merger::merge`].
    pub fn sum(&mut self, group: Vec<Seat>, update: Update) -> Result<Update> {
        let options = MergeOptions { group, ..self.options.clone() };
        let mut merger = Merger::new(self.net.clone(), options).numbered(self.count);
        self.count += 1;
        let merged = merger.merge(update);
        self.bytes_raw += merger.bytes_raw();
        merged
    }

    /// Bytes that everything sent in circles has in memory.
    #[must_use]
    pub fn bytes_raw(&self) -> u64 {
        self.bytes_raw
    }
}

#[cfg(test)]
#[path = "circles_tests.rs"]
mod tests;
