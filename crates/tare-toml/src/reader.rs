//! Reads TOML tables key by key, and gives every error its position.
//!
//! The parsed tree is walked by hand, because serde's errors lose the position of a key
//! (`deny_unknown_fields` points at the table).

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use tare_std::cpus::CpuSet;
use tare_std::units::parse_bytes;
use toml::de::{DeTable, DeValue};

use crate::error::{Hint, Problem, TomlError, line_of};
use crate::values::{DURATION_FORM, parse_share};
use tare_std::units::parse_duration;

/// A file and its text.
#[derive(Clone, Copy, Debug)]
pub struct Source<'s> {
    pub file: &'s str,
    pub text: &'s str,
}

impl<'s> Source<'s> {
    /// Creates an error at a range of bytes.
    pub fn error(&self, span: Range<usize>, problem: Problem) -> TomlError {
        TomlError::new(self.file, self.text, span, problem)
    }

    /// Returns the line of a range of bytes, from 1.
    pub fn line(&self, span: &Range<usize>) -> usize {
        line_of(self.text, span.start)
    }

    /// Parses the text.
    ///
    /// # Errors
    /// If the text is not TOML.
    pub fn document(&self) -> Result<DeTable<'s>, TomlError> {
        let document = DeTable::parse(self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            self.error(span, Problem::Syntax { message: error.message().to_string() })
        })?;
        Ok(document.into_inner())
    }

    /// Returns the table of the whole file.
    ///
    /// # Errors
    /// If the table has an unknown key.
    pub fn root(
        self,
        title: &str,
        document: &'s DeTable<'s>,
        known: &[&str],
    ) -> Result<Table<'s>, TomlError> {
        Table::new(self, title, self.first_line(), document, known)
    }

    /// Returns the range of the first line, for problems of the whole file.
    pub fn first_line(&self) -> Range<usize> {
        0..self.text.lines().next().map_or(0, str::len)
    }
}

/// A table of a file.
#[derive(Clone, Debug)]
pub struct Table<'s> {
    source: Source<'s>,
    /// The title for messages, such as `[schedule]` or `[[environment]]`.
    title: String,
    span: Range<usize>,
    entries: &'s DeTable<'s>,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub struct Item<'s> {
    source: Source<'s>,
    key: String,
    pub key_span: Range<usize>,
    pub span: Range<usize>,
    value: &'s DeValue<'s>,
}

impl<'s> Table<'s> {
    /// Creates a table with a check of its keys.
    ///
    /// # Errors
    /// If a key is unknown. The error names the first one in the order of the file.
    pub fn new(
        source: Source<'s>,
        title: &str,
        span: Range<usize>,
        entries: &'s DeTable<'s>,
        known: &[&str],
    ) -> Result<Self, TomlError> {
        let table = Self::unchecked(source, title, span, entries);
        match table.items().into_iter().find(|item| !known.contains(&item.key.as_str())) {
            Some(item) => Err(source.error(
                item.key_span.clone(),
                Problem::UnknownKey {
                    table: title.to_string(),
                    hint: Hint::new(&item.key, known),
                    key: item.key,
                },
            )),
            None => Ok(table),
        }
    }

    /// Creates a table without a check of its keys.
    pub fn unchecked(
        source: Source<'s>,
        title: &str,
        span: Range<usize>,
        entries: &'s DeTable<'s>,
    ) -> Self {
        Self { source, title: title.to_string(), span, entries }
    }

    /// Returns all items in the order of the file.
    pub fn items(&self) -> Vec<Item<'s>> {
        let item = |(key, value): (&toml::Spanned<_>, &'s toml::Spanned<DeValue<'s>>)| Item {
            source: self.source,
            key: AsRef::<std::borrow::Cow<'_, str>>::as_ref(key).to_string(),
            key_span: key.span(),
            span: value.span(),
            value: value.get_ref(),
        };
        let mut items: Vec<Item<'s>> = self.entries.iter().map(item).collect();
        items.sort_by_key(|item| item.key_span.start);
        items
    }

    pub fn get(&self, key: &str) -> Option<Item<'s>> {
        self.items().into_iter().find(|item| item.key == key)
    }

    pub fn need(&self, key: &str) -> Result<Item<'s>, TomlError> {
        self.get(key).ok_or_else(|| self.missing(key))
    }

    pub fn missing(&self, key: &str) -> TomlError {
        let problem = Problem::MissingKey { table: self.title.clone(), key: key.to_string() };
        self.source.error(self.span.clone(), problem)
    }

    /// Refuses a table with both of two keys that exclude each other.
    pub fn exclusive(&self, key: &str, other: &str, why: &str) -> Result<(), TomlError> {
        match (self.get(key), self.get(other)) {
            (Some(item), Some(_)) => Err(self.source.error(
                item.key_span,
                Problem::Conflict { key: key.into(), other: other.into(), why: why.into() },
            )),
            _ => Ok(()),
        }
    }

    /// Returns the text of a key, with the position of its value.
    pub fn text(&self, key: &str) -> Result<Option<(String, Item<'s>)>, TomlError> {
        self.get(key).map(|item| Ok((item.text()?.to_string(), item))).transpose()
    }

    /// Returns the word of a key, which must be one of `known`.
    pub fn word(&self, key: &str, known: &[String]) -> Result<Option<String>, TomlError> {
        let Some((value, item)) = self.text(key)? else { return Ok(None) };
        item.known(&value, known)?;
        Ok(Some(value))
    }

    pub fn whole(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> Result<u64, TomlError> {
        self.get(key).map_or(Ok(default), |item| item.whole(range))
    }

    pub fn whole_u32(
        &self,
        key: &str,
        range: RangeInclusive<u32>,
        default: u32,
    ) -> Result<u32, TomlError> {
        let wide = u64::from(*range.start())..=u64::from(*range.end());
        let value = self.whole(key, wide, u64::from(default))?;
        Ok(u32::try_from(value).unwrap_or(*range.end()))
    }

    pub fn duration(
        &self,
        key: &str,
        range: RangeInclusive<Duration>,
        default: Duration,
    ) -> Result<Duration, TomlError> {
        self.get(key).map_or(Ok(default), |item| item.duration(range))
    }

    pub fn share(&self, key: &str, default: f64) -> Result<f64, TomlError> {
        self.get(key).map_or(Ok(default), |item| item.share())
    }

    pub fn flag(&self, key: &str) -> Result<bool, TomlError> {
        self.get(key).map_or(Ok(false), |item| match item.value {
            DeValue::Boolean(flag) => Ok(*flag),
            _ => Err(item.wrong_type("true or false")),
        })
    }

    pub fn cpus(&self, key: &str) -> Result<Option<CpuSet>, TomlError> {
        let Some((value, item)) = self.text(key)? else { return Ok(None) };
        match value.parse::<CpuSet>() {
            Ok(set) if set.is_empty() => Err(item.bad_value("it names no CPU")),
            Ok(set) => Ok(Some(set)),
            Err(error) => Err(item.bad_value(&error.to_string())),
        }
    }

    /// Returns the tables of an array (`[[key]]`) in the order of the file.
    pub fn tables(&self, key: &str, known: &[&str]) -> Result<Vec<Table<'s>>, TomlError> {
        let Some(item) = self.get(key) else { return Ok(Vec::new()) };
        let title = format!("[[{key}]]");
        let DeValue::Array(array) = item.value else {
            return Err(item.wrong_type(&format!("tables that start with {title}")));
        };
        let mut tables = Vec::new();
        for value in array.iter() {
            let DeValue::Table(entries) = value.get_ref() else {
                return Err(item.wrong_type(&format!("tables that start with {title}")));
            };
            tables.push(Table::new(self.source, &title, value.span(), entries, known)?);
        }
        Ok(tables)
    }

    /// Returns a table inside this table.
    pub fn table(&self, key: &str, known: &[&str]) -> Result<Option<Table<'s>>, TomlError> {
        self.get(key).map(|item| item.table(&format!("[{key}]"), known)).transpose()
    }

    /// Creates a table that the file does not contain.
    pub fn empty(&self, title: &str, entries: &'s DeTable<'s>) -> Table<'s> {
        Self::unchecked(self.source, title, self.span.clone(), entries)
    }
}

impl<'s> Item<'s> {
    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn error(&self, problem: Problem) -> TomlError {
        self.source.error(self.span.clone(), problem)
    }

    pub fn wrong_type(&self, wanted: &str) -> TomlError {
        let found = match self.value {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let (key, wanted) = (self.key.clone(), wanted.to_string());
        self.error(Problem::WrongType { key, wanted, found: found.into() })
    }

    pub fn bad_value(&self, why: &str) -> TomlError {
        let value = match self.value {
            DeValue::String(text) => text.to_string(),
            _ => self.source.text.get(self.span.clone()).unwrap_or_default().to_string(),
        };
        self.error(Problem::BadValue { key: self.key.clone(), value, why: why.into() })
    }

    pub fn out_of_range(&self, range: &str) -> TomlError {
        let written = self.source.text.get(self.span.clone()).unwrap_or_default().to_string();
        self.error(Problem::OutOfRange {
            key: self.key.clone(),
            value: written,
            range: range.into(),
        })
    }

    pub fn is_table(&self) -> bool {
        self.value.is_table()
    }

    /// Returns the values of a list, each with this key. `None` if the value is not a list.
    pub fn list(&self) -> Option<Vec<Item<'s>>> {
        let DeValue::Array(array) = self.value else { return None };
        let item = |value: &'s toml::Spanned<DeValue<'s>>| Item {
            span: value.span(),
            value: value.get_ref(),
            ..self.clone()
        };
        Some(array.iter().map(item).collect())
    }

    pub fn text(&self) -> Result<&'s str, TomlError> {
        match self.value {
            DeValue::String(text) => Ok(text),
            _ => Err(self.wrong_type("a text in quotes")),
        }
    }

    /// Refuses a value that is not among `known`.
    pub fn known(&self, value: &str, known: &[String]) -> Result<(), TomlError> {
        if is_known(value, known) {
            return Ok(());
        }
        let hint = Hint::new(value, known);
        let (key, value) = (self.key.clone(), value.to_string());
        Err(self.error(Problem::UnknownValue { key, value, hint }))
    }

    /// Returns a text, a number or a flag as the text of an option.
    pub fn scalar(&self) -> Result<String, TomlError> {
        match self.value {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(number) => Ok(number.to_string()),
            DeValue::Float(number) => Ok(number.to_string()),
            DeValue::Boolean(flag) => Ok(flag.to_string()),
            _ => Err(self.wrong_type("a text, a number or a flag")),
        }
    }

    /// Returns the same as [`Item::scalar`], or a list of words as one text with spaces between
    /// them.
    pub fn words(&self) -> Result<String, TomlError> {
        let Some(items) = self.list() else { return self.scalar() };
        let mut words = Vec::new();
        for item in items {
            let word = item.scalar()?;
            if word.is_empty() || word.contains(char::is_whitespace) {
                return Err(item.bad_value("a word in a list is not empty and has no spaces"));
            }
            words.push(word);
        }
        Ok(words.join(" "))
    }

    pub fn whole(&self, range: RangeInclusive<u64>) -> Result<u64, TomlError> {
        let DeValue::Integer(number) = self.value else {
            return Err(self.wrong_type("a whole number"));
        };
        let value = u64::from_str_radix(number.as_str(), number.radix()).ok();
        let words = format!("from {} to {}", range.start(), range.end());
        value.filter(|value| range.contains(value)).ok_or_else(|| self.out_of_range(&words))
    }

    pub fn number(&self, range: RangeInclusive<f64>) -> Result<f64, TomlError> {
        let value: Option<f64> = match self.value {
            DeValue::Integer(number) => number.to_string().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => return Err(self.wrong_type("a number")),
        };
        let words = format!("from {} to {}", range.start(), range.end());
        value.filter(|value| range.contains(value)).ok_or_else(|| self.out_of_range(&words))
    }

    /// Returns a share from 0 to 1, from a number or a percentage in quotes.
    pub fn share(&self) -> Result<f64, TomlError> {
        let share = match self.value {
            DeValue::String(text) => {
                parse_share(text).map_err(|error| self.bad_value(&error.to_string()))?
            }
            DeValue::Integer(_) | DeValue::Float(_) => self.number(f64::MIN..=f64::MAX)?,
            _ => return Err(self.wrong_type("a share, such as 0.5 or \"50%\"")),
        };
        let inside = (0.0..=1.0).contains(&share);
        inside.then_some(share).ok_or_else(|| self.out_of_range("from 0 to 1 (0 % to 100 %)"))
    }

    pub fn duration(&self, range: RangeInclusive<Duration>) -> Result<Duration, TomlError> {
        let DeValue::String(text) = self.value else {
            return Err(self.wrong_type("a duration in quotes, such as \"400ms\""));
        };
        let value = parse_duration(text).map_err(|_| self.bad_value(DURATION_FORM))?;
        let words = format!("from {:?} to {:?}", range.start(), range.end());
        range.contains(&value).then_some(value).ok_or_else(|| self.out_of_range(&words))
    }

    /// Returns an amount of memory in bytes, from a number or a text with a unit. `None` for
    /// `"none"`.
    pub fn bytes_or_none(&self) -> Result<Option<u64>, TomlError> {
        match self.value {
            DeValue::String(text) if text == "none" => Ok(None),
            DeValue::String(text) => {
                parse_bytes(text).map(Some).map_err(|error| self.bad_value(&error.to_string()))
            }
            DeValue::Integer(_) => self.whole(0..=u64::MAX >> 2).map(Some),
            _ => Err(self.wrong_type("an amount of memory, such as \"6G\"")),
        }
    }

    pub fn table(&self, title: &str, known: &[&str]) -> Result<Table<'s>, TomlError> {
        match self.value {
            DeValue::Table(entries) => {
                Table::new(self.source, title, self.key_span.clone(), entries, known)
            }
            _ => Err(self.wrong_type("a table")),
        }
    }

    /// Returns the value as a table without a check of its keys.
    pub fn open_table(&self, title: &str) -> Result<Table<'s>, TomlError> {
        match self.value {
            DeValue::Table(entries) => {
                Ok(Table::unchecked(self.source, title, self.key_span.clone(), entries))
            }
            _ => Err(self.wrong_type("a table")),
        }
    }
}

/// Whether `value` is one of `known`. A known word that ends with `*` matches by its prefix.
pub fn is_known(value: &str, known: &[String]) -> bool {
    known.iter().any(|word| match word.strip_suffix('*') {
        Some(prefix) => value.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()),
        None => value == word,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command line parses durations with `parse_duration`, so that both accept the same texts.
    #[test]
    fn durations_match_command_line() {
        for text in ["5m", "250µs", "1.5s", "1m30s"] {
            let file = format!("time = \"{text}\"");
            let source = Source { file: "s.toml", text: &file };
            let document = source.document().unwrap();
            let table = source.root("the file", &document, &["time"]).unwrap();
            let range = Duration::ZERO..=Duration::from_secs(3_600);
            let read = table.duration("time", range, Duration::ZERO).unwrap();
            assert_eq!(Ok(read), parse_duration(text), "{text}");
        }
    }
}
