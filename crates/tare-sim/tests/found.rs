//! Seeds that once showed a violation, each with its cause.

use tare_sim::{Failure, Options, run, run_node};

/// Seed, number of steps, and what it showed.
const FOUND: [(u64, u64, &str); 4] = [
    (12, 400, "after a failed sync and a restart, what only a cache held was called durable"),
    (48, 400, "a table whose compaction was not in the manifest yet was compacted again"),
    (196, 400, "of a segment whose only head was damaged, another was blamed"),
    (5077, 400, "a last group with a damaged head was left in the log, and came back"),
];
/// Seeds of whole servers.
const FOUND_SERVERS: [(u64, &str); 1] =
    [(2337, "requests that waited for room got no answer from a server that stopped")];

#[test]
fn found_seeds_stay_fixed() {
    for (seed, steps, what) in FOUND {
        let options = Options { steps, ..Options::default() };
        check(what, run(seed, &options).err());
    }
}

#[test]
fn found_seeds_of_servers_stay_fixed() {
    for (seed, what) in FOUND_SERVERS {
        check(what, run_node(seed, &Options::for_server()).err());
    }
}

fn check(what: &str, failure: Option<Box<Failure>>) {
    assert!(failure.is_none(), "{what}: {}", failure.map_or(String::new(), |f| f.to_string()));
}
