//! The corpus of the fuzzers through the decoders, on the stable toolchain: no panic, no broken law, and no more memory
//! than 8·n + 16 MiB for n bytes. The fuzzers themselves are in `fuzz/`; what they find comes here by its file.
#![allow(clippy::unwrap_used, reason = "all of this is test code, its shared functions too")]

mod counting;

use counting::{Counting, most_while};
use starlings_core::Rng;
use starlings_testkit::decoders::{DECODERS, Decoder};
use std::path::{Path, PathBuf};

#[global_allocator]
static COUNTED: Counting = Counting;

/// What a decoder may hold for an input of n bytes beyond 8·n.
const ROOM: usize = 16 << 20;

/// Mutations of each seed and each file of the corpus.
const MUTATIONS: u64 = 40;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// The files of a decoder's corpus in the order of their names.
fn inputs(decoder: &Decoder) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = corpus().join(decoder.name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|why| panic!("{folder:?}: {why}"));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

fn check(decoder: &Decoder, bytes: &[u8], what: &dyn std::fmt::Debug) {
    let most = most_while(|| (decoder.run)(bytes));
    let allowed = 8 * bytes.len() + ROOM;
    assert!(most <= allowed, "{}: {most} bytes held, {allowed} allowed: {what:?}", decoder.name);
}

/// One test for all: a second thread's memory would be counted too.
#[test]
fn decoders_survive_their_corpus_and_its_neighbourhood() {
    let mut names: Vec<&str> = DECODERS.iter().map(|decoder| decoder.name).collect();
    for entry in std::fs::read_dir(corpus()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(names.contains(&name.as_str()), "the corpus of no decoder: {name}");
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), DECODERS.len(), "each decoder has its own name");
    let (mut files, mut total) = (0, 0);
    for decoder in DECODERS {
        let inputs = inputs(decoder);
        assert!(!inputs.is_empty(), "{} has no corpus", decoder.name);
        files += inputs.len();
        total += inputs.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        for (path, bytes) in &inputs {
            check(decoder, bytes, path);
        }
        let seeds = (decoder.seeds)();
        for seed in &seeds {
            check(decoder, seed, seed);
        }
        let mut rng = Rng::named(1, "mutations", &[]);
        for bytes in inputs.iter().map(|(_, bytes)| bytes).chain(&seeds) {
            for _ in 0..MUTATIONS {
                let bytes = starlings_testkit::decoders::mutated(bytes, &mut rng);
                check(decoder, &bytes, &bytes);
            }
        }
    }
    assert!(files < 300 && total < 1 << 20, "the corpus is {files} files of {total} bytes");
}
