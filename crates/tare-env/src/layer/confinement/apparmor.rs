//! The AppArmor profile of an environment: loaded before its start and unloaded at its end, each
//! through `apparmor_parser`.
//!
//! The rules are those of Docker's docker-default (moby/profiles: apparmor/template.go), for every
//! runtime. An engine loads a profile of its own only if a request names none.

use std::fs;

use serde::{Deserialize, Serialize};
use tare_host::UndoError;
use tare_host::exec::{Command, ExecError};
use tare_host::journal::Entry;
use tare_host::undo::{UndoKinds, check_name};

/// The kind of the journal's entries.
const KIND: &str = "apparmor_profile";

/// The file in which the kernel says whether AppArmor is on.
pub(super) const ENABLED: &str = "/sys/module/apparmor/parameters/enabled";

/// The program that loads and unloads profiles.
pub(super) const PARSER: &str = "apparmor_parser";

/// A profile in the kernel.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "apparmor_profile")]
struct Profile {
    name: String,
}

/// Returns whether the kernel has AppArmor, switched on.
pub(crate) fn is_there() -> bool {
    fs::read_to_string(ENABLED).is_ok_and(|text| text.trim() == "Y")
}

/// Returns the journal entry of a profile.
pub(super) fn entry(name: &str) -> Entry {
    Entry::new(&Profile { name: name.into() })
}

/// Loads the profile under a name.
pub(super) fn load(name: &str) -> Result<(), ExecError> {
    let load = Command::new(PARSER).args(["--replace", "--skip-cache", "--quiet"]);
    load.input(text(name)).run().map(drop)
}

/// Returns the text of the profile.
fn text(name: &str) -> String {
    format!(
        "#include <tunables/global>\n\
         profile {name} flags=(attach_disconnected,mediate_deleted) {{\n\
         #include <abstractions/base>\n\
         network,\ncapability,\nfile,\numount,\n\
         signal (receive) peer=unconfined,\n\
         signal (receive) peer=runc,\n\
         signal (receive) peer=crun,\n\
         signal (send,receive) peer={name},\n\
         deny @{{PROC}}/* w,\n\
         deny @{{PROC}}/{{[^1-9],[^1-9][^0-9],[^1-9s][^0-9y][^0-9s],[^1-9][^0-9][^0-9][^0-9]*}}/** w,\n\
         deny @{{PROC}}/sys/[^k]** w,\n\
         deny @{{PROC}}/sys/kernel/{{?,??,[^s][^h][^m]**}} w,\n\
         deny @{{PROC}}/sysrq-trigger rwklx,\n\
         deny @{{PROC}}/kcore rwklx,\n\
         deny mount,\n\
         deny /sys/[^f]*/** wklx,\n\
         deny /sys/f[^s]*/** wklx,\n\
         deny /sys/fs/[^c]*/** wklx,\n\
         deny /sys/fs/c[^g]*/** wklx,\n\
         deny /sys/fs/cg[^r]*/** wklx,\n\
         deny /sys/firmware/** rwklx,\n\
         deny /sys/devices/virtual/powercap/** rwklx,\n\
         deny /sys/kernel/security/** rwklx,\n\
         ptrace (trace,read,tracedby,readby) peer={name},\n\
         }}\n"
    )
}

/// Undoes the entries of this file.
#[derive(Debug)]
pub(crate) struct ApparmorKinds;

impl UndoKinds for ApparmorKinds {
    fn kinds(&self) -> &'static [&'static str] {
        &[KIND]
    }

    fn undo(&self, run: &str, entry: &Entry) -> Result<(), UndoError> {
        let Profile { name } = entry.read()?;
        check_name(run, &name)?;
        let loaded = fs::read_to_string("/sys/kernel/security/apparmor/profiles");
        let line = format!("{name} (");
        // Profiles end with the kernel, so one that is not listed is gone.
        if !loaded.is_ok_and(|text| text.lines().any(|one| one.starts_with(&line))) {
            return Ok(());
        }
        let remove = Command::new(PARSER).arg("--remove").input(text(&name));
        let what = format!("AppArmor profile {name}");
        remove.run().map(drop).map_err(|source| UndoError::Command { what, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_keeps_its_form_and_undoes_only_what_is_ours() {
        let made = entry("tare-ab12-e0");
        let json = serde_json::json!({ "kind": "apparmor_profile", "name": "tare-ab12-e0" });
        assert_eq!(serde_json::to_value(&made).unwrap(), json);
        ApparmorKinds.undo("ab12", &made).unwrap();
        let error = ApparmorKinds.undo("ab12", &entry("docker-default")).unwrap_err();
        assert!(matches!(error, UndoError::NotOurs { .. }), "{error}");
        assert!(text("tare-x").contains("profile tare-x flags") && text("x").ends_with("}\n"));
    }
}
