//! Deterministic simulation: the real machines of the exchange and of membership on a virtual network and a
//! virtual clock. A run is a function of its seed; a failure prints the seed, and the seed replays it.

pub mod collecting;
pub mod membership;
pub mod merging;
pub mod network;
pub mod owning;
pub mod serving;
pub mod surviving;
pub mod sweep;

use sweep::Machine;

/// All simulations.
pub const MACHINES: [Machine; 6] = [
    Machine { name: "surviving", check: |seed| drop(surviving::Scenario::check(seed)) },
    Machine { name: "merging", check: merging::check },
    Machine { name: "collecting", check: collecting::check },
    Machine { name: "serving", check: serving::check },
    Machine { name: "owning", check: |seed| _ = owning::check(seed) },
    Machine { name: "membership", check: membership::check },
];
