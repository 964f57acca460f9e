//! A fuzzer for the stable toolchain: mutates the corpus and the seeds of each decoder and hands them over, millions of
//! times, in one process. It has no coverage to follow, unlike the targets in `fuzz/`, and needs neither a nightly
//! compiler nor anything installed. `cargo xtask fuzz` runs it.
//!
//! ```text
//! fuzz [DECODER …] [--executions N] [--seed N]
//! ```
#![expect(clippy::print_stdout, reason = "a program that says how far it is")]

use starlings_core::Rng;
use starlings_testkit::decoders::{DECODERS, Decoder, mutated};
use std::path::Path;

/// Inputs are not grown beyond this.
const BYTES_MAX: usize = 4096;

fn main() {
    let (mut names, mut executions, mut seed) = (Vec::new(), 1_000_000u64, 1u64);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok()).expect("a number");
        match argument.as_str() {
            "--executions" => executions = number(),
            "--seed" => seed = number(),
            _ => names.push(argument),
        }
    }
    // The Parquet library panics on some inputs, and its reader makes errors of them: those are no findings.
    std::panic::set_hook(Box::new(|_| {}));
    for decoder in DECODERS {
        if names.is_empty() || names.iter().any(|name| name == decoder.name) {
            fuzz(decoder, executions, seed);
            println!("{:16} {executions} executions, no finding", decoder.name);
        }
    }
}

/// Runs mutations of mutations: every tenth input becomes a parent of later ones.
fn fuzz(decoder: &Decoder, executions: u64, seed: u64) {
    let mut rng = Rng::named(seed, "fuzz", &[]);
    let mut pool = (decoder.seeds)();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(decoder.name);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        pool.extend(std::fs::read(entry.path()));
    }
    let originals = pool.len();
    for execution in 0..executions {
        let mut bytes = mutated(&pool[rng.below(pool.len() as u64) as usize], &mut rng);
        bytes.truncate(BYTES_MAX);
        let run = std::panic::AssertUnwindSafe(|| (decoder.run)(&bytes));
        if std::panic::catch_unwind(run).is_err() {
            println!("{}: a law is broken in execution {execution} by {bytes:02x?}", decoder.name);
            std::process::abort();
        }
        if execution % 10 == 0 {
            let young = originals + (execution / 10 % 256) as usize;
            match pool.get_mut(young) {
                Some(place) => *place = bytes,
                None => pool.push(bytes),
            }
        }
    }
}
