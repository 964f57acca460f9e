//! Asks the processor for memory that will be read soon. Rows of a tree's node lie scattered, and without this every
//! one of them is waited for.

/// Begins to bring `values[at]` into the cache, if it exists. Nothing is read; on other processors nothing is done.
#[inline]
pub(crate) fn prefetch<T>(values: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(value) = values.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        #[expect(
            unsafe_code,
            reason = "a prefetch reads nothing, and the address is a reference's"
        )]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, at);
}
