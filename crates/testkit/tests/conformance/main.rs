//! Every entry of every catalogue against the laws of its family, what tells neighbours of a family apart, and
//! broken entries that prove the suites can fail.

mod blend;
mod codec;
mod ensembles;
mod gate;
mod learner;
mod plan;
mod topology;
