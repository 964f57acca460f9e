//! Tempers: what an owner does to a contribution that was made from an older model.

use starlings_core::Rows;

/// A contribution that an owner changes before it is applied, because it was made from an older model.
///
/// Laws: a contribution that is not late (staleness 0, and what was read is what there is) stays as it is; so do
/// the row numbers, and integers, which are counts and not gradients.
pub trait Temper: Send + Sync {
    /// Changes `rows` (a sum of gradients over `share` rows, of some rows of a tensor). `staleness` is how many
    /// updates the owner has applied since this worker read; `read` are the same rows as they were read and `now`
    /// as they are, where [`Temper::remembers`].
    fn temper(&self, rows: &mut Rows, late: &Late<'_>);

    /// Whether the owner must keep what each worker has read.
    fn remembers(&self) -> bool;

    /// With what decay the owner must keep a running mean square of the gradients of each number, if it must.
    fn decay(&self) -> Option<f64> {
        None
    }
}

/// How late a contribution is.
pub struct Late<'a> {
    /// Updates applied since the worker read; 0 when nobody came between.
    pub staleness: u64,
    /// Workers of the flock.
    pub world: u32,
    /// Rows of data in the contribution.
    pub share: u64,
    /// The rows as the worker read them, if they are remembered.
    pub read: Option<&'a Rows>,
    /// The rows as they are now, if they are remembered.
    pub now: Option<&'a Rows>,
    /// The running mean squares of the mean gradients of the same rows, this one included, as f64, where [`Temper::decay`].
    pub squares: Option<&'a Rows>,
}
