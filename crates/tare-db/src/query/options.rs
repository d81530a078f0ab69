//! The options of tables (`WITH name = value`): those of Cassandra 4 and 5, those of version 3 that
//! drivers still send, and those of Scylla. The server checks their form, keeps them, and shows
//! them in `system_schema.tables`.
//!
//! These options have an effect: `default_time_to_live`, `gc_grace_seconds`,
//! `bloom_filter_fp_chance`, whether there is `compression`, and the thresholds of `compaction`.
//! The others configure parts of Cassandra and Scylla that this server does not have.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tare_cql::statement::Literal;

use crate::query::failure::Failure;

/// The longest time to live in seconds: 20 years of 365 days, as in Cassandra.
pub(crate) const TTL_MAX_S: u32 = 20 * 365 * 24 * 60 * 60;

/// The form of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// An integer from 0 to this.
    Int(i64),
    /// A number from 0 to 1.
    Fraction,
    Boolean,
    Text,
    Map,
    /// A text or a map.
    TextOrMap,
}

/// Name, form and default of each option. An option without a default is shown only where it was
/// set and the system table has a column for it.
const OPTIONS: [(&str, Form, &str); 32] = [
    ("additional_write_policy", Form::Text, "99p"),
    ("allow_auto_snapshot", Form::Boolean, ""),
    ("auto_snapshot", Form::Boolean, ""),
    ("bloom_filter_fp_chance", Form::Fraction, "0.01"),
    ("caching", Form::TextOrMap, ""),
    ("cdc", Form::TextOrMap, ""),
    ("comment", Form::Text, ""),
    ("compaction", Form::Map, ""),
    ("compression", Form::Map, ""),
    ("crc_check_chance", Form::Fraction, "1.0"),
    ("dclocal_read_repair_chance", Form::Fraction, "0.0"),
    ("default_time_to_live", Form::Int(TTL_MAX_S as i64), "0"),
    ("extensions", Form::Map, ""),
    ("gc_grace_seconds", Form::Int(i32::MAX as i64), "864000"),
    ("in_memory", Form::Boolean, ""),
    ("incremental_backups", Form::Boolean, ""),
    ("max_index_interval", Form::Int(i32::MAX as i64), "2048"),
    ("memtable", Form::Text, ""),
    ("memtable_flush_period_in_ms", Form::Int(i32::MAX as i64), "0"),
    ("min_index_interval", Form::Int(i32::MAX as i64), "128"),
    ("nodesync", Form::Map, ""),
    ("paxos_grace_seconds", Form::Int(i32::MAX as i64), ""),
    ("per_partition_rate_limit", Form::Map, ""),
    ("populate_io_cache_on_flush", Form::Boolean, ""),
    ("read_repair", Form::Text, "BLOCKING"),
    ("read_repair_chance", Form::Fraction, "0.0"),
    ("replicate_on_write", Form::Boolean, ""),
    ("scylla_encryption_options", Form::TextOrMap, ""),
    ("speculative_retry", Form::Text, "99p"),
    ("synchronous_updates", Form::Boolean, ""),
    ("tablets", Form::Map, ""),
    ("tombstone_gc", Form::Map, ""),
];

/// The maps of a table that sets none, as Cassandra 4.0 shows them.
const CACHING: [(&str, &str); 2] = [("keys", "ALL"), ("rows_per_partition", "NONE")];
const COMPRESSION: [(&str, &str); 2] =
    [("chunk_length_in_kb", "4"), ("class", "org.apache.cassandra.io.compress.LZ4Compressor")];
const SIZE_TIERED: &str = "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy";
const COMPACTION: [(&str, &str); 3] =
    [("class", SIZE_TIERED), ("max_threshold", "32"), ("min_threshold", "4")];
/// Compaction strategies that a statement may name. The server compacts by size in any case.
const STRATEGIES: [&str; 8] = [
    "SizeTieredCompactionStrategy",
    "LeveledCompactionStrategy",
    "TimeWindowCompactionStrategy",
    "DateTieredCompactionStrategy",
    "UnifiedCompactionStrategy",
    "IncrementalCompactionStrategy",
    "InMemoryCompactionStrategy",
    "NullCompactionStrategy",
];

/// The value of an option. Numbers are kept as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Setting {
    Text(String),
    Map(BTreeMap<String, String>),
}

/// The options that a table has set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct TableOptions {
    given: BTreeMap<String, Setting>,
}

impl TableOptions {
    /// Sets options and keeps the others.
    pub(crate) fn set(&mut self, options: &[(String, Literal)]) -> Result<(), Failure> {
        for (name, literal) in options {
            if name == "id" {
                // `id` is no option: `schema` gives it to the new table.
                continue;
            }
            let known = OPTIONS.iter().find(|(known, ..)| known == name);
            // This is Cassandra's message, and its kind of error.
            let unknown = || Failure::Syntax(format!("Unknown property '{name}'"));
            let (.., form, _) = known.ok_or_else(unknown)?;
            let wrong = || {
                Failure::Config(format!("invalid value of the table option {name}: {literal:?}"))
            };
            let setting = setting(*form, literal).ok_or_else(wrong)?;
            if name == "compaction"
                && let Setting::Map(map) = &setting
            {
                check_compaction(map)?;
            }
            self.given.insert(name.clone(), setting);
        }
        Ok(())
    }

    /// The value of a scalar option, or its default, as text; `None` if there is neither.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.given.get(name) {
            Some(Setting::Text(text)) => Some(text),
            Some(Setting::Map(_)) => None,
            None if name == "comment" => Some(""),
            None => {
                let (.., default) = OPTIONS.iter().find(|(known, ..)| *known == name)?;
                (!default.is_empty()).then_some(*default)
            }
        }
    }

    /// The value of a map option, or the map that Cassandra shows by default.
    pub(crate) fn map(&self, name: &str) -> Vec<(String, String)> {
        if let Some(Setting::Map(map)) = self.given.get(name) {
            return map.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        }
        let default: &[(&str, &str)] = match name {
            "caching" => &CACHING,
            "compaction" => &COMPACTION,
            "compression" => &COMPRESSION,
            _ => &[],
        };
        default.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    /// The value of a number option, or its default; 0 if there is neither.
    fn number(&self, name: &str) -> u32 {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Seconds that a row lives unless its statement sets a TTL; 0 means for ever.
    pub(crate) fn default_time_to_live_s(&self) -> u32 {
        self.number("default_time_to_live")
    }

    /// The options that the store needs.
    pub(crate) fn of_store(&self) -> tare_store::TableOptions {
        let default = tare_store::TableOptions::default();
        let compaction = self.map("compaction");
        let threshold = |name: &str| {
            let (_, value) = compaction.iter().find(|(key, _)| key == name)?;
            value.parse().ok().filter(|threshold| *threshold >= 2)
        };
        let compression = self.map("compression");
        let off = |(key, value): &(String, String)| key == "enabled" && value == "false";
        let bloom = self.text("bloom_filter_fp_chance").and_then(|text| text.parse().ok());
        tare_store::TableOptions {
            gc_grace_s: self.number("gc_grace_seconds"),
            compaction_min: threshold("min_threshold").unwrap_or(default.compaction_min),
            compaction_max: threshold("max_threshold").unwrap_or(default.compaction_max),
            // In Cassandra an empty map, or a class without a name, turns compression off.
            compression: !compression.iter().any(off)
                && compression.iter().any(|(key, value)| {
                    matches!(&**key, "class" | "sstable_compression") && !value.is_empty()
                }),
            bloom_false_positives: bloom.unwrap_or(default.bloom_false_positives),
        }
    }
}

/// Converts a value to the form of its option; `None` if it does not have that form.
fn setting(form: Form, literal: &Literal) -> Option<Setting> {
    let text = match literal {
        Literal::Text(text) => text.clone(),
        Literal::Integer(number) => number.to_string(),
        Literal::Float(number) => number.clone(),
        Literal::Boolean(flag) => flag.to_string(),
        Literal::Map(pairs) if matches!(form, Form::Map | Form::TextOrMap) => {
            let pair = |(key, value): &(Literal, Literal)| {
                let (Setting::Text(key), Setting::Text(value)) =
                    (setting(Form::Text, key)?, setting(Form::Text, value)?)
                else {
                    return None;
                };
                // Class names are shown in full, as in Cassandra.
                let value = match key.as_str() {
                    "class" | "sstable_compression" => full_class(&value),
                    _ => value,
                };
                Some((key, value))
            };
            return pairs.iter().map(pair).collect::<Option<_>>().map(Setting::Map);
        }
        _ => return None,
    };
    let fits = match form {
        Form::Int(most) => text.parse().is_ok_and(|number: i64| (0..=most).contains(&number)),
        Form::Fraction => text.parse().is_ok_and(|number: f64| (0.0..=1.0).contains(&number)),
        Form::Boolean => ["true", "false"].contains(&&*text.to_ascii_lowercase()),
        Form::Text | Form::TextOrMap => true,
        Form::Map => false,
    };
    fits.then_some(Setting::Text(text))
}

fn full_class(name: &str) -> String {
    if name.contains('.') || name.is_empty() {
        return name.into();
    }
    let package = match name {
        _ if name.ends_with("Strategy") => "org.apache.cassandra.db.compaction",
        _ => "org.apache.cassandra.io.compress",
    };
    format!("{package}.{name}")
}

fn check_compaction(map: &BTreeMap<String, String>) -> Result<(), Failure> {
    let Some(class) = map.get("class") else {
        let message = "Missing sub-option 'class' for the 'compaction' option.";
        return Err(Failure::Config(message.into()));
    };
    let name = class.rsplit('.').next().unwrap_or(class);
    if !STRATEGIES.contains(&name) {
        return Err(Failure::Config(format!("Unable to find compaction strategy class '{class}'")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(options: &[(&str, Literal)]) -> Result<TableOptions, Failure> {
        let options: Vec<_> = options.iter().map(|(n, l)| ((*n).to_string(), l.clone())).collect();
        let mut table = TableOptions::default();
        table.set(&options).map(|()| table)
    }

    fn map(pairs: &[(&str, &str)]) -> Literal {
        let text = |text: &str| Literal::Text(text.into());
        Literal::Map(pairs.iter().map(|(key, value)| (text(key), text(value))).collect())
    }

    #[test]
    fn options_are_kept_and_have_defaults() {
        let names: Vec<_> = OPTIONS.iter().map(|(name, ..)| *name).collect();
        assert!(names.is_sorted());
        let table = set(&[
            ("gc_grace_seconds", Literal::Integer(60)),
            ("compaction", map(&[("class", "LeveledCompactionStrategy"), ("min_threshold", "6")])),
            ("bloom_filter_fp_chance", Literal::Float("0.1".into())),
            ("cdc", Literal::Boolean(true)),
        ]);
        let table = table.unwrap();
        let store = table.of_store();
        assert_eq!((store.gc_grace_s, table.default_time_to_live_s()), (60, 0));
        assert_eq!((store.compaction_min, store.compaction_max), (6, 32));
        assert!(store.compression && (store.bloom_false_positives - 0.1).abs() < 1e-9);
        assert!(!set(&[("compression", map(&[]))]).unwrap().of_store().compression);
        assert_eq!(table.text("bloom_filter_fp_chance"), Some("0.1"));
        assert_eq!(table.text("speculative_retry"), Some("99p"));
        assert_eq!(table.map("caching").len(), 2);
        let class = "org.apache.cassandra.db.compaction.LeveledCompactionStrategy";
        assert_eq!(table.map("compaction")[0], ("class".into(), class.into()));
        let json = serde_json::to_string(&table).unwrap();
        assert_eq!(serde_json::from_str::<TableOptions>(&json).unwrap(), table);
    }

    #[test]
    fn wrong_options_are_refused() {
        let refused = |name: &str, literal: Literal| set(&[(name, literal)]).unwrap_err();
        assert!(matches!(refused("colour", Literal::Integer(1)), Failure::Syntax(_)));
        for (name, literal) in [
            ("gc_grace_seconds", Literal::Integer(-1)),
            ("default_time_to_live", Literal::Integer(i128::from(TTL_MAX_S) + 1)),
            ("bloom_filter_fp_chance", Literal::Integer(2)),
            ("compaction", Literal::Text("fast".into())),
            ("compaction", map(&[("class", "FastStrategy")])),
            ("compaction", map(&[("min_threshold", "4")])),
            ("comment", map(&[])),
        ] {
            let failure = refused(name, literal);
            assert!(matches!(failure, Failure::Config(_)), "{name}: {failure:?}");
        }
    }
}
