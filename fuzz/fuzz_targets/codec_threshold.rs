//! Fuzzes the decoder `codec_threshold`.
#![no_main]

starlings_fuzz::target!("codec_threshold");
