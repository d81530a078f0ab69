//! Requests and answers of Redis (RESP2 and RESP3) from the bytes of a connection.
//!
//! Source: <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

/// The longest line, the most elements and the longest value that are read.
const LINE_BYTES_MAX: usize = 64 << 10;
const ELEMENTS_MAX: usize = 1 << 20;
const VALUE_BYTES_MAX: usize = 512 << 20;
/// The deepest nesting of an answer.
const DEPTH_MAX: usize = 16;

/// Bytes that are not of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotRedis;

/// A whole message with its length; `None` while it is incomplete.
type Whole<T> = Result<Option<(T, usize)>, NotRedis>;

/// An answer, as far as a workload needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    Nothing,
    Value(&'a [u8]),
    Error,
    Several(Vec<Answer<'a>>),
    /// A message that is no answer to a request.
    Push,
    Other,
}

/// Returns the words of the request at the front of `bytes`.
pub(crate) fn request(bytes: &[u8]) -> Whole<Vec<&[u8]>> {
    let Some((line, mut at)) = line(bytes)? else { return Ok(None) };
    let Some(count) = line.strip_prefix(b"*") else {
        // An inline command, as a person types it.
        let printable = line.iter().all(|byte| (0x20..0x7f).contains(byte) || *byte == b'\t');
        let words: Vec<&[u8]> =
            line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        return if printable { Ok(Some((words, at))) } else { Err(NotRedis) };
    };
    let count = number(count).filter(|count| *count <= ELEMENTS_MAX).ok_or(NotRedis)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let Some((head, length)) = self::line(&bytes[at..])? else { return Ok(None) };
        let size = head.strip_prefix(b"$").and_then(number).ok_or(NotRedis)?;
        at += length;
        let Some(word) = value(&bytes[at..], size)? else { return Ok(None) };
        at += size + 2;
        words.push(word);
    }
    Ok(Some((words, at)))
}

/// Returns the answer at the front of `bytes`.
pub(crate) fn answer(bytes: &[u8]) -> Whole<Answer<'_>> {
    nested(bytes, DEPTH_MAX)
}

fn nested(bytes: &[u8], depth: usize) -> Whole<Answer<'_>> {
    let depth = depth.checked_sub(1).ok_or(NotRedis)?;
    let Some((line, length)) = line(bytes)? else { return Ok(None) };
    let (kind, rest) = line.split_first().ok_or(NotRedis)?;
    let simple = |answer| Ok(Some((answer, length)));
    match kind {
        b'+' | b':' | b',' | b'#' | b'(' => simple(Answer::Other),
        b'-' => simple(Answer::Error),
        b'_' => simple(Answer::Nothing),
        b'$' | b'=' | b'!' if rest == b"-1" => simple(Answer::Nothing),
        b'$' | b'=' | b'!' => {
            let size = number(rest).ok_or(NotRedis)?;
            let Some(word) = value(&bytes[length..], size)? else { return Ok(None) };
            let answer = if *kind == b'!' { Answer::Error } else { Answer::Value(word) };
            Ok(Some((answer, length + size + 2)))
        }
        b'*' if rest == b"-1" => simple(Answer::Nothing),
        b'*' | b'~' | b'>' | b'%' | b'|' => {
            let count = number(rest).filter(|count| *count <= ELEMENTS_MAX).ok_or(NotRedis)?;
            let count = if matches!(kind, b'%' | b'|') { 2 * count } else { count };
            let mut at = length;
            let mut elements = Vec::new();
            for _ in 0..count {
                let Some((element, length)) = nested(&bytes[at..], depth)? else { return Ok(None) };
                at += length;
                elements.push(element);
            }
            let is_push = matches!(kind, b'>' | b'|');
            let answer = if is_push { Answer::Push } else { Answer::Several(elements) };
            Ok(Some((answer, at)))
        }
        _ => Err(NotRedis),
    }
}

/// Returns the line at the front and its length with its end.
fn line(bytes: &[u8]) -> Whole<&[u8]> {
    match bytes.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') {
        Some(end) => {
            let line = &bytes[..end];
            Ok(Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1)))
        }
        None if bytes.len() >= LINE_BYTES_MAX => Err(NotRedis),
        None => Ok(None),
    }
}

/// Returns a value of so many bytes, which ends with the end of a line.
fn value(bytes: &[u8], size: usize) -> Result<Option<&[u8]>, NotRedis> {
    if size > VALUE_BYTES_MAX {
        return Err(NotRedis);
    }
    match bytes.get(size..size + 2) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some(&bytes[..size])),
        Some(_) => Err(NotRedis),
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests_are_split_into_words() {
        fn check<const N: usize>(text: &str, expect: [&str; N]) {
            let (words, length) = request(text.as_bytes()).unwrap().unwrap();
            let words: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
            assert_eq!(
                (words.as_slice(), length),
                (expect.map(String::from).as_slice(), text.len())
            );
            for cut in 0..text.len() {
                assert_eq!(request(&text.as_bytes()[..cut]), Ok(None), "{text} up to {cut}");
            }
        }
        check("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", ["GET", "k"]);
        check("PING\r\n", ["PING"]);
        for bad in ["*2\r\n+OK\r\n", "*x\r\n", "\x16\x03\x01\n", "*1\r\n$1\r\nabc"] {
            assert_eq!(request(bad.as_bytes()), Err(NotRedis), "{bad:?}");
        }
    }

    #[test]
    fn answers_of_both_versions_are_read() {
        let check = |text: &str, expect: Answer<'_>| {
            assert_eq!(answer(text.as_bytes()), Ok(Some((expect, text.len()))), "{text}");
            for cut in 0..text.len() {
                assert_eq!(answer(&text.as_bytes()[..cut]), Ok(None), "{text} up to {cut}");
            }
        };
        check("+OK\r\n", Answer::Other);
        check("$-1\r\n", Answer::Nothing);
        check("_\r\n", Answer::Nothing);
        check("$3\r\nabc\r\n", Answer::Value(b"abc"));
        check("-ERR no\r\n", Answer::Error);
        let two = vec![Answer::Value(b"a"), Answer::Nothing];
        check("*2\r\n$1\r\na\r\n$-1\r\n", Answer::Several(two));
        check("%1\r\n+a\r\n:1\r\n", Answer::Several(vec![Answer::Other, Answer::Other]));
        check(">1\r\n+a\r\n", Answer::Push);
        assert_eq!(answer(b"HTTP/1.1 200 OK\r\n"), Err(NotRedis));
        assert_eq!(answer("*1\r\n".repeat(40).as_bytes()), Err(NotRedis));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some((_, length))) = request(&bytes) {
                prop_assert!((1..=bytes.len()).contains(&length));
            }
            if let Ok(Some((_, length))) = answer(&bytes) {
                prop_assert!((1..=bytes.len()).contains(&length));
            }
        }
    }
}
