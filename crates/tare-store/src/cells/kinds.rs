//! What both forms of a cell share: the numbers of its kinds, and their fields.

use super::Content;

pub(super) const LIVE: u8 = 0;
pub(super) const EXPIRING: u8 = 1;
pub(super) const DEAD: u8 = 2;
/// Added to the kind of a cell that has a path.
pub(super) const ELEMENT: u8 = 3;

/// Splits off the fields of a cell without a path; `split_value` knows the form of a length.
#[inline]
pub(super) fn split_content<'a>(
    kind: u8,
    bytes: &'a [u8],
    split_value: impl Fn(&'a [u8]) -> Option<(&'a [u8], &'a [u8])>,
) -> Option<(Content<'a>, &'a [u8])> {
    match kind {
        LIVE => split_value(bytes).map(|(value, rest)| (Content::Live(value), rest)),
        EXPIRING => {
            let (ttl_s, rest) = split_u32(bytes)?;
            let (expires_s, rest) = split_u32(rest)?;
            let (value, rest) = split_value(rest)?;
            Some((Content::Expiring { value, ttl_s, expires_s }, rest))
        }
        DEAD => split_u32(bytes).map(|(since_s, rest)| (Content::Dead { since_s }, rest)),
        _ => None,
    }
}

#[inline]
pub(super) fn split_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number), rest))
}
