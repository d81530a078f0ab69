//! The supported functions of CQL: those that drivers and load tools use. Each is pure: the time
//! and the random bits come from a [`CallContext`].

use crate::types::Type;

/// Time between the epoch of time UUIDs, 1582-10-15, and the Unix epoch, in units of 100 ns (RFC
/// 4122, section 4.1.4).
const UUID_EPOCH_TICKS: i64 = 0x01b2_1dd2_1381_4000;
const DAY_MS: i64 = 86_400_000;
/// A `date` of this value is 1970-01-01.
const DATE_EPOCH: i64 = 1 << 31;
/// Clock and node of the least and of the greatest time UUID of a moment: Cassandra compares these
/// bytes as signed ones (its `TimeUUID`).
const LEAST_TAIL: [u8; 8] = [0x80; 8];
const GREATEST_TAIL: [u8; 8] = [0x7f; 8];

/// A function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    Now,
    Uuid,
    CurrentTimestamp,
    CurrentDate,
    CurrentTime,
    ToTimestamp,
    ToDate,
    ToUnixTimestamp,
    MinTimeuuid,
    MaxTimeuuid,
    /// `textAsBlob` and similar functions: the bytes unchanged.
    ToBlob(Scalar),
    /// `blobAsText` and similar functions: the bytes, if they are a value of the type.
    FromBlob(Scalar),
}

/// A type of `...AsBlob` and `blobAs...`, by its position in `SCALARS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scalar(usize);

const SCALARS: [(&str, &str, &str); 19] = [
    ("ascii", "asciiasblob", "blobasascii"),
    ("bigint", "bigintasblob", "blobasbigint"),
    ("boolean", "booleanasblob", "blobasboolean"),
    ("date", "dateasblob", "blobasdate"),
    ("decimal", "decimalasblob", "blobasdecimal"),
    ("double", "doubleasblob", "blobasdouble"),
    ("duration", "durationasblob", "blobasduration"),
    ("float", "floatasblob", "blobasfloat"),
    ("inet", "inetasblob", "blobasinet"),
    ("int", "intasblob", "blobasint"),
    ("smallint", "smallintasblob", "blobassmallint"),
    ("text", "textasblob", "blobastext"),
    ("time", "timeasblob", "blobastime"),
    ("timestamp", "timestampasblob", "blobastimestamp"),
    ("timeuuid", "timeuuidasblob", "blobastimeuuid"),
    ("tinyint", "tinyintasblob", "blobastinyint"),
    ("uuid", "uuidasblob", "blobasuuid"),
    ("varchar", "varcharasblob", "blobasvarchar"),
    ("varint", "varintasblob", "blobasvarint"),
];

/// Names in lower case and without the underscores of Cassandra 5.
const NAMES: [(&str, Function); 13] = [
    ("now", Function::Now),
    ("currenttimeuuid", Function::Now),
    ("uuid", Function::Uuid),
    ("currenttimestamp", Function::CurrentTimestamp),
    ("currentdate", Function::CurrentDate),
    ("currenttime", Function::CurrentTime),
    ("totimestamp", Function::ToTimestamp),
    ("dateof", Function::ToTimestamp),
    ("todate", Function::ToDate),
    ("tounixtimestamp", Function::ToUnixTimestamp),
    ("unixtimestampof", Function::ToUnixTimestamp),
    ("mintimeuuid", Function::MinTimeuuid),
    ("maxtimeuuid", Function::MaxTimeuuid),
];

/// The time and the random bits for functions without arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallContext {
    /// Microseconds since the Unix epoch.
    pub wall_us: i64,
    /// Random bits that no other call gets.
    pub unique: [u64; 2],
}

impl Function {
    /// The function of this name, without regard to case.
    pub fn by_name(name: &str) -> Option<Self> {
        let name: String = name.to_ascii_lowercase().replace('_', "");
        if let Some((_, function)) = NAMES.iter().find(|(known, _)| *known == name) {
            return Some(*function);
        }
        SCALARS.iter().enumerate().find_map(|(position, (_, to, from))| {
            if name == *to {
                Some(Self::ToBlob(Scalar(position)))
            } else {
                (name == *from).then_some(Self::FromBlob(Scalar(position)))
            }
        })
    }

    /// The name in lower case, as in the names of results.
    pub fn name(self) -> &'static str {
        match self {
            Self::ToBlob(scalar) => SCALARS[scalar.0].1,
            Self::FromBlob(scalar) => SCALARS[scalar.0].2,
            _ => NAMES.iter().find(|(_, function)| *function == self).map_or("", |(name, _)| name),
        }
    }

    /// The number of its arguments.
    pub fn arity(self) -> usize {
        match self {
            Self::Now
            | Self::Uuid
            | Self::CurrentTimestamp
            | Self::CurrentDate
            | Self::CurrentTime => 0,
            _ => 1,
        }
    }

    /// The types that its argument may have, the likeliest first; none if it has no argument.
    pub fn argument_types(self) -> Vec<Type> {
        match self {
            Self::ToTimestamp => vec![Type::Timeuuid, Type::Date, Type::Timestamp],
            Self::ToDate => vec![Type::Timeuuid, Type::Timestamp, Type::Date],
            Self::ToUnixTimestamp => vec![Type::Timeuuid, Type::Timestamp, Type::Date],
            Self::MinTimeuuid | Self::MaxTimeuuid => vec![Type::Timestamp],
            Self::ToBlob(scalar) => scalar.kind().into_iter().collect(),
            Self::FromBlob(_) => vec![Type::Blob],
            Self::Now
            | Self::Uuid
            | Self::CurrentTimestamp
            | Self::CurrentDate
            | Self::CurrentTime => Vec::new(),
        }
    }

    /// The type of its result.
    pub fn returns(self) -> Type {
        match self {
            Self::Now | Self::MinTimeuuid | Self::MaxTimeuuid => Type::Timeuuid,
            Self::Uuid => Type::Uuid,
            Self::CurrentTimestamp | Self::ToTimestamp => Type::Timestamp,
            Self::CurrentDate | Self::ToDate => Type::Date,
            Self::CurrentTime => Type::Time,
            Self::ToUnixTimestamp => Type::Bigint,
            Self::ToBlob(_) => Type::Blob,
            Self::FromBlob(scalar) => scalar.kind().unwrap_or(Type::Blob),
        }
    }

    /// Calls the function. The argument is a valid value of `kind`, one of `argument_types`. The
    /// result is `None` for null, and for a value without a result.
    pub fn call(
        self,
        argument: Option<&[u8]>,
        kind: &Type,
        context: &CallContext,
    ) -> Option<Vec<u8>> {
        let now_ms = context.wall_us.div_euclid(1000);
        let of_day = |ms: i64| -> Option<Vec<u8>> {
            let days = u32::try_from(ms.div_euclid(DAY_MS) + DATE_EPOCH).ok()?;
            Some(days.to_be_bytes().to_vec())
        };
        match self {
            Self::Now => Some(time_uuid(context).to_vec()),
            Self::Uuid => Some(random_uuid(context.unique).to_vec()),
            Self::CurrentTimestamp => Some(now_ms.to_be_bytes().to_vec()),
            Self::CurrentDate => of_day(now_ms),
            Self::CurrentTime => {
                let ns = context.wall_us.rem_euclid(DAY_MS * 1000) * 1000;
                Some(ns.to_be_bytes().to_vec())
            }
            Self::ToTimestamp | Self::ToUnixTimestamp => {
                Some(milliseconds(argument?, kind)?.to_be_bytes().to_vec())
            }
            Self::ToDate => of_day(milliseconds(argument?, kind)?),
            Self::MinTimeuuid => uuid_at(milliseconds(argument?, kind)?, 0, LEAST_TAIL),
            Self::MaxTimeuuid => uuid_at(milliseconds(argument?, kind)?, 9999, GREATEST_TAIL),
            Self::ToBlob(_) => argument.map(<[u8]>::to_vec),
            Self::FromBlob(_) => {
                argument.filter(|bytes| self.returns().validate(bytes).is_ok()).map(<[u8]>::to_vec)
            }
        }
    }
}

impl Scalar {
    fn kind(self) -> Option<Type> {
        Type::scalar(SCALARS[self.0].0)
    }
}

/// Milliseconds since the Unix epoch of a timestamp, date or time UUID.
fn milliseconds(value: &[u8], kind: &Type) -> Option<i64> {
    match kind {
        Type::Date => {
            let days = i64::from(u32::from_be_bytes(value.try_into().ok()?));
            Some((days - DATE_EPOCH) * DAY_MS)
        }
        Type::Timestamp => Some(i64::from_be_bytes(value.try_into().ok()?)),
        _ => {
            let uuid: [u8; 16] = value.try_into().ok()?;
            let [a, b, c, d, e, f, g, h, ..] = uuid;
            let ticks = i64::from_be_bytes([g & 0x0f, h, e, f, a, b, c, d]);
            Some((ticks - UUID_EPOCH_TICKS).div_euclid(10_000))
        }
    }
}

/// A time UUID of `ticks` units of 100 ns since the epoch of UUIDs.
fn uuid_of_ticks(ticks: i64, tail: [u8; 8]) -> [u8; 16] {
    let [g, h, e, f, a, b, c, d] = ticks.to_be_bytes();
    let mut uuid = [a, b, c, d, e, f, g & 0x0f | 0x10, h, 0, 0, 0, 0, 0, 0, 0, 0];
    uuid[8..].copy_from_slice(&tail);
    uuid
}

fn uuid_at(milliseconds: i64, more_ticks: i64, tail: [u8; 8]) -> Option<Vec<u8>> {
    let ticks = milliseconds.checked_mul(10_000)?.checked_add(more_ticks + UUID_EPOCH_TICKS)?;
    Some(uuid_of_ticks(ticks, tail).to_vec())
}

/// A time UUID of the current time that differs from all others: its last eight bytes are unique.
fn time_uuid(context: &CallContext) -> [u8; 16] {
    let ticks = context.wall_us.saturating_mul(10).saturating_add(UUID_EPOCH_TICKS);
    let mut tail = context.unique[0].to_be_bytes();
    tail[0] = tail[0] & 0x3f | 0x80;
    // The multicast bit marks a node that is no address of a network card.
    tail[2] |= 1;
    uuid_of_ticks(ticks, tail)
}

fn random_uuid([high, low]: [u64; 2]) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&high.to_be_bytes());
    uuid[8..].copy_from_slice(&low.to_be_bytes());
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_functions_convert_into_each_other() {
        let context = CallContext { wall_us: 1_700_000_000_123_456, unique: [u64::MAX, 7] };
        let call = |name: &str, argument: Option<&[u8]>, kind: &Type| {
            Function::by_name(name).unwrap().call(argument, kind, &context)
        };
        let now = call("now", None, &Type::Blob).unwrap();
        assert!(Type::Timeuuid.validate(&now).is_ok());
        let ms = 1_700_000_000_123_i64.to_be_bytes();
        assert_eq!(call("toTimestamp", Some(&now), &Type::Timeuuid), Some(ms.to_vec()));
        assert_eq!(call("to_unix_timestamp", Some(&now), &Type::Timeuuid), Some(ms.to_vec()));
        // 2023-11-14 is day 19,675.
        let date = (0x8000_0000_u32 + 19_675).to_be_bytes();
        assert_eq!(call("toDate", Some(&ms), &Type::Timestamp), Some(date.to_vec()));
        assert_eq!(call("current_date", None, &Type::Blob), Some(date.to_vec()));
        let midnight = (19_675 * DAY_MS).to_be_bytes();
        assert_eq!(call("totimestamp", Some(&date), &Type::Date), Some(midnight.to_vec()));
        for name in ["minTimeuuid", "max_timeuuid"] {
            let uuid = call(name, Some(&ms), &Type::Timestamp).unwrap();
            assert_eq!(call("totimestamp", Some(&uuid), &Type::Timeuuid), Some(ms.to_vec()));
        }
        assert!(Type::Uuid.validate(&call("uuid", None, &Type::Blob).unwrap()).is_ok());
        assert_eq!(call("todate", None, &Type::Timestamp), None);
        assert_eq!(call("blobAsInt", Some(&[1, 2]), &Type::Blob), None);
        assert_eq!(call("text_as_blob", Some(b"ab"), &Type::Text), Some(b"ab".to_vec()));
        assert_eq!(Function::by_name("tojson"), None);
    }
}
