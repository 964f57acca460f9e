//! Fuzzes the decoder `csv`.
#![no_main]

starlings_fuzz::target!("csv");
