//! MurmurHash3 for 32 bits (Appleby, 2011), as scikit-learn hashes names and words: the same texts fall into the same
//! features there and here.

/// The hash of some bytes.
pub(crate) fn murmur(bytes: &[u8], seed: u32) -> u32 {
    let mix = |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let mut hash = seed;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        hash = (hash ^ mix(word)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        let word = rest.iter().rev().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
        hash ^= mix(word);
    }
    hash ^= bytes.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// The feature of a text among `features`, and its sign.
pub(crate) fn place(text: &[u8], features: u32, seed: u32) -> (u32, f32) {
    let hash = murmur(text, seed) as i32;
    // The magnitude of the smallest number does not fit its type.
    let place = match hash {
        i32::MIN => (i32::MAX as u32 - (features - 1)) % features,
        _ => hash.unsigned_abs() % features,
    };
    (place, if hash >= 0 { 1.0 } else { -1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_reference() {
        for (text, seed, hash) in [
            ("", 0, 0),
            ("", 1, 0x514e_28b7),
            ("foo", 0, 0xf6a5_c420),
            ("Hello, world!", 1234, 0xfaf6_cdb3),
            ("The quick brown fox jumps over the lazy dog", 0x9747_b28c, 0x2fa8_26cd),
        ] {
            assert_eq!(murmur(text.as_bytes(), seed), hash, "{text}");
        }
    }
}
