//! Runs the tests of a program without libtest, with the output format of libtest.

use std::io::{self, Write};
use std::time::Instant;

/// Runs the tests one after another. If the command line has a word, only tests whose names contain
/// it run. A test that panics ends the program.
pub fn run(tests: &[(&str, fn())]) {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let is_wanted = |name: &str| wanted.as_ref().is_none_or(|wanted| name.contains(wanted));
    let (chosen, others): (Vec<_>, Vec<_>) = tests.iter().partition(|(name, _)| is_wanted(name));
    let mut out = io::stdout();
    for (name, test) in &chosen {
        let started = Instant::now();
        test();
        let time = started.elapsed().as_secs_f64();
        let _ = writeln!(out, "test {name} ... ok <{time:.3}s>");
    }
    let _ = writeln!(
        out,
        "test result: ok. {} passed; 0 failed; 0 ignored; 0 measured; {} filtered out",
        chosen.len(),
        others.len()
    );
}
