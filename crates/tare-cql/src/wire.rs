//! The notations of the protocol (section 3 of the specification): `[short]`, `[int]`, `[string]`,
//! `[bytes]` and so on. `Reader` takes them from the front of a slice, the `put_*` functions append
//! them to a buffer. All numbers are big-endian.

use crate::opcode::Opcode;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Why a body cannot be decoded. The peer is at fault; the answer is a protocol error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the message ends within {what}")]
    Truncated { what: &'static str },
    #[error("{what} has the impossible length {length}")]
    Length { what: &'static str, length: i32 },
    #[error("{what} is no UTF-8")]
    Utf8 { what: &'static str },
    #[error("unknown {what} {code:#x}")]
    Unknown { what: &'static str, code: u32 },
    #[error("{bytes} bytes are left over after the message")]
    LeftOver { bytes: usize },
    #[error("a {opcode:?} message is not expected here")]
    Opcode { opcode: Opcode },
    #[error("type nesting exceeds {limit} levels")]
    Nesting { limit: usize },
}

/// `[consistency]`: the replicas that an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u16)]
pub enum Consistency {
    Any = 0,
    #[default]
    One = 1,
    Two = 2,
    Three = 3,
    Quorum = 4,
    All = 5,
    LocalQuorum = 6,
    EachQuorum = 7,
    Serial = 8,
    LocalSerial = 9,
    LocalOne = 10,
}

impl Consistency {
    /// All levels, in the order of their codes.
    pub const ALL: [Self; 11] = [
        Self::Any,
        Self::One,
        Self::Two,
        Self::Three,
        Self::Quorum,
        Self::All,
        Self::LocalQuorum,
        Self::EachQuorum,
        Self::Serial,
        Self::LocalSerial,
        Self::LocalOne,
    ];

    /// The name in CQL, such as `LOCAL_QUORUM`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "ANY",
            Self::One => "ONE",
            Self::Two => "TWO",
            Self::Three => "THREE",
            Self::Quorum => "QUORUM",
            Self::All => "ALL",
            Self::LocalQuorum => "LOCAL_QUORUM",
            Self::EachQuorum => "EACH_QUORUM",
            Self::Serial => "SERIAL",
            Self::LocalSerial => "LOCAL_SERIAL",
            Self::LocalOne => "LOCAL_ONE",
        }
    }

    /// The level with this code on the wire.
    #[inline]
    pub fn from_code(code: u16) -> Result<Self, DecodeError> {
        Self::ALL
            .get(usize::from(code))
            .copied()
            .ok_or(DecodeError::Unknown { what: "consistency", code: u32::from(code) })
    }
}

/// `[value]`: the value of a bind marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// A value of this many bytes, possibly zero.
    Bytes(&'a [u8]),
    /// The column is set to null.
    Null,
    /// The column is left as it is.
    Unset,
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

/// Takes notations from the front of a message.
///
/// ```
/// use tare_cql::wire::{Reader, put_short, put_string};
///
/// let mut bytes = Vec::new();
/// put_short(&mut bytes, 7);
/// put_string(&mut bytes, "ks");
/// let mut reader = Reader::new(&bytes);
/// assert_eq!((reader.short("count")?, reader.string("keyspace")?), (7, "ks"));
/// assert!(reader.byte("flags").is_err());
/// # Ok::<(), tare_cql::wire::DecodeError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader that starts at the front of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes that have not been taken yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Fails unless all bytes have been taken.
    #[inline]
    pub fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::LeftOver { bytes: self.rest.len() })
        }
    }

    #[inline]
    pub fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let (head, rest) =
            self.rest.split_at_checked(length).ok_or(DecodeError::Truncated { what })?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let (head, rest) =
            self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated { what })?;
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    pub fn byte(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    #[inline]
    pub fn short(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        self.array(what).map(u16::from_be_bytes)
    }

    #[inline]
    pub fn int(&mut self, what: &'static str) -> Result<i32, DecodeError> {
        self.array(what).map(i32::from_be_bytes)
    }

    #[inline]
    pub fn long(&mut self, what: &'static str) -> Result<i64, DecodeError> {
        self.array(what).map(i64::from_be_bytes)
    }

    /// A count as `[int]`, which cannot be negative.
    #[inline]
    pub fn count(&mut self, what: &'static str) -> Result<usize, DecodeError> {
        let count = self.int(what)?;
        usize::try_from(count).map_err(|_| DecodeError::Length { what, length: count })
    }

    #[inline]
    pub fn consistency(&mut self) -> Result<Consistency, DecodeError> {
        Consistency::from_code(self.short("consistency")?)
    }

    /// `[string]`
    #[inline]
    pub fn string(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        utf8(self.short_bytes(what)?, what)
    }

    /// `[long string]`
    #[inline]
    pub fn long_string(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        let length = self.count(what)?;
        utf8(self.take(length, what)?, what)
    }

    /// `[short bytes]`
    #[inline]
    pub fn short_bytes(&mut self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let length = self.short(what)?;
        self.take(usize::from(length), what)
    }

    /// `[bytes]`: any negative length is null.
    #[inline]
    pub fn bytes(&mut self, what: &'static str) -> Result<Option<&'a [u8]>, DecodeError> {
        match usize::try_from(self.int(what)?) {
            Ok(length) => self.take(length, what).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// `[value]`: -1 is null, -2 is unset, anything below is an error.
    #[inline]
    pub fn value(&mut self, what: &'static str) -> Result<Value<'a>, DecodeError> {
        let length = self.int(what)?;
        match usize::try_from(length) {
            Ok(length) => self.take(length, what).map(Value::Bytes),
            Err(_) => match length {
                -1 => Ok(Value::Null),
                -2 => Ok(Value::Unset),
                _ => Err(DecodeError::Length { what, length }),
            },
        }
    }

    /// `[inetaddr]`
    pub fn inet_address(&mut self, what: &'static str) -> Result<IpAddr, DecodeError> {
        match self.byte(what)? {
            4 => self.array::<4>(what).map(|octets| Ipv4Addr::from(octets).into()),
            16 => self.array::<16>(what).map(|octets| Ipv6Addr::from(octets).into()),
            length => Err(DecodeError::Length { what, length: i32::from(length) }),
        }
    }

    /// `[inet]`: an address and a port.
    pub fn inet(&mut self, what: &'static str) -> Result<SocketAddr, DecodeError> {
        let address = self.inet_address(what)?;
        let port = self.int(what)?;
        let port = u16::try_from(port).map_err(|_| DecodeError::Length { what, length: port })?;
        Ok(SocketAddr::new(address, port))
    }

    /// `[string list]`; iterating again over the result cannot fail.
    pub fn string_list(&mut self, what: &'static str) -> Result<StringList<'a>, DecodeError> {
        let count = self.short(what)?;
        let bytes = self.rest;
        for _ in 0..count {
            self.string(what)?;
        }
        Ok(StringList { count, reader: Reader::new(bytes) })
    }

    /// `[string map]`; iterating again over the result cannot fail.
    pub fn string_map(&mut self, what: &'static str) -> Result<StringMap<'a>, DecodeError> {
        let count = self.short(what)?;
        let bytes = self.rest;
        for _ in 0..count {
            self.string(what)?;
            self.string(what)?;
        }
        Ok(StringMap { count, reader: Reader::new(bytes) })
    }

    /// `[string multimap]`; iterating again over the result cannot fail.
    pub fn string_multimap(
        &mut self,
        what: &'static str,
    ) -> Result<StringMultimap<'a>, DecodeError> {
        let count = self.short(what)?;
        let bytes = self.rest;
        for _ in 0..count {
            self.string(what)?;
            self.string_list(what)?;
        }
        Ok(StringMultimap { count, reader: Reader::new(bytes) })
    }

    /// Skips a `[bytes map]`.
    pub fn skip_bytes_map(&mut self, what: &'static str) -> Result<(), DecodeError> {
        for _ in 0..self.short(what)? {
            self.string(what)?;
            self.bytes(what)?;
        }
        Ok(())
    }
}

#[inline]
fn utf8<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8 { what })
}

/// Borrowed `[string list]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StringList<'a> {
    count: u16,
    reader: Reader<'a>,
}

impl<'a> Iterator for StringList<'a> {
    type Item = &'a str;
    fn next(&mut self) -> Option<&'a str> {
        self.count = self.count.checked_sub(1)?;
        self.reader.string("").ok()
    }
}

/// Borrowed `[string map]`.
#[derive(Debug, Clone, Copy)]
pub struct StringMap<'a> {
    count: u16,
    reader: Reader<'a>,
}

impl<'a> StringMap<'a> {
    /// The value of a key; the last one if the key occurs more than once.
    pub fn get(self, key: &str) -> Option<&'a str> {
        self.filter(|(name, _)| *name == key).map(|(_, value)| value).last()
    }
}

impl<'a> Iterator for StringMap<'a> {
    type Item = (&'a str, &'a str);
    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        Some((self.reader.string("").ok()?, self.reader.string("").ok()?))
    }
}

/// Borrowed `[string multimap]`.
#[derive(Debug, Clone, Copy)]
pub struct StringMultimap<'a> {
    count: u16,
    reader: Reader<'a>,
}

impl<'a> Iterator for StringMultimap<'a> {
    type Item = (&'a str, StringList<'a>);
    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        Some((self.reader.string("").ok()?, self.reader.string_list("").ok()?))
    }
}

#[inline]
pub fn put_byte(out: &mut Vec<u8>, value: u8) {
    out.push(value);
}

#[inline]
pub fn put_short(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

#[inline]
pub fn put_int(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

#[inline]
pub fn put_long(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends a count or length as `[int]`. No value that fits into a frame exceeds it; a larger one
/// is cut to the maximum, and every receiver refuses such a frame.
#[inline]
pub fn put_count(out: &mut Vec<u8>, count: usize) {
    put_int(out, i32::try_from(count).unwrap_or(i32::MAX));
}

/// `[string]`, cut at the last character that fits into 65,535 bytes.
#[inline]
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    let mut length = text.len().min(usize::from(u16::MAX));
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    put_short_bytes(out, &text.as_bytes()[..length]);
}

#[inline]
pub fn put_long_string(out: &mut Vec<u8>, text: &str) {
    put_count(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// `[short bytes]`, cut to 65,535 bytes.
#[inline]
pub fn put_short_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    put_short(out, length);
    out.extend_from_slice(&bytes[..usize::from(length)]);
}

#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            put_count(out, bytes.len());
            out.extend_from_slice(bytes);
        }
        None => put_int(out, -1),
    }
}

#[inline]
pub fn put_value(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Bytes(bytes) => put_bytes(out, Some(bytes)),
        Value::Null => put_int(out, -1),
        Value::Unset => put_int(out, -2),
    }
}

pub fn put_inet_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            out.push(4);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.push(16);
            out.extend_from_slice(&address.octets());
        }
    }
}

pub fn put_inet(out: &mut Vec<u8>, address: SocketAddr) {
    put_inet_address(out, address.ip());
    put_int(out, i32::from(address.port()));
}

/// `[string list]` of at most 65,535 strings; those beyond are left out.
pub fn put_string_list(out: &mut Vec<u8>, list: &[&str]) {
    let count = u16::try_from(list.len()).unwrap_or(u16::MAX);
    put_short(out, count);
    for text in &list[..usize::from(count)] {
        put_string(out, text);
    }
}

/// `[string map]` of at most 65,535 pairs; those beyond are left out.
pub fn put_string_map(out: &mut Vec<u8>, map: &[(&str, &str)]) {
    let count = u16::try_from(map.len()).unwrap_or(u16::MAX);
    put_short(out, count);
    for (key, value) in &map[..usize::from(count)] {
        put_string(out, key);
        put_string(out, value);
    }
}

/// `[bytes]` whose content `write` appends.
#[inline]
pub fn put_bytes_with(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let offset = reserve_int(out);
    write(out);
    let length = i32::try_from(out.len().saturating_sub(offset + 4)).unwrap_or(i32::MAX);
    patch_int(out, offset, length);
}

/// Overwrites an `[int]` written earlier, such as a count of rows.
#[inline]
pub(crate) fn patch_int(out: &mut [u8], offset: usize, value: i32) {
    if let Some(field) = out.get_mut(offset..offset + 4) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// Reserves an `[int]` to be patched, and returns its offset.
#[inline]
pub(crate) fn reserve_int(out: &mut Vec<u8>) -> usize {
    let offset = out.len();
    put_int(out, 0);
    offset
}
