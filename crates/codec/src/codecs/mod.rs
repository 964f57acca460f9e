//! The catalogue of codecs: one file each, two lines here.

mod half;
mod raw;

use crate::Codec;
use starlings_core::{Entry, Params, Result};

/// How a codec is built from checked parameters.
pub type BuildCodec = fn(&Params) -> Result<Box<dyn Codec>>;

/// All codecs.
pub static CODECS: &[Entry<BuildCodec>] = &[half::ENTRY, raw::ENTRY];
