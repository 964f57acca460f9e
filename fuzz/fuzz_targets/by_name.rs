//! Fuzzes the decoder that the variable `DECODER` names: one binary for all, where linking one for each takes long. With
//! `PLANT` it first writes the decoder's seeds into that folder.
#![no_main]

use starlings_testkit::decoders::{Decoder, decoder};
use std::sync::OnceLock;

static CHOSEN: OnceLock<Decoder> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        let name = std::env::var("DECODER").expect("DECODER names a decoder");
        let chosen = decoder(&name);
        if let Ok(folder) = std::env::var("PLANT") {
            for (number, seed) in (chosen.seeds)().iter().enumerate() {
                std::fs::write(format!("{folder}/seed-{number}"), seed).expect("the folder exists");
            }
        }
        let _ = CHOSEN.set(chosen);
        starlings_fuzz::quiet();
    },
    |bytes: &[u8]| starlings_fuzz::run(CHOSEN.get().expect("chosen above"), bytes)
);
