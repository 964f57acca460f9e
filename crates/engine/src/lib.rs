//! The walk: joins data, learners, plans, topologies, consistency, codecs, transports and cluster.
//! Read [`worker`] first: it is the whole system on one screen.

mod all_to_all;
pub mod bench;
pub mod bridge;
pub mod choices;
pub mod clock;
pub mod combinations;
pub mod compat;
pub mod courier;
pub mod desk;
pub mod evaluation;
pub mod exchange;
pub mod flock;
pub mod job;
pub mod keeper;
pub mod launch;
pub mod member;
pub mod merge;
pub mod neighbours;
pub mod net;
pub mod node;
pub mod recovery;
pub mod redeal;
pub mod rules;
pub mod serve;
pub mod shared_sum;
pub mod stop;
mod table;
pub mod trace;
pub mod train;
pub mod walk;
pub mod wiring;
pub mod worker;
