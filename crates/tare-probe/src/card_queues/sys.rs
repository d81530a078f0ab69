//! The statistics of a network device as its driver names them: `ethtool --statistics`.
//! Source: include/uapi/linux/ethtool.h of the kernel, ETHTOOL_GSSET_INFO, _GSTRINGS, _GSTATS.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETH_SS_STATS: u32 = 1;
const NAME_BYTES: usize = 32;
/// The kernel writes as many statistics as the driver has at that moment, whatever the length of
/// the buffer. It can have more than it said if its queues grow in between, so there is room for
/// those of the largest devices: mlx5 has about 60 for each of at most 256 channels.
const ROOM: usize = 65_536;

/// Bytes of `union` in `struct ifreq`, of which ethtool uses a pointer.
const UNION_BYTES: usize = 24;

#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    data: *mut c_void,
    rest: [u8; UNION_BYTES - size_of::<*mut c_void>()],
}

/// A device whose statistics are read.
#[derive(Debug)]
pub(super) struct Device {
    socket: OwnedFd,
    name: [u8; libc::IFNAMSIZ],
    /// A header of 8 bytes and the values.
    buffer: Vec<u64>,
}

impl Device {
    /// Opens a device of the network namespace of this thread. `None` if its name is too long.
    pub(super) fn open(name: &str) -> io::Result<Option<Self>> {
        if name.len() >= libc::IFNAMSIZ {
            return Ok(None);
        }
        let mut bytes = [0; libc::IFNAMSIZ];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        Ok(Some(Self { socket, name: bytes, buffer: vec![0; 1 + ROOM] }))
    }

    /// Returns the number of statistics.
    pub(super) fn count(&mut self) -> io::Result<usize> {
        self.buffer[0] = header(ETHTOOL_GSSET_INFO, 0);
        self.buffer[1] = 1 << ETH_SS_STATS;
        self.buffer[2] = 0;
        self.request()?;
        // The kernel clears the bits of sets that the driver does not have.
        let has = self.buffer[1] != 0;
        Ok(if has { low(self.buffer[2]) as usize } else { 0 })
    }

    /// Returns the names of the statistics.
    pub(super) fn names(&mut self) -> io::Result<Vec<String>> {
        let words = NAME_BYTES / size_of::<u64>();
        if self.count()? > ROOM / words / 2 {
            return Ok(Vec::new());
        }
        // A header of 12 bytes: the third number is the count.
        self.buffer[0] = header(ETHTOOL_GSTRINGS, ETH_SS_STATS);
        self.buffer[1] = 0;
        self.request()?;
        let count = low(self.buffer[1]) as usize;
        let bytes: Vec<u8> = self.buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let names = bytes[12..].chunks_exact(NAME_BYTES).take(count);
        let name = |bytes: &[u8]| {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        };
        Ok(names.map(name).collect())
    }

    /// Returns the values of the statistics, in the order of the names.
    pub(super) fn values(&mut self) -> io::Result<&[u64]> {
        self.buffer[0] = header(ETHTOOL_GSTATS, 0);
        self.request()?;
        let count = (self.buffer[0].to_ne_bytes(), ROOM);
        let [.., a, b, c, d] = count.0;
        let count = (u32::from_ne_bytes([a, b, c, d]) as usize).min(count.1);
        Ok(&self.buffer[1..=count])
    }

    /// Sends what is in the buffer. The kernel puts its answer there.
    fn request(&mut self) -> io::Result<()> {
        let mut request = Request {
            name: self.name,
            data: self.buffer.as_mut_ptr().cast(),
            rest: [0; UNION_BYTES - size_of::<*mut c_void>()],
        };
        // JUSTIFICATION: the requests of SIOCETHTOOL have no safe interface.
        // SAFETY: `request` has the layout of `struct ifreq` and outlives the call. Its address is
        // that of `buffer`, which nothing else uses during the call and which has room for more
        // values and names than a driver has (`ROOM`, and the check in `names`).
        let result =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
        match result {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Returns two numbers of 32 bits as they follow each other in memory.
fn header(first: u32, second: u32) -> u64 {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// Returns the first of two numbers of 32 bits.
fn low(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}
