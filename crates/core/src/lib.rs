//! The few words that all of Starlings exchanges. Everything else stands on this crate, and it stands
//! on nothing of ours: a seat, a step, a block of numbers, a catalogue entry, an event, a fault.

mod block;
mod catalogue;
mod clock;
mod contributing;
mod event;
mod failpoint;
mod faint;
mod fault;
mod graph;
mod ids;
mod model;
mod nearest;
mod panel;
mod params;
mod planted;
mod random;
mod turn;

pub use block::{Block, Body, Factors, FoldError, Kind, Rows, Update, Values};
pub use catalogue::{Ability, Card, Entry};
pub use clock::Deadline;
pub use contributing::{contributing, is_contributing};
pub use event::{Event, FaultReport, Pace, Report, Span};
#[cfg(failpoints)]
pub use failpoint::reach;
pub use faint::{FAINT_DOUBLE, FAINT_SINGLE, faded, faint};
pub use fault::{Blame, Fault, Result};
pub use graph::{FEATURES, Graph, Node, Op};
pub use ids::{Epoch, JobId, Seat, Shard, Step};
pub use model::{Model, Role, Tensor, tracked};
pub use nearest::{nearest, suggestion};
pub use panel::{Calibration, Confusion, Panel, ReliabilityBin, Spread, Validation};
pub use params::{Param, ParamKind, Params};
#[cfg(planted)]
pub use planted::{at_work, plant};
pub use random::Rng;
pub use turn::Turn;
