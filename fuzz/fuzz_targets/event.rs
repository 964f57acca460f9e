//! Fuzzes the decoder `event`.
#![no_main]

starlings_fuzz::target!("event");
