//! Changes of a YAML file that leave every byte that is not part of a change as it is.
//!
//! Method: wanted values form a tree. Where the file has a key, its value is replaced or descended
//! into; what is missing is inserted as whole lines beside a sibling, or within the braces of a
//! flow map. Limits: values behind aliases, anchors and merge keys are refused, because other
//! places of the file share them.

use super::{Content, Node};

/// A wanted value.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::flags) enum Wanted {
    /// A scalar: the text that it has to have, and how it is written.
    Text {
        text: String,
        written: String,
    },
    Map(Vec<(&'static str, Wanted)>),
    /// Items that a list has to have; others stay.
    Items(Vec<String>),
}

impl Wanted {
    /// Returns a scalar in double quotes.
    pub(in crate::flags) fn quoted(text: &str) -> Self {
        Self::Text { text: text.into(), written: quote(text) }
    }

    /// Returns a scalar that needs no quotes: a word or a truth value.
    pub(in crate::flags) fn plain(text: &str) -> Self {
        Self::Text { text: text.into(), written: text.into() }
    }
}

/// Writes a text in double quotes (YAML 1.2, 7.3.1; JSON's escapes are a part of them).
pub(in crate::flags) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The changes of one file.
#[derive(Debug)]
pub(in crate::flags) struct Edits<'a> {
    file: &'a str,
    newline: &'static str,
    /// The bytes that are replaced, with their replacement.
    list: Vec<(std::ops::Range<usize>, String)>,
}

impl<'a> Edits<'a> {
    pub(in crate::flags) fn new(file: &'a str) -> Self {
        let newline = if file.contains("\r\n") { "\r\n" } else { "\n" };
        Self { file, newline, list: Vec::new() }
    }

    /// Returns the changed file.
    pub(in crate::flags) fn apply(mut self) -> String {
        self.list.sort_by_key(|(at, _)| at.start);
        let mut text = String::with_capacity(self.file.len());
        let mut done = 0;
        for (at, with) in self.list {
            text += self.file.get(done..at.start).unwrap_or_default();
            text += &with;
            done = at.end;
        }
        text + self.file.get(done..).unwrap_or_default()
    }

    /// Makes a map have the wanted entries. `place` names it in an error.
    pub(in crate::flags) fn merge(
        &mut self,
        map: &Node,
        wanted: &[(&'static str, Wanted)],
        place: &str,
    ) -> Result<(), String> {
        let Content::Map { flow, .. } = &map.content else {
            return Err(format!("{place} is not a map"));
        };
        if map.anchored || map.entry("<<").is_some() {
            return Err(format!("{place} is shared by an anchor or a merge key (&, <<)"));
        }
        let mut missing = Vec::new();
        for (key, value) in wanted {
            let place = format!("{place}.{key}");
            match map.entry(key) {
                None => missing.push((*key, value)),
                Some((name, found)) => self.change(name, found, value, *flow, &place)?,
            }
        }
        match (missing.is_empty(), flow) {
            (true, _) => Ok(()),
            (false, true) => {
                self.insert_flow(map, &missing);
                Ok(())
            }
            (false, false) => self.insert_block(map, &missing, place),
        }
    }

    fn change(
        &mut self,
        key: &Node,
        found: &Node,
        wanted: &Wanted,
        in_flow: bool,
        place: &str,
    ) -> Result<(), String> {
        if found.anchored || found.content == Content::Alias {
            return Err(format!("{place} is shared by an anchor or an alias (&, *)"));
        }
        match wanted {
            Wanted::Text { text, .. } if found.text() == Some(text) => Ok(()),
            Wanted::Text { written, .. } if found.text().is_some() => {
                self.list.push((found.start..found.end, written.clone()));
                Ok(())
            }
            _ if found.is_null() && found.start < found.end => {
                self.list.push((found.start..found.end, flow_text(wanted)));
                Ok(())
            }
            _ if found.is_null() => {
                // Nothing after the colon: the value becomes lines below the key, or follows it.
                let colon = self.file.get(key.end..).and_then(|rest| rest.find(':'));
                let after = key.end + colon.map_or(0, |at| at + 1);
                match wanted {
                    Wanted::Text { written, .. } => self.insert(after, format!(" {written}")),
                    _ if in_flow => self.insert(after, format!(" {}", flow_text(wanted))),
                    _ => {
                        let lines = block_lines(wanted, key.column + 2);
                        self.insert_lines_after(after, &lines);
                    }
                }
                Ok(())
            }
            Wanted::Text { .. } => Err(format!("{place} is not a single value")),
            Wanted::Map(wanted) => self.merge(found, wanted, place),
            Wanted::Items(wanted) => self.append(found, wanted, place),
        }
    }

    /// Makes a list have these items; those that are missing come last.
    pub(in crate::flags) fn append(
        &mut self,
        list: &Node,
        wanted: &[String],
        place: &str,
    ) -> Result<(), String> {
        let Content::List { flow, items } = &list.content else {
            return Err(format!("{place} is not a list"));
        };
        if list.anchored {
            return Err(format!("{place} is shared by an anchor (&)"));
        }
        let missing = wanted.iter().filter(|item| !items.iter().any(|i| i.text() == Some(item)));
        let missing: Vec<String> = missing.map(|item| quote(item)).collect();
        let last = items.last();
        match (missing.is_empty(), flow, last) {
            (true, ..) => {}
            (_, true, None) => self.insert(list.start + 1, missing.join(", ")),
            (_, true, Some(last)) => self.insert(last.end, format!(", {}", missing.join(", "))),
            (_, false, Some(last)) if self.is_one_line(last) => {
                let line = self.line_start(last.start);
                let before = self.file.get(line..last.start).unwrap_or_default();
                let dash = before.rfind('-').unwrap_or(0);
                let indent = " ".repeat(dash);
                let lines: Vec<String> =
                    missing.iter().map(|item| format!("{indent}- {item}")).collect();
                self.insert_lines_after(last.end, &lines);
            }
            _ => return Err(format!("the last item of {place} has several lines")),
        }
        Ok(())
    }

    /// Removes the entry of a map with its lines, if the map has it.
    pub(in crate::flags) fn remove(
        &mut self,
        map: &Node,
        key: &str,
        place: &str,
    ) -> Result<(), String> {
        let Some(at) = map.entries().iter().position(|(found, _)| found.text() == Some(key)) else {
            return Ok(());
        };
        if map.anchored {
            return Err(format!("{place} is shared by an anchor (&)"));
        }
        let entries = map.entries();
        let (name, value) = &entries[at];
        let end = last_end(value).max(name.end);
        if matches!(map.content, Content::Map { flow: true, .. }) {
            // With the comma after it, or before it if it is the last one.
            let range =
                match (entries.get(at + 1), at.checked_sub(1).map(|before| &entries[before])) {
                    (Some((next, _)), _) => name.start..next.start,
                    (None, Some((_, before))) => last_end(before)..end,
                    (None, None) => name.start..end,
                };
            self.list.push((range, String::new()));
            return Ok(());
        }
        let line = self.line_start(name.start);
        if !self.file.get(line..name.start).unwrap_or_default().trim().is_empty() {
            return Err(format!("{place}.{key} shares its line with other entries"));
        }
        let text = self.file.get(..end).unwrap_or_default().trim_end();
        let rest = self.file.get(text.len()..).unwrap_or_default();
        let after = rest.find('\n').map_or(self.file.len(), |newline| text.len() + newline + 1);
        self.list.push((line..after, String::new()));
        Ok(())
    }

    /// Replaces a scalar.
    pub(in crate::flags) fn replace(&mut self, found: &Node, written: String) {
        self.list.push((found.start..found.end, written));
    }

    fn insert(&mut self, at: usize, text: String) {
        self.list.push((at..at, text));
    }

    fn insert_flow(&mut self, map: &Node, missing: &[(&'static str, &Wanted)]) {
        let parts = missing.iter().map(|(key, value)| format!("{key}: {}", flow_text(value)));
        let text = parts.collect::<Vec<_>>().join(", ");
        match map.entries().last() {
            None => self.insert(map.start + 1, text),
            Some((_, last)) => self.insert(last.end, format!(", {text}")),
        }
    }

    /// Inserts lines after an entry with a value on its line, or before the first entry.
    fn insert_block(
        &mut self,
        map: &Node,
        missing: &[(&'static str, &Wanted)],
        place: &str,
    ) -> Result<(), String> {
        let column = map.entries().first().map_or(map.column, |(key, _)| key.column);
        let lines: Vec<String> =
            missing.iter().flat_map(|(key, value)| entry_lines(key, value, column)).collect();
        let one_line = |(key, value): &&(Node, Node)| {
            value.text().is_some()
                && self.is_one_line(value)
                && self.line_start(key.start) == self.line_start(value.start)
        };
        if let Some((_, value)) = map.entries().iter().find(one_line) {
            self.insert_lines_after(value.end, &lines);
            return Ok(());
        }
        let first = map.entries().first().map_or(map.start, |(key, _)| key.start);
        let line = self.line_start(first);
        let before = self.file.get(line..first).unwrap_or_default();
        if !before.trim().is_empty() {
            return Err(format!("{place} has no entry beside which a line can be added"));
        }
        let text: String = lines.iter().map(|text| format!("{text}{}", self.newline)).collect();
        self.insert(line, text);
        Ok(())
    }

    /// Inserts lines after the line that has this byte.
    fn insert_lines_after(&mut self, at: usize, lines: &[String]) {
        match self.file.get(at..).and_then(|rest| rest.find('\n')) {
            Some(end) => {
                let text = lines.iter().map(|line| format!("{line}{}", self.newline)).collect();
                self.insert(at + end + 1, text);
            }
            // The file's last line has no line break, and then has none afterwards either.
            None => {
                let text = lines.iter().map(|line| format!("{}{line}", self.newline)).collect();
                self.insert(self.file.len(), text);
            }
        }
    }

    fn line_start(&self, at: usize) -> usize {
        self.file.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1)
    }

    /// Whether a node is a scalar on one line.
    fn is_one_line(&self, node: &Node) -> bool {
        let text = self.file.get(node.start..node.end).unwrap_or_default();
        matches!(node.content, Content::Scalar { .. }) && !text.contains('\n')
    }
}

/// Returns the byte after the last text of a node; a block's own end is at the next token.
fn last_end(node: &Node) -> usize {
    let last = match &node.content {
        Content::Map { flow: false, entries } => {
            entries.last().map(|(key, value)| last_end(value).max(key.end))
        }
        Content::List { flow: false, items } => items.last().map(last_end),
        _ => None,
    };
    last.unwrap_or(node.end)
}

/// Writes a value within braces or brackets.
fn flow_text(wanted: &Wanted) -> String {
    match wanted {
        Wanted::Text { written, .. } => written.clone(),
        Wanted::Map(entries) => {
            let parts = entries.iter().map(|(key, value)| format!("{key}: {}", flow_text(value)));
            format!("{{{}}}", parts.collect::<Vec<_>>().join(", "))
        }
        Wanted::Items(items) => {
            format!("[{}]", items.iter().map(|item| quote(item)).collect::<Vec<_>>().join(", "))
        }
    }
}

fn entry_lines(key: &str, wanted: &Wanted, column: usize) -> Vec<String> {
    let indent = " ".repeat(column);
    match wanted {
        Wanted::Text { written, .. } => vec![format!("{indent}{key}: {written}")],
        _ => {
            let below = block_lines(wanted, column + 2);
            std::iter::once(format!("{indent}{key}:")).chain(below).collect()
        }
    }
}

fn block_lines(wanted: &Wanted, column: usize) -> Vec<String> {
    let indent = " ".repeat(column);
    match wanted {
        Wanted::Text { written, .. } => vec![format!("{indent}{written}")],
        Wanted::Map(entries) => {
            entries.iter().flat_map(|(key, value)| entry_lines(key, value, column)).collect()
        }
        Wanted::Items(items) => {
            items.iter().map(|item| format!("{indent}- {}", quote(item))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super as yaml;
    use super::*;

    /// Merges `a.b: "2"`, `a.c: true` and the list `l: ["x"]` into a document.
    fn merged(text: &str) -> Result<String, String> {
        let documents = yaml::parse(text).unwrap();
        let mut edits = Edits::new(text);
        let a = Wanted::Map(vec![("b", Wanted::quoted("2")), ("c", Wanted::plain("true"))]);
        let wanted = [("a", a), ("l", Wanted::Items(vec!["x".into()]))];
        edits.merge(&documents[0], &wanted, "doc")?;
        Ok(edits.apply())
    }

    #[test]
    fn other_bytes_stay() {
        let check = |text: &str, expect: &str| {
            assert_eq!(merged(text).unwrap(), expect, "{text}");
            assert_eq!(merged(expect).unwrap(), expect, "a second time: {text}");
        };
        check("a:\n  b: \"2\"\n  c: true\nl: [x]\n", "a:\n  b: \"2\"\n  c: true\nl: [x]\n");
        // Values are replaced, comments and blank lines stay.
        check(
            "# top\na:   # map\n    b: 1   # one\n\n    c: false\nl:\n- y\n- z # last\n# end",
            "# top\na:   # map\n    b: \"2\"   # one\n\n    c: true\nl:\n- y\n- z # last\n- \"x\"\n# end",
        );
        // What is missing comes after an entry with a value on its line.
        check(
            "k: v # c\nm:\n  n: 1\n",
            "k: v # c\na:\n  b: \"2\"\n  c: true\nl:\n  - \"x\"\nm:\n  n: 1\n",
        );
        // Or before the first, if there is none.
        check("m:\n  n: 1\n", "a:\n  b: \"2\"\n  c: true\nl:\n  - \"x\"\nm:\n  n: 1\n");
        // Nothing, null and braces.
        check("a:\nl: null\n", "a:\n  b: \"2\"\n  c: true\nl: [\"x\"]\n");
        check("a: {}\nl: []\n", "a: {b: \"2\", c: true}\nl: [\"x\"]\n");
        check("{a: {b: 1}, l: [y]}", "{a: {b: \"2\", c: true}, l: [y, \"x\"]}");
        // Line ends of the file, also none at its end.
        check("k: v\r\na: {b: 2,}\r\n", "k: v\r\nl:\r\n  - \"x\"\r\na: {b: 2, c: true,}\r\n");
        check("l: [x]\nk: v", "l: [x]\nk: v\na:\n  b: \"2\"\n  c: true");
        check("ä: ö\na: {b: é, c: true}\nl: [x]", "ä: ö\na: {b: \"2\", c: true}\nl: [x]");
    }

    #[test]
    fn what_other_places_share_is_refused() {
        let check = |text: &str, part: &str| {
            let error = merged(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        };
        check("a: &x {b: 1}\nl: [x]\n", "doc.a is shared");
        check("k: &x {b: 1}\na: *x\nl: [x]\n", "doc.a is shared");
        check("k: &x {b: 1}\na:\n  <<: *x\nl: [x]\n", "doc.a is shared");
        check("a: 1\nl: [x]\n", "doc.a is not a map");
        check("a: {b: [1]}\nl: [x]\n", "doc.a.b is not a single value");
        check("a: {b: 2, c: true}\nl: {}\n", "doc.l is not a list");
    }

    #[test]
    fn entries_are_removed_with_their_lines() {
        let check = |text: &str, expect: &str| {
            let documents = yaml::parse(text).unwrap();
            let mut edits = Edits::new(text);
            edits.remove(&documents[0], "k", "doc").unwrap();
            assert_eq!(edits.apply(), expect, "{text}");
        };
        check("a: 1\nk: 2 # two\nb: 3\n", "a: 1\nb: 3\n");
        check("a: 1\nk:\n  - x\n  - y: [1,\n     2]\n\n# b\nb: 3\n", "a: 1\n\n# b\nb: 3\n");
        check("k: |\n  text\n  more\nb: 3\n", "b: 3\n");
        check("a: 1\nk:\n", "a: 1\n");
        check("a: 1\nk: 2", "a: 1\n");
        check("{a: 1, k: [2], b: 3}", "{a: 1, b: 3}");
        check("{a: 1, k: {c: 2}}", "{a: 1}");
        check("{k: 1}", "{}");
        check("{b: 1}", "{b: 1}");
        check("a: 1\r\nk: 2\r\nb: 3\r\n", "a: 1\r\nb: 3\r\n");
    }

    #[test]
    fn deep_files_are_refused() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(yaml::parse(&nested(60)).is_ok());
        assert!(yaml::parse(&nested(70)).unwrap_err().contains("levels"));
        assert!(yaml::parse(&nested(100_000)).is_err());
    }
}
