//! Changes of what a user has, with their reasons, as text above a diff.

use serde::Serialize;
use similar::TextDiff;

use super::{Flag, wrap};

/// One changed value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// `spec.template.spec.containers[0].resources.limits.cpu`, `--cpuset-cpus`.
    pub place: String,
    /// `None` if it has no value now.
    pub now: Option<String>,
    pub wanted: String,
    /// The benefit, in one or two sentences.
    pub buys: String,
    /// The source of that claim.
    pub source: String,
    /// The gain that a record shows; empty without one.
    pub measured: Vec<String>,
}

impl Change {
    /// Returns a change with the reason of a flag.
    pub(super) fn of(place: &str, now: Option<&str>, wanted: &str, flag: &Flag) -> Self {
        Self {
            place: place.to_string(),
            now: now.map(str::to_string),
            wanted: wanted.to_string(),
            buys: flag.buys.clone(),
            source: flag.source.clone(),
            measured: flag.measured.clone(),
        }
    }
}

/// Returns the reasons and notes as comments, and below them the diff. Programs that apply a diff
/// skip what is above it. `what` names what changes.
pub(super) fn text(what: &str, changes: &[Change], notes: &[String], diff: &str) -> String {
    let mut text = match changes.len() {
        0 => wrap(&format!("{what}: nothing to change"), "# "),
        1 => wrap(&format!("{what}: 1 change"), "# "),
        count => wrap(&format!("{what}: {count} changes"), "# "),
    };
    // Changes with one reason share it.
    for group in changes.chunk_by(|a, b| (&a.buys, &a.source) == (&b.buys, &b.source)) {
        let Some(Change { buys, source, measured, .. }) = group.first() else {
            continue;
        };
        let places = group.iter().map(|change| {
            let Change { place, now, wanted, .. } = change;
            let now = now.as_ref().map(|now| format!("{now} -> ")).unwrap_or_default();
            format!("{place}: {now}{wanted}")
        });
        let places = places.collect::<Vec<_>>().join("; ");
        let mut words = format!("{places}. {buys} [{source}]");
        for sentence in measured {
            words += &format!(" Measured: {sentence}");
        }
        text += &wrap(&words, "#   ").replacen("#   ", "# - ", 1);
    }
    if !notes.is_empty() {
        text += "#\n# Notes\n";
    }
    for note in notes {
        text += &wrap(note, "#   ").replacen("#   ", "# - ", 1);
    }
    text + diff
}

/// Returns a unified diff of two texts, empty if they are the same. `names` are those of the two in
/// its head. `whole`: every line is shown.
pub(super) fn unified([now, wanted]: [&str; 2], names: [&str; 2], whole: bool) -> String {
    if now == wanted {
        return String::new();
    }
    let lines = TextDiff::from_lines(now, wanted);
    let mut unified = lines.unified_diff();
    unified.header(names[0], names[1]);
    if whole {
        unified.context_radius(now.len());
    }
    unified.to_string()
}

/// What would change in something that a user has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// `docker:db`, `service db in compose.yaml`, `unit redis.service`.
    pub what: String,
    pub changes: Vec<Change>,
    /// The command or the file as it is; empty if there is none.
    pub now: String,
    /// The same with the changes.
    pub wanted: String,
    /// A unified diff of the two; empty if nothing changes.
    pub diff: String,
    /// Further advice for the user, one or two sentences each.
    pub notes: Vec<String>,
}

impl Diff {
    /// Compares two texts. `names` are those of the two in the head of the diff. `whole`: every
    /// line is shown, because the text is in no file.
    pub(super) fn new(
        what: String,
        changes: Vec<Change>,
        notes: Vec<String>,
        [now, wanted]: [String; 2],
        names: [&str; 2],
        whole: bool,
    ) -> Self {
        let diff = unified([&now, &wanted], names, whole);
        Self { what, changes, now, wanted, diff, notes }
    }

    /// Returns the reasons as comments, and below them the diff. Programs that apply a diff skip
    /// what is above it.
    pub fn text(&self) -> String {
        text(&self.what, &self.changes, &self.notes, &self.diff)
    }
}
