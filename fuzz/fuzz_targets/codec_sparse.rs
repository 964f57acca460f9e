//! Fuzzes the decoder `codec_sparse`.
#![no_main]

starlings_fuzz::target!("codec_sparse");
