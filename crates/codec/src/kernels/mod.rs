//! Hot loops as free functions on slices. They are written so that the compiler makes vectors of them, and run
//! with the widest ones the machine has (`pulp::Arch`). Sums are made in a fixed number of lanes: the bits do not
//! depend on the machine.

pub mod grid;
pub(crate) mod matrix;
pub(crate) mod noise;
pub(crate) mod norms;
pub(crate) mod select;

use pulp::{Arch, Simd, WithSimd};

/// Does work with the widest vectors that the machine has. The closure must be `#[inline(always)]`: one that is called is compiled
/// for the oldest machine.
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
