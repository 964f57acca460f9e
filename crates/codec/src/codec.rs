//! Codecs of numbers: each number of a block by itself, so that what was decoded and summed can be encoded again on
//! the way. Integers go through unchanged.

use crate::{Malformed, rows};
use starlings_core::{Kind, Rows, Values};

/// What a codec promises of a number that went through it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Law {
    /// The same bits.
    Exact,
    /// Within this relative error, for floats between 2^-14 and 65,504 in size at least: the normal range of
    /// IEEE binary16, which every codec must carry. Zeros, infinities and NaN stay what they are; signs stay.
    Bounded {
        /// The largest relative error.
        relative: f64,
    },
}

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
/// Laws: decoding what was encoded obeys `law`; what was decoded once is encoded to the same bytes again, so
/// that a total can be passed on from seat to seat; the encoded length of a dense part depends on its length
/// and kind alone; any bytes whatever give `Ok` or [`Malformed`], never a panic, and never more memory than a
/// small multiple of their length; integers are never changed.
pub trait Codec: Send + Sync {
    /// What it promises.
    fn law(&self) -> Law;

    /// Bytes of the encoding of `len` numbers; the largest `usize` where that would be more.
    fn encoded_len(&self, kind: Kind, len: usize) -> usize;

    /// Appends the encoding of `values[from..to]`.
    fn encode(&self, values: &Values, from: usize, to: usize, out: &mut Vec<u8>);

    /// Decodes onto `values[from..to]`.
    ///
    /// # Errors
    /// When the bytes are not an encoding of exactly that many numbers; `values` are unchanged then.
    fn decode(
        &self,
        bytes: &[u8],
        values: &mut Values,
        range: std::ops::Range<usize>,
        how: Into,
    ) -> Result<(), Malformed>;

    /// Puts `base[range]` and the decoded numbers, added, onto `values[range]`: the bits that adding them to `base` would give.
    ///
    /// # Errors
    /// When the bytes are not an encoding of exactly that many numbers.
    ///
    /// # Panics
    /// If `base` is of another kind than `values`, or the range is not in both.
    fn decode_beside(
        &self,
        bytes: &[u8],
        base: &Values,
        values: &mut Values,
        range: std::ops::Range<usize>,
    ) -> Result<(), Malformed> {
        values.copy_range(base, range.clone());
        self.decode(bytes, values, range, Into::Add)
    }

    /// What `encode` would append, where it already lies in memory: it can be sent without a copy.
    fn borrow<'a>(&self, _values: &'a Values, _from: usize, _to: usize) -> Option<&'a [u8]> {
        None
    }

    /// Whether the encoding is the numbers as they lie in memory, and decoding adds them as they are: then whoever has faster
    /// loops may do both by itself.
    fn is_memory(&self) -> bool {
        false
    }

    /// Appends the encoding of rows: how many, which, and their numbers as a dense part.
    fn encode_rows(&self, rows: &Rows, out: &mut Vec<u8>) {
        rows::encode_index(&rows.index, out);
        self.encode(&rows.values, 0, rows.values.len(), out);
    }

    /// Decodes rows of a table of which `like` tells kind, width and total (its rows are ignored).
    ///
    /// # Errors
    /// When the bytes are not an encoding of such rows.
    fn decode_rows(&self, bytes: &[u8], like: &Rows) -> Result<Rows, Malformed> {
        let kind = like.values.kind();
        let (index, numbers) = rows::decode_index(bytes, like.total)?;
        // The bytes that are there are compared with what the numbers need before room is made for them.
        let len =
            index.len().checked_mul(like.width as usize).ok_or(Malformed("too many numbers"))?;
        if numbers.len() != self.encoded_len(kind, len) {
            return Err(Malformed("the bytes are not as many as the rows need"));
        }
        let mut values = Values::zeros(kind, len);
        self.decode(numbers, &mut values, 0..len, Into::Put)?;
        Ok(Rows { total: like.total, width: like.width, index, values })
    }
}
