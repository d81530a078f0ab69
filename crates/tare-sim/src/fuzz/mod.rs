//! The bodies of the fuzz targets, and all targets in one list. `fuzz/` runs them under libFuzzer
//! without end (`cargo fuzz run NAME`); an ordinary test runs each over its corpus and over a
//! bounded number of mutations of it, so that CI needs no other compiler.
//!
//! A body takes any bytes and must not panic, hang or grow without bound. If its input has
//! checksums, it also runs on the bytes with corrected checksums, because nearly every mutation
//! would end at a checksum otherwise.

mod frames;
mod logs;
pub mod mutate;
mod sample;
pub mod seeds;
mod statements;
mod tables;

/// One fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target and of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// The function to fuzz. It panics if the bytes reveal a defect.
    pub body: fn(&[u8]),
    /// Whether the target has a built-in fault, which a run must find.
    pub is_canary: bool,
}

/// All targets.
pub const ALL: [Target; 8] = [
    Target { name: "requests", body: frames::requests, is_canary: false },
    Target { name: "responses", body: frames::responses, is_canary: false },
    Target { name: "framings", body: frames::framings, is_canary: false },
    Target { name: "statements", body: statements::statements, is_canary: false },
    Target { name: "logs", body: logs::logs, is_canary: false },
    Target { name: "tables", body: tables::tables, is_canary: false },
    Target { name: "manifests", body: tables::manifests, is_canary: false },
    Target { name: "canary", body: canary, is_canary: true },
];

/// Runs the body of the target of this name.
///
/// # Panics
/// Panics if there is no such target, and if its body panics.
pub fn run(name: &str, bytes: &[u8]) {
    let target = ALL.iter().find(|target| target.name == name);
    (target.expect("a target of this name").body)(bytes);
}

/// Fails for bytes that any working fuzzer finds soon: a text whose third letter is not one.
fn canary(bytes: &[u8]) {
    let starts = bytes.first() == Some(&b't') && bytes.get(1) == Some(&b'a');
    let third = bytes.get(2).copied().unwrap_or(b'r');
    assert!(!starts || third.is_ascii_alphabetic(), "the canary has been found, as it must be");
}
