//! Every decoder that reads bytes from a network or a file, behind one face: bytes in, a panic only where a law is
//! broken. Fuzz targets (`fuzz/`), the replay of their corpus in the test command and `cargo xtask fuzz` call these
//! same functions, so that what is fuzzed is what is tested (Miller et al., "An empirical study of the reliability of
//! UNIX utilities", 1990, began it).
//!
//! Laws, for any bytes: the decoder answers `Ok` or an error, never a panic; what it accepted and has one spelling is
//! written to the same bytes again; what it refused left its target unchanged. Memory is the caller's to measure.

mod codecs;
mod files;
mod tables;
mod wire;

use starlings_core::Rng;

/// A decoder under test.
#[derive(Clone, Copy)]
pub struct Decoder {
    /// Its name: of the fuzz target and of its folder of the corpus.
    pub name: &'static str,
    /// Hands it bytes. Panics if a law is broken.
    pub run: fn(&[u8]),
    /// Inputs that are nearly right, from which mutation starts.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All decoders.
pub const DECODERS: &[Decoder] = &[
    wire::FRAME,
    wire::HELLO,
    wire::ANSWER,
    wire::MESSAGE,
    wire::PARTS,
    wire::EVENT,
    wire::TICKET,
    files::MANIFEST,
    files::TENSORS,
    files::MODEL_FILE,
    files::ONNX,
    codecs::HALF,
    codecs::INT8,
    codecs::ONE_BIT,
    codecs::RAW,
    codecs::TERNARY,
    codecs::THRESHOLD,
    codecs::TOP_K,
    codecs::SPARSE,
    codecs::PACKET,
    codecs::MODEL_WIRE,
    tables::CSV,
    tables::LIBSVM,
    tables::IDX,
    tables::PARQUET,
    tables::PARCEL,
];

/// The decoder of this name.
///
/// # Panics
/// If there is none: the caller's mistake.
#[must_use]
pub fn decoder(name: &str) -> Decoder {
    let found = DECODERS.iter().find(|decoder| decoder.name == name);
    *found.unwrap_or_else(|| panic!("there is no decoder '{name}'"))
}

/// Another input near this one: bits flipped, bytes set to edges, cut, doubled, or numbers replaced by extreme ones.
#[must_use]
pub fn mutated(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        match rng.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            1 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize],
            2 => bytes.truncate(at),
            3 => bytes.insert(at, rng.below(256) as u8),
            4 if at < bytes.len() => {
                let to = at + rng.below((bytes.len() - at).min(32) as u64) as usize;
                let copy = bytes[at..to].to_vec();
                let place = rng.below(bytes.len() as u64 + 1) as usize;
                bytes.splice(place..place, copy);
            }
            5 if at < bytes.len() => {
                let to = (at + 1 + rng.below(16) as usize).min(bytes.len());
                bytes.drain(at..to);
            }
            _ => {
                // A length, of two, four or eight bytes.
                let value = [0, 1, u64::MAX, u64::MAX / 2, 1 << 32, 1 << 31][rng.below(6) as usize];
                let width = [2, 4, 8][rng.below(3) as usize];
                for (byte, extreme) in
                    bytes.iter_mut().skip(at).zip(value.to_le_bytes()).take(width)
                {
                    *byte = extreme;
                }
            }
        }
    }
    bytes
}
