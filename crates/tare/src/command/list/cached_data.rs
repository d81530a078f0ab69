//! `tare list data`: the loaded data that later studies restore.

use std::io::Write;

use serde::Serialize;
use tare_host::data_cache::CachedData;
use tare_std::units::rough_duration;

use crate::campaign::data_cache::{self, summary};
use crate::campaign::space::amount;
use crate::exit::Exit;

/// One entry of the cache.
#[derive(Serialize)]
struct Entry<'e> {
    id: String,
    bytes: u64,
    made_unix_ms: u64,
    used_unix_ms: u64,
    load_s: f64,
    tare: &'e str,
    /// What the data depends on, as (name, value).
    key: &'e [(String, String)],
}

impl<'e> Entry<'e> {
    fn of(data: &'e CachedData) -> Self {
        Self {
            id: data.key.id(),
            bytes: data.bytes,
            made_unix_ms: data.made_unix_ms,
            used_unix_ms: data.used_unix_ms,
            load_s: data.load_time().as_secs_f64(),
            tare: &data.tare,
            key: data.key.pairs(),
        }
    }
}

/// Prints the entries of this host, the last used first.
pub(super) fn list(json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let cache = data_cache::of_host()?;
    let entries = cache.as_ref().map(|cache| cache.entries()).unwrap_or_default();
    if json {
        let data: Vec<Entry<'_>> = entries.iter().map(Entry::of).collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&serde_json::json!({ "data": data }))?)?;
        return Ok(Exit::Success);
    }
    let Some(cache) = cache else {
        writeln!(out, "data: none is kept (TARE_DATA_CACHE)")?;
        return Ok(Exit::Success);
    };
    let bytes = entries.iter().map(|entry| entry.bytes).sum();
    writeln!(out, "data: {} in {}", amount(bytes), cache.folder().display())?;
    for entry in &entries {
        writeln!(out, "  {}  {}", entry.key.id(), summary(entry))?;
        let (age, took) = (rough_duration(entry.age()), entry.load_time().as_secs_f64());
        writeln!(out, "      loaded {age} ago in {took:.1} s by tare {}", entry.tare)?;
        writeln!(out, "      {}", entry.key)?;
    }
    Ok(Exit::Success)
}
