//! The TCP sockets of a network namespace, and those that a process has open.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddrV4;

/// The state of a socket (proc_pid_net(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Established,
    Listen,
    Other,
}

/// A socket of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    pub local: SocketAddrV4,
    pub remote: SocketAddrV4,
    pub state: State,
    pub inode: u64,
}

impl Socket {
    /// Returns its local and its remote end.
    pub fn ends(&self) -> (SocketAddrV4, SocketAddrV4) {
        (self.local, self.remote)
    }
}

/// Returns the TCP sockets of the network namespace of a process, a pid or `thread-self`. An IPv6
/// address is its last four bytes: the IPv4 address that it carries, if it carries one.
pub fn sockets(process: &str) -> Vec<Socket> {
    let read = |file| fs::read_to_string(format!("/proc/{process}/net/{file}"));
    let tables = ["tcp", "tcp6"].map(|file| read(file).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().filter_map(socket)).collect()
}

/// Returns the established connections of the network namespace of a process.
pub fn connections(process: &str) -> Vec<Socket> {
    let mut all = sockets(process);
    all.retain(|socket| socket.state == State::Established);
    all
}

/// Returns the inodes of all sockets that a process has open.
pub fn open_inodes(pid: u32) -> BTreeSet<u64> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = files.filter_map(|file| fs::read_link(file.path()).ok());
    let inode = |link: &std::path::Path| {
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    links.filter_map(|link| inode(&link)).collect()
}

/// Parses a line of /proc/PID/net/tcp or tcp6.
fn socket(line: &str) -> Option<Socket> {
    let mut words = line.split_whitespace().skip(1);
    let (local, remote) = (words.next()?, words.next()?);
    let state = match words.next()? {
        "01" => State::Established,
        "0A" => State::Listen,
        _ => State::Other,
    };
    // Queues, timers, user and the rest of them come between (proc_net_tcp.rst).
    let inode = words.nth(5)?.parse().ok()?;
    Some(Socket { local: address(local)?, remote: address(remote)?, state, inode })
}

/// Parses `0100007F:1F90`: words of 32 bits in the order of this host's memory.
fn address(text: &str) -> Option<SocketAddrV4> {
    let (address, port) = text.split_once(':')?;
    let word = address.get(address.len().checked_sub(8)?..)?;
    let bytes = u32::from_str_radix(word, 16).ok()?.to_ne_bytes();
    Some(SocketAddrV4::new(bytes.into(), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn sockets_are_read_from_both_tables() {
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let (pod, client) = (word([10, 244, 0, 5]), word([198, 18, 0, 1]));
        let mapped = format!("0000000000000000{:08X}", u32::from_be(0x0000_FFFF));
        for (prefix, text, state) in [
            ("", "01", State::Established),
            (&*mapped, "01", State::Established),
            ("", "0A", State::Listen),
            ("", "08", State::Other),
        ] {
            let line = format!(
                "   0: {prefix}{pod}:2352 {prefix}{client}:9C40 {text} \
                 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 20"
            );
            let expect = Socket {
                local: "10.244.0.5:9042".parse().unwrap(),
                remote: "198.18.0.1:40000".parse().unwrap(),
                state,
                inode: 4711,
            };
            assert_eq!(socket(&line), Some(expect), "{line}");
        }
        assert_eq!(socket("  sl  local_address rem_address   st tx_queue"), None);
    }

    #[test]
    fn sockets_of_this_process_are_found() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        let (pid, local) = (std::process::id(), server.local_addr().unwrap());
        let inodes = open_inodes(pid);
        let found = sockets(&pid.to_string()).into_iter().find(|one| {
            local == std::net::SocketAddr::from(one.local)
                && client.local_addr().unwrap() == std::net::SocketAddr::from(one.remote)
        });
        let found = found.unwrap();
        assert!(found.state == State::Established && inodes.contains(&found.inode));
        let bound = listener.local_addr().unwrap().port();
        let listens = |one: &Socket| one.state == State::Listen && one.local.port() == bound;
        assert!(sockets("thread-self").iter().any(listens));
    }
}
