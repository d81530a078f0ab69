//! The guest's network: addresses and routes by netlink (rtnetlink(7)), because the guest has no
//! other programs.

use std::fs;
use std::io;
use std::net::Ipv4Addr;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::{GuestError, wait_for};

// linux/rtnetlink.h and linux/netlink.h
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const REQUEST_ACK: u16 = 1 | 4;
/// `NLM_F_CREATE | NLM_F_REPLACE`.
const CREATE: u16 = 0x400 | 0x100;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const IFF_UP: u32 = 1;
/// `RT_TABLE_MAIN`, `RTPROT_STATIC`, `RT_SCOPE_UNIVERSE`, `RTN_UNICAST`.
const ROUTE: [u8; 4] = [254, 4, 0, 1];
const AF_INET: u8 = 2;

/// Brings the loopback up, and the first other device with an address and the default route.
pub(super) fn set_up(address: Ipv4Addr, prefix: u8, gateway: Ipv4Addr) -> Result<(), GuestError> {
    let device = wait_for("network device", || {
        let devices = fs::read_dir("/sys/class/net").ok()?.flatten();
        devices.map(|e| e.file_name().to_string_lossy().into_owned()).find(|name| name != "lo")
    })?;
    // As for a container behind a bridge: no duplicate address detection during the measurement.
    let _ = fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    let step = |step: &'static str| move |source| GuestError::Network { step, source };
    let socket = Netlink::open().map_err(step("open a netlink socket"))?;
    let lo = index("lo").map_err(step("find the loopback"))?;
    let nic = index(&device).map_err(step("find the device"))?;
    socket.up(lo).map_err(step("bring the loopback up"))?;
    socket.address(nic, address, prefix).map_err(step("set the address"))?;
    socket.up(nic).map_err(step("bring the device up"))?;
    socket.default_route(nic, gateway).map_err(step("set the default route"))
}

/// Brings the loopback up in a guest without other devices.
pub(super) fn set_up_loopback() -> Result<(), GuestError> {
    let step = |step: &'static str| move |source| GuestError::Network { step, source };
    let socket = Netlink::open().map_err(step("open a netlink socket"))?;
    let lo = index("lo").map_err(step("find the loopback"))?;
    socket.up(lo).map_err(step("bring the loopback up"))
}

fn index(device: &str) -> io::Result<u32> {
    let text = fs::read_to_string(format!("/sys/class/net/{device}/ifindex"))?;
    text.trim().parse().map_err(io::Error::other)
}

struct Netlink(OwnedFd);

impl Netlink {
    fn open() -> io::Result<Self> {
        let socket = net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            // NETLINK_ROUTE is 0.
            None,
        )?;
        net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self(socket))
    }

    fn up(&self, index: u32) -> io::Result<()> {
        // struct ifinfomsg: family, padding, type, index, flags, mask of changed flags.
        let mut body = vec![0; 4];
        body.extend(index.to_ne_bytes());
        body.extend(IFF_UP.to_ne_bytes());
        body.extend(IFF_UP.to_ne_bytes());
        self.request(RTM_NEWLINK, 0, body)
    }

    fn address(&self, index: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        // struct ifaddrmsg: family, prefix length, flags, scope, index.
        let mut body = vec![AF_INET, prefix, 0, 0];
        body.extend(index.to_ne_bytes());
        attribute(&mut body, IFA_LOCAL, address.octets());
        attribute(&mut body, IFA_ADDRESS, address.octets());
        self.request(RTM_NEWADDR, CREATE, body)
    }

    fn default_route(&self, index: u32, gateway: Ipv4Addr) -> io::Result<()> {
        // struct rtmsg: family, lengths of destination and source, tos, then ROUTE, flags.
        let mut body = vec![AF_INET, 0, 0, 0];
        body.extend(ROUTE);
        body.extend([0; 4]);
        attribute(&mut body, RTA_GATEWAY, gateway.octets());
        attribute(&mut body, RTA_OIF, index.to_ne_bytes());
        self.request(RTM_NEWROUTE, CREATE, body)
    }

    /// Sends one request and waits for its acknowledgement.
    fn request(&self, kind: u16, flags: u16, body: Vec<u8>) -> io::Result<()> {
        let length = u32::try_from(16 + body.len()).map_err(io::Error::other)?;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((REQUEST_ACK | flags).to_ne_bytes());
        // Sequence and port: one request at a time needs neither.
        message.extend([0; 8]);
        message.extend(body);
        net::send(&self.0, &message, SendFlags::empty())?;
        let mut buffer = vec![0; 8192];
        let (received, _) = net::recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
        // NLMSG_ERROR with the number 0 is the acknowledgement.
        let number = buffer[..received].get(16..20).and_then(|bytes| bytes.first_chunk().copied());
        match number.map(i32::from_ne_bytes) {
            Some(0) => Ok(()),
            Some(number) => Err(Errno::from_raw_os_error(number.wrapping_neg()).into()),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Appends an attribute of four bytes.
fn attribute(body: &mut Vec<u8>, kind: u16, value: [u8; 4]) {
    body.extend(8u16.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
}
