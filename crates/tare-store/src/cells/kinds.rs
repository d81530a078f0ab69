//! What all forms of a cell share: the numbers of its kinds, and numbers of 32 bits.

pub(super) const LIVE: u8 = 0;
pub(super) const EXPIRING: u8 = 1;
pub(super) const DEAD: u8 = 2;
/// Added to the kind of a cell that has a path.
pub(super) const ELEMENT: u8 = 3;

#[inline]
pub(super) fn split_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number), rest))
}
