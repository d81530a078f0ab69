//! Errors as people read them.

use std::error::Error;

/// Returns an error with its sources, in one line: `cannot open the file: permission denied`.
pub fn one_line(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the plan")]
    struct Outer(#[source] std::num::ParseIntError);

    #[test]
    fn sources_follow_in_one_line() {
        let inner = "x".parse::<u8>().unwrap_err();
        assert_eq!(one_line(&Outer(inner)), "cannot read the plan: invalid digit found in string");
    }
}
