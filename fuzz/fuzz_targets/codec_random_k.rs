//! Fuzzes the decoder `codec_random_k`.
#![no_main]

starlings_fuzz::target!("codec_random_k");
