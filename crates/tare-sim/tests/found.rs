//! Seeds that once showed a violation, each with its cause.

use tare_sim::{Options, run};

/// Seed, number of steps, and what it showed.
const FOUND: [(u64, u64, &str); 3] = [
    (12, 400, "after a failed sync and a restart, what only a cache held was called durable"),
    (48, 400, "a table whose compaction was not in the manifest yet was compacted again"),
    (196, 400, "of a segment whose only head was damaged, another was blamed"),
];

#[test]
fn found_seeds_stay_fixed() {
    for (seed, steps, what) in FOUND {
        let options = Options { steps, ..Options::default() };
        let failure = run(seed, &options).err();
        assert!(failure.is_none(), "{what}: {}", failure.map_or(String::new(), |f| f.to_string()));
    }
}
