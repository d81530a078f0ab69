//! The socket to the kernel's `ethtool` family of generic netlink (kernel 5.6 and later).

use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::EthtoolError;
use super::message::{
    FLAG_ACK, FLAG_DUMP, KIND_DONE, KIND_ERROR, Reply, Request, attributes, replies, text,
};

/// `GENL_ID_CTRL`, the family that returns the numbers of other families; `CTRL_CMD_GETFAMILY` and
/// its attributes.
const CONTROL: u16 = 16;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;

/// In every message of the ethtool family attribute 1 names the device
/// (`ETHTOOL_A_HEADER_DEV_NAME`).
const HEADER: u16 = 1;
const HEADER_DEVICE_NAME: u16 = 2;

/// Larger than any message of the kernel: dumps come in pieces of at most 32 KiB.
const BUFFER: usize = 256 << 10;

/// Longer than any driver needs to recreate its queues.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Longer than any name of a device (`ALTIFNAMSIZ`, 128 characters) or a feature.
pub(super) const NAME_LENGTH_MAX: usize = 200;

/// A socket in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct Socket {
    socket: OwnedFd,
    family: u16,
    sequence: u32,
}

impl Socket {
    pub(super) fn open() -> Result<Self, EthtoolError> {
        let open = || -> Result<OwnedFd, Errno> {
            let socket = net::socket_with(
                AddressFamily::NETLINK,
                SocketType::RAW,
                SocketFlags::CLOEXEC,
                Some(netlink::GENERIC),
            )?;
            net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(TIMEOUT))?;
            Ok(socket)
        };
        let socket = open().map_err(|errno| EthtoolError::Socket { errno })?;
        let mut socket = Self { socket, family: CONTROL, sequence: 0 };
        let mut family = None;
        let named = |request: &mut Request| request.text(CONTROL_FAMILY_NAME, "ethtool");
        let exchanged = socket.exchange(CONTROL_GET_FAMILY, FLAG_ACK, named, |reply| {
            let mut ids = reply.attributes().filter(|(kind, _)| *kind == CONTROL_FAMILY_ID);
            let id = ids.next().and_then(|(_, value)| value.first_chunk().copied());
            family = id.map(u16::from_ne_bytes);
        });
        exchanged.map_err(|errno| EthtoolError::Family { errno })?;
        socket.family = family.ok_or(EthtoolError::Family { errno: Errno::NOENT })?;
        Ok(socket)
    }

    /// Queries or changes one device and passes the kernel's answers to `take`.
    pub(super) fn device(
        &mut self,
        command: u8,
        nic: &str,
        fill: impl FnOnce(&mut Request),
        take: impl FnMut(&Reply<'_>),
    ) -> Result<(), Errno> {
        if nic.len() > NAME_LENGTH_MAX {
            return Err(Errno::NODEV);
        }
        let named = |request: &mut Request| {
            request.nested(HEADER, |header| header.text(HEADER_DEVICE_NAME, nic));
            fill(request);
        };
        self.exchange(command, FLAG_ACK, named, take)
    }

    /// Queries every device. The kernel omits devices that do not support the command.
    pub(super) fn every_device(
        &mut self,
        command: u8,
        mut take: impl FnMut(&str, &Reply<'_>),
    ) -> Result<(), Errno> {
        let header = |request: &mut Request| request.nested(HEADER, |_| ());
        self.exchange(command, FLAG_DUMP, header, |reply| {
            let mut headers = reply.attributes().filter(|(kind, _)| *kind == HEADER);
            let names = headers.next().into_iter().flat_map(|(_, header)| attributes(header));
            let mut names = names.filter(|(kind, _)| *kind == HEADER_DEVICE_NAME);
            if let Some(name) = names.next().and_then(|(_, name)| text(name)) {
                take(name, reply);
            }
        })
    }

    fn exchange(
        &mut self,
        command: u8,
        flags: u16,
        fill: impl FnOnce(&mut Request),
        mut take: impl FnMut(&Reply<'_>),
    ) -> Result<(), Errno> {
        self.sequence += 1;
        let mut request = Request::new(self.family, flags, self.sequence, command);
        fill(&mut request);
        let bytes = request.finish();
        // A netlink socket sends to the kernel unless another address is given.
        rustix::io::retry_on_intr(|| net::send(&self.socket, &bytes, SendFlags::empty()))?;
        let mut buffer = vec![0; BUFFER];
        loop {
            let (length, _) = rustix::io::retry_on_intr(|| {
                net::recv(&self.socket, &mut buffer[..], RecvFlags::empty())
            })?;
            for reply in replies(&buffer[..length]) {
                if reply.sequence != self.sequence {
                    continue;
                }
                match (reply.kind, reply.error()) {
                    (KIND_ERROR | KIND_DONE, Some(0) | None) => return Ok(()),
                    (KIND_ERROR | KIND_DONE, Some(number)) => {
                        return Err(Errno::from_raw_os_error(number));
                    }
                    _ => take(&reply),
                }
            }
        }
    }
}
