//! Stop 4 of the walk: who talks to whom, in which order. Pure rank arithmetic: a topology does not know
//! what is summed, nor how bytes travel.

mod circulant;
mod count;
mod groups;
mod keys;
mod owners;
mod random_regular;
mod spectrum;
mod topologies;

pub use keys::{KeyRing, KeyTable};
pub use owners::{moves, owners_to_moves};
pub use spectrum::lag;
pub use topologies::{BuildTopology, TOPOLOGIES};

use starlings_core::Seat;
use std::ops::Range;

/// One move of one seat. Moves on different chunks are independent of each other; moves on one chunk
/// happen in the order of the list. That order is the fold order, so the bits of a sum are fixed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Which chunk.
    pub chunk: usize,
    /// With whom.
    pub peer: Seat,
    /// What.
    pub act: Act,
}

/// What a move does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Send the partial sum held so far (a contribution when nothing was folded yet).
    SendPartial,
    /// Send the final sum.
    SendTotal,
    /// Receive a partial sum and add it onto the own.
    Fold,
    /// Receive the final sum and take it.
    Replace,
}

/// How a sum is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// This seat's moves.
    Moves(Vec<Move>),
    /// Owner of each chunk: everyone sends it there, the owner folds the others onto its own in the order of
    /// seats and answers. [`moves`] spells it out.
    Owners(Vec<Seat>),
    /// Everyone sends its contribution to everyone, and each folds all of them in the order of seats.
    Everyone,
}

/// What a sum, or a round of another form, costs: the bytes of numbers on links, without the heads of messages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Messages one after another on the longest path: a message comes after those that its sender has
    /// received for the same chunk. Messages that leave one seat side by side count in its bytes instead.
    pub rounds: u64,
    /// Bytes that the busiest seat sends.
    pub bytes_sent_max: f64,
    /// Bytes that all seats send together.
    pub bytes_sent_total: f64,
}

impl Cost {
    /// What a world of one pays.
    pub const NOTHING: Cost = Cost { rounds: 0, bytes_sent_max: 0.0, bytes_sent_total: 0.0 };
}

/// What a topology of the catalogue is: the engine has an executor for each form.
pub enum Form {
    /// It sums contributions, so that all workers see one total.
    Sum(Box<dyn Topology>),
    /// Neighbours mix their models.
    Graph(Box<dyn Graph>),
    /// Models walk.
    Walk(Box<dyn Walk>),
    /// Gradients travel part by part.
    Partial(Box<dyn Partial>),
    /// Groups that sum inside, around owners that serve.
    Groups(Groups),
    /// Everyone has something else for everyone.
    Shuffle(Box<dyn Shuffle>),
}

impl Form {
    /// The topology that sums, or `None` for every other form.
    #[must_use]
    pub fn sum(self) -> Option<Box<dyn Topology>> {
        match self {
            Form::Sum(topology) => Some(topology),
            _ => None,
        }
    }
}

/// A graph over which workers mix their models: x ← Σ wⱼ xⱼ.
///
/// Laws: `weights` of a seat are positive and sum to one, itself included; what a seat weighs it is sent
/// (`sends_to` of the others names it); the matrix of all weights is doubly stochastic, so that mixing keeps
/// the mean; mixing again and again brings all models to that mean, in `rounds_max` rounds of the schedule
/// information has passed from every seat to every other; after `turn` rounds the schedule begins again; a world of one
/// does nothing.
pub trait Graph: Send + Sync {
    /// Whom a seat sends its model to in a round of mixing, in the order of seats.
    fn sends_to(&self, seat: Seat, world: u32, round: u64) -> Vec<Seat>;

    /// What a seat mixes in a round: seats and weights in the order of seats, itself included.
    fn weights(&self, seat: Seat, world: u32, round: u64) -> Vec<(Seat, f64)>;

    /// Rounds after which a number known to one seat has reached every seat.
    fn rounds_max(&self, world: u32) -> u64;

    /// Rounds after which the weights are those of the first again.
    fn turn(&self, world: u32) -> u64 {
        let _ = world;
        1
    }

    /// What one round costs for a model of `bytes`.
    fn cost(&self, world: u32, bytes: u64) -> Cost;
}

/// Models that walk from seat to seat at random and learn where they are.
///
/// Laws: a seat never sends to itself; over many rounds every other seat is chosen alike; the choice is a
/// function of (seed, seat, round) alone; `cost` equals what `next` sends.
pub trait Walk: Send + Sync {
    /// Whom a seat sends its model to in a round. `None` in a world of one.
    fn next(&self, seat: Seat, world: u32, round: u64, seed: u64) -> Option<Seat>;

    /// How many visitors a seat remembers.
    fn cache(&self) -> usize;

    /// What one round costs for a model of `bytes`. What is sent is the same in every round; what a seat receives is
    /// chance.
    fn cost(&self, world: u32, bytes: u64) -> Cost;
}

/// Partial exchange: each round a seat sends one part of what it has gathered to all others.
///
/// Laws: parts make up the whole; in `parts` rounds each part is sent exactly once; different seats send
/// different parts in the same round where they can; `cost` equals what `part` sends.
pub trait Partial: Send + Sync {
    /// Into how many parts a gradient of `bytes` is cut, given what a link carries and how long a step takes.
    fn parts(&self, world: u32, bytes: u64, pace: Pace) -> u32;

    /// Which part a seat sends in a round.
    fn part(&self, seat: Seat, round: u64, parts: u32) -> u32;

    /// What a round costs for a gradient of `bytes` in `parts` parts: the mean of `parts` rounds in a row, because parts
    /// differ by a number where it cannot be cut evenly.
    fn cost(&self, world: u32, bytes: u64, parts: u32) -> Cost;
}

/// What was measured of links and steps.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pace {
    /// Bytes a second that a seat can send.
    pub bytes_per_second: f64,
    /// Seconds of computation in a step.
    pub step_seconds: f64,
}

/// Synchronous groups around owners that serve (Mamidala et al., 2018: MXNet-MPI). In a step a group sums inside; its first
/// seat pushes the sum to the owners, which are all seats, and pulls the model, which the group then shares by a sum to which
/// the others add zeros.
///
/// Laws: those of the sum inside; `cost` equals what such a step sends.
pub struct Groups {
    /// How a group sums.
    pub inner: Box<dyn Topology>,
    /// Seats of a group; the last may have fewer.
    pub size: u32,
}

/// Everyone has something else for everyone (the shuffle of MapReduce): rounds of pairs.
///
/// Laws: in each round the seats pair up (a seat may rest); over all rounds each ordered pair occurs exactly
/// once.
pub trait Shuffle: Send + Sync {
    /// Rounds in a world.
    fn rounds(&self, world: u32) -> u32;

    /// Whom a seat sends to, and whom it receives from, in a round. `None` when it rests.
    fn pair(&self, seat: Seat, world: u32, round: u32) -> Option<(Seat, Seat)>;

    /// What it costs when each seat has `bytes` altogether, the same for each.
    fn cost(&self, world: u32, bytes: u64) -> Cost;
}

/// One seat's part of a sum that groups make inside first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tier {
    /// For each chunk the places in the group, in the order in which their numbers are added.
    pub orders: Vec<Vec<usize>>,
    /// Whether this seat takes the group's sum of a chunk to the other groups.
    pub holds: Vec<bool>,
    /// Its moves between groups.
    pub between: Vec<Move>,
}

/// A topology that sums.
///
/// Laws (checked by the conformance suite for worlds of 1 to 17 and for 1,024): every send has its
/// receive; no seat sends to itself; every contribution reaches every seat's total exactly once; a world
/// of one does nothing; blocking sends cannot deadlock when each chunk is played on its own, nor buffered
/// sends when a seat plays its whole list in order; `cost` equals what `pattern` does.
pub trait Topology: Send + Sync {
    /// The moves of `seat` in a flock of `world` for a sum cut into `chunks` equal chunks, or the owners.
    fn pattern(&self, seat: Seat, world: u32, chunks: usize) -> Pattern;

    /// The cost of summing `bytes` in a flock of `world`, when cut into `chunks` equal chunks.
    fn cost(&self, world: u32, bytes: u64, chunks: usize) -> Cost;

    /// The seats in the order in which a chunk's numbers are added, where each is added to the sum of those before:
    /// whoever can read all contributions may then make the sum in another way, and get the same bits. `None` where
    /// partial sums are added to partial sums.
    fn order(&self, world: u32, chunk: usize) -> Option<Vec<Seat>> {
        let _ = (world, chunk);
        None
    }

    /// The group of neighbouring seats that a seat sums with before groups do: those may sum inside in another way, such as
    /// through memory that they share. `None` where there are no groups, or nobody else in this one.
    fn group(&self, seat: Seat, world: u32) -> Option<Range<u32>> {
        let _ = (seat, world);
        None
    }

    /// A seat's part of a sum whose groups sum inside by themselves, in an order that gives the same bits. `None` where
    /// there are no groups, or they add partial sums to partial sums.
    fn tier(&self, seat: Seat, world: u32, chunks: usize) -> Option<Tier> {
        let _ = (seat, world, chunks);
        None
    }

    /// The number of chunks should be a multiple of this, so that all seats work alike.
    fn grain(&self, world: u32) -> usize;
}
