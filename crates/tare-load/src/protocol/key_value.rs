//! Keys and values, of Redis (RESP2) and memcached (its text protocol), from the client's side.
//!
//! Row N is the value of the key `tare:` (or another prefix) and N in twelve digits: its columns,
//! one after the other.
//! Answers come in the order of their requests.
//!
//! Sources: <https://redis.io/docs/latest/develop/reference/protocol-spec/> and
//! <https://github.com/memcached/memcached/blob/master/doc/protocol.txt>.

use crate::access::{Login, Protocol};
use crate::protocol::wire::ANSWER_BYTES_MAX;

const DIGITS: usize = 12;
/// The most rows, so that each number has a key.
pub(crate) const ROWS_MAX: u64 = 1_000_000_000_000;
/// The longest accepted line.
const LINE_BYTES_MAX: usize = 8 << 10;

/// Which of the protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyValueProtocol {
    Redis,
    Memcached,
}

/// The parts of requests that are the same for all rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requests {
    /// Before the key, between the key and the value.
    set: [Vec<u8>; 2],
    /// Before the key.
    get: Vec<u8>,
    /// The size of a value.
    pub(crate) value_bytes: usize,
}

/// An answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// The request was carried out.
    Done,
    Value(&'a [u8]),
    /// The key has no value.
    Nothing,
    /// The server refused the request, in its own words.
    Refused(&'a [u8]),
}

/// Why received bytes are no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error("a line of more than {LINE_BYTES_MAX} bytes")]
    LongLine,
    #[error("a value of {0} bytes, more than the {ANSWER_BYTES_MAX} that are accepted")]
    LongValue(u64),
    #[error("the line {0:?}")]
    Line(String),
    #[error("a value without its end")]
    End,
}

impl KeyValueProtocol {
    /// Returns the protocol of a system; `None` for CQL.
    pub(crate) fn of(protocol: Protocol) -> Option<Self> {
        match protocol {
            Protocol::Cql(_) => None,
            Protocol::Redis => Some(Self::Redis),
            Protocol::Memcached => Some(Self::Memcached),
        }
    }

    /// Returns the requests for values of one size, in bytes, under keys with this prefix.
    pub(crate) fn requests(self, prefix: &str, value_bytes: usize) -> Requests {
        let key_bytes = prefix.len() + DIGITS;
        let (set, value, get) = match self {
            Self::Redis => (
                format!("*3\r\n$3\r\nSET\r\n${key_bytes}\r\n{prefix}"),
                format!("\r\n${value_bytes}\r\n"),
                format!("*2\r\n$3\r\nGET\r\n${key_bytes}\r\n{prefix}"),
            ),
            Self::Memcached => (
                format!("set {prefix}"),
                format!(" 0 0 {value_bytes}\r\n"),
                format!("get {prefix}"),
            ),
        };
        Requests { set: [set.into(), value.into()], get: get.into(), value_bytes }
    }

    /// Returns the request by which a new connection learns that the server answers.
    pub(crate) fn greeting(self) -> &'static [u8] {
        match self {
            Self::Redis => b"PING\r\n",
            Self::Memcached => b"version\r\n",
        }
    }

    /// Returns the request that logs in; `None` if the protocol has no login.
    pub(crate) fn login(self, Login { user, password }: &Login) -> Option<Vec<u8>> {
        let word = |word: &str| format!("${}\r\n{word}\r\n", word.len());
        match self {
            Self::Redis => {
                Some(format!("*3\r\n{}{}{}", word("AUTH"), word(user), word(password)).into())
            }
            Self::Memcached => None,
        }
    }

    /// Returns the answer at the front of received bytes and its length; `None` if it is not whole.
    #[inline]
    pub(crate) fn decode(self, bytes: &[u8]) -> Result<Option<(Answer<'_>, usize)>, AnswerError> {
        let Some(end) = bytes.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') else {
            let is_long = bytes.len() >= LINE_BYTES_MAX;
            return if is_long { Err(AnswerError::LongLine) } else { Ok(None) };
        };
        let (line, rest) = (bytes[..end].trim_ascii_end(), &bytes[end + 1..]);
        match self {
            Self::Redis => redis(line, rest, end + 1),
            Self::Memcached => memcached(line, rest, end + 1),
        }
    }
}

/// An answer and its length, if it is whole.
type Decoded<'a> = Result<Option<(Answer<'a>, usize)>, AnswerError>;

#[inline]
fn redis<'a>(line: &'a [u8], rest: &'a [u8], length: usize) -> Decoded<'a> {
    match line {
        [b'$', b'-', b'1'] => Ok(Some((Answer::Nothing, length))),
        [b'$', size @ ..] => {
            let size = number(size).ok_or_else(|| unknown(line))?;
            value(rest, size, b"\r\n", length)
        }
        [b'+', ..] => Ok(Some((Answer::Done, length))),
        [b'-', text @ ..] => Ok(Some((Answer::Refused(text), length))),
        _ => Err(unknown(line)),
    }
}

#[inline]
fn memcached<'a>(line: &'a [u8], rest: &'a [u8], length: usize) -> Decoded<'a> {
    if let Some(fields) = line.strip_prefix(b"VALUE ") {
        // The key, the flags and the size.
        let size = fields.split(|byte| *byte == b' ').nth(2).and_then(number);
        return value(rest, size.ok_or_else(|| unknown(line))?, b"\r\nEND\r\n", length);
    }
    match line {
        b"STORED" => Ok(Some((Answer::Done, length))),
        b"END" => Ok(Some((Answer::Nothing, length))),
        _ if line.starts_with(b"VERSION ") => Ok(Some((Answer::Done, length))),
        b"ERROR" | b"NOT_STORED" => Ok(Some((Answer::Refused(line), length))),
        _ if line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR") => {
            Ok(Some((Answer::Refused(line), length)))
        }
        _ => Err(unknown(line)),
    }
}

/// Returns a value of so many bytes with its end, after a line of `length` bytes.
#[inline]
fn value<'a>(rest: &'a [u8], size: u64, end: &[u8], length: usize) -> Decoded<'a> {
    let most = u64::try_from(ANSWER_BYTES_MAX).unwrap_or(u64::MAX);
    let Some(bytes) = usize::try_from(size).ok().filter(|_| size <= most) else {
        return Err(AnswerError::LongValue(size));
    };
    let whole = bytes + end.len();
    match rest.get(bytes..whole) {
        None => Ok(None),
        Some(found) if found == end => Ok(Some((Answer::Value(&rest[..bytes]), length + whole))),
        Some(_) => Err(AnswerError::End),
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cold]
fn unknown(line: &[u8]) -> AnswerError {
    AnswerError::Line(String::from_utf8_lossy(line).chars().take(80).collect())
}

impl Requests {
    /// Appends the request that writes a row; `put` appends the value.
    #[inline]
    pub(crate) fn set(&self, row: u64, out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
        let [head, value] = &self.set;
        out.extend_from_slice(head);
        put_digits(row, out);
        out.extend_from_slice(value);
        put(out);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the request that reads a row.
    #[inline]
    pub(crate) fn get(&self, row: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.get);
        put_digits(row, out);
        out.extend_from_slice(b"\r\n");
    }
}

#[inline]
fn put_digits(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit += u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
    out.extend_from_slice(&digits);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOTH: [KeyValueProtocol; 2] = [KeyValueProtocol::Redis, KeyValueProtocol::Memcached];

    #[test]
    fn requests_are_those_of_the_protocols() {
        for (protocol, set, get) in [
            (
                KeyValueProtocol::Redis,
                "*3\r\n$3\r\nSET\r\n$17\r\ntare:000000000042\r\n$3\r\nabc\r\n",
                "*2\r\n$3\r\nGET\r\n$17\r\ntare:000000000042\r\n",
            ),
            (
                KeyValueProtocol::Memcached,
                "set tare:000000000042 0 0 3\r\nabc\r\n",
                "get tare:000000000042\r\n",
            ),
        ] {
            let requests = protocol.requests("tare:", 3);
            let mut out = Vec::new();
            requests.set(42, &mut out, |out| out.extend_from_slice(b"abc"));
            requests.get(42, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{set}{get}"));
        }
    }

    #[test]
    fn answers_are_those_of_the_protocols() {
        let [redis, memcached] = BOTH;
        for (protocol, text, expect) in [
            (redis, "+OK\r\n", Answer::Done),
            (redis, "$5\r\na\r\nbc\r\n", Answer::Value(b"a\r\nbc")),
            (redis, "$0\r\n\r\n", Answer::Value(b"")),
            (redis, "$-1\r\n", Answer::Nothing),
            (redis, "-OOM command not allowed\r\n", Answer::Refused(b"OOM command not allowed")),
            (memcached, "STORED\r\n", Answer::Done),
            (memcached, "VERSION 1.6.18\r\n", Answer::Done),
            (memcached, "VALUE tare:1 0 5\r\nEND\r\n\r\nEND\r\n", Answer::Value(b"END\r\n")),
            (memcached, "END\r\n", Answer::Nothing),
            (
                memcached,
                "SERVER_ERROR out of memory\r\n",
                Answer::Refused(b"SERVER_ERROR out of memory"),
            ),
        ] {
            let more = format!("{text}{text}");
            assert_eq!(protocol.decode(more.as_bytes()), Ok(Some((expect, text.len()))), "{text}");
            for cut in 0..text.len() {
                let part = &text.as_bytes()[..cut];
                assert_eq!(protocol.decode(part), Ok(None), "{text} up to {cut}");
            }
        }
        for (protocol, text, expect) in [
            (redis, "HTTP/1.1 400 Bad Request\r\n", "the line \"HTTP/1.1 400 Bad Request\""),
            (redis, "$99999999\r\n", "a value of 99999999 bytes, more than the 16777216"),
            (redis, "$1\r\nabc", "a value without its end"),
            (memcached, "VALUE tare:1 0\r\n", "the line \"VALUE tare:1 0\""),
            (memcached, "VALUE tare:1 0 1\r\nabc\r\nEND\r\n", "a value without its end"),
        ] {
            let error = protocol.decode(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(expect), "{error}");
        }
        let long = vec![b'+'; LINE_BYTES_MAX];
        assert_eq!(redis.decode(&long), Err(AnswerError::LongLine));
    }

    proptest! {
        /// Whatever comes, the answer lies within it.
        #[test]
        fn any_bytes_are_an_answer_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for protocol in BOTH {
                if let Ok(Some((_, length))) = protocol.decode(&bytes) {
                    prop_assert!((1..=bytes.len()).contains(&length));
                }
            }
        }

        #[test]
        fn values_come_back_as_they_were(value in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut redis = format!("${}\r\n", value.len()).into_bytes();
            redis.extend(&value);
            redis.extend(b"\r\n");
            let mut memcached = format!("VALUE k 0 {}\r\n", value.len()).into_bytes();
            memcached.extend(&value);
            memcached.extend(b"\r\nEND\r\n");
            for (protocol, bytes) in BOTH.into_iter().zip([redis, memcached]) {
                let found = protocol.decode(&bytes);
                prop_assert_eq!(found, Ok(Some((Answer::Value(&value), bytes.len()))));
            }
        }
    }
}
