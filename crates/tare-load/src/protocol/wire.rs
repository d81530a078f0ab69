//! The layers between a connection's frames and its socket: TLS, segments, compression.
//!
//! A connection without any of them copies nothing: its frames travel as they are in its buffers.
//! Otherwise received bytes are unpacked into the connection's input, and frames are packed once
//! the kernel has taken everything packed before. Buffers are kept, so operations allocate nothing;
//! they start small, because there may be ten thousand connections.

use std::net::TcpStream;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use tare_cql::frame::{self, Direction};
use tare_cql::framing::{Framing, FramingError};
use tare_cql::tls::TlsError;
use tare_std::error_line;

use crate::protocol::kernel_times::KernelTimes;
use crate::protocol::tls::Session;

/// The longest accepted answer. Rows have at most 1 MiB, so a longer one is an error.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 << 20;
/// The initial size of a receive buffer.
const RECEIVE_BYTES_MIN: usize = 1 << 10;
/// A receive buffer doubles up to this size while single reads fill it, and beyond only for an
/// answer that needs it.
const RECEIVE_BYTES_MAX: usize = 64 << 10;

/// The result of a read or write on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More may be possible at once.
    More,
    /// Nothing more is possible until the event queue reports it.
    Blocked,
    /// The connection has ended.
    Ended,
}

/// Why received bytes cannot be used; the connection has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error(transparent)]
    Framing(#[from] FramingError),
    #[error("{}", error_line(.0))]
    Tls(#[from] TlsError),
}

#[derive(Debug, Default)]
pub(crate) struct Wire {
    framing: Framing,
    tls: Option<Box<Session>>,
    /// Received TLS records; used up at once.
    records: Vec<u8>,
    /// Received segments or compressed frames, not yet unpacked.
    received: Vec<u8>,
    /// Unpacked bytes that are not yet a whole frame.
    unpacked: Vec<u8>,
    /// The output of the framing, before TLS.
    framed: Vec<u8>,
    /// Packed output. The kernel has taken the first `packed_sent` bytes.
    packed: Vec<u8>,
    packed_sent: usize,
    /// Bytes that the kernel has taken, modulo 2^32.
    sent_bytes: u32,
    /// Set if the kernel's times are wanted.
    kernel_times: Option<Box<KernelTimes>>,
}

impl Wire {
    pub(crate) fn new(tls: Option<Session>) -> Self {
        Self { tls: tls.map(Box::new), ..Self::default() }
    }

    pub(crate) fn tls(&self) -> Option<&Session> {
        self.tls.as_deref()
    }

    /// Asks for the kernel's times of what is sent and received from now on.
    pub(crate) fn want_kernel_times(&mut self, socket: &TcpStream) -> std::io::Result<()> {
        self.kernel_times = Some(Box::new(KernelTimes::of(socket, self.sent_bytes)?));
        Ok(())
    }

    /// The kernel's times, if they are wanted, and how many bytes it has taken.
    #[inline]
    pub(crate) fn kernel_times(&mut self) -> Option<(&mut KernelTimes, u32)> {
        Some((self.kernel_times.as_deref_mut()?, self.sent_bytes))
    }

    /// Sets the framing of all further messages.
    pub(crate) fn begin(&mut self, framing: Framing) {
        self.framing = framing;
    }

    /// Returns whether packed output waits to be sent besides the frames in `out`.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.packed.is_empty() || self.tls.as_ref().is_some_and(|tls| tls.has_output())
    }

    /// Receives what has arrived, up to the room in the buffers, and appends it to `input` as
    /// frames.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        socket: &TcpStream,
        input: &mut Vec<u8>,
    ) -> Result<Progress, ReceiveError> {
        let times = self.kernel_times.as_deref_mut();
        if self.framing == Framing::Plain && self.tls.is_none() {
            return Ok(receive(socket, input, times));
        }
        let progress = match &mut self.tls {
            None => receive(socket, &mut self.received, times),
            Some(tls) => {
                let progress = receive(socket, &mut self.records, times);
                let plain =
                    if self.framing == Framing::Plain { &mut *input } else { &mut self.received };
                let decrypted = tls.decrypt(&self.records, plain);
                self.records.clear();
                match decrypted {
                    Ok(()) => progress,
                    // Bytes that came before the end are read first.
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

    /// Sends `out` as far as the kernel takes it. The kernel has already taken the first `sent`
    /// bytes.
    #[inline]
    pub(crate) fn send(
        &mut self,
        socket: &TcpStream,
        out: &mut Vec<u8>,
        sent: &mut usize,
    ) -> Progress {
        if self.framing == Framing::Plain && self.tls.is_none() {
            return send(socket, out, sent, &mut self.sent_bytes);
        }
        loop {
            if self.packed.is_empty() {
                if out.is_empty() && !self.has_output() {
                    return Progress::More;
                }
                self.pack(out);
            }
            let (packed, sent) = (&mut self.packed, &mut self.packed_sent);
            match send(socket, packed, sent, &mut self.sent_bytes) {
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

/// Returns whether all frames are complete.
fn is_whole(mut frames: &[u8]) -> Result<bool, FramingError> {
    while let Some((_, length)) = frame::decode(frames, Direction::Response, ANSWER_BYTES_MAX)? {
        frames = &frames[length..];
    }
    Ok(frames.is_empty())
}

/// Removes the first `count` bytes.
#[inline]
pub(crate) fn forget(bytes: &mut Vec<u8>, count: usize) {
    if count == bytes.len() {
        bytes.clear();
    } else if count > 0 {
        bytes.drain(..count);
    }
}

#[inline]
fn receive(
    socket: &TcpStream,
    buffer: &mut Vec<u8>,
    mut times: Option<&mut KernelTimes>,
) -> Progress {
    if buffer.len() == buffer.capacity() {
        buffer.reserve(buffer.len().max(RECEIVE_BYTES_MIN));
    }
    let room = buffer.capacity() - buffer.len();
    loop {
        let received = match &mut times {
            None => {
                let spare = rustix::buffer::spare_capacity(buffer);
                rustix::net::recv(socket, spare, RecvFlags::DONTWAIT).map(|(_, count)| count)
            }
            Some(times) => receive_with_times(socket, buffer, times),
        };
        return match received {
            Ok(0) => Progress::Ended,
            // A read that does not fill the buffer has emptied a stream socket: epoll(7).
            Ok(count) if count < room => Progress::Blocked,
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

fn receive_with_times(
    socket: &TcpStream,
    buffer: &mut Vec<u8>,
    times: &mut KernelTimes,
) -> Result<usize, Errno> {
    let length = buffer.len();
    buffer.resize(buffer.capacity(), 0);
    let received = times.receive(socket, &mut buffer[length..]);
    buffer.truncate(length + *received.as_ref().unwrap_or(&0));
    received.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Sends `out` from byte `sent` on, and counts what the kernel takes in `sent_bytes` too.
#[inline]
fn send(socket: &TcpStream, out: &mut Vec<u8>, sent: &mut usize, sent_bytes: &mut u32) -> Progress {
    while *sent < out.len() {
        match rustix::net::send(socket, &out[*sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => {
                *sent += count;
                #[expect(clippy::cast_possible_truncation, reason = "it counts modulo 2^32")]
                let more = count as u32;
                *sent_bytes = sent_bytes.wrapping_add(more);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // With a slow peer there is always something left. Taken bytes are removed once
                // that moves fewer bytes than it frees.
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
