//! Checks that the processes of an attached system answer on its address.
//!
//! Method: one connection is made, and the sockets of the processes are compared before and after
//! it (`/proc/PID/fd`, `/proc/PID/net/tcp`). In the network namespace of this process the new one
//! must be the other end of the connection. In another one a proxy or NAT may be between, so that
//! any new connection counts.
//!
//! Limits: there, a connection of another client at the same moment counts as ours.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use tare_host::process;
use tare_host::tcp::{self, Socket, State};
use tare_lab::attach::Attach;

use super::named;
use super::target::Target;

/// Time limit for the connection, and for the system to accept it.
const LIMIT: Duration = Duration::from_secs(5);
/// How often its sockets are looked at meanwhile.
const LOOK: Duration = Duration::from_millis(5);
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
            socket.state == State::Established
                && (!is_here || socket.remote.port() == own_port)
                && now.contains(&socket.inode)
                && !before.contains(&socket.inode)
        };
        if tcp::sockets(&pid.to_string()).iter().any(is_ours) {
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

/// Returns the process that listens on an address in the network namespace of this process.
fn listener(address: SocketAddr) -> Option<u32> {
    // The address of a container belongs to another namespace, whatever listens on its port here.
    let is_here = UdpSocket::bind(SocketAddr::new(address.ip(), 0)).is_ok();
    let listens = |socket: &Socket| {
        let own = socket.local;
        let is_for = own.ip().is_unspecified() || address.ip() == IpAddr::from(*own.ip());
        socket.state == State::Listen && own.port() == address.port() && is_here && is_for
    };
    let wanted: BTreeSet<u64> =
        tcp::sockets("thread-self").into_iter().filter(listens).map(|one| one.inode).collect();
    process::all().into_iter().find(|pid| !tcp::open_inodes(*pid).is_disjoint(&wanted))
}

/// Returns the inodes of all sockets that these processes have open.
fn inodes(pids: &[u32]) -> BTreeSet<u64> {
    pids.iter().flat_map(|pid| tcp::open_inodes(*pid)).collect()
}
