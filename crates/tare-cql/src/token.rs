//! The token of a partition key under `Murmur3Partitioner`, bit for bit as Cassandra computes it.
//!
//! It is the first half of MurmurHash3 x64 128 with seed 0, except that Cassandra (its
//! `MurmurHash.hash3_x64_128`) reads the bytes after the last whole block of 16 as *signed*, so
//! that bytes of 0x80 and above set the higher bits. The tokens of such keys differ from those of
//! the original function; all drivers follow Cassandra.

/// Cassandra's name of the partitioner in `system.local`.
pub const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// The position of a partition on the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i64);

impl Token {
    /// The token of a serialised partition key: the bytes of the column, or for several columns the
    /// result of `append_key_part`.
    ///
    /// ```
    /// use tare_cql::token::Token;
    ///
    /// let token = Token::of(b"123");
    /// assert_eq!(token, Token(-7_468_325_962_851_647_638));
    /// // Of three shards, the first owns the first third of the ring.
    /// assert_eq!(token.shard(3, 0), 0);
    /// ```
    #[inline]
    pub fn of(key: &[u8]) -> Self {
        if key.is_empty() {
            return Self(i64::MIN);
        }
        let (half, _) = halves(key);
        let hash = half.cast_signed();
        // The least value is reserved for the empty key, the start of the ring.
        Self(if hash == i64::MIN { i64::MAX } else { hash })
    }
}

impl Token {
    /// The shard of a server that owns the token, as Scylla computes it ("biased token round
    /// robin", `docs/dev/protocol-extensions.md`): the ring without its first `ignore_msb` bits is
    /// cut into `shards` equal parts. It is 0 if there are no shards.
    #[inline]
    pub fn shard(self, shards: u16, ignore_msb: u8) -> u16 {
        let biased = self.0.cast_unsigned() ^ (1 << 63);
        let place = biased.checked_shl(u32::from(ignore_msb)).unwrap_or(0);
        let product = u128::from(place) * u128::from(shards);
        u16::try_from(product >> 64).unwrap_or(0)
    }
}

/// Appends one column of a partition key of several columns: length, bytes, zero. A key of a single
/// column is only its bytes. Returns false for a column of more than 65,535 bytes.
#[inline]
#[must_use]
pub fn append_key_part(key: &mut Vec<u8>, column: &[u8]) -> bool {
    let Ok(length) = u16::try_from(column.len()) else { return false };
    key.extend_from_slice(&length.to_be_bytes());
    key.extend_from_slice(column);
    key.push(0);
    true
}

/// All 16 bytes of the hash, as a name for encoded data.
pub(crate) fn hash_128(bytes: &[u8]) -> [u8; 16] {
    let (first, second) = halves(bytes);
    let mut hash = [0; 16];
    hash[..8].copy_from_slice(&first.to_be_bytes());
    hash[8..].copy_from_slice(&second.to_be_bytes());
    hash
}

#[inline]
fn halves(key: &[u8]) -> (u64, u64) {
    let (blocks, tail) = key.as_chunks::<16>();
    let (mut h1, mut h2) = (0_u64, 0_u64);
    for block in blocks {
        let [k1, k2] = words(block);
        h1 = (h1 ^ mix1(k1)).rotate_left(27).wrapping_add(h2);
        h1 = h1.wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 = (h2 ^ mix2(k2)).rotate_left(31).wrapping_add(h1);
        h2 = h2.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let signed = |byte: u8| i64::from(byte.cast_signed()).cast_unsigned();
    let (mut k1, mut k2) = (0_u64, 0_u64);
    for (position, byte) in tail.iter().enumerate() {
        let word = if position < 8 { &mut k1 } else { &mut k2 };
        *word ^= signed(*byte) << (position % 8 * 8);
    }
    h2 ^= mix2(k2);
    h1 ^= mix1(k1);
    let length = key.len() as u64;
    h1 ^= length;
    h2 ^= length;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    let second = final_mix(h2);
    let first = final_mix(h1).wrapping_add(second);
    (first, second.wrapping_add(first))
}

#[inline]
fn words(block: &[u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(*block);
    #[expect(clippy::cast_possible_truncation, reason = "the two halves are wanted")]
    [both as u64, (both >> 64) as u64]
}

#[inline]
fn mix1(k1: u64) -> u64 {
    k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

#[inline]
fn mix2(k2: u64) -> u64 {
    k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

#[inline]
fn final_mix(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values come from tests of Cassandra drivers (DataStax python-driver, gocql).
    #[test]
    fn tokens_agree_with_cassandra() {
        let ascending = |first: u8, count: u8| (first..first + count).collect::<Vec<u8>>();
        let cases: [(&[u8], i64); 18] = [
            (b"123", -7_468_325_962_851_647_638),
            (&[0x00, 0xff, 0x10, 0xfa, 0x99].repeat(10), 5_837_342_703_291_459_765),
            (&[0xfe; 8], -8_927_430_733_708_461_935),
            (&[0x10; 8], 1_446_172_840_243_228_796),
            (b"9223372036854775807", 7_162_290_910_810_015_547),
            (&ascending(1, 16), -5_563_837_382_979_743_776),
            (&ascending(2, 16), -1_513_403_162_740_402_161),
            (&ascending(7, 16), 8_228_893_370_679_682_632),
            (&[0x00; 16], 5_457_549_051_747_178_710),
            (&[0xff; 16], -2_824_192_546_314_762_522),
            (&[0xfe; 16], -833_317_529_301_936_754),
            (&[0xfe; 17], -1_672_437_813_826_982_685),
            (&[0xfe; 4], 4_566_408_979_886_474_012),
            (&[0x00; 4], -3_485_513_579_396_041_028),
            (&[0x00, 0xff, 0xff, 0xff], 123_573_637_386_978_882),
            (&[0xff, 0x01, 0x02, 0x03], -2_839_127_690_952_877_842),
            (&[0xe2, 0xe7], -8_582_699_461_035_929_883),
            (&[0xe2, 0xe7, 0xe2, 0xe7, 0xe2, 0xe7, 0x01], 2_222_373_981_930_033_306),
        ];
        for (key, token) in cases {
            assert_eq!(Token::of(key), Token(token), "{key:02x?}");
        }
        assert_eq!(Token::of(b""), Token(i64::MIN));
    }

    #[test]
    fn shards_agree_with_scylla() {
        let check = |token: i64, shards, ignore_msb, expect| {
            let shard = Token(token).shard(shards, ignore_msb);
            assert_eq!(shard, expect, "{token} {shards} {ignore_msb}");
        };
        // The expected values come from the tests of Scylla's Rust driver.
        check(-9_219_783_007_514_621_794, 4, 12, 3);
        check(9_222_582_454_147_032_830, 4, 12, 3);
        check(i64::MIN, 3, 0, 0);
        check(-1, 2, 0, 0);
        check(0, 2, 0, 1);
        check(i64::MAX, 256, 0, 255);
        check(i64::MAX, 0, 64, 0);
    }

    #[test]
    fn key_parts_carry_length_and_zero() {
        let mut key = Vec::new();
        assert!(append_key_part(&mut key, b"ab") && append_key_part(&mut key, b""));
        assert_eq!(key, b"\0\x02ab\0\0\0\0");
        assert!(!append_key_part(&mut key, &[0; 65_536]));
    }
}
