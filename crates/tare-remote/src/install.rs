//! Tare's own program on another host: copied once, by the hash of its contents.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::RemoteError;
use crate::host::RemoteHost;

/// The directory of the copies on the other host.
const DIRECTORY: &str = "/var/tmp";
/// Stores standard input as the program `$1`. The rename makes the copy whole or absent.
const RECEIVE: &str =
    "umask 022 && cat > \"$1.part\" && chmod 755 \"$1.part\" && mv \"$1.part\" \"$1\"";

impl RemoteHost {
    /// Copies a program to `/var/tmp/tare-HASH` on the host unless it is there, verifies the copy,
    /// and returns its path. The copy may stay for later runs.
    ///
    /// # Errors
    /// `Architecture` when the host's machine is another than that of this program; `Failed` when
    /// there is no space or the directory refuses programs; `Copy` when the file differs.
    pub fn install(&self, program: &Path) -> Result<String, RemoteError> {
        let ours = std::env::consts::ARCH;
        let theirs = self.basics()?.architecture;
        if theirs != ours {
            return Err(RemoteError::Architecture { host: self.name(), theirs, ours });
        }
        let unreadable = |source| RemoteError::Program { path: program.into(), source };
        let hash = hash(program).map_err(unreadable)?;
        let path = format!("{DIRECTORY}/tare-{}", &hash[..16]);
        let known = self.output("sha256sum", &[&path], io::empty()).unwrap_or_default();
        if !is_hash(&known, &hash) {
            let file = File::open(program).map_err(unreadable)?;
            self.output("sh", &["-c", RECEIVE, "sh", &path], file)?;
            let copied = self.output("sha256sum", &[&path], io::empty())?;
            if !is_hash(&copied, &hash) {
                return Err(RemoteError::Copy { host: self.name(), path });
            }
        }
        self.output(&path, &["--version"], io::empty())?;
        Ok(path)
    }
}

/// Returns the SHA-256 of a file in hexadecimal digits.
fn hash(program: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    hasher.update(fs::read(program)?);
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn is_hash(output: &[u8], hash: &str) -> bool {
    output.split(|byte| *byte == b' ').next() == Some(hash.as_bytes())
}
