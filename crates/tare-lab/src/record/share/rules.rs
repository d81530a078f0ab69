//! What happens to each text of a record.

use hdrhistogram::serialization::Deserializer;
use rusqlite::types::Value;
use serde_json::Value as Json;

use super::super::TUNING_FACTS;
use super::Keep;
use super::names::Names;
use super::words::keep_words;

/// In place of a study's text.
const TEXT_LEFT_OUT: &str = "# left out by tare share\n";

/// The rule of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// A number, or a text that consists of one. Any other text becomes 0.
    Number,
    /// Words of the list stay.
    Words,
    /// The name of the study, an environment or a workload.
    Name,
    /// JSON: names change, words of the list stay.
    Json,
    /// The words of the command line, in JSON. The first is the program, without its directory.
    Command,
    /// The text of the study file, which stays if it is public.
    StudyText,
    /// Removed.
    Nothing,
    /// Functions of a sampled stack.
    Stack,
    /// A compressed histogram.
    Histogram,
}

use Rule::{Command, Histogram, Json as InJson, Name, Nothing, Number, Stack, StudyText, Words};

type Table = (&'static str, &'static [(&'static str, Rule)]);

/// Every column of every table. `sqlite_sequence` is SQLite's own and has no text of a user.
pub(super) const TABLES: &[Table] = &[
    (
        "record",
        &[
            ("tare_version", Words),
            ("started_unix_ms", Number),
            ("ended_unix_ms", Number),
            ("seed", Number),
            ("command", Command),
            ("ending", Words),
            ("study_name", Name),
            ("baseline", Name),
            ("study_text", StudyText),
            ("study", InJson),
            ("cpus_all", Words),
            ("cpus_system", Words),
            ("cpus_client", Words),
            ("cpu_plan", InJson),
        ],
    ),
    ("host_facts", &[("section", Words), ("key", Words), ("value", Words)]),
    ("rates", &[("workload", Name), ("rate_per_s", Number)]),
    (
        "environments",
        &[
            ("id", Number),
            ("name", Name),
            ("runtime", Words),
            ("network", Words),
            ("cpu", Words),
            ("security", Words),
            ("cgroup", Words),
            ("memory_bytes", Number),
            ("optional", Number),
            ("control", Number),
            ("left_out", Words),
            ("config", Nothing),
            ("ready_ns", Number),
            ("teardown_ns", Number),
            ("host", Words),
            ("storage", InJson),
            ("vm", InJson),
            ("inject", Words),
            ("sandbox", InJson),
            ("rootfs", InJson),
        ],
    ),
    (
        "layers",
        &[
            ("environment", Number),
            ("layer", Words),
            ("wanted", Words),
            ("found", Words),
            ("in_force", Number),
        ],
    ),
    ("settings", &[("environment", Number), ("key", Words), ("value", Words)]),
    ("blocks", &[("block", Number), ("ended_unix_ms", Number)]),
    (
        "slices",
        &[
            ("id", Number),
            ("block", Number),
            ("position", Number),
            ("environment", Number),
            ("workload", Name),
            ("phase", Words),
            ("started_unix_ms", Number),
            ("window_ns", Number),
            ("operations", Number),
            ("unsent", Number),
            ("rate_per_s", Number),
            ("system_cpu_ns", Number),
            ("busy_ns", Number),
            ("idle_poll_ns", Number),
            ("client_cpu_ns", Number),
            ("throttled_ns", Number),
            ("void", Words),
            ("start", Number),
            ("account_ns", Number),
        ],
    ),
    ("layer_cpu", &[("slice", Number), ("part", Words), ("ns", Number)]),
    ("errors", &[("slice", Number), ("kind", Words), ("count", Number)]),
    ("counters", &[("slice", Number), ("name", Words), ("value", Number)]),
    ("histograms", &[("slice", Number), ("kind", Words), ("data", Histogram)]),
    (
        "loaders",
        &[
            ("id", Number),
            ("host", Words),
            ("cpus", Words),
            ("kernel", Words),
            ("architecture", Words),
        ],
    ),
    ("paths", &[("loader", Number), ("side", Words), ("name", Words), ("device", InJson)]),
    (
        "slice_loaders",
        &[
            ("slice", Number),
            ("loader", Number),
            ("window_ns", Number),
            ("operations", Number),
            ("cpu_ns", Number),
            ("busiest_thread_ns", Number),
            ("waited_ns", Number),
            ("begin_offset_ns", Number),
            ("end_offset_ns", Number),
            ("clock_error_ns", Number),
        ],
    ),
    (
        "load_seconds",
        &[
            ("slice", Number),
            ("second", Number),
            ("operations", Number),
            ("mean_ns", Number),
            ("max_ns", Number),
        ],
    ),
    (
        "disk_seconds",
        &[
            ("slice", Number),
            ("second", Number),
            ("reads", Number),
            ("read_mean_ns", Number),
            ("read_max_ns", Number),
            ("writes", Number),
            ("write_mean_ns", Number),
            ("write_max_ns", Number),
        ],
    ),
    ("server_histograms", &[("slice", Number), ("data", Histogram)]),
    (
        "response_times",
        &[
            ("workload", Name),
            ("environment", Number),
            ("mean_ns", Number),
            ("p50_ns", Number),
            ("p95_ns", Number),
            ("p99_ns", Number),
            ("p999_ns", Number),
            ("max_ns", Number),
            ("operations", Number),
        ],
    ),
    (
        "percentiles",
        &[
            ("workload", Name),
            ("environment", Number),
            ("percent", Number),
            ("beyond", Number),
            ("ns", Number),
            ("ns_low", Number),
            ("ns_high", Number),
            ("blocks", Number),
            ("ratio", Number),
            ("ratio_low", Number),
            ("ratio_high", Number),
            ("difference_ns", Number),
            ("difference_low", Number),
            ("difference_high", Number),
            ("ratio_blocks", Number),
        ],
    ),
    (
        "doubts",
        &[
            ("id", Number),
            ("slice", Number),
            ("environment", Number),
            ("kind", Words),
            ("detail", InJson),
            ("text", Words),
        ],
    ),
    (
        "stack_slices",
        &[
            ("id", Number),
            ("round", Number),
            ("position", Number),
            ("environment", Number),
            ("workload", Name),
            ("started_unix_ms", Number),
            ("window_ns", Number),
            ("operations", Number),
            ("rate_per_s", Number),
            ("event", Words),
            ("void", Words),
            ("kind", Words),
        ],
    ),
    (
        "stack_cpu",
        &[("slice", Number), ("part", Words), ("cpu_ns", Number), ("idle_poll_ns", Number)],
    ),
    ("stacks", &[("id", Number), ("folded", Stack), ("part", Words), ("subsystem", Words)]),
    ("stack_samples", &[("slice", Number), ("stack", Number), ("samples", Number)]),
];

pub(super) const VIEWS: &[&str] = &["slice_figures", "layers_not_in_force"];

pub(super) const INDEXES: &[&str] = &[
    "slices_by_block",
    "layer_cpu_by_slice",
    "errors_by_slice",
    "counters_by_slice",
    "doubts_by_slice",
    "stack_cpu_by_slice",
    "stack_samples_by_slice",
];

/// The facts of the host that stay: section and key, `*` for all of a section. Others are removed,
/// above all the host's name, the kernel's command line, bridges and tables of NAT.
pub(super) const KEPT_FACTS: &[(&str, &str)] = &[
    ("kernel", "release"),
    ("kernel", "version"),
    ("kernel", "io_uring_disabled"),
    ("kernel", "clocksource"),
    ("mitigations", "*"),
    ("cpu", "*"),
    ("memory", "*"),
    ("network", "tcp_congestion_control"),
    ("network", "tcp_rmem"),
    ("network", "tcp_wmem"),
    ("network", "ip_forward"),
    ("sysctl", "*"),
    ("cgroup", "*"),
    ("versions", "*"),
    ("probes", "*"),
    (TUNING_FACTS, "*"),
    ("explain", "*"),
    ("inside", "*"),
];

impl Rule {
    /// Returns the new value of a column. Numbers stay under every rule but [`Rule::Nothing`].
    pub(super) fn apply(self, value: &Value, names: &Names, keep: &Keep) -> Value {
        match (self, value) {
            (Nothing, _) => Value::Null,
            (_, Value::Null | Value::Integer(_) | Value::Real(_)) => value.clone(),
            (Histogram, Value::Blob(data)) if is_histogram(data) => value.clone(),
            (_, Value::Blob(_)) => Value::Blob(Vec::new()),
            (rule, Value::Text(text)) => Value::Text(rule.text(text, names, keep)),
        }
    }

    fn text(self, text: &str, names: &Names, keep: &Keep) -> String {
        match self {
            Number if text.parse::<u64>().is_ok() => text.to_string(),
            Number => "0".to_string(),
            StudyText if keep.texts.contains(text) => text.to_string(),
            StudyText => TEXT_LEFT_OUT.to_string(),
            InJson => in_json(text, names, keep),
            Command => command(text, names, keep),
            // A fact can be JSON too.
            Words if text.starts_with(['{', '[']) => in_json(text, names, keep),
            Words => kept(text, names, keep),
            Name | Stack | Nothing | Histogram => String::new(),
        }
    }
}

/// A name, a public text, or the words of the list.
fn kept(text: &str, names: &Names, keep: &Keep) -> String {
    match names.new_name(text) {
        Some(new) => new.to_string(),
        None if keep.texts.contains(text) => text.to_string(),
        None => keep_words(text),
    }
}

fn in_json(text: &str, names: &Names, keep: &Keep) -> String {
    let Ok(json) = serde_json::from_str::<Json>(text) else {
        return keep_words(text);
    };
    walk(json, names, keep).to_string()
}

fn command(text: &str, names: &Names, keep: &Keep) -> String {
    let mut words: Vec<String> = serde_json::from_str(text).unwrap_or_default();
    if let Some(program) = words.first_mut() {
        *program = program.rsplit('/').next().unwrap_or_default().to_string();
    }
    in_json(&Json::from(words).to_string(), names, keep)
}

fn walk(json: Json, names: &Names, keep: &Keep) -> Json {
    match json {
        Json::String(text) => Json::String(kept(&text, names, keep)),
        Json::Array(items) => items.into_iter().map(|item| walk(item, names, keep)).collect(),
        Json::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| (kept(&key, names, keep), walk(value, names, keep)))
            .collect(),
        other => other,
    }
}

/// Whether the bytes are one histogram and nothing else.
fn is_histogram(data: &[u8]) -> bool {
    let mut cursor = std::io::Cursor::new(data);
    let read = Deserializer::new().deserialize::<u64, _>(&mut cursor);
    read.is_ok() && cursor.position() == data.len() as u64
}
