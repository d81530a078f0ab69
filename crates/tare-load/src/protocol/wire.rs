//! What lies between a connection's frames and its socket: TLS, segments, compression.
//!
//! A connection without any of them pays for none: its frames lie in its buffers as they travel.
//! Otherwise what is received is unpacked into the connection's input, and what is to be sent is
//! packed when everything packed before is with the kernel. Buffers are kept, so that nothing is
//! allocated per operation; they start small, because there may be ten thousand connections.

use std::net::TcpStream;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use tare_cql::frame::{self, Direction};
use tare_cql::framing::{Framing, FramingError};
use tare_cql::tls::TlsError;
use tare_std::errors::one_line;

use crate::protocol::tls::Session;

/// The longest answer that is read. A longer one is garbage: rows are at most 1 MiB.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 << 20;
/// A buffer for what is received starts with this ...
const RECEIVE_BYTES_MIN: usize = 1 << 10;
/// ... and doubles up to this while a single read fills it; beyond only for an answer that needs it.
const RECEIVE_BYTES_MAX: usize = 64 << 10;

/// What a read or write on a busy connection led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There may be more at once.
    More,
    /// Nothing more until the event queue says so.
    Blocked,
    /// The connection has ended.
    Ended,
}

/// Why what was received is of no use; the connection has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error(transparent)]
    Framing(#[from] FramingError),
    #[error("{}", one_line(.0))]
    Tls(#[from] TlsError),
}

#[derive(Debug, Default)]
pub(crate) struct Wire {
    framing: Framing,
    tls: Option<Box<Session>>,
    /// Received and not unpacked: TLS records, which are used up at once.
    records: Vec<u8>,
    /// Received and not unpacked: segments, compressed frames.
    received: Vec<u8>,
    /// Unpacked, but not yet a whole frame.
    unpacked: Vec<u8>,
    /// Between framing and TLS.
    framed: Vec<u8>,
    /// What is to be sent; the first `packed_sent` bytes are with the kernel.
    packed: Vec<u8>,
    packed_sent: usize,
}

impl Wire {
    pub(crate) fn new(tls: Option<Session>) -> Self {
        Self { tls: tls.map(Box::new), ..Self::default() }
    }

    pub(crate) fn tls(&self) -> Option<&Session> {
        self.tls.as_deref()
    }

    /// From now on messages travel like this.
    pub(crate) fn begin(&mut self, framing: Framing) {
        self.framing = framing;
    }

    #[inline]
    fn is_direct(&self) -> bool {
        self.framing == Framing::Plain && self.tls.is_none()
    }

    /// Returns whether something waits to be sent beside the frames in `out`.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.packed.is_empty() || self.tls.as_ref().is_some_and(|tls| tls.has_output())
    }

    /// Receives what there is, up to the room in the buffers, and appends it to `input` as frames.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        socket: &TcpStream,
        input: &mut Vec<u8>,
    ) -> Result<Progress, ReceiveError> {
        if self.is_direct() {
            return Ok(receive(socket, input));
        }
        let progress = match &mut self.tls {
            None => receive(socket, &mut self.received),
            Some(tls) => {
                let progress = receive(socket, &mut self.records);
                let plain =
                    if self.framing == Framing::Plain { &mut *input } else { &mut self.received };
                let decrypted = tls.decrypt(&self.records, plain);
                self.records.clear();
                match decrypted {
                    Ok(()) => progress,
                    // What came before the end is to be read first.
                    Err(TlsError::Ended) => Progress::Ended,
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let mut offset = 0;
        while let Some(length) = self.framing.unpack(
            &self.received[offset..],
            Direction::Response,
            ANSWER_BYTES_MAX,
            &mut self.unpacked,
        )? {
            offset += length;
            if is_whole(&self.unpacked)? {
                input.append(&mut self.unpacked);
            }
        }
        forget(&mut self.received, offset);
        Ok(progress)
    }

    /// Hands `out`, of which the first `sent` bytes are with the kernel, to the kernel as far as it
    /// takes it.
    #[inline]
    pub(crate) fn send(
        &mut self,
        socket: &TcpStream,
        out: &mut Vec<u8>,
        sent: &mut usize,
    ) -> Progress {
        if self.is_direct() {
            return send(socket, out, sent);
        }
        loop {
            if self.packed.is_empty() {
                if out.is_empty() && !self.has_output() {
                    return Progress::More;
                }
                self.pack(out);
            }
            match send(socket, &mut self.packed, &mut self.packed_sent) {
                Progress::More => {}
                other => return other,
            }
        }
    }

    fn pack(&mut self, out: &mut Vec<u8>) {
        match &mut self.tls {
            None => self.framing.pack(out, &mut self.packed),
            Some(tls) if self.framing == Framing::Plain => tls.encrypt(out, &mut self.packed),
            Some(tls) => {
                self.framed.clear();
                self.framing.pack(out, &mut self.framed);
                tls.encrypt(&self.framed, &mut self.packed);
            }
        }
        out.clear();
    }
}

/// Returns whether no frame is cut short.
fn is_whole(mut frames: &[u8]) -> Result<bool, FramingError> {
    while let Some((_, length)) = frame::decode(frames, Direction::Response, ANSWER_BYTES_MAX)? {
        frames = &frames[length..];
    }
    Ok(frames.is_empty())
}

/// Forgets the first `count` bytes.
#[inline]
pub(crate) fn forget(bytes: &mut Vec<u8>, count: usize) {
    if count == bytes.len() {
        bytes.clear();
    } else if count > 0 {
        bytes.drain(..count);
    }
}

#[inline]
fn receive(socket: &TcpStream, buffer: &mut Vec<u8>) -> Progress {
    if buffer.len() == buffer.capacity() {
        buffer.reserve(buffer.len().max(RECEIVE_BYTES_MIN));
    }
    let room = buffer.capacity() - buffer.len();
    loop {
        let spare = rustix::buffer::spare_capacity(buffer);
        return match rustix::net::recv(socket, spare, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Progress::Ended,
            // A read that does not fill the buffer has emptied a stream socket: epoll(7).
            Ok((_, count)) if count < room => Progress::Blocked,
            Ok(_) => {
                if buffer.capacity() < RECEIVE_BYTES_MAX {
                    buffer.reserve(buffer.capacity());
                }
                Progress::More
            }
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Progress::Blocked,
            Err(_) => Progress::Ended,
        };
    }
}

#[inline]
fn send(socket: &TcpStream, out: &mut Vec<u8>, sent: &mut usize) -> Progress {
    while *sent < out.len() {
        match rustix::net::send(socket, &out[*sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => *sent += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // To a peer that is never caught up with there is always something left. What is with
                // the kernel is forgotten as soon as that moves fewer bytes than it frees.
                if *sent > out.len() / 2 {
                    forget(out, std::mem::take(sent));
                }
                return Progress::Blocked;
            }
            Err(_) => return Progress::Ended,
        }
    }
    out.clear();
    *sent = 0;
    Progress::More
}
