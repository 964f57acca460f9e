//! Fuzzes the decoder `libsvm`.
#![no_main]

starlings_fuzz::target!("libsvm");
