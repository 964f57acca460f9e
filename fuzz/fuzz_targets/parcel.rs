//! Fuzzes the decoder `parcel`.
#![no_main]

starlings_fuzz::target!("parcel");
