//! Fuzzes the decoder `message`.
#![no_main]

starlings_fuzz::target!("message");
