//! Fuzzes the decoder `codec_half`.
#![no_main]

starlings_fuzz::target!("codec_half");
