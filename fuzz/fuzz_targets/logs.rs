//! Fuzzes the recovery of commit logs (`tare_sim::fuzz`).
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tare_sim::fuzz::run("logs", bytes));
