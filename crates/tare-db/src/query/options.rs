//! The options of tables (`WITH name = value`): those of Cassandra 4 and 5, of its version 3 where
//! drivers still send them, and of Scylla. They are checked for their form, kept and shown in
//! `system_schema.tables`.
//!
//! What has an effect here: `default_time_to_live`, `gc_grace_seconds`, `bloom_filter_fp_chance`,
//! whether there is `compression`, and of `compaction` the thresholds. The rest describes parts of other databases that this one does not have.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tare_cql::statement::Literal;

use crate::query::failure::Failure;

/// The longest time to live in seconds: 20 years of 365 days, as in Cassandra.
pub(crate) const TTL_MAX_S: u32 = 20 * 365 * 24 * 60 * 60;

/// What a value of an option looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A number from 0 to this.
    Int(i64),
    /// From 0 to 1.
    Fraction,
    Boolean,
    Text,
    Map,
    /// A text or a map.
    TextOrMap,
}

/// Name, form, and the default as it is shown; options without one are shown only where they were
/// given and the table of the system has a column for them.
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

/// The maps that a table has which was given none, as Cassandra 4.0 shows them.
const CACHING: [(&str, &str); 2] = [("keys", "ALL"), ("rows_per_partition", "NONE")];
const COMPRESSION: [(&str, &str); 2] =
    [("chunk_length_in_kb", "4"), ("class", "org.apache.cassandra.io.compress.LZ4Compressor")];
const SIZE_TIERED: &str = "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy";
const COMPACTION: [(&str, &str); 3] =
    [("class", SIZE_TIERED), ("max_threshold", "32"), ("min_threshold", "4")];
/// Strategies that may be named; all compact by size here.
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

/// What an option was set to. Numbers are kept as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Setting {
    Text(String),
    Map(BTreeMap<String, String>),
}

/// The options that a table was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct TableOptions {
    given: BTreeMap<String, Setting>,
}

impl TableOptions {
    /// Takes options over those that are there.
    pub(crate) fn set(&mut self, options: &[(String, Literal)]) -> Result<(), Failure> {
        for (name, literal) in options {
            if name == "id" {
                // No option, but the id that a table is made with: see `schema`.
                continue;
            }
            let known = OPTIONS.iter().find(|(known, ..)| known == name);
            // The words of Cassandra's error, and its kind of error.
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

    /// A scalar as text: what was given, or the default; `None` without either.
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

    /// A map: what was given, or what Cassandra shows.
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

    /// A number; 0 where it is neither given nor has a default.
    fn number(&self, name: &str) -> u32 {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Seconds that a row lives where its statement says nothing; 0 is for ever.
    pub(crate) fn default_time_to_live_s(&self) -> u32 {
        self.number("default_time_to_live")
    }

    /// What the store is to know.
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
            // An empty map, or a class without a name, turns it off in Cassandra.
            compression: !compression.iter().any(off)
                && compression.iter().any(|(key, value)| {
                    matches!(&**key, "class" | "sstable_compression") && !value.is_empty()
                }),
            bloom_false_positives: bloom.unwrap_or(default.bloom_false_positives),
        }
    }
}

/// An option's value in the form that it must have.
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
                // Class names are shown in full, as Cassandra does.
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
