//! Checks of the host itself: what measurements lack and how to get it. Other crates check their
//! own needs (`housekeeping`).
//!
//! No check changes the host: trials run in an unnamed network namespace that ends with its thread.

use std::fs;
use std::path::Path;

use crate::cgroup::{Layout, Version};
use crate::clean::Leftover;
use crate::exec::{Command, ExecError};
use crate::nvme::{self, Transport, soft_roce};
use crate::{error_line, facts, netns, process};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    /// Works in part.
    Limited,
    Missing,
}

/// One check with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The checked feature: `oci:runc`, `network layers`, `cgroups`.
    pub what: String,
    pub verdict: Verdict,
    /// The finding.
    pub detail: String,
    /// How to get what is missing; empty when nothing is missing.
    pub remedy: String,
}

/// Runs the checks of the host itself.
pub fn checks() -> Vec<Check> {
    vec![root(), cpus(), cgroups(), network(), baseline(), io_uring(), nvme_of()]
}

fn check(what: &str, verdict: Verdict, detail: impl Into<String>, remedy: &str) -> Check {
    Check { what: what.into(), verdict, detail: detail.into(), remedy: remedy.into() }
}

fn root() -> Check {
    let what = "privileges";
    if !rustix::process::geteuid().is_root() {
        let remedy = "run as root (sudo): namespaces, cgroups and the seccomp layer need it";
        return check(what, Verdict::Missing, "not root", remedy);
    }
    // Bit numbers from linux/capability.h.
    let needed = [("CAP_NET_ADMIN", 12), ("CAP_SYS_ADMIN", 21), ("CAP_SYS_RESOURCE", 24)];
    let text = process::status_field(std::process::id(), "CapEff").unwrap_or_default();
    let set = u64::from_str_radix(&text, 16).unwrap_or(0);
    let missing: Vec<&str> =
        needed.iter().filter(|(_, bit)| set & (1 << bit) == 0).map(|(name, _)| *name).collect();
    match missing.as_slice() {
        [] => check(what, Verdict::Ok, "root with all needed capabilities", ""),
        ["CAP_SYS_RESOURCE"] => {
            let detail = "root without CAP_SYS_RESOURCE: limits on open files cannot be raised";
            check(what, Verdict::Limited, detail, "start Tare where the capability is not dropped")
        }
        missing => {
            let detail = format!("root without {}", missing.join(", "));
            check(what, Verdict::Missing, detail, "start Tare outside of a restricted container")
        }
    }
}

fn cpus() -> Check {
    let what = "CPUs";
    let remedy = "give the machine at least two CPUs, so that client and system have their own";
    match process::cpus_of_this_thread() {
        Ok(cpus) if cpus.len() >= 2 => check(what, Verdict::Ok, cpus.to_string(), ""),
        Ok(cpus) => check(what, Verdict::Limited, format!("only CPU {cpus}"), remedy),
        Err(error) => check(what, Verdict::Limited, error.to_string(), remedy),
    }
}

fn cgroups() -> Check {
    let what = "cgroups";
    let layout = match Layout::read(Path::new("/proc")) {
        Ok(layout) => layout,
        Err(error) => return check(what, Verdict::Missing, error_line(&error), "mount /proc"),
    };
    let version = match layout.version() {
        Version::None => {
            let remedy = "mount -t cgroup2 none /sys/fs/cgroup";
            return check(what, Verdict::Missing, "none mounted", remedy);
        }
        Version::V1 => "v1",
        Version::Hybrid => "v1 with a v2 tree (hybrid)",
        Version::V2 => "v2",
    };
    let controllers = layout.controllers();
    let mut needed = vec!["cpu", "cpuset", "memory"];
    if layout.version() != Version::V2 {
        needed.push("freezer");
    }
    needed.retain(|name| !controllers.iter().any(|controller| controller == name));
    if needed.is_empty() {
        return check(what, Verdict::Ok, format!("{version}: {}", controllers.join(" ")), "");
    }
    let detail = format!("{version}, without {}", needed.join(", "));
    check(what, Verdict::Limited, detail, "enable these controllers, or set cgroup = \"none\"")
}

/// Tries every kernel feature that the network layers use.
fn network() -> Check {
    let what = "network layers";
    let table = "table ip t {\n\
                 chain c { type nat hook prerouting priority -100; }\n\
                 chain d { type filter hook forward priority 0; ct state established accept; }\n\
                 }\n";
    let tried = netns::in_scratch(|| -> Result<(), ExecError> {
        let links = "link add b0 type bridge\nlink add v0 type veth peer name v1\n";
        Command::new("ip").args(["-batch", "-"]).input(links).run()?;
        Command::new("nft").args(["-f", "-"]).input(table).run()?;
        Ok(())
    });
    let remedy = "run as root; apt-get install iproute2 nftables; the kernel needs veth, bridge, \
                  nf_tables, nf_nat and nf_conntrack";
    match tried {
        Ok(Ok(())) => check(what, Verdict::Ok, "namespaces, veth, bridge, nft NAT", ""),
        Ok(Err(error)) => check(what, Verdict::Missing, error_line(&error), remedy),
        Err(error) => check(what, Verdict::Missing, error.to_string(), remedy),
    }
}

/// Checks that connections of a native system in this network namespace pass no NAT and no bridge.
fn baseline() -> Check {
    let what = "clean baseline";
    let mut found = facts::bridges(Path::new("/sys"));
    found.extend(facts::nat_tables().into_iter().map(|table| format!("NAT in table {table}")));
    if found.is_empty() {
        return check(what, Verdict::Ok, "no NAT table and no bridge in this namespace", "");
    }
    let remedy = "every connection passes conntrack, the native one too: stop the engine, or \
                  start Tare in a network namespace without it";
    check(what, Verdict::Limited, found.join(", "), remedy)
}

/// ENOSYS.
const NO_SYSTEM_CALL: i32 = 38;

fn io_uring() -> Check {
    let what = "io_uring";
    let remedy = "sysctl kernel.io_uring_disabled=0";
    let refused = io_uring::IoUring::new(1).err();
    if refused.as_ref().and_then(std::io::Error::raw_os_error) == Some(NO_SYSTEM_CALL) {
        let remedy = "Linux 5.1 or later; the database uses epoll without it, tare disk needs it";
        return check(what, Verdict::Missing, "this kernel has none", remedy);
    }
    match fs::read_to_string("/proc/sys/kernel/io_uring_disabled") {
        Ok(text) if text.trim() == "0" => check(what, Verdict::Ok, "allowed", ""),
        Ok(text) if text.trim() == "1" => {
            check(what, Verdict::Limited, "for privileged processes only", remedy)
        }
        Ok(_) => check(what, Verdict::Missing, "switched off on this host", remedy),
        // Linux 6.6 introduced the switch.
        Err(_) => check(what, Verdict::Ok, "no switch on this kernel", ""),
    }
}

/// Checks which transports of NVMe over fabrics this kernel has modules for.
fn nvme_of() -> Check {
    let transports = [(Transport::Tcp, &[][..]), (Transport::Rdma, soft_roce::MODULES)];
    let mut lacking = 0;
    let words = transports.map(|(transport, more)| {
        let modules = [transport.target_modules(), transport.initiator_modules(), more].concat();
        let missing = nvme::missing(&modules);
        lacking += usize::from(!missing.is_empty());
        match missing.is_empty() {
            true => transport.word().to_string(),
            false => format!("{} lacks the modules {}", transport.word(), missing.join(", ")),
        }
    });
    let verdict = [Verdict::Ok, Verdict::Limited, Verdict::Missing][lacking];
    let remedy = match verdict {
        Verdict::Ok => "",
        _ => "install all modules of the kernel, or run the study in a guest: --inside vm:qemu",
    };
    check("storage nvme-of", verdict, words.join("; "), remedy)
}

/// Checks for leftovers of dead runs on the host.
pub fn leftovers(found: &[Leftover]) -> Check {
    let what = "leftovers";
    let dead = found.iter().filter(|left| left.alive.is_none());
    let names: Vec<String> =
        dead.take(8).map(|left| format!("{} {}", left.kind, left.name)).collect();
    match names.is_empty() {
        true => check(what, Verdict::Ok, "none of dead runs", ""),
        false => check(what, Verdict::Limited, names.join(", "), "tare clean"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_checks_have_remedy() {
        let checks = checks();
        assert_eq!(checks.len(), 7);
        for check in checks {
            let has_remedy = check.verdict == Verdict::Ok || !check.remedy.is_empty();
            assert!(has_remedy && !check.detail.is_empty(), "{check:?}");
        }
    }
}
