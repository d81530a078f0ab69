//! Finds irqbalance's socket and sends requests to it.
//!
//! Method: the process is found by its name in /proc, and its socket by the inode that is both in
//! /proc/PID/fd and in the table of sockets (/proc/PID/net/unix). So the location does not matter:
//! /run/irqbalance/irqbalancePID.sock or, if that folder is missing, an abstract name (in 1.9.2 one
//! of 107 zero bytes). Each request has its own connection, carries the credentials of the sender
//! (irqbalance answers only uid 0), and ends when irqbalance closes it.
//!
//! **Invariant:** every connection sends a request and stays open until the answer. If a connection
//! is closed at once, irqbalance 1.9.2 takes its previous request for the new one, writes the
//! answer to a closed socket and dies of SIGPIPE (observed).

use std::fs;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, UCred};

use super::{IrqbalanceError, Setup, request};

/// How long irqbalance may take to answer. It answers between two passes, which take milliseconds,
/// or one process per interrupt with a policy script. The limit is generous, because a timeout
/// closes the connection before the answer.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// A running irqbalance with its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Irqbalance {
    pid: u32,
    address: Address,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    Path(PathBuf),
    Abstract(Vec<u8>),
}

impl Irqbalance {
    /// Finds the irqbalance of this host; `None` when none runs.
    ///
    /// # Errors
    /// When it has no socket, or /proc cannot be read.
    pub fn find() -> Result<Option<Self>, IrqbalanceError> {
        process()?.map(Self::of).transpose()
    }

    /// Returns the irqbalance of a process.
    ///
    /// # Errors
    /// When it has no socket that this process may use.
    pub fn of(pid: u32) -> Result<Self, IrqbalanceError> {
        let address = address(pid)?.ok_or(IrqbalanceError::NoSocket { pid })?;
        Ok(Self { pid, address })
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the address of its socket for messages: a path, or `@` and the abstract name.
    pub fn address(&self) -> String {
        match &self.address {
            Address::Path(path) => path.display().to_string(),
            Address::Abstract(name) => {
                let end = name.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                format!("@{}", String::from_utf8_lossy(&name[..end]))
            }
        }
    }

    /// Queries its setup.
    ///
    /// # Errors
    /// When it does not answer, or the answer cannot be parsed.
    pub fn setup(&self) -> Result<Setup, IrqbalanceError> {
        Setup::parse(&self.query_setup()?)
    }

    pub(super) fn query_setup(&self) -> Result<String, IrqbalanceError> {
        let answer = self.send("setup")?;
        match answer.is_empty() {
            true => Err(IrqbalanceError::Denied { address: self.address() }),
            false => Ok(answer),
        }
    }

    /// Replaces the list of banned interrupts and reads it back.
    ///
    /// # Errors
    /// When the list is too long for a message, or was not taken.
    pub fn set_bans(&self, irqs: &[u32]) -> Result<(), IrqbalanceError> {
        if !super::fits_in_message(irqs) {
            return Err(IrqbalanceError::TooMany { count: irqs.len() });
        }
        self.send(&request(irqs))?;
        let now = self.setup()?.banned_irqs;
        let mut wanted = irqs.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        if now == wanted { Ok(()) } else { Err(IrqbalanceError::NotTaken { wanted, now }) }
    }

    fn connect(&self) -> io::Result<UnixStream> {
        match &self.address {
            Address::Path(path) => UnixStream::connect(path),
            Address::Abstract(name) => {
                UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)
            }
        }
    }

    /// Sends one request and reads until irqbalance closes the connection.
    fn send(&self, request: &str) -> Result<String, IrqbalanceError> {
        let failed = |source: io::Error| IrqbalanceError::Query { address: self.address(), source };
        let mut stream = self.connect().map_err(failed)?;
        stream.set_read_timeout(Some(TIME_LIMIT)).map_err(failed)?;
        stream.set_write_timeout(Some(TIME_LIMIT)).map_err(failed)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let credentials = UCred {
            pid: rustix::process::getpid(),
            uid: rustix::process::geteuid(),
            gid: rustix::process::getegid(),
        };
        ancillary.push(SendAncillaryMessage::ScmCredentials(credentials));
        let data = [IoSlice::new(request.as_bytes())];
        let flags = SendFlags::NOSIGNAL;
        let sent = rustix::net::sendmsg(&stream, &data, &mut ancillary, flags);
        // A stream may take only part of the data, but a request is far smaller than its buffer.
        if sent.map_err(|errno| failed(errno.into()))? != request.len() {
            return Err(failed(io::ErrorKind::WriteZero.into()));
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).map_err(failed)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// Returns the process id of irqbalance, the lowest if there are several.
pub(super) fn process() -> Result<Option<u32>, IrqbalanceError> {
    let failed = |source| IrqbalanceError::Find { path: "/proc".into(), source };
    let entries = fs::read_dir("/proc").map_err(failed)?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let named = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.trim_end() == "irqbalance")
    };
    Ok(pids.filter(named).min())
}

/// Returns the address on which a process listens; `None` when it does not listen.
fn address(pid: u32) -> Result<Option<Address>, IrqbalanceError> {
    let failed = |path: &str, source| IrqbalanceError::Find { path: path.into(), source };
    let folder = format!("/proc/{pid}/fd");
    let entries = fs::read_dir(&folder).map_err(|source| failed(&folder, source))?.flatten();
    let open: Vec<PathBuf> = entries.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    let table_path = format!("/proc/{pid}/net/unix");
    let table = fs::read_to_string(&table_path).map_err(|source| failed(&table_path, source))?;
    Ok(listening(&table, |inode| open.iter().any(|link| link == Path::new(&inode))).map(|name| {
        match name.strip_prefix('@') {
            // The kernel prints zero bytes as `@`.
            Some(name) => {
                Address::Abstract(name.bytes().map(|b| if b == b'@' { 0 } else { b }).collect())
            }
            // In a container, /run may differ from the daemon's; then use the daemon's root.
            None if Path::new(name).exists() => Address::Path(name.into()),
            None => Address::Path(format!("/proc/{pid}/root{name}").into()),
        }
    }))
}

/// Returns the name of the listening socket in /proc/net/unix whose inode (`socket:[N]`) is open.
fn listening(table: &str, open: impl Fn(String) -> bool) -> Option<&str> {
    table.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, flags, _, _, inode, name] = *words.as_slice() else { return None };
        // __SO_ACCEPTCON in the kernel's net.h.
        let listens = u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & 0x1_0000 != 0);
        (listens && open(format!("socket:[{inode}]"))).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_listening_socket() {
        let table = "Num RefCount Protocol Flags Type St Inode Path\n\
            0: 00000002 00000000 00010000 0001 01 7 /run/other\n\
            0: 00000003 00000000 00000000 0001 03 8\n\
            0: 00000003 00000000 00000000 0001 03 9 /run/irqbalance/irqbalance5.sock\n\
            0: 00000002 00000000 00010000 0001 01 10 @@@@";
        let check = |inodes: &[u32], expect: Option<&str>| {
            let open = |name: String| inodes.iter().any(|i| name == format!("socket:[{i}]"));
            assert_eq!(listening(table, open), expect, "{inodes:?}");
        };
        check(&[8, 10], Some("@@@@"));
        check(&[7], Some("/run/other"));
        check(&[8, 9], None);
        check(&[], None);
    }
}
