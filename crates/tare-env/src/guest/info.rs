//! The file by which a program finds that it runs in a guest, and the guest's directories.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where the guest leaves word of itself. It lies in memory that no host has under this name.
pub(crate) const GUEST_INFO_FILE: &str = "/run/tare/guest.json";

/// Where the disk is mounted: Tare's usual state directory.
pub const DISK: &str = "/var/lib/tare";

/// For scratch files, on that disk (`TMPDIR`).
pub(crate) const SCRATCH: &str = "/var/lib/tare/tmp";

/// Where a program inside puts what the host shall have, on that disk.
pub const RESULTS: &str = "/var/lib/tare/results";

/// Where a program runs that was started inside a guest of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestInfo {
    /// The release of the guest's kernel.
    pub kernel: String,
    /// `kvm`, `tcg` or `uml`, a colon, and why.
    pub accelerator: String,
    /// Disks that may be written over.
    pub devices: Vec<PathBuf>,
    /// What is written here is on the host.
    pub hand_back: PathBuf,
}

/// The guest that this program runs in; `None` on a host.
pub fn current_guest() -> Option<GuestInfo> {
    let text = fs::read_to_string(GUEST_INFO_FILE).ok()?;
    serde_json::from_str(&text).ok()
}
