//! Decimals that compare bytewise: sign, exponent, digits, and last the scale, which tells 1.0
//! from 1.00.
//!
//! A decimal that is not zero is `0.DIGITS * 10^exponent` with a first and a last digit that are
//! no zeros; of negative ones exponent and digits are inverted.

use tare_cql::types::{varint_digits, varint_of_digits};

const NEGATIVE: u8 = 0;
const ZERO: u8 = 1;
const POSITIVE: u8 = 2;
/// Sign and exponent.
const HEAD_BYTES: usize = 9;
const SCALE_BYTES: usize = 4;

pub(super) fn push(out: &mut Vec<u8>, value: &[u8]) {
    let Some((scale, unscaled)) = value.split_first_chunk() else { return };
    let scale = i32::from_be_bytes(*scale);
    let text = varint_digits(unscaled);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (NEGATIVE, digits),
        None if text == "0" => (ZERO, ""),
        None => (POSITIVE, &*text),
    };
    out.push(sign);
    if sign != ZERO {
        let from = out.len();
        let exponent = i64::try_from(digits.len()).unwrap_or(i64::MAX) - i64::from(scale);
        out.extend_from_slice(&(exponent ^ i64::MIN).to_be_bytes());
        out.extend_from_slice(digits.trim_end_matches('0').as_bytes());
        out.push(0);
        if sign == NEGATIVE {
            out[from..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }
    out.extend_from_slice(&(scale ^ i32::MIN).to_be_bytes());
}

/// Bytes of what `push` wrote, which a mask inverts.
pub(super) fn length_of(bytes: &[u8], mask: u8) -> Option<usize> {
    let end = match bytes.first()? ^ mask {
        ZERO => return Some(1 + SCALE_BYTES),
        NEGATIVE => 0xff ^ mask,
        _ => mask,
    };
    let digits = bytes.get(HEAD_BYTES..)?.iter().position(|byte| *byte == end)?;
    Some(HEAD_BYTES + digits + 1 + SCALE_BYTES)
}

/// The value that `push` was given.
pub(super) fn value(bytes: &[u8]) -> Vec<u8> {
    let (head, scale) = bytes.split_at(bytes.len() - SCALE_BYTES);
    let scale = i32::from_be_bytes(scale.try_into().unwrap_or_default()) ^ i32::MIN;
    let sign = head[0];
    let mask = if sign == NEGATIVE { 0xff } else { 0 };
    let plain: Vec<u8> = head[1..].iter().map(|byte| byte ^ mask).collect();
    let mut text = String::from(if sign == NEGATIVE { "-" } else { "" });
    match plain.split_first_chunk() {
        Some((exponent, digits)) => {
            let exponent = i64::from_be_bytes(*exponent) ^ i64::MIN;
            let digits = &digits[..digits.len() - 1];
            text.extend(digits.iter().map(|digit| char::from(*digit)));
            // The zeros at the end that were cut.
            let length = usize::try_from(exponent + i64::from(scale)).unwrap_or(0);
            text.extend(std::iter::repeat_n('0', length.saturating_sub(digits.len())));
        }
        None => text.push('0'),
    }
    let mut value = scale.to_be_bytes().to_vec();
    value.extend(varint_of_digits(&text).unwrap_or_default());
    value
}
