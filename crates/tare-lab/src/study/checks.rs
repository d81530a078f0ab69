//! Checks that all tables of a study share: names, references to names, and options of parts.

use std::collections::BTreeMap;

use super::vocabulary::{KnownOption, KnownPart};
use super::{Hint, Problem, StudyError};
use tare_toml::{Item, Source, Table};

/// Reads the `name` of a table: not empty, at most 64 characters, no control characters.
pub(super) fn name_of<'s>(table: &Table<'s>) -> Result<(String, Item<'s>), StudyError> {
    let item = table.need("name")?;
    let name = item.text()?;
    if name.trim() != name || name.is_empty() {
        return Err(item.bad_value("a name is not empty and does not start or end with a space"));
    }
    if name.chars().count() > 64 || name.chars().any(char::is_control) {
        return Err(item.bad_value("a name has at most 64 printable characters"));
    }
    Ok((name.to_string(), item))
}

/// Collects names and refuses duplicates.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<String, usize>);

impl Names {
    pub(super) fn add(
        &mut self,
        what: &str,
        name: &str,
        item: &Item<'_>,
        source: Source<'_>,
    ) -> Result<(), StudyError> {
        let line = source.line(&item.span);
        match self.0.insert(name.to_string(), line) {
            None => Ok(()),
            Some(first_line) => Err(item.error(Problem::Duplicate {
                what: what.to_string(),
                name: name.to_string(),
                first_line,
            })),
        }
    }
}

/// Refuses the name of an environment that does not exist.
pub(super) fn must_exist(item: &Item<'_>, name: &str, names: &[String]) -> Result<(), StudyError> {
    must_exist_as("environment", item, name, names)
}

/// Refuses a name that no part of this kind has.
pub(super) fn must_exist_as(
    what: &'static str,
    item: &Item<'_>,
    name: &str,
    names: &[String],
) -> Result<(), StudyError> {
    if names.iter().any(|known| known == name) {
        return Ok(());
    }
    let (key, hint) = (item.key().to_string(), Hint::new(name, names));
    Err(item.error(Problem::NoSuch { key, what, name: name.to_string(), hint }))
}

/// Reads a table that names a part under the first of `keys` and has its options. Without that
/// key, the part is the first of `known`. The other keys are not its options.
pub(super) fn part(
    item: &Item<'_>,
    keys: &[&str],
    title: &str,
    known: &[KnownPart],
) -> Result<(String, Vec<(String, String)>), StudyError> {
    let table = item.open_table(title)?;
    let names: Vec<String> = known.iter().map(|words| words.name.clone()).collect();
    let key = keys.first().copied().unwrap_or_default();
    let words = match table.word(key, &names)? {
        Some(name) => known.iter().find(|words| words.name == name),
        None => known.first(),
    };
    let Some(words) = words else { return Err(table.missing(key)) };
    let title = format!("{title} of {}", words.name);
    Ok((words.name.clone(), options(item, &title, keys, &words.options)?))
}

/// Reads the options of a table, which are all its keys except `others`.
pub(super) fn options(
    item: &Item<'_>,
    title: &str,
    others: &[&str],
    known: &[KnownOption],
) -> Result<Vec<(String, String)>, StudyError> {
    let keys: Vec<&str> =
        others.iter().copied().chain(known.iter().map(|option| option.name.as_str())).collect();
    let table = item.table(title, &keys)?;
    let mut options = Vec::new();
    for item in table.items().into_iter().filter(|item| !others.contains(&item.key())) {
        let value = item.words()?;
        let option = known.iter().find(|option| option.name == item.key());
        if let Some(option) = option.filter(|option| !option.values.is_empty()) {
            item.known(&value, &option.values)?;
        }
        options.push((item.key().to_string(), value));
    }
    Ok(options)
}
