//! CQL statements: any text is parsed, or refused with a position in it.

use tare_cql::statement::parse;

/// Length that an error's text may have, in bytes, in addition to parts of the input that it
/// repeats.
const WORDS_MAX: usize = 1000;

pub(super) fn statements(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match parse(&text) {
        Ok(parsed) => {
            // The comparison is by text, because a NaN equals nothing.
            let again = parse(&text).ok().map(|again| format!("{again:?}"));
            assert_eq!(Some(format!("{parsed:?}")), again, "a text has one meaning");
        }
        Err(error) => {
            let message = error.to_string();
            assert!(
                !message.is_empty() && message.len() <= text.len() * 4 + WORDS_MAX,
                "{message}"
            );
        }
    }
}
