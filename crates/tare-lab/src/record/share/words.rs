//! The words that a shared record may contain.
//!
//! A text is divided into words. A word stays if its letters are in `words.txt`, which has the
//! words of Tare's own reference, studies, doubts and probes, of kernels, processors and runtimes.
//! Every other word is replaced, and so are addresses and long numbers. So a name stays only if it
//! consists of words that any record may have.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

/// In place of a word that is not on the list.
pub(super) const REMOVED: &str = "x";

/// Digits of a number that stays. Serial numbers are longer.
const DIGITS_MAX: usize = 7;
/// Digits of a text that is nothing but a number.
const SIZE_DIGITS_MAX: usize = 10;
/// Most runs of letters or digits in a word, such as 3 in `4k2`. Identifiers in hexadecimal have
/// more.
const RUNS_MAX: usize = 3;
/// Characters that stay besides ASCII and the letters of words.
const SIGNS: &str = "µ±–—→×−…“”‘’≤≥";

fn is_known(word: &str) -> bool {
    static WORDS: OnceLock<HashSet<&'static str>> = OnceLock::new();
    let words = WORDS.get_or_init(|| include_str!("words.txt").lines().collect());
    word.len() == 1 && word.is_ascii() || words.contains(word.to_ascii_lowercase().as_str())
}

/// Returns the text with every word replaced that is not on the list.
pub(super) fn keep_words(text: &str) -> String {
    if is_size(text) {
        return text.to_string();
    }
    let mut kept = String::with_capacity(text.len());
    for piece in text.split_inclusive(char::is_whitespace) {
        let end = piece.trim_end().len();
        let (word, blank) = piece.split_at(end);
        match is_address(word) {
            true => kept.push_str(REMOVED),
            false => keep_in(word, &mut kept),
        }
        kept.extend(blank.chars().map(|_| ' '));
    }
    kept
}

/// Whether a text is nothing but a number of bytes or the like, such as `24684092 kB`.
fn is_size(text: &str) -> bool {
    let (digits, unit) = text.split_once(' ').unwrap_or((text, ""));
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
    is_number && digits.len() <= SIZE_DIGITS_MAX && ["", "kB", "B"].contains(&unit)
}

/// Whether a text without blanks is, or contains after `=` or `//`, an address of a network.
fn is_address(text: &str) -> bool {
    let outer = |c: char| !c.is_ascii_alphanumeric() && c != ':';
    text.split(['=', '/', ',', ';', '@']).any(|part| {
        let part = part.trim_matches(outer);
        let mac = part
            .split([':', '-'])
            .filter(|pair| pair.len() == 2 && pair.chars().all(|c| c.is_ascii_hexdigit()));
        part.parse::<IpAddr>().is_ok_and(|_| part.len() > 3)
            || part.parse::<SocketAddr>().is_ok()
            || (mac.count() == 6 && part.len() == 17)
    })
}

fn keep_in(text: &str, kept: &mut String) {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric();
        let end = match is_word(first) {
            true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (part, after) = rest.split_at(end);
        rest = after;
        let good = match is_word(first) {
            true => is_kept_word(part),
            false => first.is_ascii_graphic() || SIGNS.contains(first),
        };
        kept.push_str(if good { part } else { REMOVED });
    }
}

/// Whether a word of letters and digits stays: few runs of known letters and short numbers.
fn is_kept_word(word: &str) -> bool {
    // Such as the version of microcode.
    if let Some(digits) = word.strip_prefix("0x") {
        return digits.len() <= 8 && digits.chars().all(|c| c.is_ascii_hexdigit());
    }
    let kind = |c: char| c.is_ascii_digit();
    let mut runs = 0;
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| kind(c) != kind(first)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        rest = after;
        runs += 1;
        let good = if kind(first) { run.len() <= DIGITS_MAX } else { is_kept_run(run) };
        if !good || runs > RUNS_MAX {
            return false;
        }
    }
    true
}

/// Whether letters are a known word, or several of them joined like `NotInForce`.
fn is_kept_run(run: &str) -> bool {
    if !run.is_ascii() {
        return run == "µ" || run == "µs";
    }
    if is_known(run) {
        return true;
    }
    let mut parts: Vec<String> = Vec::new();
    for c in run.chars() {
        match parts.last_mut() {
            Some(last) if c.is_ascii_lowercase() => last.push(c),
            _ => parts.push(c.to_string()),
        }
    }
    parts.len() > 1 && parts.iter().all(|part| part.len() > 1 && is_known(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// An environment may have the name of a layer's value, so a new name would also replace that.
    #[test]
    fn names_of_shipped_studies_stay() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
        let mut seen = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let study: toml::Table =
                toml::from_str(&fs::read_to_string(entry.unwrap().path()).unwrap()).unwrap();
            for kind in ["environment", "workload", "neighbour"] {
                for one in study.get(kind).and_then(toml::Value::as_array).into_iter().flatten() {
                    let name = one["name"].as_str().unwrap();
                    assert_eq!(keep_words(name), name);
                    seen += 1;
                }
            }
        }
        assert!(seen > 50, "{seen}");
    }

    #[test]
    fn keeps_words_and_removes_names() {
        for (text, kept) in [
            ("docker-default: 12.5 % at 200ms", "docker-default: 12.5 % at 200ms"),
            ("layer cpu was not in force", "layer cpu was not in force"),
            (
                "Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz",
                "Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz",
            ),
            ("6.1.0-25-amd64", "6.1.0-25-amd64"),
            ("microcode 0x2b0005c0", "microcode 0x2b0005c0"),
            ("6.1.0-zorgcorp", "6.1.0-x"),
            ("/srv/zorgcorp/pg15", "/srv/x/x"),
            ("connect to 10.20.30.40:9042", "connect to x"),
            ("host=fe80::1ff:fe23:4567:890a", "x"),
            ("52:54:00:ab:cd:ef", "x"),
            ("serial S4EVNX0R123456", "serial x"),
            ("a1b2c3d4-0000", "x-0000"),
            ("disk 123456789", "disk x"),
            ("24684092 kB", "24684092 kB"),
            ("zürich", "x"),
            ("\u{1b}[31m", "x[31m"),
        ] {
            assert_eq!(keep_words(text), kept, "{text}");
        }
    }
}
