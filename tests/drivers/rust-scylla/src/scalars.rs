//! Every scalar type there and back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use scylla::client::session::Session;
use scylla::value::{
    CqlDate, CqlDecimal, CqlDuration, CqlTime, CqlTimestamp, CqlTimeuuid, CqlValue, CqlVarint, Row,
};

use crate::{Checks, Outcome};

/// The name of a type and two values that must come back as they went.
fn values() -> Vec<(&'static str, [CqlValue; 2])> {
    let huge = [&[0xff][..], &[0; 25]].concat();
    let digits = vec![0x7f, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];
    let time_uuid = |low| CqlTimeuuid::from_u128((0x1000_u128 << 64) | low);
    let longest = CqlDuration { months: 14, days: 31, nanoseconds: 1 << 62 };
    vec![
        ("ascii", [CqlValue::Ascii("plain".into()), CqlValue::Ascii(String::new())]),
        ("bigint", [CqlValue::BigInt(i64::MIN), CqlValue::BigInt(i64::MAX)]),
        ("blob", [CqlValue::Blob((0..=255).collect()), CqlValue::Blob(Vec::new())]),
        ("boolean", [CqlValue::Boolean(true), CqlValue::Boolean(false)]),
        ("date", [CqlValue::Date(CqlDate(0)), CqlValue::Date(CqlDate(u32::MAX))]),
        (
            "decimal",
            [
                CqlValue::Decimal(CqlDecimal::from_signed_be_bytes_and_exponent(digits, 9)),
                CqlValue::Decimal(CqlDecimal::from_signed_be_bytes_and_exponent(vec![0], -3)),
            ],
        ),
        ("double", [CqlValue::Double(-1.5), CqlValue::Double(f64::MIN_POSITIVE)]),
        (
            "duration",
            [
                CqlValue::Duration(CqlDuration { months: -1, days: -2, nanoseconds: -3 }),
                CqlValue::Duration(longest),
            ],
        ),
        ("float", [CqlValue::Float(0.25), CqlValue::Float(f32::INFINITY)]),
        (
            "inet",
            [
                CqlValue::Inet(IpAddr::V4(Ipv4Addr::LOCALHOST)),
                CqlValue::Inet(IpAddr::V6(Ipv6Addr::LOCALHOST)),
            ],
        ),
        ("int", [CqlValue::Int(i32::MIN), CqlValue::Int(i32::MAX)]),
        ("smallint", [CqlValue::SmallInt(i16::MIN), CqlValue::SmallInt(i16::MAX)]),
        ("text", [CqlValue::Text("ünï'cødé 🐘".into()), CqlValue::Text("x".repeat(70_000))]),
        ("time", [CqlValue::Time(CqlTime(86_399_999_999_999)), CqlValue::Time(CqlTime(0))]),
        (
            "timestamp",
            [
                CqlValue::Timestamp(CqlTimestamp(951_868_798_123)),
                CqlValue::Timestamp(CqlTimestamp(-1)),
            ],
        ),
        ("timeuuid", [CqlValue::Timeuuid(time_uuid(0x8080)), CqlValue::Timeuuid(time_uuid(0x7f))]),
        ("tinyint", [CqlValue::TinyInt(i8::MIN), CqlValue::TinyInt(i8::MAX)]),
        (
            "varint",
            [
                CqlValue::Varint(CqlVarint::from_signed_bytes_be(huge)),
                CqlValue::Varint(CqlVarint::from_signed_bytes_be(vec![0])),
            ],
        ),
        // The driver has no value of its own for a varchar, which is a text.
        ("varchar", [CqlValue::Text("same as text".into()), CqlValue::Text(String::new())]),
        ("uuid", [CqlValue::Uuid(uuid(u128::MAX)), CqlValue::Uuid(uuid(0))]),
    ]
}

fn uuid(value: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(value)
}

/// `CREATE TABLE scalars`, with a column for every type.
pub(crate) fn create_table() -> String {
    let columns: Vec<_> = values().iter().map(|(name, _)| format!("c_{name} {name}")).collect();
    format!("CREATE TABLE scalars (id int PRIMARY KEY, {})", columns.join(", "))
}

pub(crate) async fn round_trip(session: &Session, checks: &mut Checks) -> Outcome<()> {
    let all = values();
    let names: Vec<_> = all.iter().map(|(name, _)| format!("c_{name}")).collect();
    let names = names.join(", ");
    let markers = ", ?".repeat(all.len());
    let insert = format!("INSERT INTO scalars (id, {names}) VALUES (?{markers})");
    let insert = session.prepare(insert).await?;
    let select = session.prepare(format!("SELECT {names} FROM scalars WHERE id = ?")).await?;
    for row in 0..2 {
        let mut bound = vec![CqlValue::Int(i32::try_from(row)?)];
        bound.extend(all.iter().map(|(_, values)| values[row].clone()));
        session.execute_unpaged(&insert, bound).await?;
        let rows = session.execute_unpaged(&select, (i32::try_from(row)?,)).await?;
        let got = rows.into_rows_result()?.single_row::<Row>()?;
        for ((name, values), column) in all.iter().zip(got.columns) {
            checks.check(
                &format!("{name} comes back, value {row}"),
                column.as_ref(),
                Some(&values[row]),
            );
        }
    }
    let rows = session.execute_unpaged(&select, (2,)).await?.into_rows_result()?;
    checks.check("no row for another key", rows.rows_num(), 0);
    Ok(())
}
