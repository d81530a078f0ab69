//! A YAML file as trees whose nodes know which bytes of the file they are, so that a change can
//! leave every other byte as it is.
//!
//! Method: the events of the parser below `serde-saphyr` become nodes. Scalars keep their text
//! after escapes. Limits: files with more than `DEPTH_MAX` levels are refused.

pub(in crate::flags) mod edit;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, StructureStyle};

/// The most levels of a file; manifests of Kubernetes have less than twenty.
const DEPTH_MAX: usize = 64;

/// A node of a document.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::flags) struct Node {
    /// The bytes of its text in the file.
    pub(in crate::flags) start: usize,
    pub(in crate::flags) end: usize,
    /// The column of its first character, from 0.
    pub(in crate::flags) column: usize,
    /// Whether another place of the file may refer to it.
    pub(in crate::flags) anchored: bool,
    pub(in crate::flags) content: Content,
}

#[derive(Clone, Debug, PartialEq)]
pub(in crate::flags) enum Content {
    /// `plain`: without quotes, and not a block.
    Scalar {
        text: String,
        plain: bool,
    },
    /// `flow`: in braces.
    Map {
        flow: bool,
        entries: Vec<(Node, Node)>,
    },
    /// `flow`: in brackets.
    List {
        flow: bool,
        items: Vec<Node>,
    },
    Alias,
}

/// Parses a file. Returns its documents; an error is one line.
pub(in crate::flags) fn parse(text: &str) -> Result<Vec<Node>, String> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let reason = error.to_string();
            reason.lines().next().unwrap_or_default().to_string()
        })?;
        let node = |content: Content, anchor: usize| Node {
            start: span.start.byte_offset().unwrap_or_default(),
            end: span.end.byte_offset().unwrap_or_default(),
            column: span.start.col(),
            anchored: anchor > 0,
            content,
        };
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == ScalarStyle::Plain;
                builder.add(node(Content::Scalar { text: text.into_owned(), plain }, anchor));
            }
            Event::Alias(_) => builder.add(node(Content::Alias, 0)),
            Event::MappingStart(style, anchor, _) => {
                let flow = style == StructureStyle::Flow;
                builder.open(node(Content::Map { flow, entries: Vec::new() }, anchor))?;
            }
            Event::SequenceStart(style, anchor, _) => {
                let flow = style == StructureStyle::Flow;
                builder.open(node(Content::List { flow, items: Vec::new() }, anchor))?;
            }
            Event::MappingEnd | Event::SequenceEnd => {
                builder.close(span.end.byte_offset().unwrap_or_default());
            }
            _ => {}
        }
    }
    Ok(builder.documents)
}

/// Builds trees from events.
#[derive(Default)]
struct Builder {
    documents: Vec<Node>,
    /// Maps and lists that are open, the outermost first, each with the key that waits for its
    /// value.
    open: Vec<(Node, Option<Node>)>,
}

impl Builder {
    fn open(&mut self, node: Node) -> Result<(), String> {
        if self.open.len() == DEPTH_MAX {
            return Err(format!("it has more than {DEPTH_MAX} levels"));
        }
        self.open.push((node, None));
        Ok(())
    }

    fn close(&mut self, end: usize) {
        if let Some((mut node, _)) = self.open.pop() {
            node.end = end;
            self.add(node);
        }
    }

    fn add(&mut self, node: Node) {
        let Some((parent, key)) = self.open.last_mut() else {
            self.documents.push(node);
            return;
        };
        match &mut parent.content {
            Content::List { items, .. } => items.push(node),
            Content::Map { entries, .. } => match key.take() {
                None => *key = Some(node),
                Some(key) => entries.push((key, node)),
            },
            Content::Scalar { .. } | Content::Alias => {}
        }
    }
}

impl Node {
    /// Returns the text of a scalar that is not null.
    pub(in crate::flags) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    /// Whether it is null: nothing, `~` or `null` (YAML 1.2, core schema).
    pub(in crate::flags) fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// Returns the entry of a map: key and value.
    pub(in crate::flags) fn entry(&self, key: &str) -> Option<&(Node, Node)> {
        self.entries().iter().find(|(found, _)| found.text() == Some(key))
    }

    /// Returns the value at a path of keys.
    pub(in crate::flags) fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, key| node.entry(key).map(|(_, value)| value))
    }

    /// Returns the entries of a map; none for anything else.
    pub(in crate::flags) fn entries(&self) -> &[(Node, Node)] {
        match &self.content {
            Content::Map { entries, .. } => entries,
            _ => &[],
        }
    }

    /// Returns the texts of a list or the keys of a map; none for anything else.
    pub(in crate::flags) fn names(&self) -> Vec<&str> {
        let keys = self.entries().iter().map(|(key, _)| key);
        self.items().iter().chain(keys).filter_map(Node::text).collect()
    }

    /// Returns the items of a list; none for anything else.
    pub(in crate::flags) fn items(&self) -> &[Node] {
        match &self.content {
            Content::List { items, .. } => items,
            _ => &[],
        }
    }
}
