//! What is being made now will be contributed to a sum: said by whoever makes it, heard by allocators that can then put it
//! where other workers of the host read it without a copy.

use std::cell::Cell;

thread_local! {
    // Neither lazily made nor dropped, so that an allocator may ask at any moment of a thread's life.
    static CONTRIBUTING: Cell<bool> = const { Cell::new(false) };
}

/// Ends what [`contributing`] began, also when it panics.
struct Until(bool);

impl Drop for Until {
    fn drop(&mut self) {
        CONTRIBUTING.set(self.0);
    }
}

/// Does something whose large vectors will be contributed to a sum. On this thread only; it changes no result.
///
/// ```
/// use starlings_core::{contributing, is_contributing};
///
/// let gradient = contributing(|| vec![0f32; 1 << 20]);
/// assert!(contributing(is_contributing) && !is_contributing());
/// assert_eq!(gradient.len(), 1 << 20);
/// ```
pub fn contributing<T>(make: impl FnOnce() -> T) -> T {
    let _until = Until(CONTRIBUTING.replace(true));
    make()
}

/// Whether this thread is inside of [`contributing`].
#[must_use]
pub fn is_contributing() -> bool {
    CONTRIBUTING.try_with(Cell::get).unwrap_or(false)
}
