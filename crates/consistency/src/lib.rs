//! Stop 5 of the walk: when may a worker go on, what may it read, and what happens to models between exchanges.
//! A [`Gate`] answers questions about counters and holds no data; a [`Blending`] says what travels and how it
//! enters the model.

mod anchor;
mod blend;
mod blends;
mod gate;
mod gates;
mod mixing;
mod temper;

pub use blend::{At, Blend, Share};
pub use blends::CONSISTENCIES;
pub use gate::Gate;
pub use mixing::MixControl;
pub use temper::{Late, Temper};

use starlings_core::{Params, Result};

/// How an entry of the catalogue is built from checked parameters.
pub type BuildConsistency = fn(&Params) -> Result<Consistency>;

/// A consistency model: when a worker may go on, and what happens between exchanges.
pub struct Consistency {
    /// When.
    pub gate: Box<dyn Gate>,
    /// What travels, and how it enters the model.
    pub blend: Blending,
}

/// What travels, and how it enters the model.
pub enum Blending {
    /// Contributions, at every step.
    Plain,
    /// Workers take steps of their own and exchange deltas now and then.
    Local(Box<dyn Blend>),
    /// Neighbours mix until their models are close enough.
    Mixing(Box<dyn MixControl>),
    /// Owners change contributions that come late.
    Tempered(Box<dyn Temper>),
    /// Workers push and fetch at their own pace.
    Cadence(Cadence),
}

/// Downpour's periods (Dean et al., 2012).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cadence {
    /// Fetch the model every so many steps.
    pub fetch: u64,
    /// Push the accrued gradients every so many steps.
    pub push: u64,
    /// Steps at the start that one replica makes alone.
    pub warm: u64,
}
