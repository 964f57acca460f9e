//! Fuzzes the decoder `manifest`.
#![no_main]

starlings_fuzz::target!("manifest");
