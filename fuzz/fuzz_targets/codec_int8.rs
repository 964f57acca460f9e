//! Fuzzes the decoder `codec_int8`.
#![no_main]

starlings_fuzz::target!("codec_int8");
