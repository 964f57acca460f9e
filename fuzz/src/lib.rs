//! What all targets share: the decoder by its name, the bound on memory, and panics that a decoder caught itself.

#[path = "../../crates/testkit/tests/decoders/counting.rs"]
mod counting;

pub use libfuzzer_sys;
use starlings_testkit::decoders::Decoder;

#[global_allocator]
static COUNTED: counting::Counting = counting::Counting;

/// What a decoder may hold for an input of n bytes beyond 8·n.
const ROOM: usize = 16 << 20;

/// Runs one input.
pub fn run(decoder: &Decoder, bytes: &[u8]) {
    let most = counting::most_while(|| (decoder.run)(bytes));
    assert!(most <= 8 * bytes.len() + ROOM, "{most} bytes held for {}", bytes.len());
}

/// Panics that a decoder catches and turns into an error (those of the Parquet library) are no finding; those that
/// reach libFuzzer end the process there.
pub fn quiet() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// A fuzz target.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(
            init: { $crate::quiet() },
            |bytes: &[u8]| {
                thread_local!(static DECODER: starlings_testkit::decoders::Decoder =
                    starlings_testkit::decoders::decoder($name));
                DECODER.with(|decoder| $crate::run(decoder, bytes));
            }
        );
    };
}
