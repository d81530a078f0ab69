//! Checks that the processes of an attached system answer on its address.
//!
//! Method: one connection is made, and the sockets of the processes are compared before and after
//! it (`/proc/PID/fd`, `/proc/PID/net/tcp`). In the network namespace of this process the new one
//! must be the other end of the connection. In another one a proxy or NAT may be between, so that
//! any new connection counts.
//!
//! Limits: there, a connection of another client at the same moment counts as ours.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use tare_host::process;
use tare_lab::attach::Attach;

use super::named;
use super::target::Target;

/// Time limit for the connection, and for the system to accept it.
const LIMIT: Duration = Duration::from_secs(5);
/// How often its sockets are looked at meanwhile.
const LOOK: Duration = Duration::from_millis(5);
/// `TCP_ESTABLISHED` and `TCP_LISTEN` of the kernel, as `/proc/net/tcp` has them (proc_pid_net(5)).
const ESTABLISHED: &str = "01";
const LISTEN: &str = "0A";

/// One line of a table of sockets.
struct Socket {
    local_port: u16,
    remote_port: u16,
    state: String,
    inode: u64,
}

/// Checks that the system answers, and returns the process of another program that listens on the
/// address for it, if there is one.
///
/// # Errors
/// One line: who answers instead, and what to do.
pub(super) fn check(attach: &Attach, target: &Target) -> Result<Option<u32>, String> {
    let (address, pid) = (attach.address, target.pid);
    let before = inodes(&target.pids());
    let stream = TcpStream::connect_timeout(&address, LIMIT).map_err(|error| {
        format!(
            "nobody answers on {address} ({error}); write the address on which {} listens",
            target.what
        )
    })?;
    let own_port = stream.local_addr().map(|own| own.port()).unwrap_or(0);
    let is_here = process::namespace_inode(pid, "net") == own_namespace();
    let deadline = Instant::now() + LIMIT;
    loop {
        let now = inodes(&target.pids());
        let is_ours = |socket: &Socket| {
            socket.state == ESTABLISHED
                && (!is_here || socket.remote_port == own_port)
                && now.contains(&socket.inode)
                && !before.contains(&socket.inode)
        };
        if sockets(&pid.to_string()).iter().any(is_ours) {
            let listener = listener(address).filter(|other| !target.pids().contains(other));
            return Ok(listener.filter(|_| !is_here));
        }
        if Instant::now() > deadline {
            let other = listener(address).filter(|other| !target.pids().contains(other));
            let other = other.map_or("another process".into(), named);
            return Err(format!(
                "{other} answers on {address}, and not {}; write the address on which that listens",
                target.what
            ));
        }
        thread::sleep(LOOK);
    }
}

fn own_namespace() -> Option<u64> {
    process::inode_of_link("/proc/thread-self/ns/net".as_ref())
}

/// Returns the process that listens on a port in the network namespace of this process.
fn listener(address: SocketAddr) -> Option<u32> {
    let listens = |socket: &Socket| socket.state == LISTEN && socket.local_port == address.port();
    let wanted: BTreeSet<u64> =
        sockets("thread-self").into_iter().filter(listens).map(|one| one.inode).collect();
    process::all().into_iter().find(|pid| !inodes(&[*pid]).is_disjoint(&wanted))
}

/// Returns the inodes of all sockets that these processes have open.
fn inodes(pids: &[u32]) -> BTreeSet<u64> {
    let files = |pid: &u32| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = pids.iter().flat_map(files).filter_map(|file| fs::read_link(file.path()).ok());
    links
        .filter_map(|link| {
            let text = link.to_str()?.strip_prefix("socket:[")?;
            text.strip_suffix(']')?.parse().ok()
        })
        .collect()
}

/// Reads the TCP sockets of the network namespace of a process.
fn sockets(process: &str) -> Vec<Socket> {
    let table = |name| fs::read_to_string(format!("/proc/{process}/net/{name}"));
    let tables = ["tcp", "tcp6"].map(|name| table(name).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(socket).collect()
}

/// Reads `0: 0100007F:18EB 0100007F:D4A2 01 ... INODE ...`.
fn socket(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let port = |field: &str| u16::from_str_radix(field.rsplit_once(':')?.1, 16).ok();
    Some(Socket {
        local_port: port(fields.get(1)?)?,
        remote_port: port(fields.get(2)?)?,
        state: (*fields.get(3)?).to_string(),
        inode: fields.get(9)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_read_from_the_table() {
        let line = "   1: 0100007F:18EB 0100007F:D4A2 01 00000000:00000000 00:00000000 00000000 \
                    0        0 4711 1 0000000000000000 20 4 30 10 -1";
        let found = socket(line).unwrap();
        assert_eq!((found.local_port, found.remote_port), (6379, 54434));
        assert_eq!((found.state.as_str(), found.inode), (ESTABLISHED, 4711));
        assert!(socket("  sl  local_address rem_address").is_none());
    }
}
