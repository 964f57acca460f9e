//! Blends: steps that workers take on their own, and what is exchanged of them.

use starlings_core::{Model, Seat, Update};

/// How the rows of a local step are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// The step is a whole one on the worker's own rows: its mean gradient.
    Own,
    /// The step is the worker's share of the flock's step: the sum of all workers' deltas is one whole step.
    Flock,
}

/// Where a blend is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// Own steps done since the job began.
    pub steps: u64,
    /// The own seat.
    pub seat: Seat,
    /// Seats that take part.
    pub world: u32,
    /// Whether some seats can sum without the others: then a round may have a [circle](Blend::circle).
    pub circles: bool,
    /// The end, or a checkpoint: afterwards all replicas must hold the same bits.
    pub ending: bool,
}

/// Local steps and what is exchanged of them. Everything it remembers lies in the model, as tensors of
/// [`starlings_core::Role::State`] whose names begin with `blend.`, so that one checkpoint holds it all.
///
/// After each local step the engine asks for an `offer`, sums it over the flock, hands the sum to `absorb`,
/// and asks again (`round` 1, 2 …) until there is none. Whether there is an offer in round r must follow from `at` and
/// from sums of earlier rounds alone: all workers offer together or not at all. A round that has a `circle` is summed by
/// its members alone; the others neither offer nor absorb, stay as they are, and meet the members in the next round.
///
/// Laws: with one worker and no momentum of its own the model is what plain steps give; after an exchange
/// with `at.ending` all replicas hold the same bits, and another at the same step changes none of them; a flock
/// whose replicas are equal and still stays equal; offers are sums (deltas or counts), never partial, and no
/// longer than the way that the model has gone; asking twice for an offer gives the same one. All seats name the same
/// circle; the last round has none, so that nobody is done with an exchange that anybody may still break off; what all
/// must hold alike (anchors, counts of the flock) changes in the last round alone.
pub trait Blend: Send + Sync {
    /// How the rows of a local step are counted.
    fn share(&self) -> Share;

    /// Adds what it remembers to a model before the first step. A model that has it already, because it comes
    /// from a checkpoint, stays as it is.
    fn prepare(&self, model: &mut Model);

    /// Who sums in a round, in the order of seats, where that is not everybody. It follows from `at` (but not from the own
    /// seat) and from sums of the whole flock alone, so that everybody knows it; there is none unless `at.circles`.
    fn circle(&self, at: &At, round: u32, model: &Model) -> Option<Vec<Seat>> {
        let _ = (at, round, model);
        None
    }

    /// What to sum over the flock now, or over the circle that this seat is in.
    fn offer(&self, at: &At, round: u32, model: &mut Model) -> Option<Update>;

    /// Whether all replicas that sum take the mean of the deltas that they offer. Then replicas that have used unequally
    /// many rows can count by their rows: each delta times P · own rows / all rows, whose sum over P is the weighted mean.
    fn averages(&self) -> bool {
        false
    }

    /// Takes the sum of all offers of a round that this seat has offered in.
    fn absorb(&self, at: &At, round: u32, sum: &Update, model: &mut Model);
}
