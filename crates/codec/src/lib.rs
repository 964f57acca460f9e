//! Stop 6 of the walk: block → bytes → block. A codec does not know where bytes go.

mod codecs;

pub use codecs::{BuildCodec, CODECS};

use starlings_core::{Rows, Values};

/// What a codec promises of a number that went through it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Law {
    /// The same bits.
    Exact,
    /// Within this relative error, for numbers of the codec's normal range.
    Bounded {
        /// The largest relative error.
        relative: f64,
    },
}

/// Bytes that cannot be what a peer of ours sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(
    /// What is wrong with them.
    pub &'static str,
);

/// What to do with decoded numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Into {
    /// Add them.
    Add,
    /// Put them in place.
    Put,
}

/// A codec: the bytes of a part of a dense block, or of some rows.
///
/// Laws: decoding what was encoded obeys `law`; the encoded length of a dense part depends on its length and
/// kind alone; any bytes whatever give `Ok` or [`Malformed`], never a panic, and never more memory than a
/// small multiple of their length; integers are never changed.
pub trait Codec: Send + Sync {
    /// What it promises.
    fn law(&self) -> Law;

    /// Appends the encoding of `values[from..to]`.
    fn encode(&self, values: &Values, from: usize, to: usize, out: &mut Vec<u8>);

    /// Decodes onto `values[from..to]`.
    ///
    /// # Errors
    /// When the bytes are not an encoding of exactly that many numbers.
    fn decode(
        &self,
        bytes: &[u8],
        values: &mut Values,
        range: std::ops::Range<usize>,
        how: Into,
    ) -> Result<(), Malformed>;

    /// Appends the encoding of rows.
    fn encode_rows(&self, rows: &Rows, out: &mut Vec<u8>);

    /// Decodes rows of a table of which `like` tells kind, width and total (its rows are ignored).
    ///
    /// # Errors
    /// When the bytes are not an encoding of such rows.
    fn decode_rows(&self, bytes: &[u8], like: &Rows) -> Result<Rows, Malformed>;
}
