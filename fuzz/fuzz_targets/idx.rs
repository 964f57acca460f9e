//! Fuzzes the decoder `idx`.
#![no_main]

starlings_fuzz::target!("idx");
