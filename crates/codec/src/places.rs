//! Which numbers of a part travel: increasing places, as the gaps between them (seven bits to a byte, little-endian,
//! the eighth bit says that more follow) or as a bitmap of the part, whichever is shorter. Whoever reads them
//! trusts nothing.

use crate::Malformed;

const GAPS: u8 = 0;
const BITMAP: u8 = 1;

/// Appends the places, which are below `len`.
pub(crate) fn encode(places: &[u32], len: usize, out: &mut Vec<u8>) {
    let gaps = || {
        let before = std::iter::once(0).chain(places.iter().map(|&place| place + 1));
        places.iter().zip(before).map(|(&place, next)| place - next)
    };
    if gaps().map(gap_bytes).sum::<usize>() <= len.div_ceil(8) {
        out.push(GAPS);
        gaps().for_each(|gap| push_gap(gap, out));
        return;
    }
    out.push(BITMAP);
    let start = out.len();
    out.resize(start + len.div_ceil(8), 0);
    let bitmap = &mut out[start..];
    places.iter().for_each(|&place| bitmap[place as usize / 8] |= 1 << (place % 8));
}

/// The `count` places below `len`, and the bytes behind them.
pub(crate) fn decode(
    bytes: &[u8],
    len: usize,
    count: usize,
) -> Result<(Vec<u32>, &[u8]), Malformed> {
    let (&tag, rest) = bytes.split_first().ok_or(Malformed("the places are cut off"))?;
    match tag {
        GAPS => decode_gaps(rest, len, count),
        BITMAP => decode_bitmap(rest, len, count),
        _ => Err(Malformed("places of no known form")),
    }
}

/// About how many bytes places take when they are spread evenly.
pub(crate) fn typical_len(count: usize, len: usize) -> usize {
    let gap = len.checked_div(count).unwrap_or(0);
    let gaps = count.saturating_mul(gap_bytes(u32::try_from(gap).unwrap_or(u32::MAX)));
    1 + gaps.min(len.div_ceil(8))
}

fn gap_bytes(gap: u32) -> usize {
    match gap {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        0x20_0000..0x1000_0000 => 4,
        _ => 5,
    }
}

fn push_gap(mut gap: u32, out: &mut Vec<u8>) {
    while gap >= 0x80 {
        out.push(gap as u8 | 0x80);
        gap >>= 7;
    }
    out.push(gap as u8);
}

fn decode_gaps(mut bytes: &[u8], len: usize, count: usize) -> Result<(Vec<u32>, &[u8]), Malformed> {
    // Each gap has a byte at least: room is made for no more places than can be there.
    if count > bytes.len() {
        return Err(Malformed("fewer places than their count"));
    }
    let mut places = Vec::with_capacity(count);
    let mut next = 0u64;
    for _ in 0..count {
        let mut gap = 0u64;
        for shift in (0..).step_by(7) {
            let (&byte, rest) = bytes.split_first().ok_or(Malformed("a gap is cut off"))?;
            bytes = rest;
            gap |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
            if shift == 28 {
                return Err(Malformed("a gap that does not end"));
            }
        }
        let place = next + gap;
        if place >= len as u64 {
            return Err(Malformed("a place beyond the part"));
        }
        places.push(place as u32);
        next = place + 1;
    }
    Ok((places, bytes))
}

fn decode_bitmap(bytes: &[u8], len: usize, count: usize) -> Result<(Vec<u32>, &[u8]), Malformed> {
    let (bitmap, rest) =
        bytes.split_at_checked(len.div_ceil(8)).ok_or(Malformed("the bitmap is cut off"))?;
    if bitmap.iter().map(|byte| byte.count_ones() as usize).sum::<usize>() != count {
        return Err(Malformed("a bitmap of another number of places"));
    }
    if bitmap.last().is_some_and(|last| !len.is_multiple_of(8) && last >> (len % 8) != 0) {
        return Err(Malformed("a place beyond the part"));
    }
    let mut places = Vec::with_capacity(count);
    for (number, group) in bitmap.chunks(8).enumerate() {
        let mut word = [0; 8];
        word[..group.len()].copy_from_slice(group);
        let mut word = u64::from_le_bytes(word);
        while word != 0 {
            places.push((number * 64) as u32 + word.trailing_zeros());
            word &= word - 1;
        }
    }
    Ok((places, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(places: &[u32], len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        encode(places, len, &mut out);
        out
    }

    #[test]
    fn the_shorter_form_is_chosen() {
        assert_eq!(bytes(&[3, 200], 1000), [GAPS, 3, 0xc4, 1]);
        assert_eq!(bytes(&[0, 1, 2, 9], 16), [BITMAP, 7, 2]);
        let all: Vec<u32> = (0..1000).collect();
        assert_eq!(bytes(&all, 1000).len(), 1 + 125);
    }

    #[test]
    fn places_come_back_with_what_is_behind_them() {
        let far = [0, 127, 256, 20_000, 3_000_000, 500_000_000, u32::MAX - 1];
        let cases: [(&[u32], usize); 5] = [
            (&[], 0),
            (&[], 9),
            (&[0], 1),
            (&[1, 3, 5, 63, 64, 65, 66], 67),
            (&far, u32::MAX as usize),
        ];
        for (places, len) in cases {
            let mut bytes = bytes(places, len);
            bytes.push(77);
            assert_eq!(decode(&bytes, len, places.len()), Ok((places.to_vec(), &[77][..])));
            assert!(decode(&bytes[..bytes.len() - 2], len, places.len()).is_err());
        }
    }

    #[test]
    fn places_that_no_peer_of_ours_sends_are_refused() {
        let refused = |bytes: &[u8], len, count| decode(bytes, len, count).unwrap_err().0;
        assert_eq!(refused(&[], 5, 0), "the places are cut off");
        assert_eq!(refused(&[9, 1], 5, 1), "places of no known form");
        assert_eq!(refused(&[GAPS, 1], 5, usize::MAX), "fewer places than their count");
        assert_eq!(refused(&[GAPS, 5], 5, 1), "a place beyond the part");
        assert_eq!(refused(&[GAPS, 4, 0], 5, 2), "a place beyond the part");
        assert_eq!(
            refused(&[GAPS, 0xff, 0xff, 0xff, 0xff, 0xff, 1], 5, 1),
            "a gap that does not end"
        );
        assert_eq!(refused(&[BITMAP, 0b10_0001], 5, 2), "a place beyond the part");
        assert_eq!(refused(&[BITMAP, 1], 5, 2), "a bitmap of another number of places");
    }
}
