//! What travels between a run and the command line that watches it: one byte of kind, four bytes of
//! length, and the contents.

use std::io::{self, Read, Write};

/// No frame is larger. Readers and writers use smaller pieces.
const CONTENTS_MAX: u32 = 1 << 20;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To the run: the number of bytes of frames that the watcher has (8 bytes), and whether it was
    /// connected before (1 byte). The first frame.
    Hello,
    /// To the run: what was typed.
    Keys,
    /// To the run: columns and rows of the terminal, 2 bytes each.
    Size,
    /// To the run: end cleanly.
    Interrupt,
    /// To the run: the watcher is there.
    Beat,
    /// From the run: standard output, or the terminal.
    Output,
    /// From the run: standard error.
    Errors,
    /// From the run: it has ended, as JSON. The last frame.
    Ended,
    /// From the run: another watcher is connected. The last frame.
    Busy,
}

const BYTES: [(Kind, u8); 9] = [
    (Kind::Hello, b'A'),
    (Kind::Keys, b'K'),
    (Kind::Size, b'W'),
    (Kind::Interrupt, b'I'),
    (Kind::Beat, b'H'),
    (Kind::Output, b'O'),
    (Kind::Errors, b'E'),
    (Kind::Ended, b'X'),
    (Kind::Busy, b'B'),
];

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) contents: Vec<u8>,
}

impl Frame {
    pub(crate) fn new(kind: Kind, contents: &[u8]) -> Self {
        Self { kind, contents: contents.into() }
    }

    /// Returns the number of its bytes on the way.
    pub(crate) fn len(&self) -> u64 {
        5 + self.contents.len() as u64
    }
}

/// Writes a frame at once.
pub(crate) fn write_frame(out: &mut impl Write, frame: &Frame) -> io::Result<()> {
    out.write_all(&encode(frame))?;
    out.flush()
}

pub(super) fn encode(frame: &Frame) -> Vec<u8> {
    let byte = BYTES.iter().find(|(kind, _)| *kind == frame.kind).map_or(0, |(_, byte)| *byte);
    let length = u32::try_from(frame.contents.len()).unwrap_or(u32::MAX);
    let mut bytes = vec![byte];
    bytes.extend(length.to_le_bytes());
    bytes.extend(&frame.contents);
    bytes
}

/// Reads the next frame; `None` at the end of the stream.
///
/// # Errors
/// `InvalidData` if the bytes are no frame.
pub(crate) fn read_frame(input: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut head = [0; 5];
    match input.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let [byte, length @ ..] = head;
    let length = u32::from_le_bytes(length);
    let kind = BYTES.iter().find(|(_, known)| *known == byte).map(|(kind, _)| *kind);
    let kind = kind.filter(|_| length <= CONTENTS_MAX);
    let kind = kind.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no frame"))?;
    let mut contents = vec![0; length as usize];
    match input.read_exact(&mut contents) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        read => read.map(|()| Some(Frame { kind, contents })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip_and_other_bytes_are_refused() {
        let mut bytes = Vec::new();
        for (kind, _) in BYTES {
            write_frame(&mut bytes, &Frame::new(kind, b"contents")).unwrap();
        }
        let mut input = &bytes[..];
        for (kind, _) in BYTES {
            let frame = read_frame(&mut input).unwrap().unwrap();
            assert_eq!((frame.kind, &frame.contents[..]), (kind, &b"contents"[..]));
        }
        assert_eq!(read_frame(&mut input).unwrap(), None);
        assert_eq!(read_frame(&mut &bytes[..7]).unwrap(), None, "a frame that was cut off");
        assert!(read_frame(&mut &b"?\0\0\0\0"[..]).is_err());
        assert!(read_frame(&mut &b"O\xff\xff\xff\xff"[..]).is_err());
    }
}
