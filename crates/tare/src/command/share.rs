//! `tare share`: a copy of a record without names, addresses, paths and serial numbers.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use serde_json::Value;
use tare_lab::record::{Keep, free_path, share};
use tare_lab::study;

use crate::cli::Share;
use crate::exit::{Exit, ExitWith};
use crate::{registry, studies};

pub(crate) fn run(options: &Share, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let to = options.output.clone().unwrap_or_else(|| beside(&options.record));
    let keep = Keep { texts: public_texts()?, stacks: options.stacks };
    share(&options.record, &to, &keep).exit_with(Exit::Input)?;
    writeln!(out, "{}", to.display())?;
    Ok(Exit::Success)
}

/// `NAME-shared.tare` next to `NAME.tare`, or the next free name.
fn beside(record: &std::path::Path) -> PathBuf {
    let stem = record.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    free_path(&record.with_file_name(format!("{stem}-shared.tare")))
}

/// Every text of the shipped studies.
fn public_texts() -> anyhow::Result<BTreeSet<String>> {
    let mut texts = BTreeSet::new();
    for (name, text) in studies::ALL {
        texts.insert((*text).to_string());
        let study = study::parse(text, name, &registry::vocabulary())?;
        add(&serde_json::to_value(study)?, &mut texts);
    }
    Ok(texts)
}

fn add(value: &Value, texts: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            texts.insert(text.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| add(item, texts)),
        Value::Object(fields) => fields.values().for_each(|field| add(field, texts)),
        _ => {}
    }
}
