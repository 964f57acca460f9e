//! Fuzzes the decoder `parquet`.
#![no_main]

starlings_fuzz::target!("parquet");
