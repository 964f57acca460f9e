//! Fuzzes the decoder `codec_raw`.
#![no_main]

starlings_fuzz::target!("codec_raw");
