//! CRC32C (Castagnoli, IEEE Transactions on Communications 41, 1993) of what links carry. Every byte passes
//! here twice, once on each side, so where the processor multiplies polynomials 512 bits at a time this is
//! done (Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ, Intel 2009); elsewhere
//! the `crc32c` crate does it.

/// Continues a checksum over more bytes.
pub(crate) fn append(checksum: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= folding::WORTH_BYTES && folding::is_possible() {
        let (blocks, rest) = bytes.as_chunks();
        // Blocks that were folded into one have the same checksum as before; a checksum of zero bits before
        // them is `u32::MAX`, since checksums are complemented.
        let folded = folding::fold(checksum, blocks);
        return crc32c::crc32c_append(crc32c::crc32c_append(u32::MAX, &folded), rest);
    }
    crc32c::crc32c_append(checksum, bytes)
}

#[cfg(target_arch = "x86_64")]
mod folding {
    use std::arch::x86_64::{
        __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_clmulepi64_epi128, _mm512_loadu_si512,
        _mm512_set_epi64, _mm512_storeu_si512, _mm512_ternarylogic_epi64,
    };

    /// Four vectors of 64 bytes: enough of them to hide how long a multiplication takes.
    pub(super) const BLOCK_BYTES: usize = 256;

    /// Below this the last step costs more than is saved.
    pub(super) const WORTH_BYTES: usize = 4 * BLOCK_BYTES;

    /// A bit of a message moves this far when its block is folded into the next.
    const DISTANCE: usize = 8 * BLOCK_BYTES;

    pub(super) fn is_possible() -> bool {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq")
    }

    /// One block with the same checksum as all of them, `checksum` before them included.
    pub(super) fn fold(checksum: u32, blocks: &[[u8; BLOCK_BYTES]]) -> [u8; BLOCK_BYTES] {
        assert!(is_possible() && !blocks.is_empty(), "asked before");
        #[expect(unsafe_code, reason = "the processor has the instructions, as just checked")]
        unsafe {
            fold_vectors(!checksum, blocks)
        }
    }

    /// Powers of x modulo the polynomial, for the half of a lane that comes first and the other. The product of
    /// two reflected numbers is one bit short, so the powers are one less than the distance.
    const FIRST: i64 = power(DISTANCE + 63);
    const SECOND: i64 = power(DISTANCE - 1);

    /// `x^exponent` modulo the polynomial, reflected, as the upper half of 64 bits.
    const fn power(exponent: usize) -> i64 {
        let mut rest: u32 = 1 << 31;
        let mut done = 0;
        while done < exponent {
            rest = (rest >> 1) ^ (0x82F6_3B78 & (rest & 1).wrapping_neg());
            done += 1;
        }
        ((rest as u64) << 32) as i64
    }

    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn fold_vectors(before: u32, blocks: &[[u8; BLOCK_BYTES]]) -> [u8; BLOCK_BYTES] {
        let powers = _mm512_set_epi64(SECOND, FIRST, SECOND, FIRST, SECOND, FIRST, SECOND, FIRST);
        let mut first = blocks[0];
        for (byte, state) in first.iter_mut().zip(before.to_le_bytes()) {
            *byte ^= state;
        }
        let mut sum = load(&first);
        for block in &blocks[1..] {
            ask_ahead(block);
            for (sum, next) in sum.iter_mut().zip(load(block)) {
                let early = _mm512_clmulepi64_epi128::<0x00>(*sum, powers);
                let late = _mm512_clmulepi64_epi128::<0x11>(*sum, powers);
                // The exclusive or of three.
                *sum = _mm512_ternarylogic_epi64::<0x96>(early, late, next);
            }
        }
        store(sum)
    }

    /// How far ahead of the sums lines are asked for: the hardware foresees them only up to the end of a page.
    const AHEAD_BYTES: usize = 2048;

    fn ask_ahead(block: &[u8; BLOCK_BYTES]) {
        for line in (0..BLOCK_BYTES).step_by(64) {
            #[expect(unsafe_code, reason = "a hint, harmless for any address")]
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(block.as_ptr().wrapping_add(AHEAD_BYTES + line).cast());
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    fn load(block: &[u8; BLOCK_BYTES]) -> [__m512i; 4] {
        let at = |vector: usize| {
            let bytes: &[u8; 64] = block[64 * vector..].first_chunk().expect("four times 64 bytes");
            #[expect(unsafe_code, reason = "64 bytes are read from an array of 64 bytes")]
            unsafe {
                _mm512_loadu_si512(bytes.as_ptr().cast())
            }
        };
        [at(0), at(1), at(2), at(3)]
    }

    #[target_feature(enable = "avx512f")]
    fn store(sum: [__m512i; 4]) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        for (bytes, vector) in block.as_chunks_mut::<64>().0.iter_mut().zip(sum) {
            #[expect(unsafe_code, reason = "64 bytes are written to an array of 64 bytes")]
            unsafe {
                _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector);
            }
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    fn bitwise(checksum: u32, bytes: &[u8]) -> u32 {
        let mut rest = !checksum;
        for &byte in bytes {
            rest ^= u32::from(byte);
            for _ in 0..8 {
                rest = (rest >> 1) ^ (0x82F6_3B78 & (rest & 1).wrapping_neg());
            }
        }
        !rest
    }

    #[test]
    fn all_lengths_and_alignments_agree_with_the_definition() {
        let mut rng = Rng::named(1, "checksums", &[]);
        let bytes: Vec<u8> = (0..70_000).map(|_| rng.below(256) as u8).collect();
        let lengths = (0..130).chain(1000..1300).chain([4096, 8191, 8192, 65_536, 69_000]);
        for length in lengths {
            let (from, before) = (rng.below(900) as usize, rng.below(1 << 32) as u32);
            let piece = &bytes[from..from + length];
            assert_eq!(append(before, piece), bitwise(before, piece), "{length} bytes at {from}");
        }
        assert_eq!(append(0, b"123456789"), 0xE306_9283, "the check value of CRC-32C");
    }

    #[test]
    fn pieces_give_the_same_as_the_whole() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|i| ((i * i) >> 3) as u8).collect();
        let whole = append(0, &bytes);
        for at in [0, 1, 255, 256, 1024, 5000, 9_999, 10_000] {
            assert_eq!(append(append(0, &bytes[..at]), &bytes[at..]), whole, "cut at {at}");
        }
    }
}
