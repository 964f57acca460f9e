//! Fuzzes the decoder `packet`.
#![no_main]

starlings_fuzz::target!("packet");
