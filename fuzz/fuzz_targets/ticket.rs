//! Fuzzes the decoder `ticket`.
#![no_main]

starlings_fuzz::target!("ticket");
