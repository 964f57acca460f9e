//! Kernels of our own where those of the backend are slow: convolution, linear layers and the largest of windows, forward and
//! back, on one thread. `convolution.rs`, `window.rs`, `tile.rs`, `product.rs` and `wide.rs` are functions of slices; the others make Burn's
//! operations of them through its extension point (`extension.rs`), and on other devices than the CPU they are Burn's own (`composed.rs`).

#[cfg(test)]
mod check;
mod composed;
mod convolution;
mod convolve;
mod extension;
mod geometry;
mod largest;
mod linear;
mod product;
mod seed;
mod tile;
#[cfg(target_arch = "x86_64")]
mod wide;
mod window;

pub(crate) use convolve::{Reach, convolve};
pub(crate) use largest::largest;
pub(crate) use linear::linear;
pub(crate) use seed::seed;
pub(crate) use window::Finish;
