//! Which rows travel: their count and their strictly increasing numbers, u32 little-endian each. Whoever
//! reads them trusts nothing: a count is believed only if the bytes behind it are there.

use crate::Malformed;

/// Appends count and row numbers.
pub(crate) fn encode_index(index: &[u32], out: &mut Vec<u8>) {
    let count = u32::try_from(index.len()).expect("row numbers are distinct and below 2^32");
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(bytemuck::cast_slice(index));
}

/// The row numbers, and the bytes behind them.
pub(crate) fn decode_index(bytes: &[u8], total: u32) -> Result<(Vec<u32>, &[u8]), Malformed> {
    let (count, rest) =
        bytes.split_first_chunk::<4>().ok_or(Malformed("the row count is cut off"))?;
    let length = (u32::from_le_bytes(*count) as usize).checked_mul(4);
    let (numbers, rest) = length
        .and_then(|length| rest.split_at_checked(length))
        .ok_or(Malformed("fewer row numbers than their count"))?;
    let groups = numbers.as_chunks::<4>().0;
    let index: Vec<u32> = groups.iter().map(|group| u32::from_le_bytes(*group)).collect();
    if index.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(Malformed("row numbers do not increase"));
    }
    if index.last().is_some_and(|&last| last >= total) {
        return Err(Malformed("a row number beyond the table"));
    }
    Ok((index, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_count_is_believed_only_if_the_bytes_are_there() {
        assert_eq!(
            decode_index(&bytes(&[u32::MAX, 1]), 9),
            Err(Malformed("fewer row numbers than their count"))
        );
        assert_eq!(decode_index(&[1, 0], 9), Err(Malformed("the row count is cut off")));
        assert_eq!(decode_index(&bytes(&[1, 3, 7]), 9), Ok((vec![3], &bytes(&[7])[..])));
    }

    #[test]
    fn row_numbers_increase_and_stay_below_the_total() {
        assert_eq!(
            decode_index(&bytes(&[2, 3, 3]), 9),
            Err(Malformed("row numbers do not increase"))
        );
        assert_eq!(
            decode_index(&bytes(&[2, 3, 9]), 9),
            Err(Malformed("a row number beyond the table"))
        );
    }
}
