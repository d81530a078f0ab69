//! Seeds that once showed something wrong, each with what it was.

use tare_sim::{Options, run};

/// Seed, steps, and what it showed.
const FOUND: [(u64, u64, &str); 0] = [];

#[test]
fn what_was_found_stays_right() {
    for (seed, steps, what) in FOUND {
        let options = Options { steps, ..Options::default() };
        let failure = run(seed, &options).err();
        assert!(failure.is_none(), "{what}: {}", failure.map_or(String::new(), |f| f.to_string()));
    }
}
