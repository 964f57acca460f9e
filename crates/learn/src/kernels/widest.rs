//! Loops with the widest vectors that the machine has, chosen when the program runs.

use pulp::{Arch, Simd, WithSimd};

/// Does work with the widest vectors that the machine has. The closure must be `#[inline(always)]`: one that is called is
/// compiled for the oldest machine.
pub(crate) fn widest<R>(work: impl FnMut() -> R) -> R {
    Arch::new().dispatch(Widest(work))
}

/// As a `FnOnce` a closure would get a shim around it, which nothing can have inlined.
struct Widest<F>(F);

impl<R, F: FnMut() -> R> WithSimd for Widest<F> {
    type Output = R;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) -> R {
        (self.0)()
    }
}
