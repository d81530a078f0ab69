//! The checks of what environments need, for `tare doctor`.

use std::path::Path;

use tare_host::doctor::{Check, Verdict};
use tare_host::housekeeping::Housekeeping;
use tare_host::{exec, facts};

use crate::layer::neighbour;
use crate::{inside, rootfs, runtime};

/// The checks of this crate. `tare clean` undoes its journal entries with the journals of runs.
pub const HOUSEKEEPING: Housekeeping = Housekeeping { checks, ..Housekeeping::NOTHING };

fn checks(state: &Path) -> Vec<Check> {
    let mut checks = oci_runtimes();
    checks.extend(runtime::gvisor::doctor::checks(state));
    checks.extend(engines());
    checks.push(root_file_systems());
    checks.extend(runtime::vm::doctor::qemu_checks());
    checks.push(whole_study());
    checks.push(runtime::vm::doctor::user_mode(state));
    checks.push(runtime::kata::check());
    checks.push(neighbours());
    checks
}

/// Checks the OCI runtimes that use the host's kernel.
fn oci_runtimes() -> Vec<Check> {
    let runtimes = [("runc", "apt-get install runc"), ("crun", "apt-get install crun")];
    let check = |(program, remedy): (&str, &str)| {
        let what = format!("oci:{program}");
        match facts::version(program, "--version") {
            Some(detail) => Check { what, verdict: Verdict::Ok, detail, remedy: String::new() },
            None => {
                let detail = "not on PATH".into();
                Check { what, verdict: Verdict::Missing, detail, remedy: remedy.into() }
            }
        }
    };
    runtimes.map(check).into()
}

/// Checks the program of neighbours.
fn neighbours() -> Check {
    let what = neighbour::PROGRAM.to_string();
    match exec::find(neighbour::PROGRAM) {
        Some(path) => {
            let detail = format!("{}, for [[neighbour]]", path.display());
            Check { what, verdict: Verdict::Ok, detail, remedy: String::new() }
        }
        None => {
            let detail = "not on PATH: needed by [[neighbour]], except kind = \"command\"".into();
            let remedy = format!("apt-get install {}", neighbour::PROGRAM);
            Check { what, verdict: Verdict::Missing, detail, remedy }
        }
    }
}

/// Checks whether a guest can run a whole study (`--inside`).
fn whole_study() -> Check {
    let what = "--inside vm:qemu".to_string();
    match inside::needs(&inside::Options::default()) {
        Ok(()) => {
            let detail = "a guest with this host's files, for what its kernel lacks".into();
            Check { what, verdict: Verdict::Ok, detail, remedy: String::new() }
        }
        Err(missing) => {
            Check { what, verdict: Verdict::Missing, detail: missing.why, remedy: missing.remedy }
        }
    }
}

/// Checks the container engines.
fn engines() -> Vec<Check> {
    let engines = runtime::ALL.iter().filter(|runtime| {
        matches!(runtime.name, "containerd" | "docker" | "podman" | "kubernetes")
    });
    let check = |engine: &runtime::Runtime| {
        let what = engine.name.to_string();
        match (engine.needs)(None) {
            Ok(()) => {
                let detail = format!("answers; usable: {}", (engine.found)().join(", "));
                Check { what, verdict: Verdict::Ok, detail, remedy: String::new() }
            }
            Err(error) => {
                Check { what, verdict: Verdict::Missing, detail: error.why, remedy: error.remedy }
            }
        }
    };
    engines.map(check).collect()
}

/// Checks which sources of root file systems this host can unpack, and lists the unpacked ones.
fn root_file_systems() -> Check {
    let what = "root file systems".to_string();
    let missing: Vec<&str> =
        rootfs::TOOLS.iter().copied().filter(|name| exec::find(name).is_none()).collect();
    let cached = rootfs::cached();
    let unpacked = match cached.is_empty() {
        true => format!("none in {} yet", rootfs::CACHE),
        false => format!("in {}: {}", rootfs::CACHE, cached.join(", ")),
    };
    match missing.is_empty() {
        true => Check {
            what,
            verdict: Verdict::Ok,
            detail: format!("packages, images and directories; {unpacked}"),
            remedy: String::new(),
        },
        false => Check {
            what,
            verdict: Verdict::Limited,
            detail: format!("images and directories, no packages; {unpacked}"),
            remedy: format!("packages need {}, on Debian and Ubuntu", missing.join(", ")),
        },
    }
}
