//! The binary from the outside, as people and scripts use it: real processes, real files, real signals. Every
//! child is killed when its test ends, and every wait has a deadline.

#![expect(clippy::unwrap_used, reason = "all of this is test code, its shared functions too")]

mod agreement;
mod attacks;
mod bad_input;
mod bad_surroundings;
mod book;
mod examples;
mod exits;
mod flock;
mod hadoop;
mod hostile;
mod interruption;
mod killed_stage;
mod killed_worker;
mod lost_owner;
mod preparation;
mod program;
mod random_kills;
mod round_trips;
mod stores;
mod telling;
mod transports;
mod trees;
mod unheard;
