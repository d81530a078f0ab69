//! What a program wrote to standard error, as a part of an error.

/// The most characters of it.
const CHARACTERS_MAX: usize = 600;

/// Returns the text on one line; `None` if it is empty.
pub(crate) fn on_one_line(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let line: String = lines.join("; ").chars().take(CHARACTERS_MAX).collect();
    (!line.is_empty()).then_some(line)
}

/// Returns how an error about a program ends: with what it printed, if it printed anything.
pub(crate) fn and_printed(stderr: &str) -> String {
    on_one_line(stderr).map_or_else(String::new, |line| format!("; it printed: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_lines_are_joined() {
        assert_eq!(
            and_printed(" no memory\n\n  giving up\n"),
            "; it printed: no memory; giving up"
        );
        assert_eq!(and_printed("\n"), "");
        assert_eq!(on_one_line(&"x".repeat(2000)).map(|line| line.len()), Some(CHARACTERS_MAX));
    }
}
