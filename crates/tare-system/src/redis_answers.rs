//! Answers of Redis and Valkey in their protocol, version 2
//! (<https://redis.io/docs/latest/develop/reference/protocol-spec/>).

use super::client_route::{ClientRouteError, SystemConnection};

/// Reads a line with a number, such as `*2` or `:1`.
pub(super) fn count(line: &mut SystemConnection, sign: char) -> Result<u64, ClientRouteError> {
    let head = line.line()?;
    let number = head.strip_prefix(sign).and_then(|number| number.parse().ok());
    number.ok_or_else(|| line.unexpected_answer(head))
}

/// Reads a bulk string in an array, with its end.
pub(super) fn element(line: &mut SystemConnection) -> Result<String, ClientRouteError> {
    let text = bulk(line)?;
    line.line()?;
    Ok(text)
}

/// Reads a bulk string: `$LENGTH`, then so many bytes and a line's end.
pub(super) fn bulk(line: &mut SystemConnection) -> Result<String, ClientRouteError> {
    let head = line.line()?;
    let length = head.strip_prefix('$').and_then(|length| length.parse().ok());
    let Some(length): Option<usize> = length else { return Err(line.unexpected_answer(head)) };
    let bytes = line.bytes(length)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads the lines `name:value` of `INFO`.
pub(super) fn pairs(info: &str) -> Vec<(String, String)> {
    let pair = |line: &str| {
        let (name, value) = line.trim().split_once(':')?;
        Some((name.to_string(), value.to_string()))
    };
    info.lines().filter(|line| !line.starts_with('#')).filter_map(pair).collect()
}
