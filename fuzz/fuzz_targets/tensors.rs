//! Fuzzes the decoder `tensors`.
#![no_main]

starlings_fuzz::target!("tensors");
