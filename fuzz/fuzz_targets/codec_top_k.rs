//! Fuzzes the decoder `codec_top_k`.
#![no_main]

starlings_fuzz::target!("codec_top_k");
