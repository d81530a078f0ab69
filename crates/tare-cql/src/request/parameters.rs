//! The parameters of QUERY, EXECUTE and BATCH (sections 4.1.4 and 4.1.7): consistency, values,
//! paging, timestamp.

use crate::frame::Version;
use crate::wire::{
    Consistency, DecodeError, Reader, Value, put_bytes, put_int, put_long, put_short, put_string,
};

/// Flags of the parameters: a byte in version 4, an `[int]` in version 5.
pub mod query_flag {
    pub const VALUES: u32 = 0x01;
    pub const SKIP_METADATA: u32 = 0x02;
    pub const PAGE_SIZE: u32 = 0x04;
    pub const PAGING_STATE: u32 = 0x08;
    pub const SERIAL_CONSISTENCY: u32 = 0x10;
    pub const TIMESTAMP: u32 = 0x20;
    pub const NAMES: u32 = 0x40;
    /// A keyspace for names without one (version 5).
    pub const KEYSPACE: u32 = 0x80;
    /// The time that decides about expiry (version 5).
    pub const NOW: u32 = 0x100;
}

/// The flags that a version defines.
const fn known_flags(version: Version) -> u32 {
    match version {
        Version::V4 => 0x7f,
        Version::V5 => 0x1ff,
    }
}

/// The flags that a batch may have. The others make no sense for it, and names were specified in a
/// way that cannot be decoded (CASSANDRA-10246).
const BATCH_FLAGS: u32 =
    query_flag::SERIAL_CONSISTENCY | query_flag::TIMESTAMP | query_flag::KEYSPACE | query_flag::NOW;

/// The options of a request, apart from its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings<'a> {
    pub consistency: Consistency,
    /// Whether the client knows the columns of the result already.
    pub skip_metadata: bool,
    /// Number of rows of a page.
    pub page_size: Option<i32>,
    pub paging_state: Option<&'a [u8]>,
    pub serial_consistency: Option<Consistency>,
    /// Time of writing in microseconds since the epoch.
    pub timestamp_us: Option<i64>,
    /// Version 5: the keyspace for names without one, instead of that of the connection.
    pub keyspace: Option<&'a str>,
    /// Version 5: the time that decides about expiry, in seconds since the epoch.
    pub now_s: Option<i32>,
    /// Version 5, EXECUTE: the columns that the client knows
    /// ([`crate::response::EncodedColumns::id`]).
    pub result_id: Option<&'a [u8]>,
}

impl<'a> Settings<'a> {
    /// The settings of a simple request: consistency ONE, with metadata.
    pub const DEFAULT: Self = Self {
        consistency: Consistency::One,
        skip_metadata: false,
        page_size: None,
        paging_state: None,
        serial_consistency: None,
        timestamp_us: None,
        keyspace: None,
        now_s: None,
        result_id: None,
    };

    /// The flags of these settings, as far as the version has them.
    #[inline]
    pub(super) fn flags(&self, version: Version) -> u32 {
        let bit = |set: bool, flag: u32| if set { flag } else { 0 };
        let all = bit(self.skip_metadata, query_flag::SKIP_METADATA)
            | bit(self.page_size.is_some(), query_flag::PAGE_SIZE)
            | bit(self.paging_state.is_some(), query_flag::PAGING_STATE)
            | bit(self.serial_consistency.is_some(), query_flag::SERIAL_CONSISTENCY)
            | bit(self.timestamp_us.is_some(), query_flag::TIMESTAMP)
            | bit(self.keyspace.is_some(), query_flag::KEYSPACE)
            | bit(self.now_s.is_some(), query_flag::NOW);
        all & known_flags(version)
    }

    /// Appends the part after the values that the flags announce.
    #[inline]
    pub(super) fn put_tail(&self, version: Version, out: &mut Vec<u8>) {
        if let Some(rows) = self.page_size {
            put_int(out, rows);
        }
        if let Some(state) = self.paging_state {
            put_bytes(out, Some(state));
        }
        if let Some(consistency) = self.serial_consistency {
            put_short(out, consistency as u16);
        }
        if let Some(timestamp) = self.timestamp_us {
            put_long(out, timestamp);
        }
        if version >= Version::V5 {
            if let Some(keyspace) = self.keyspace {
                put_string(out, keyspace);
            }
            if let Some(now_s) = self.now_s {
                put_int(out, now_s);
            }
        }
    }

    /// Appends the consistency, the flags and the part that they announce: the end of a BATCH.
    pub(super) fn put_of_batch(&self, version: Version, out: &mut Vec<u8>) {
        let settings = Self { skip_metadata: false, page_size: None, paging_state: None, ..*self };
        put_short(out, settings.consistency as u16);
        put_flags(out, version, settings.flags(version));
        settings.put_tail(version, out);
    }

    /// Decodes the bytes of [`Settings::put_of_batch`].
    pub(super) fn decode_of_batch(
        reader: &mut Reader<'a>,
        version: Version,
    ) -> Result<Self, DecodeError> {
        let consistency = reader.consistency()?;
        let flags = decode_flags(reader, version, BATCH_FLAGS)?;
        let mut settings = Self { consistency, ..Self::DEFAULT };
        settings.decode_tail(reader, flags)?;
        Ok(settings)
    }

    /// Decodes the part after the values.
    #[inline]
    fn decode_tail(&mut self, reader: &mut Reader<'a>, flags: u32) -> Result<(), DecodeError> {
        let has = |flag: u32| flags & flag != 0;
        if has(query_flag::PAGE_SIZE) {
            self.page_size = Some(reader.int("page size")?);
        }
        if has(query_flag::PAGING_STATE) {
            self.paging_state = reader.bytes("paging state")?;
        }
        if has(query_flag::SERIAL_CONSISTENCY) {
            self.serial_consistency = Some(reader.consistency()?);
        }
        if has(query_flag::TIMESTAMP) {
            self.timestamp_us = Some(reader.long("timestamp")?);
        }
        if has(query_flag::KEYSPACE) {
            self.keyspace = Some(reader.string("keyspace")?);
        }
        if has(query_flag::NOW) {
            self.now_s = Some(reader.int("current time")?);
        }
        Ok(())
    }
}

#[inline]
pub(super) fn put_flags(out: &mut Vec<u8>, version: Version, flags: u32) {
    match version {
        #[expect(clippy::cast_possible_truncation, reason = "version 4 defines seven flags")]
        Version::V4 => out.push(flags as u8),
        Version::V5 => out.extend_from_slice(&flags.to_be_bytes()),
    }
}

/// Decodes flags and refuses those outside `known`, because their data would be taken for something
/// else.
#[inline]
fn decode_flags(reader: &mut Reader<'_>, version: Version, known: u32) -> Result<u32, DecodeError> {
    let flags = match version {
        Version::V4 => u32::from(reader.byte("flags")?),
        Version::V5 => reader.int("flags")?.cast_unsigned(),
    };
    if flags & !(known & known_flags(version)) != 0 {
        return Err(DecodeError::Unknown { what: "flags", code: flags });
    }
    Ok(flags)
}

/// The parameters of a request, as the server decodes them.
#[derive(Debug, Clone, Copy)]
pub struct Parameters<'a> {
    pub settings: Settings<'a>,
    pub values: Values<'a>,
}

impl<'a> Parameters<'a> {
    #[inline]
    pub(super) fn decode(
        reader: &mut Reader<'a>,
        version: Version,
        result_id: Option<&'a [u8]>,
    ) -> Result<Self, DecodeError> {
        let consistency = reader.consistency()?;
        let flags = decode_flags(reader, version, u32::MAX)?;
        let has = |flag: u32| flags & flag != 0;
        let values = if has(query_flag::VALUES) {
            Values::decode(reader, has(query_flag::NAMES))?
        } else {
            Values::NONE
        };
        let skip_metadata = has(query_flag::SKIP_METADATA);
        let mut settings = Settings { consistency, skip_metadata, result_id, ..Settings::DEFAULT };
        settings.decode_tail(reader, flags)?;
        Ok(Self { settings, values })
    }
}

/// The values of a request. They were checked when it was decoded, so iterating cannot fail.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    count: u16,
    named: bool,
    bytes: &'a [u8],
}

impl<'a> Values<'a> {
    /// No values at all.
    pub const NONE: Self = Self { count: 0, named: false, bytes: &[] };

    #[inline]
    pub(super) fn decode(reader: &mut Reader<'a>, named: bool) -> Result<Self, DecodeError> {
        let count = reader.short("number of values")?;
        let bytes = reader.rest();
        for _ in 0..count {
            if named {
                reader.string("name of a value")?;
            }
            reader.value("value")?;
        }
        Ok(Self { count, named, bytes })
    }

    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the values are bound by name instead of by position.
    #[inline]
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// The values in the order of the message.
    #[inline]
    pub fn iter(&self) -> ValueIter<'a> {
        ValueIter { left: self.count, named: self.named, reader: Reader::new(self.bytes) }
    }

    /// The values with their names; empty if they are bound by position.
    pub fn named(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        (0..if self.named { self.count } else { 0 })
            .map_while(move |_| Some((reader.string("").ok()?, reader.value("").ok()?)))
    }

    /// The value bound to a name, without regard to case, because markers follow the rule of
    /// unquoted identifiers.
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        self.named().find(|(bound, _)| bound.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl<'a> IntoIterator for Values<'a> {
    type Item = Value<'a>;
    type IntoIter = ValueIter<'a>;
    fn into_iter(self) -> ValueIter<'a> {
        self.iter()
    }
}

/// Iterates over values in the order of the message.
#[derive(Debug, Clone)]
pub struct ValueIter<'a> {
    left: u16,
    named: bool,
    reader: Reader<'a>,
}

impl<'a> Iterator for ValueIter<'a> {
    type Item = Value<'a>;

    #[inline]
    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        if self.named {
            self.reader.short_bytes("").ok()?;
        }
        self.reader.value("").ok()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

impl ExactSizeIterator for ValueIter<'_> {}
