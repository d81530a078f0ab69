//! The division of the ring: of n shards, shard i owns the i-th of n equal ranges of tokens. This
//! is the rule of Scylla (`sharding_ignore_msb` = 0), by which its drivers find the shard of a key,
//! and a walk from shard to shard returns all tokens in order.

use tare_cql::token::Token;

/// The shard that owns a token.
#[inline]
pub(crate) fn owner(token: i64, shards: usize) -> usize {
    // No host has so many CPUs.
    let shards = u16::try_from(shards).unwrap_or(u16::MAX);
    usize::from(Token(token).shard(shards, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_own_ranges_in_order() {
        assert_eq!(owner(i64::MIN, 3), 0);
        assert_eq!(owner(0, 3), 1);
        assert_eq!(owner(i64::MAX, 3), 2);
        assert_eq!((owner(-1, 2), owner(0, 2)), (0, 1));
        assert_eq!(owner(i64::MAX, 1), 0);
        let tokens = (-500..500).map(|step| step * (i64::MAX / 500));
        assert!(tokens.map(|token| owner(token, 7)).is_sorted());
    }
}
