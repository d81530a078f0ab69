//! Round-trip times of open connections, from the kernel's TCP_INFO.
//!
//! The kernel lists the sockets of the caller's network namespace with their `tcp_info` over
//! netlink (sock_diag(7)), so no connection is touched.
//!
//! Limits: IPv4. The smoothed time includes the delay of acknowledgements, which is 40 ms and more
//! where the other end has nothing to send; the least one is the path's own.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// Round-trip times of the connections to some addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrips {
    pub connections: u64,
    /// The median of the smoothed times.
    pub median_ns: u64,
    /// The least time that any of them has seen.
    pub least_ns: u64,
}

/// `SOCK_DIAG_BY_FAMILY`, `NLMSG_ERROR` and `NLMSG_DONE`.
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
const IPPROTO_TCP: u8 = 6;
/// The bit of `INET_DIAG_INFO` in a request, and the attribute in an answer.
const WITH_INFO: u8 = 1 << 1;
const INFO: u16 = 2;
/// The bit of TCP_ESTABLISHED.
const ESTABLISHED: u32 = 1 << 1;
/// Lengths of `nlmsghdr`, `inet_diag_req_v2` and `inet_diag_msg`.
const HEADER: usize = 16;
const REQUEST: usize = 56;
const MESSAGE: usize = 72;
/// Places of `idiag_dport` and `idiag_dst` in `inet_diag_msg`.
const PORT_AT: usize = 6;
const ADDRESS_AT: usize = 24;
/// Places of `tcpi_rtt` and `tcpi_min_rtt` in `tcp_info`, both in microseconds.
const RTT_AT: usize = 68;
const LEAST_AT: usize = 148;

/// Returns the round-trip times of the established connections of this network namespace to these
/// addresses. `None` without one, or where the kernel does not tell.
pub fn sample(to: &[SocketAddr]) -> Option<RoundTrips> {
    let found = list().ok()?;
    let ours = found.into_iter().filter(|one| to.contains(&SocketAddr::V4(one.to)));
    let (mut times, mut least) = (Vec::new(), u32::MAX);
    for one in ours {
        times.push(one.rtt_us);
        least = least.min(one.least_us);
    }
    times.sort_unstable();
    let median = *times.get(times.len() / 2)?;
    let ns = |us: u32| u64::from(us) * 1000;
    let connections = u64::try_from(times.len()).ok()?;
    Some(RoundTrips { connections, median_ns: ns(median), least_ns: ns(least.min(median)) })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Connection {
    to: SocketAddrV4,
    rtt_us: u32,
    least_us: u32,
}

fn list() -> rustix::io::Result<Vec<Connection>> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(SOCK_DIAG))?;
    sendto(&socket, &request(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut found = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let (_, length) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        if length == 0 || read(&buffer[..length], &mut found) {
            return Ok(found);
        }
    }
}

fn request() -> [u8; HEADER + REQUEST] {
    let mut bytes = [0; HEADER + REQUEST];
    let length = u32::try_from(bytes.len()).unwrap_or(0);
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    bytes[HEADER] = u8::try_from(AddressFamily::INET.as_raw()).unwrap_or(0);
    bytes[HEADER + 1] = IPPROTO_TCP;
    bytes[HEADER + 2] = WITH_INFO;
    bytes[HEADER + 4..HEADER + 8].copy_from_slice(&ESTABLISHED.to_ne_bytes());
    bytes
}

/// Reads the messages of one datagram. Returns whether they end the answer.
fn read(mut bytes: &[u8], found: &mut Vec<Connection>) -> bool {
    while let (Some(length), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) {
        let length = usize::try_from(length).unwrap_or(0);
        if kind == DONE || kind == ERROR || length < HEADER {
            return true;
        }
        let Some(message) = bytes.get(HEADER..length) else { return true };
        found.extend(connection(message));
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
    }
    false
}

fn connection(message: &[u8]) -> Option<Connection> {
    let port = u16::from_be_bytes(*message.get(PORT_AT..)?.first_chunk()?);
    let address: [u8; 4] = *message.get(ADDRESS_AT..)?.first_chunk()?;
    let to = SocketAddrV4::new(Ipv4Addr::from(address), port);
    let mut attributes = message.get(MESSAGE..)?;
    loop {
        let length = usize::from(u16_at(attributes, 0)?);
        let kind = u16_at(attributes, 2)?;
        let value = attributes.get(4..length)?;
        if kind == INFO {
            let rtt_us = u32_at(value, RTT_AT)?;
            return Some(Connection { to, rtt_us, least_us: u32_at(value, LEAST_AT)? });
        }
        attributes = attributes.get(aligned(length)..)?;
    }
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn samples_open_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        assert_eq!(sample(&[to]), None);
        let mut streams = Vec::new();
        for _ in 0..3 {
            let mut near = TcpStream::connect(to).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            near.write_all(b"x").unwrap();
            far.read_exact(&mut [0]).unwrap();
            far.write_all(b"y").unwrap();
            near.read_exact(&mut [0]).unwrap();
            streams.push((near, far));
        }
        let found = sample(&[to]).unwrap();
        assert_eq!(found.connections, 3);
        assert!(found.least_ns > 0 && found.least_ns <= found.median_ns, "{found:?}");
        assert_eq!(sample(&["127.0.0.1:1".parse().unwrap()]), None);
    }

    #[test]
    fn broken_answers_end_the_list() {
        let mut found = Vec::new();
        assert!(read(&[1, 0, 0, 0, 20, 0, 0, 0], &mut found));
        assert!(!read(&[], &mut found));
        assert!(connection(&[0; MESSAGE]).is_none());
        assert!(found.is_empty());
    }
}
