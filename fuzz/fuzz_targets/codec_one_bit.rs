//! Fuzzes the decoder `codec_one_bit`.
#![no_main]

starlings_fuzz::target!("codec_one_bit");
