//! What the harness of third-party clients (tests/drivers) has downloaded or built.

use std::path::{Path, PathBuf};

use crate::skip::{Reason, skip};

/// The environment variable that names another installation of Cassandra, or directory of its jars.
const CASSANDRA: &str = "TARE_CASSANDRA";

/// Returns a file of that harness; skips the test if there is none.
pub fn cached(test: &str, client: &str, file: &str) -> Option<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let chosen = std::env::var_os("TARE_DRIVERS_CACHE").map(PathBuf::from);
    let usual = [PathBuf::from("/var/cache/tare/drivers"), repository.join("target/drivers")];
    let roots = chosen.map_or_else(|| usual.to_vec(), |chosen| vec![chosen]);
    let found = roots.iter().map(|root| root.join(file)).find(|path| path.exists());
    if found.is_none() {
        skip(test, Reason::not_installed(format!("{client} (tests/drivers)")));
    }
    found
}

/// Returns the directory of Cassandra's jars; skips the test if there is none.
pub fn cassandra(test: &str) -> Option<PathBuf> {
    match std::env::var_os(CASSANDRA) {
        Some(named) => Some(named.into()),
        None => cached(test, "cassandra", "cassandra/target/lib"),
    }
}
