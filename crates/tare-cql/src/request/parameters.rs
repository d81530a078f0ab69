//! The parameters of QUERY and EXECUTE (section 4.1.4): consistency, values, paging, timestamp.

use crate::wire::{
    Consistency, DecodeError, Reader, Value, put_bytes, put_int, put_long, put_short,
};

/// Flags of the parameters.
pub mod query_flag {
    pub const VALUES: u8 = 0x01;
    pub const SKIP_METADATA: u8 = 0x02;
    pub const PAGE_SIZE: u8 = 0x04;
    pub const PAGING_STATE: u8 = 0x08;
    pub const SERIAL_CONSISTENCY: u8 = 0x10;
    pub const TIMESTAMP: u8 = 0x20;
    pub const NAMES: u8 = 0x40;
}

/// What a client asks for with a statement, apart from its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings<'a> {
    pub consistency: Consistency,
    /// The client knows the columns of the result already.
    pub skip_metadata: bool,
    /// Rows a page.
    pub page_size: Option<i32>,
    pub paging_state: Option<&'a [u8]>,
    pub serial_consistency: Option<Consistency>,
    /// Time of writing in microseconds since the epoch.
    pub timestamp_us: Option<i64>,
}

impl Settings<'_> {
    #[inline]
    pub(super) fn flags(&self) -> u8 {
        let bit = |set: bool, flag: u8| if set { flag } else { 0 };
        bit(self.skip_metadata, query_flag::SKIP_METADATA)
            | bit(self.page_size.is_some(), query_flag::PAGE_SIZE)
            | bit(self.paging_state.is_some(), query_flag::PAGING_STATE)
            | bit(self.serial_consistency.is_some(), query_flag::SERIAL_CONSISTENCY)
            | bit(self.timestamp_us.is_some(), query_flag::TIMESTAMP)
    }

    /// Appends what stands after the values.
    #[inline]
    pub(super) fn put_tail(&self, out: &mut Vec<u8>) {
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
    }
}

/// The parameters as the server sees them.
#[derive(Debug, Clone, Copy)]
pub struct Parameters<'a> {
    pub settings: Settings<'a>,
    pub values: Values<'a>,
}

impl<'a> Parameters<'a> {
    #[inline]
    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let consistency = reader.consistency()?;
        let flags = reader.byte("query flags")?;
        let has = |flag: u8| flags & flag != 0;
        if flags & 0x80 != 0 {
            return Err(DecodeError::Unknown { what: "query flags", code: u32::from(flags) });
        }
        let values = if has(query_flag::VALUES) {
            Values::decode(reader, has(query_flag::NAMES))?
        } else {
            Values::NONE
        };
        let mut settings = Settings {
            consistency,
            skip_metadata: has(query_flag::SKIP_METADATA),
            ..Settings::default()
        };
        if has(query_flag::PAGE_SIZE) {
            settings.page_size = Some(reader.int("page size")?);
        }
        if has(query_flag::PAGING_STATE) {
            settings.paging_state = reader.bytes("paging state")?;
        }
        if has(query_flag::SERIAL_CONSISTENCY) {
            settings.serial_consistency = Some(reader.consistency()?);
        }
        if has(query_flag::TIMESTAMP) {
            settings.timestamp_us = Some(reader.long("timestamp")?);
        }
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
    fn decode(reader: &mut Reader<'a>, named: bool) -> Result<Self, DecodeError> {
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

    /// The values in the order sent.
    #[inline]
    pub fn iter(&self) -> ValueIter<'a> {
        ValueIter { left: self.count, named: self.named, reader: Reader::new(self.bytes) }
    }

    /// The values with their names; empty where they are bound by position.
    pub fn named(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        (0..if self.named { self.count } else { 0 })
            .map_while(move |_| Some((reader.string("").ok()?, reader.value("").ok()?)))
    }

    /// The value bound to a name, without regard to case: markers follow the rule of unquoted
    /// identifiers.
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

/// Iterates over values in the order sent.
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
