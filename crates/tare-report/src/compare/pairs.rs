//! Pairs of environments with different names: `docker=podman` compares "docker" of the first
//! record with "podman" of the second.
//!
//! The environments of a pair get one common name in all records, before these are analysed, so
//! that every table and warning treats them as one environment. Names may contain `=`: a text is
//! split where it gives the name of an environment of each record.

use serde::Serialize;
use tare_lab::record::Record;

use super::letter;

/// One environment of each record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The common name: `docker = podman`.
    pub environment: String,
    /// The own names, one per record.
    pub names: Vec<String>,
}

/// A pair that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    #[error(
        "{text:?} does not name an environment of each record, in their order, such as \"docker=podman\"; {known}"
    )]
    Unknown { text: String, known: String },
    #[error("{name:?} of {record} is in two pairs; name it once")]
    Twice { name: String, record: String },
}

/// Gives the environments of each pair one name in all records.
///
/// # Errors
/// If a text does not name an environment of each record, or two texts name the same one.
pub fn pair(records: &mut [Record], texts: &[String]) -> Result<Vec<Pair>, PairError> {
    let mut pairs: Vec<Pair> = Vec::new();
    for text in texts {
        let names = split(text.trim(), records)
            .ok_or_else(|| PairError::Unknown { text: text.clone(), known: known(records) })?;
        for (at, name) in names.iter().enumerate() {
            if pairs.iter().any(|pair| pair.names[at] == *name) {
                return Err(PairError::Twice { name: name.clone(), record: letter(at) });
            }
        }
        let same = names.windows(2).all(|two| two[0] == two[1]);
        let environment = if same { names[0].clone() } else { names.join(" = ") };
        pairs.push(Pair { environment, names });
    }
    for pair in &pairs {
        for (record, name) in records.iter_mut().zip(&pair.names) {
            record.rename_environment(name, &pair.environment);
        }
    }
    Ok(pairs)
}

/// The names in a text, one for each record.
fn split(text: &str, records: &[Record]) -> Option<Vec<String>> {
    let Some((record, others)) = records.split_first() else {
        return text.is_empty().then(Vec::new);
    };
    record.study.environments.iter().find_map(|spec| {
        let rest = text.strip_prefix(spec.name.as_str())?.trim_start();
        let rest = match others.is_empty() {
            true => rest,
            false => rest.strip_prefix('=')?.trim_start(),
        };
        let mut names = split(rest, others)?;
        names.insert(0, spec.name.clone());
        Some(names)
    })
}

/// `A has "native", "docker"; B has "native", "podman"`.
fn known(records: &[Record]) -> String {
    let of = |(at, record): (usize, &Record)| {
        let names = record.study.environments.iter().map(|spec| format!("{:?}", spec.name));
        format!("{} has {}", letter(at), names.collect::<Vec<_>>().join(", "))
    };
    records.iter().enumerate().map(of).collect::<Vec<_>>().join("; ")
}
