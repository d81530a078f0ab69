//! Options of a database that decide how it uses its CPUs and its memory, compared with the words
//! that it gets.

use super::yaml::Node;
use super::yaml::edit::{self, Edits};
use super::{Change, Context, Flag, FlagsError, Instance};

/// Others of the texts that Tare writes (directories, addresses) are the user's.
const OPTIONS: [&str; 6] =
    ["--smp", "--cpuset", "--cpus", "--overprovisioned", "--developer-mode", "--memory"];

/// Returns the options that a database should have. `numbers`: whether the CPU numbers are known.
///
/// # Errors
/// When the memory is too little for the database.
pub(super) fn wanted(
    context: &Context<'_>,
    instance: &Instance,
    numbers: bool,
) -> Result<Vec<Flag>, FlagsError> {
    let options = context.engine_options(instance, numbers)?.into_iter();
    Ok(options.filter(|option| OPTIONS.contains(&name(&option.text))).collect())
}

/// Returns the name of an option: `--smp` of `--smp=2`.
pub(super) fn name(option: &str) -> &str {
    option.split('=').next().unwrap_or_default()
}

/// How words differ from a wanted option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// The word that changes; `None`: the option is missing.
    pub(super) at: Option<usize>,
    /// What the word becomes.
    pub(super) word: String,
}

/// Compares words with a wanted option (`--smp=2`); `None` if they have it. A word that cannot be
/// read is `None`.
pub(super) fn compare(words: &[Option<&str>], option: &str) -> Option<Difference> {
    let name = name(option);
    let is = |word: &&str| {
        *word == name || word.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
    };
    let Some(at) = words.iter().position(|word| word.as_ref().is_some_and(is)) else {
        return Some(Difference { at: None, word: option.into() });
    };
    // `--smp 4` as two words: the value is replaced.
    let next = words.get(at + 1).copied().flatten();
    let value = next.filter(|next| words[at] == Some(name) && !next.starts_with('-'));
    let wanted = option.split_once('=').map_or("", |(_, value)| value);
    match value {
        _ if words[at] == Some(option) => None,
        Some(value) if value == wanted => None,
        Some(_) => Some(Difference { at: Some(at + 1), word: wanted.into() }),
        None => Some(Difference { at: Some(at), word: option.into() }),
    }
}

/// Replaces the words of a list in a file that differ from the wanted options. Returns the words
/// that are missing.
pub(super) fn replace(
    items: &[Node],
    wanted: Vec<Flag>,
    place: &str,
    edits: &mut Edits<'_>,
    changes: &mut Vec<Change>,
) -> Vec<String> {
    let words: Vec<Option<&str>> = items.iter().map(Node::text).collect();
    let mut missing = Vec::new();
    for option in wanted {
        let Some(found) = compare(&words, &option.text) else { continue };
        let now = found.at.and_then(|at| words[at]);
        changes.push(Change::of(place, now, &option.text, &option));
        match found.at {
            Some(at) => edits.replace(&items[at], edit::quote(&found.word)),
            None => missing.push(found.word),
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_compared_with_an_option() {
        let check = |words: &str, expect: Option<(Option<usize>, &str)>| {
            let words: Vec<Option<&str>> = words.split_whitespace().map(Some).collect();
            let expect = expect.map(|(at, word)| Difference { at, word: word.into() });
            assert_eq!(compare(&words, "--smp=4"), expect, "{words:?}");
        };
        check("", Some((None, "--smp=4")));
        check("--smpx=4", Some((None, "--smp=4")));
        check("-v --smp=4", None);
        check("--smp 4", None);
        check("--smp 2 -v", Some((Some(1), "4")));
        check("--smp --memory=1G", Some((Some(0), "--smp=4")));
        check("--smp=2", Some((Some(0), "--smp=4")));
    }
}
