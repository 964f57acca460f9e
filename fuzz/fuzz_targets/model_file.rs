//! Fuzzes the decoder `model_file`.
#![no_main]

starlings_fuzz::target!("model_file");
