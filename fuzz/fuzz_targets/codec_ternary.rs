//! Fuzzes the decoder `codec_ternary`.
#![no_main]

starlings_fuzz::target!("codec_ternary");
