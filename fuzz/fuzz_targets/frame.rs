//! Fuzzes the decoder `frame`.
#![no_main]

starlings_fuzz::target!("frame");
