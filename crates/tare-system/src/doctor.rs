//! Which systems a study can start on this host, for `tare doctor`.

use std::path::Path;

use tare_host::doctor::{Check, Verdict};
use tare_host::housekeeping::Housekeeping;

/// The offer of this crate.
pub const HOUSEKEEPING: Housekeeping = Housekeeping { checks, ..Housekeeping::NOTHING };

/// Third-party systems, whose programs a study starts.
fn checks(_state: &Path) -> Vec<Check> {
    let check = |system: &crate::SystemInfo| {
        let (verdict, detail, remedy) = match system.found?() {
            Ok(found) => (Verdict::Ok, found, String::new()),
            Err(remedy) => (Verdict::Missing, "not installed".into(), remedy.into()),
        };
        Some(Check { what: format!("system {}", system.name), verdict, detail, remedy })
    };
    crate::ALL.iter().filter_map(check).collect()
}
