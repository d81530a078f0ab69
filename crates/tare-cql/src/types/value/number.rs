//! Numbers of any length as CQL spells them: the bytes of `varint` and `decimal`.

/// Digits that one number may have: the time to convert one grows with the square of its length.
const DIGITS_MAX: usize = 4096;

/// The shortest two's complement of a decimal integer with an optional sign; `None` if the text is
/// no integer, or is too long.
pub fn varint_of_digits(text: &str) -> Option<Vec<u8>> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || digits.len() > DIGITS_MAX {
        return None;
    }
    // Little-endian, with room for the sign.
    let mut bytes = vec![0u8];
    for digit in digits.chars() {
        let mut carry = digit.to_digit(10)?;
        for byte in &mut bytes {
            carry += u32::from(*byte) * 10;
            *byte = low_byte(carry);
            carry >>= 8;
        }
        if carry > 0 {
            bytes.push(low_byte(carry));
        }
    }
    bytes.push(0);
    if negative {
        let mut carry = true;
        for byte in &mut bytes {
            (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
        }
    }
    bytes.reverse();
    Some(super::shortest(&bytes).to_vec())
}

/// The decimal digits of a `varint`, with a leading minus if it is negative.
pub fn varint_digits(bytes: &[u8]) -> String {
    let negative = bytes.first().is_some_and(|byte| *byte >= 0x80);
    let mut magnitude = bytes.to_vec();
    if negative {
        let mut carry = true;
        for byte in magnitude.iter_mut().rev() {
            (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
        }
        // The magnitude of 0x80 is 0x0080.
        if carry {
            magnitude.insert(0, 1);
        }
    }
    let mut digits = Vec::new();
    while magnitude.iter().any(|byte| *byte != 0) {
        let mut rest = 0u32;
        for byte in &mut magnitude {
            rest = rest << 8 | u32::from(*byte);
            *byte = low_byte(rest / 10);
            rest %= 10;
        }
        digits.push(b'0' + low_byte(rest));
    }
    if digits.is_empty() {
        return "0".into();
    }
    if negative {
        digits.push(b'-');
    }
    digits.iter().rev().map(|digit| char::from(*digit)).collect()
}

/// Scale and unscaled value of a decimal such as `-12.50` or `1.5e-7`.
pub(super) fn decimal(text: &str) -> Option<(i32, Vec<u8>)> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    Some((scale, varint_of_digits(&format!("{whole}{fraction}"))?))
}

fn low_byte(value: u32) -> u8 {
    value.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varint_digits_round_trip(value: i128) {
            let bytes = varint_of_digits(&value.to_string()).unwrap();
            prop_assert!(bytes.len() <= 16);
            let sign = if value < 0 { 0xff } else { 0 };
            let mut long = [sign; 16];
            long[16 - bytes.len()..].copy_from_slice(&bytes);
            prop_assert_eq!(i128::from_be_bytes(long), value);
            prop_assert_eq!(varint_digits(&bytes), value.to_string());
            prop_assert_eq!(varint_digits(&long), value.to_string());
        }
    }

    #[test]
    fn long_numbers_and_decimals_are_converted() {
        let long = format!("-{}", "1234567890".repeat(20));
        assert_eq!(varint_digits(&varint_of_digits(&long).unwrap()), long);
        assert_eq!(varint_digits(&[0x80]), "-128");
        assert_eq!(decimal("-12.50"), Some((2, vec![0xfb, 0x1e])));
        assert_eq!(decimal("1.5e-7"), Some((8, vec![15])));
        assert_eq!(decimal("3e5"), Some((-5, vec![3])));
        for wrong in ["", "-", "1x", "NaN", "1e99999999999"] {
            assert_eq!(decimal(wrong), None, "{wrong}");
        }
    }
}
