//! Splits text into tokens, as Cassandra's `Lexer.g` does.

use super::{ParseError, SyntaxProblem};
use crate::types::Duration;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// A keyword or an identifier, folded to lower case.
    Word(String),
    /// An identifier in double quotes.
    Quoted(String),
    Text(String),
    Integer(i128),
    /// An integer that does not fit into 128 bits, as written.
    BigInteger(String),
    /// A float, as written.
    Float(String),
    Uuid([u8; 16]),
    Blob(Vec<u8>),
    Duration(Duration),
    /// Punctuation of one or two characters.
    Mark(&'static str),
    End,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token<'t> {
    pub(super) kind: Kind,
    /// The text as written; `<EOF>` at the end.
    pub(super) text: &'t str,
    /// The offset of its first byte.
    pub(super) offset: usize,
}

/// Punctuation, longer marks first.
const MARKS: [&str; 24] = [
    "<=", ">=", "!=", "+=", "-=", "(", ")", "[", "]", "{", "}", ",", ".", ";", ":", "?", "*", "=",
    "<", ">", "+", "-", "/", "%",
];

/// Splits the whole text. The last token is `End`.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut tokens = Vec::new();
    let mut offset = 0;
    while let Some(after) = skip(text, offset)? {
        let (kind, length) = token(text, after)?;
        tokens.push(Token { kind, text: &text[after..after + length], offset: after });
        offset = after + length;
    }
    tokens.push(Token { kind: Kind::End, text: "<EOF>", offset: text.len() });
    Ok(tokens)
}

/// The error at an offset of the text.
pub(super) fn syntax(text: &str, offset: usize, problem: SyntaxProblem) -> ParseError {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    ParseError::Syntax {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count(),
        problem,
    }
}

/// The offset of the next token, after white space and comments; `None` at the end.
fn skip(text: &str, mut offset: usize) -> Result<Option<usize>, ParseError> {
    loop {
        let rest = &text[offset..];
        let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
        offset += rest.len() - trimmed.len();
        if trimmed.starts_with("--") || trimmed.starts_with("//") {
            offset += trimmed.find('\n').unwrap_or(trimmed.len());
        } else if let Some(comment) = trimmed.strip_prefix("/*") {
            let end = comment.find("*/").ok_or_else(|| {
                syntax(text, offset, SyntaxProblem::Unterminated { what: "comment" })
            })?;
            offset += end + 4;
        } else {
            return Ok((!trimmed.is_empty()).then_some(offset));
        }
    }
}

fn token(text: &str, offset: usize) -> Result<(Kind, usize), ParseError> {
    let rest = &text[offset..];
    let bytes = rest.as_bytes();
    if let Some(uuid) = uuid(bytes) {
        return Ok((Kind::Uuid(uuid), 36));
    }
    if let Some((duration, length)) = iso_duration(rest) {
        return Ok((Kind::Duration(duration), length));
    }
    let unterminated = |what| syntax(text, offset, SyntaxProblem::Unterminated { what });
    match bytes.first().copied().unwrap_or(0) {
        b'\'' => {
            let (value, length) =
                quoted(rest, '\'').ok_or_else(|| unterminated("string literal"))?;
            Ok((Kind::Text(value), length))
        }
        b'"' => {
            let (value, length) =
                quoted(rest, '"').ok_or_else(|| unterminated("quoted identifier"))?;
            Ok((Kind::Quoted(value), length))
        }
        b'$' if rest.starts_with("$$") => {
            let length = rest[2..].find("$$").ok_or_else(|| unterminated("string literal"))?;
            Ok((Kind::Text(rest[2..2 + length].to_owned()), length + 4))
        }
        b'0'..=b'9' => number(text, offset),
        b'-' if bytes.get(1).is_some_and(u8::is_ascii_digit) => number(text, offset),
        first if first.is_ascii_alphabetic() || first == b'_' => {
            let length = run(bytes, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
            Ok((Kind::Word(rest[..length].to_ascii_lowercase()), length))
        }
        _ => MARKS
            .iter()
            .find(|mark| rest.starts_with(**mark))
            .map(|mark| (Kind::Mark(mark), mark.len()))
            .ok_or_else(|| {
                let character = rest.chars().next().unwrap_or('\0');
                syntax(text, offset, SyntaxProblem::Character { character })
            }),
    }
}

fn run(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| belongs(**byte)).count()
}

/// The text between two quotes, in which a doubled quote is one, and the length including the
/// quotes.
fn quoted(rest: &str, quote: char) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut characters = rest.char_indices().skip(1).peekable();
    while let Some((position, character)) = characters.next() {
        if character != quote {
            value.push(character);
        } else if characters.next_if(|(_, next)| *next == quote).is_some() {
            value.push(quote);
        } else {
            return Some((value, position + 1));
        }
    }
    None
}

/// A duration of ISO 8601 that is no word: with a leading minus, or of the form
/// `PYYYY-MM-DDThh:mm:ss`.
fn iso_duration(rest: &str) -> Option<(Duration, usize)> {
    const DATE_BYTES: usize = "P0000-00-00T00:00:00".len();
    let unsigned = rest.strip_prefix('-').unwrap_or(rest);
    let sign = rest.len() - unsigned.len();
    if !unsigned.starts_with(['P', 'p']) {
        return None;
    }
    let word = sign + run(unsigned.as_bytes(), |byte| byte.is_ascii_alphanumeric());
    let date = sign + DATE_BYTES;
    let length = match rest.as_bytes().get(sign + 5) {
        Some(b'-') => date,
        _ if sign > 0 => word,
        _ => return None,
    };
    Duration::parse(rest.get(..length)?).map(|duration| (duration, length))
}

/// Integer, float, blob or duration.
fn number(text: &str, offset: usize) -> Result<(Kind, usize), ParseError> {
    let rest = &text[offset..];
    let bytes = rest.as_bytes();
    if bytes[0] == b'0' && matches!(bytes.get(1), Some(b'x' | b'X')) {
        let digits = &bytes[2..2 + run(&bytes[2..], |byte| byte.is_ascii_alphanumeric())];
        let blob = hex(digits).ok_or_else(|| {
            let input = rest[..2 + digits.len()].to_owned();
            syntax(text, offset, SyntaxProblem::NoAlternative { input })
        })?;
        return Ok((Kind::Blob(blob), 2 + digits.len()));
    }
    let mut length = usize::from(bytes[0] == b'-');
    length += run(&bytes[length..], |byte| byte.is_ascii_digit());
    let mut is_float = false;
    if bytes.get(length) == Some(&b'.') {
        is_float = true;
        length += 1 + run(&bytes[length + 1..], |byte| byte.is_ascii_digit());
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let digits = run(&bytes[length + 1 + sign..], |byte| byte.is_ascii_digit());
        if digits > 0 {
            is_float = true;
            length += 1 + sign + digits;
        }
    }
    let belongs = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let tail = run(&bytes[length..], belongs);
    if tail > 0 {
        let written = &rest[..length + tail];
        let duration = Duration::parse(written).ok_or_else(|| {
            syntax(text, offset, SyntaxProblem::NoAlternative { input: written.to_owned() })
        })?;
        return Ok((Kind::Duration(duration), written.len()));
    }
    let written = &rest[..length];
    let kind = if is_float {
        Kind::Float(written.to_owned())
    } else {
        written.parse().map_or_else(|_| Kind::BigInteger(written.to_owned()), Kind::Integer)
    };
    Ok((kind, length))
}

/// The bytes of an even number of hexadecimal digits.
fn hex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect()
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// A UUID of 36 characters at the front of `bytes`, not followed by more of a word.
pub(crate) fn uuid(bytes: &[u8]) -> Option<[u8; 16]> {
    let (written, after) = bytes.split_first_chunk::<36>()?;
    if after.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
        return None;
    }
    let mut digits = [0_u8; 32];
    let mut filled = 0;
    for (position, byte) in written.iter().enumerate() {
        if matches!(position, 8 | 13 | 18 | 23) {
            if *byte != b'-' {
                return None;
            }
        } else {
            digits[filled] = *byte;
            filled += 1;
        }
    }
    hex(&digits)?.try_into().ok()
}
