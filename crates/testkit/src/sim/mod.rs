//! Deterministic simulation: the real machines of the exchange and of membership on a virtual network and a
//! virtual clock. A run is a function of its seed; a failure prints the seed, and the seed replays it.

pub mod collecting;
pub mod membership;
pub mod merging;
pub mod network;
pub mod serving;
pub mod surviving;
mod tallying;
