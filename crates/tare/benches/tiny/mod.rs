//! Detects whether a bench runs as a test. `cargo bench` passes `--bench`; `cargo test --bench
//! NAME` does not. A test does all the work of the bench with the smallest possible inputs and
//! asserts no figure.

/// Returns the arguments of the bench, without that of the program it measures (see `program`), and
/// whether it runs as a test.
pub(crate) fn words() -> (Vec<String>, bool) {
    let words = std::env::args().skip(1).filter(|word| !word.starts_with("program="));
    let (flags, words): (Vec<String>, Vec<String>) = words.partition(|word| word == "--bench");
    (words, flags.is_empty())
}
