//! Rows that carry more columns than their tensor has: gradients first, then statistics of the row (how many
//! ratings it had). A lossy codec may have the gradients; statistics travel as they are.

use crate::choices::raw;
use starlings_codec::residuals::{self, RowsPart};
use starlings_codec::{Compressor, Into as Put, Malformed, Residuals};
use starlings_core::{Kind, Rng, Rows, Values};

/// Appends compressed rows of a tensor of `width` columns: the length of the compressed ones, those, and the
/// other columns as they are.
pub(crate) fn encode(
    residuals: &mut Residuals,
    compressor: &dyn Compressor,
    (block, rows, width): (&str, &Rows, usize),
    noise: &mut Rng,
    out: &mut Vec<u8>,
) {
    let (numbers, statistics) = split(rows, width);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    residuals.encode_rows(compressor, RowsPart { block, rows: &numbers }, noise, out);
    let len = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
    raw().encode(&statistics, 0, statistics.len(), out);
}

/// Reads what [`encode`] wrote, for rows that look `like` these.
pub(crate) fn decode(
    compressor: &dyn Compressor,
    bytes: &[u8],
    like: &Rows,
    width: usize,
) -> Result<Rows, Malformed> {
    let short = Malformed("compressed rows that are too short");
    let (len, rest) = bytes.split_first_chunk::<4>().ok_or(short)?;
    let (numbers, statistics) =
        rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(short)?;
    let kept = width.min(like.width as usize);
    let narrow = Rows::none(like.values.kind(), like.total, kept as u32);
    let numbers = residuals::decode_rows(compressor, numbers, &narrow)?;
    let len = numbers.index.len() * (like.width as usize - kept);
    if statistics.len() != len * like.values.kind().bytes() {
        return Err(Malformed("not as many statistics as rows"));
    }
    let mut columns = Values::zeros(like.values.kind(), len);
    raw().decode(statistics, &mut columns, 0..len, Put::Put)?;
    Ok(join(numbers, &columns, like.width))
}

fn split(rows: &Rows, width: usize) -> (Rows, Values) {
    fn part<T: Copy>(values: &[T], all: usize, kept: usize) -> (Vec<T>, Vec<T>) {
        let (mut numbers, mut statistics) = (Vec::new(), Vec::new());
        for row in values.chunks_exact(all.max(1)) {
            numbers.extend_from_slice(&row[..kept]);
            statistics.extend_from_slice(&row[kept..]);
        }
        (numbers, statistics)
    }
    let all = rows.width as usize;
    let kept = width.min(all);
    let (numbers, statistics) = match &rows.values {
        Values::F32(values) => {
            let (a, b) = part(values, all, kept);
            (Values::F32(a), Values::F32(b))
        }
        Values::F64(values) => {
            let (a, b) = part(values, all, kept);
            (Values::F64(a), Values::F64(b))
        }
        Values::I64(_) => panic!("integers are never compressed"),
    };
    let (total, index) = (rows.total, rows.index.clone());
    (Rows { total, width: kept as u32, index, values: numbers }, statistics)
}

/// Rows of fewer columns as rows of so many: the others are zeros.
pub(crate) fn widened(rows: Rows, width: u32) -> Rows {
    let len = rows.index.len() * width.saturating_sub(rows.width) as usize;
    let zeros = Values::zeros(rows.values.kind(), len);
    join(rows, &zeros, width)
}

fn join(numbers: Rows, statistics: &Values, width: u32) -> Rows {
    fn both<T: Copy>(a: &[T], b: &[T], rows: usize) -> Vec<T> {
        let (wide, narrow) = (a.len() / rows.max(1), b.len() / rows.max(1));
        let mut joined = Vec::with_capacity(a.len() + b.len());
        for row in 0..rows {
            joined.extend_from_slice(&a[row * wide..(row + 1) * wide]);
            joined.extend_from_slice(&b[row * narrow..(row + 1) * narrow]);
        }
        joined
    }
    let rows = numbers.index.len();
    let values = match (&numbers.values, statistics) {
        (Values::F32(a), Values::F32(b)) => Values::F32(both(a, b, rows)),
        (Values::F64(a), Values::F64(b)) => Values::F64(both(a, b, rows)),
        _ => Values::zeros(Kind::F64, 0),
    };
    Rows { width, values, ..numbers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_back_where_they_were() {
        let values = Values::F64(vec![1.0, 2.0, 30.0, 4.0, 5.0, 60.0]);
        let rows = Rows { total: 9, width: 3, index: vec![2, 7], values };
        let (numbers, statistics) = split(&rows, 2);
        assert_eq!(numbers.values, Values::F64(vec![1.0, 2.0, 4.0, 5.0]));
        assert_eq!(statistics, Values::F64(vec![30.0, 60.0]));
        assert_eq!(join(numbers, &statistics, 3), rows);
        let (all, none) = split(&rows, 5);
        assert_eq!((all, none.len()), (rows, 0));
    }
}
