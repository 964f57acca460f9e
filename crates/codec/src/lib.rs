//! Stop 6 of the walk: block → bytes → block. A codec does not know where bytes go.

mod cheapest;
mod codec;
mod codecs;
mod compressor;
mod float;
mod kernels;
mod places;
pub mod residuals;
mod rounds;
mod rows;
pub mod sparse;

pub use cheapest::{Cheapest, Facts, Way};
pub use codec::{Codec, Into, Law};
pub use codecs::{BuildCodec, CODECS};
pub use compressor::{Compressor, Feedback, Keeps};
pub use kernels::grid;
pub use residuals::{Part, Residuals, RowsPart};
pub use rounds::{Next, Rounds, Shapes};

/// What a codec of the catalogue is: the engine has an executor for each scheme.
pub enum Scheme {
    /// Each number by itself: partial sums can travel encoded.
    Numbers(Box<dyn Codec>),
    /// Parts of contributions, for whoever folds them.
    Contributions(Box<dyn Compressor>),
    /// A few sums of smaller blocks instead of one.
    Rounds(Box<dyn Rounds>),
    /// Matrices as the factors that the learner emits; everything else as raw numbers.
    Factors,
    /// For each block whichever way is cheapest.
    Auto(Box<dyn Cheapest>),
}

/// Bytes that cannot be what a peer of ours sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(
    /// What is wrong with them.
    pub &'static str,
);
