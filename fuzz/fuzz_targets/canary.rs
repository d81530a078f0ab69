//! Runs `tare_sim::fuzz` target `canary`, which has a built-in fault.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tare_sim::fuzz::run("canary", bytes));
