//! Fuzzes requests of the native protocol (`tare_sim::fuzz`).
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tare_sim::fuzz::run("requests", bytes));
