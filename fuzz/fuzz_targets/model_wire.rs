//! Fuzzes the decoder `model_wire`.
#![no_main]

starlings_fuzz::target!("model_wire");
