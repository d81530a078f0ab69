//! Quantities of memory as Kubernetes writes them.
//!
//! Source: kubernetes.io, "Quantity" (common definitions of the API).

/// Parses a quantity in bytes: `1Gi`, `500M`, `1073741824`, `1.5Gi`. `None` for a share (`5%`) or
/// anything else.
pub fn bytes(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 11] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("", 1.0),
    ];
    let text = text.trim();
    let (number, unit) = UNITS.iter().find_map(|(suffix, unit)| {
        let number = text.strip_suffix(suffix)?;
        Some((number, *unit))
    })?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let number: f64 = number.parse().ok()?;
    let bytes = (number * unit).ceil();
    // Beyond 2^53 a product of doubles is not exact, and no machine has that much memory.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked"
    )]
    (0.0..9e15).contains(&bytes).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory_are_read() {
        let check = |text: &str, expect: Option<u64>| assert_eq!(bytes(text), expect, "{text}");
        check("1Gi", Some(1 << 30));
        check("1.5Gi", Some(3 << 29));
        check("500M", Some(500_000_000));
        check("100Mi", Some(100 << 20));
        check("1073741824", Some(1 << 30));
        check("5%", None);
        check("", None);
        check("Gi", None);
        check("-1Gi", None);
    }
}
