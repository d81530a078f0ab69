//! Errors as text for people.

use std::error::Error;

/// An error with its sources on one line: what failed, why, and why that.
pub fn error_line(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        line += &format!(": {error}");
        source = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot start")]
    struct Outer(#[from] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("no space")]
    struct Inner;

    #[test]
    fn all_sources_are_on_the_line() {
        assert_eq!(error_line(&Inner), "no space");
        assert_eq!(error_line(&Outer(Inner)), "cannot start: no space");
    }
}
