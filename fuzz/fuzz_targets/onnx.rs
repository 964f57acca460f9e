//! Fuzzes the decoder `onnx`.
#![no_main]

starlings_fuzz::target!("onnx");
