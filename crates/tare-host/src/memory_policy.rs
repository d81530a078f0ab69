//! Binds the memory of new processes to NUMA nodes, switches off transparent huge pages for a
//! process, and reads what a process may use.
//!
//! A policy belongs to a thread. Its children inherit it, also across exec (man 2 set_mempolicy),
//! so a thread that is started for one command binds that command and all that it starts.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use libc::{c_int, c_long, c_ulong};
use tare_std::cpus::CpuSet;

use crate::process;

/// Allocates on these nodes only (include/uapi/linux/mempolicy.h).
const MPOL_BIND: c_int = 2;

/// Binds the memory that the calling thread, and all threads and processes that it starts later,
/// touch first to these NUMA nodes.
///
/// # Errors
/// When a node has no memory, or the cpuset of the process does not allow it.
pub fn bind_this_thread(nodes: &CpuSet) -> io::Result<()> {
    let bits = c_ulong::BITS;
    let highest = nodes.iter().max().unwrap_or(0);
    let mut mask: Vec<c_ulong> = vec![0; (highest / bits + 1) as usize];
    for node in nodes.iter() {
        mask[(node / bits) as usize] |= 1 << (node % bits);
    }
    // The kernel reads one bit less than this.
    let length = mask.len() as c_ulong * c_ulong::from(bits) + 1;
    // JUSTIFICATION: no safe library has this system call.
    // SAFETY: the kernel reads `length - 1` bits of `mask`, which is that long and outlives the
    // call.
    let result = unsafe {
        libc::syscall(libc::SYS_set_mempolicy, c_long::from(MPOL_BIND), mask.as_ptr(), length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the NUMA nodes that the cpuset of a process allows.
pub fn allowed_nodes(pid: u32) -> Option<CpuSet> {
    CpuSet::parse_list(&process::status_field(pid, "Mems_allowed_list")?).ok()
}

/// Returns the memory policy of a process as in `/proc/PID/numa_maps`, such as `default` or
/// `bind:1`. `None` if the kernel does not show it.
pub fn policy(pid: u32) -> Option<String> {
    // ADDRESS POLICY ...: a mapping without a policy of its own shows that of the process. The
    // first is the program itself.
    let mut line = String::new();
    let maps = File::open(format!("/proc/{pid}/numa_maps")).ok()?;
    BufReader::new(maps).read_line(&mut line).ok()?;
    line.split_whitespace().nth(1).map(str::to_string)
}

/// The variable of the environment that says which transparent huge pages Tare's program, and all
/// that it starts, may have: `never` or `madvise`.
pub const PAGES_VARIABLE: &str = "TARE_PAGES";

/// Leaves the huge pages that a process asks for (include/uapi/linux/prctl.h, since Linux 6.18).
const PR_THP_DISABLE_EXCEPT_ADVISED: c_ulong = 1 << 1;

/// Why this process keeps transparent huge pages that it should not have.
#[derive(Debug, thiserror::Error)]
#[error("cannot switch off transparent huge pages for this process (PR_SET_THP_DISABLE)")]
pub struct PagesError(#[source] io::Error);

/// Switches off transparent huge pages for this process as [`PAGES_VARIABLE`] says. All programs
/// that it becomes or starts inherit that.
///
/// # Errors
/// When the kernel refuses.
pub fn apply_pages() -> Result<(), PagesError> {
    let flags = match std::env::var(PAGES_VARIABLE).as_deref() {
        Ok("never") => 0,
        Ok("madvise") => PR_THP_DISABLE_EXCEPT_ADVISED,
        _ => return Ok(()),
    };
    let (on, unused): (c_ulong, c_ulong) = (1, 0);
    // JUSTIFICATION: the safe library passes no flags.
    // SAFETY: the call takes numbers only.
    let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, flags, unused, unused) };
    if result < 0 { Err(PagesError(io::Error::last_os_error())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;
    use crate::exec::Command;

    #[test]
    fn a_command_inherits_its_nodes() {
        let test = "a_command_inherits_its_nodes";
        let own = std::process::id();
        let (Some(before), Some(allowed)) = (policy(own), allowed_nodes(own)) else {
            let why = "this kernel shows no memory policies";
            return tare_testkit::skip(test, tare_testkit::Reason::unavailable("NUMA", why));
        };
        let node: CpuSet = allowed.iter().take(1).collect();
        let command = Command::new("sleep").arg("60").on_nodes(&node);
        let spawned = command.spawn(Stdio::null(), Stdio::null(), Stdio::null());
        let mut child = spawned.unwrap();
        // The first mapping after exec is the program's.
        let bound = policy(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(bound, Some(format!("bind:{node}")));
        assert_eq!(policy(own), Some(before), "only the command is bound");
        assert!(bind_this_thread(&CpuSet::parse_list("1023").unwrap()).is_err());
    }
}
