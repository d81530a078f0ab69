//! Netlink messages as bytes: headers and attributes, both ways (netlink(7), and the kernel's
//! Documentation/userspace-api/netlink/intro.rst). All numbers are in the byte order of the host.

/// Length of a netlink header in bytes. A generic netlink header of 4 bytes follows it.
const HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;

pub(super) const FLAG_REQUEST: u16 = 1;
pub(super) const FLAG_ACK: u16 = 4;
/// `NLM_F_ROOT | NLM_F_MATCH`: all objects.
pub(super) const FLAG_DUMP: u16 = 0x300;

pub(super) const KIND_ERROR: u16 = 2;
pub(super) const KIND_DONE: u16 = 3;

/// Set on attributes that hold attributes.
const NESTED: u16 = 0x8000;
/// The type of an attribute without its two flags.
const TYPE_MASK: u16 = 0x3fff;

/// A builder of requests to a generic netlink family.
pub(super) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    pub(super) fn new(family: u16, flags: u16, sequence: u32, command: u8) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(family.to_ne_bytes());
        bytes.extend((flags | FLAG_REQUEST).to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        // The kernel fills in the port.
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend([command, 1, 0, 0]);
        Self { bytes }
    }

    pub(super) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.enclosed(kind, |request| request.bytes.extend(value));
    }

    /// Appends a text attribute with the zero byte that the kernel requires at its end.
    pub(super) fn text(&mut self, kind: u16, text: &str) {
        self.enclosed(kind, |request| {
            request.bytes.extend(text.as_bytes());
            request.bytes.push(0);
        });
    }

    pub(super) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        self.enclosed(kind | NESTED, fill);
    }

    fn enclosed(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(kind.to_ne_bytes());
        fill(self);
        // Requests hold names of at most 31 characters and a few numbers.
        let length = u16::try_from(self.bytes.len() - start).expect("a request is short");
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).expect("a request is short");
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }
}

/// A message from the kernel.
#[derive(Debug, PartialEq)]
pub(super) struct Reply<'a> {
    pub(super) kind: u16,
    pub(super) sequence: u32,
    /// The bytes after the netlink header.
    pub(super) payload: &'a [u8],
}

impl<'a> Reply<'a> {
    /// Returns the attributes of a generic netlink message.
    pub(super) fn attributes(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        attributes(self.payload.get(GENERIC_HEADER..).unwrap_or_default())
    }

    /// Returns the error number of an error message; 0 is an acknowledgement.
    pub(super) fn error(&self) -> Option<i32> {
        let number = self.payload.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))?;
        Some(number.saturating_neg())
    }
}

/// Iterates over the messages of one datagram and ends at a truncated one.
pub(super) fn replies(mut bytes: &[u8]) -> impl Iterator<Item = Reply<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(number(bytes)?).ok()?;
        let message = bytes.get(..length).filter(|message| message.len() >= HEADER)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Reply {
            kind: u16::from_ne_bytes([message[4], message[5]]),
            sequence: number(&message[8..])?,
            payload: &message[HEADER..],
        })
    })
}

/// Iterates over attributes as type without flags and value, and ends at a truncated one.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = bytes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([head[2], head[3]]) & TYPE_MASK, value))
    })
}

/// Parses an attribute of one 32-bit number.
pub(super) fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Parses a text attribute, without its zero byte.
pub(super) fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().map(|text| text.trim_end_matches('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_reads_back() {
        let mut request = Request::new(0x1f, FLAG_ACK, 7, 12);
        request.nested(1, |header| header.text(2, "eth0"));
        request.attribute(6, &4u32.to_ne_bytes());
        let bytes = request.finish();
        assert_eq!(bytes.len() % 4, 0);
        let all: Vec<Reply> = replies(&bytes).collect();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].kind, all[0].sequence), (0x1f, 7));
        let found: Vec<_> = all[0].attributes().collect();
        let header: Vec<_> = attributes(found[0].1).collect();
        assert_eq!(header.len(), 1);
        assert_eq!(text(header[0].1), Some("eth0"));
        assert_eq!((found[1].0, number(found[1].1)), (6, Some(4)));
    }

    proptest::proptest! {
        #[test]
        fn reader_survives_any_bytes(bytes: Vec<u8>) {
            for reply in replies(&bytes) {
                reply.error();
                let _ = reply.attributes().count();
            }
            let _ = attributes(&bytes).count();
        }
    }
}
