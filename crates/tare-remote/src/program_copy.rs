//! What names a copy of Tare's program on another host, and tells it from others.

use sha2::{Digest, Sha256};

/// The directory of the copies on the other host.
pub(crate) const DIRECTORY: &str = "/var/tmp";
/// All programs of a run exchange messages, so they have one version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the SHA-256 of a program in hexadecimal digits.
pub(crate) fn hash_of(program: &[u8]) -> String {
    Sha256::digest(program).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the path of a copy by the hash of the program.
pub(crate) fn path_of_copy(hash: &str) -> String {
    format!("{DIRECTORY}/tare-{}", &hash[..16])
}
