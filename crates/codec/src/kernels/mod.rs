//! Hot loops as free functions on slices. They are written so that the compiler makes vectors of them, and run
//! with the widest ones the machine has (`pulp::Arch`). Sums are made in a fixed number of lanes: the bits do not
//! depend on the machine.

pub mod grid;
pub(crate) mod matrix;
pub(crate) mod noise;
pub(crate) mod norms;
pub(crate) mod select;
