//! Keys, read without blocking: one system call per event, a few microseconds, between slices.

use std::io::stdin;

/// The action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Stop,
    Help,
    Doubts,
    Metric,
    Redraw,
    Close,
    NextWorkload,
    PreviousWorkload,
    Up,
    Down,
}

/// Returns the keys pressed since the last call.
pub(super) fn pressed() -> Vec<Key> {
    let mut bytes = [0u8; 64];
    // The read returns at once, as VMIN and VTIME are 0.
    let count = rustix::io::read(stdin(), &mut bytes).unwrap_or(0);
    parse(&bytes[..count])
}

/// Parses the bytes of a terminal, and drops those without an action. Ctrl-C is normally a signal,
/// but some terminals send it as a byte.
fn parse(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        bytes = rest;
        let key = match first {
            0x1b => {
                let (key, rest) = sequence(rest);
                bytes = rest;
                key
            }
            b'q' | b'Q' | 0x03 => Some(Key::Stop),
            b'?' | b'h' => Some(Key::Help),
            b'd' => Some(Key::Doubts),
            b'm' => Some(Key::Metric),
            b'j' => Some(Key::Down),
            b'k' => Some(Key::Up),
            b'\t' => Some(Key::NextWorkload),
            0x0c => Some(Key::Redraw),
            _ => None,
        };
        keys.extend(key);
    }
    keys
}

/// Parses what follows an escape byte: a cursor key (`[A` or `OA`), another sequence, or nothing,
/// which is the Escape key.
fn sequence(bytes: &[u8]) -> (Option<Key>, &[u8]) {
    let [b'[' | b'O', rest @ ..] = bytes else { return (Some(Key::Close), bytes) };
    // Parameters (digits and semicolons) precede the final letter.
    let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
    let Some(end) = end else { return (None, &[]) };
    let key = match rest[end] {
        b'A' => Some(Key::Up),
        b'B' => Some(Key::Down),
        b'C' => Some(Key::NextWorkload),
        b'D' | b'Z' => Some(Key::PreviousWorkload),
        _ => None,
    };
    (key, &rest[end + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_parsed_as_keys() {
        let check = |bytes: &[u8], expect: &[Key]| assert_eq!(parse(bytes), expect, "{bytes:?}");
        check(b"", &[]);
        check(b"q?d", &[Key::Stop, Key::Help, Key::Doubts]);
        check(b"\x03", &[Key::Stop]);
        check(
            b"\x1b[A\x1b[B\x1bOC\x1b[Z",
            &[Key::Up, Key::Down, Key::NextWorkload, Key::PreviousWorkload],
        );
        check(b"\x1b", &[Key::Close]);
        check(b"\x1b[1;5A\t", &[Key::Up, Key::NextWorkload]);
        // An unknown sequence, a truncated one, and bytes beyond ASCII.
        check(b"\x1b[15~m", &[Key::Metric]);
        check(b"\x1b[12", &[]);
        check("é\u{9b}x".as_bytes(), &[]);
    }
}
