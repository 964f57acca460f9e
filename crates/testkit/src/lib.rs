//! What tests stand on: the reference driver, the conformance suites that every entry of a catalogue is run
//! through, simulation and fault injection. A development dependency only.

pub mod conformance;
pub mod decoders;
pub mod drive;
pub mod graph;
pub mod sim;
pub mod tally;
