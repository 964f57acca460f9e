//! Fuzzes the decoder `hello`.
#![no_main]

starlings_fuzz::target!("hello");
