//! The catalogue of codecs: one file each, two lines here.

mod auto;
mod factors;
mod half;
mod int8;
mod low_rank;
mod one_bit;
mod random_k;
mod raw;
mod ternary;
mod threshold;
mod top_k;

use crate::Scheme;
use starlings_core::{Entry, Params, Result};

/// How a codec is built from checked parameters.
pub type BuildCodec = fn(&Params) -> Result<Scheme>;

/// All codecs.
pub static CODECS: &[Entry<BuildCodec>] = &[
    auto::ENTRY,
    factors::ENTRY,
    half::ENTRY,
    int8::ENTRY,
    low_rank::ENTRY,
    one_bit::ENTRY,
    random_k::ENTRY,
    raw::ENTRY,
    ternary::ENTRY,
    threshold::ENTRY,
    top_k::ENTRY,
];
