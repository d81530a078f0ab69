//! Parses percentages, and has the help text for durations.

/// The help in the error for an invalid duration. The error's position shows the text itself.
pub(crate) const DURATION_FORM: &str =
    "a duration is a number with ns, us, ms, s, m or h, such as \"400ms\" or \"5m\"";

/// Parses a percentage such as `50%` into a share of 1.
pub fn parse_share(text: &str) -> Result<f64, ValueError> {
    let number = text.trim().strip_suffix('%').ok_or(ValueError::Share)?;
    let percent: f64 = number.trim().parse().map_err(|_| ValueError::Share)?;
    percent.is_finite().then_some(percent / 100.0).ok_or(ValueError::Share)
}

/// Why a text is not a quantity of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("a share is a number from 0 to 1 or a percentage, such as 0.5 or \"50%\"")]
    Share,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        assert_eq!(parse_share("50%"), Ok(0.5));
        assert_eq!(parse_share(" 2.5 % "), Ok(0.025));
        for bad in ["50", "%", "x%", "inf%", ""] {
            assert_eq!(parse_share(bad), Err(ValueError::Share), "{bad}");
        }
    }
}
