//! Mutations of inputs, as byte fuzzers make them: flips, interesting numbers, pieces removed,
//! repeated, and taken from other inputs. They are not guided by coverage; libFuzzer does that.

use tare_std::rng::Rng;

/// Longest input that a mutation may produce, in bytes.
const BYTES_MAX: usize = 64 << 10;

/// Numbers at the edges of types and of lengths.
const INTERESTING: [u32; 12] =
    [0, 1, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, u32::MAX];

/// Makes a new input from `seed`, with pieces of `other`.
pub fn mutate(seed: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + rng.below(4) {
        one(&mut bytes, other, rng);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn one(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let length = bytes.len();
    let at = index(rng, length + 1);
    let span = index(rng, (length - at).min(64) + 1);
    match rng.below(8) {
        0 | 1 if at < length => bytes[at] ^= 1 << rng.below(8),
        2 if at < length => bytes[at] = rng.next_u64().to_le_bytes()[0],
        3 => {
            let number = INTERESTING[index(rng, INTERESTING.len())];
            let big = rng.below(2) == 0;
            let number = if big { number.to_be_bytes() } else { number.to_le_bytes() };
            let width = [1, 2, 4][index(rng, 3)].min(length - at);
            let source = if big { &number[4 - width..] } else { &number[..width] };
            bytes[at..at + width].copy_from_slice(source);
        }
        4 => drop(bytes.drain(at..at + span)),
        5 => {
            let piece = bytes[at..at + span].to_vec();
            let to = index(rng, length + 1);
            bytes.splice(to..to, piece);
        }
        6 => {
            let from = index(rng, other.len() + 1);
            let piece = &other[from..(from + 1 + index(rng, 64)).min(other.len())];
            bytes.splice(at..at, piece.iter().copied());
        }
        _ => bytes.truncate(at),
    }
}

fn index(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound.max(1) as u64)).unwrap_or(0)
}
