//! The description of a guest of `--inside` for the programs in it.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The file that describes the guest. It is on a tmpfs of the guest, so no host has it.
pub(crate) const GUEST_INFO_FILE: &str = "/run/tare/guest.json";

/// Where the guest's disk is mounted: Tare's usual state directory.
pub const DISK: &str = "/var/lib/tare";

/// The directory for scratch files on that disk (`TMPDIR`).
pub(crate) const SCRATCH: &str = "/var/lib/tare/tmp";

/// The directory on that disk for results that the host collects.
pub const RESULTS: &str = "/var/lib/tare/results";

/// The guest that a program runs in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestInfo {
    /// The release of the guest's kernel.
    pub kernel: String,
    /// `kvm`, `tcg` or `uml`, a colon, and the reason.
    pub accelerator: String,
    /// The disks that a study may overwrite.
    pub devices: Vec<PathBuf>,
    /// A directory that is shared with the host.
    pub export: PathBuf,
}

/// Returns the guest that this program runs in, or `None` on a host.
pub fn current_guest() -> Option<GuestInfo> {
    let text = fs::read_to_string(GUEST_INFO_FILE).ok()?;
    serde_json::from_str(&text).ok()
}
