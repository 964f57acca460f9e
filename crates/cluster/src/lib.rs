//! Stop 8 of the walk: who is alive and what survives. Deciding is pure ([`membership`], [`detector`]);
//! what must outlive a process goes through [`disk`] and appears whole or not at all ([`atomic`],
//! [`model_file`], [`checkpoint`]); what members say to each other is [`protocol`].

pub mod atomic;
pub mod bytes;
pub mod checkpoint;
pub mod control;
pub mod coordinator;
pub mod deal;
mod delivery;
pub mod detector;
pub mod disk;
pub mod journal;
pub mod manifest;
pub mod membership;
pub mod model_file;
pub mod objects;
pub mod protocol;
pub mod roster;
mod silence;
pub mod succession;
pub mod tensors;
mod words;
pub mod writer;

#[cfg(test)]
mod faulty_disk;
