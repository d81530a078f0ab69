//! Errors in a TOML file, each with its position.

use std::fmt;
use std::ops::Range;

/// An error in a file. It displays the problem and the line with a caret under the position.
#[derive(Clone, Debug, PartialEq)]
pub struct TomlError {
    /// The name of the file as the user gave it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The problem. It is boxed to keep results small.
    pub problem: Box<Problem>,
    line_text: String,
    /// How many characters to underline; at least 1.
    width: usize,
}

/// A problem in a file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    #[error("not valid TOML: {message}")]
    Syntax { message: String },
    #[error("unknown key \"{key}\" in {table}{hint}")]
    UnknownKey { key: String, table: String, hint: Hint },
    #[error("{table} lacks the key \"{key}\"")]
    MissingKey { table: String, key: String },
    #[error("\"{key}\" must be {wanted}, not {found}")]
    WrongType { key: String, wanted: String, found: String },
    #[error("unknown value \"{value}\" for \"{key}\"{hint}")]
    UnknownValue { key: String, value: String, hint: Hint },
    #[error("\"{value}\" is no valid value for \"{key}\": {why}")]
    BadValue { key: String, value: String, why: String },
    #[error("\"{key}\" is {value}; it must be {range}")]
    OutOfRange { key: String, value: String, range: String },
    #[error("there are two {what}s named \"{name}\"; the first is on line {first_line}")]
    Duplicate { what: String, name: String, first_line: usize },
    #[error("\"{key}\" names \"{name}\", but no {what} has that name{hint}")]
    NoSuch { key: String, what: &'static str, name: String, hint: Hint },
    #[error(
        "the study has no quick part; add a table [quick] that names what to leave out, or run the whole study"
    )]
    NoQuickPart,
    #[error("environments extend each other in a circle: {}", .chain.join(" -> "))]
    ExtendsCycle { chain: Vec<String> },
    #[error("\"{key}\" and \"{other}\" cannot both be set: {why}")]
    Conflict { key: String, other: String, why: String },
}

/// A suggestion: the nearest valid name, or all valid names if none is near.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    pub nearest: Option<String>,
    pub known: Vec<String>,
}

/// The least normalised Damerau-Levenshtein similarity of two near names.
const NEAR: f64 = 0.5;

impl Hint {
    pub fn new<T: AsRef<str>>(name: &str, known: &[T]) -> Self {
        let rank = |word: &str| strsim::normalized_damerau_levenshtein(name, word);
        let nearest = known
            .iter()
            .map(|word| (rank(word.as_ref()), word.as_ref()))
            .filter(|(similarity, _)| *similarity >= NEAR)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, word)| word.to_string());
        Self { nearest, known: known.iter().map(|word| word.as_ref().to_string()).collect() }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean \"{nearest}\"?"),
            None if self.known.is_empty() => Ok(()),
            None => write!(f, "; known: {}", self.known.join(", ")),
        }
    }
}

impl TomlError {
    /// Returns an error at a range of bytes of `text`.
    pub(crate) fn new(file: &str, text: &str, span: Range<usize>, problem: Problem) -> Self {
        let start = (0..=span.start.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        let start = start.unwrap_or(0);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_text: String = text[line_start..].lines().next().unwrap_or("").to_string();
        let column = text[line_start..start].chars().count();
        let end = (span.end.min(line_start + line_text.len())).max(start);
        let width = text.get(start..end).map_or(1, |part| part.chars().count().max(1));
        Self {
            file: file.to_string(),
            line: line_of(text, start),
            column: column + 1,
            problem: Box::new(problem),
            line_text,
            width,
        }
    }
}

/// Returns the line of a byte of `text`, counted from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

impl fmt::Display for TomlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, problem, line_text, width } = self;
        let gutter = " ".repeat(line.to_string().len());
        // The width of a tab depends on the terminal, so tabs are repeated under the line.
        let lead: String = line_text
            .chars()
            .take(column - 1)
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        writeln!(f, "{file}:{line}:{column}: {problem}")?;
        writeln!(f, "{gutter} |")?;
        writeln!(f, "{line} | {line_text}")?;
        write!(f, "{gutter} | {lead}{}", "^".repeat(*width))
    }
}

impl std::error::Error for TomlError {}
