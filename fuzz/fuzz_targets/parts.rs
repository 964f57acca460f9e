//! Fuzzes the decoder `parts`.
#![no_main]

starlings_fuzz::target!("parts");
