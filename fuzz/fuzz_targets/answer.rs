//! Fuzzes the decoder `answer`.
#![no_main]

starlings_fuzz::target!("answer");
