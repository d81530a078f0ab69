//! The layers between a connection's frames and its socket: TLS, segments, compression.
//!
//! A connection without these layers does not pay for them: its frames lie in its buffers as they
//! travel. Everything is bounded: input is unpacked one segment at a time, and output is packed
//! only when the kernel has all that was packed before.

use tare_cql::frame::{Direction, Version};
use tare_cql::framing::{Framing, FramingError};
use tare_cql::tls::TlsError;

use crate::net::tls::{Tls, begins_tls};

/// Empty buffers that are larger than this are freed, in bytes.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// Assumed memory of a TLS session: its state, and a record in each direction.
const TLS_BYTES: usize = 48 << 10;

#[derive(Debug, Default)]
pub(crate) struct Transport {
    framing: Framing,
    tls: Option<Box<Tls>>,
    /// Whether the first bytes decide about TLS.
    tls_is_optional: bool,
    /// Frames that were unpacked.
    frames: Frames,
    /// Packed bytes to send.
    packed: Vec<u8>,
    /// Number of bytes at the begin of the answers that are not packed: the answer to STARTUP.
    unframed: usize,
}

/// Unpacked frames; the first `handled` bytes have been handled.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    handled: usize,
}

impl Frames {
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.handled..]
    }

    pub(crate) fn advance(&mut self, length: usize) {
        self.handled += length;
    }

    /// Moves the unhandled bytes to the front, so that more can be appended.
    fn compact(&mut self) {
        self.bytes.drain(..self.handled);
        self.handled = 0;
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }
}

impl Transport {
    pub(crate) fn new(tls: Option<Tls>, tls_is_optional: bool) -> Self {
        Self { tls: tls.map(Box::new), tls_is_optional, ..Self::default() }
    }

    /// Whether requests lie in the connection's input as they are.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.framing == Framing::Plain
    }

    /// Whether the answers are sent as they are.
    #[inline]
    fn is_direct(&self) -> bool {
        self.framing == Framing::Plain && self.tls.is_none()
    }

    #[inline]
    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Begins the agreed framing, after STARTUP and after the first `unframed` bytes of the
    /// answers.
    pub(crate) fn begin(&mut self, version: Version, lz4: bool, unframed: usize) {
        self.framing = Framing::after_startup(version, lz4);
        self.unframed = unframed;
    }

    /// Decrypts received bytes and appends their plain text to `input`. Where TLS is optional, the
    /// first bytes of a connection may end it.
    pub(crate) fn decrypt(&mut self, received: &[u8], input: &mut Vec<u8>) -> Result<(), TlsError> {
        if self.tls_is_optional && !received.is_empty() {
            self.tls_is_optional = false;
            if !begins_tls(received) {
                self.tls = None;
                input.extend_from_slice(received);
                return Ok(());
            }
        }
        match &mut self.tls {
            Some(tls) => tls.decrypt(received, input),
            None => Ok(()),
        }
    }

    pub(crate) fn take_frames(&mut self) -> Frames {
        std::mem::take(&mut self.frames)
    }

    pub(crate) fn put_frames(&mut self, frames: Frames) {
        self.frames = frames;
    }

    /// Unpacks one segment or frame of `input` into `frames`. Returns the number of bytes it took.
    pub(crate) fn unpack(
        &self,
        input: &[u8],
        request_bytes_max: usize,
        frames: &mut Frames,
    ) -> Result<Option<usize>, FramingError> {
        frames.compact();
        self.framing.unpack(input, Direction::Request, request_bytes_max, &mut frames.bytes)
    }

    /// Whether there is packed output, in addition to the answers in the connection's buffer.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.packed.is_empty() || self.tls.as_ref().is_some_and(|tls| tls.has_output())
    }

    /// Number of packed bytes that wait to be sent.
    #[inline]
    pub(crate) fn output_bytes(&self) -> usize {
        self.packed.len()
    }

    /// Bytes of memory that this layer holds.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        let tls = if self.tls.is_some() { TLS_BYTES } else { 0 };
        self.frames.bytes.capacity() + self.packed.capacity() + tls
    }

    /// Frees empty buffers.
    pub(crate) fn trim(&mut self) {
        if self.frames.rest().is_empty() {
            self.frames = Frames::default();
        }
        if self.packed.is_empty() {
            self.packed = Vec::new();
        }
    }

    /// The buffer to send from. The content of `out` has been moved there, unless it already had
    /// content.
    #[inline]
    pub(crate) fn outgoing<'a>(&'a mut self, out: &'a mut Vec<u8>) -> &'a mut Vec<u8> {
        if self.is_direct() {
            return out;
        }
        if self.packed.is_empty() {
            self.pack(out);
        }
        &mut self.packed
    }

    fn pack(&mut self, out: &mut Vec<u8>) {
        if self.packed.capacity() > KEPT_BYTES_MAX {
            self.packed = Vec::new();
        }
        let unframed = std::mem::take(&mut self.unframed).min(out.len());
        let (first, rest) = out.split_at(unframed);
        match &mut self.tls {
            None => {
                self.packed.extend_from_slice(first);
                self.framing.pack(rest, &mut self.packed);
            }
            Some(tls) if self.framing == Framing::Plain => tls.encrypt(out, &mut self.packed),
            Some(tls) => {
                let mut framed = first.to_vec();
                self.framing.pack(rest, &mut framed);
                tls.encrypt(&framed, &mut self.packed);
            }
        }
        out.clear();
    }
}
