//! CQL statements: any text is parsed or refused with a place in it.

use tare_cql::statement::parse;

/// Longest text that is told back in an error, in bytes, beside what of the input it repeats.
const WORDS_MAX: usize = 1000;

pub(super) fn statements(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match parse(&text) {
        Ok(parsed) => {
            // As text, since a number may be NaN, which is equal to nothing.
            let again = parse(&text).ok().map(|again| format!("{again:?}"));
            assert_eq!(Some(format!("{parsed:?}")), again, "a text has one meaning");
        }
        Err(error) => {
            let told = error.to_string();
            assert!(!told.is_empty() && told.len() <= text.len() * 4 + WORDS_MAX, "{told}");
        }
    }
}
