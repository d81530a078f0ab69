//! Replaces what must not leave the host: addresses, host names and identifiers.
//!
//! A snapshot in memory keeps UUIDs and hexadecimal names, because some are part of device paths
//! (Hyper-V) that a tuning on this host has to write to. When it is saved, each is replaced by the
//! same replacement everywhere: UUIDs, network addresses, long hexadecimal names (containers) and
//! the host name.

use std::collections::BTreeMap;

use super::{Node, Snapshot};

/// The pseudo file with the host's name, which `sanitised` replaces and removes. Never saved.
pub(crate) const HOST_NAME: &str = "/tare/private/hostname";

/// Shorter host names are ordinary words (`db`, `cpu`) and are not replaced.
const HOST_NAME_LENGTH_MIN: usize = 4;

/// Names with at least this many hexadecimal digits in a row identify containers, images or disks.
const HEXADECIMAL_RUN: usize = 24;

impl Snapshot {
    /// Returns the snapshot as it may leave the host: each identifier is replaced by the same
    /// replacement everywhere. Idempotent.
    pub fn sanitised(&self) -> Self {
        let name = match self.nodes.get(HOST_NAME) {
            Some(Node::File(text)) => Some(text.trim().to_string()),
            _ => None,
        };
        let mut redactor = Redactor::new(name.as_deref());
        let mut clean = Self::default();
        let kept = self.nodes().filter(|(path, _)| !path.starts_with("/tare/private"));
        for (path, node) in kept {
            let node = match node {
                Node::File(text) => Node::File(redactor.redact(text)),
                Node::Link(target) => Node::Link(redactor.redact(target)),
                Node::Directory => Node::Directory,
            };
            clean.nodes.insert(redactor.redact(path), node);
        }
        clean
    }
}

/// Replaces identifiers in text.
struct Redactor {
    host: Vec<String>,
    /// Replacements of UUIDs and hexadecimal names, so that links to a replaced path still work.
    known: BTreeMap<String, String>,
}

impl Redactor {
    fn new(host: Option<&str>) -> Self {
        let host = host.filter(|name| name.len() >= HOST_NAME_LENGTH_MIN && *name != "localhost");
        let names = host.into_iter().flat_map(|name| {
            let short = name.split('.').next().unwrap_or(name).to_string();
            // Device mapper doubles the hyphens of LVM's names.
            [name.to_string(), name.replace('-', "--"), short.replace('-', "--"), short]
        });
        let host = names.filter(|name| name.len() >= HOST_NAME_LENGTH_MIN).collect();
        Self { host, known: BTreeMap::new() }
    }

    fn redact(&mut self, text: &str) -> String {
        // CPU masks and interrupt counters are most of the text and contain no identifier.
        let suspect = |byte: u8| matches!(byte, b':' | b'.' | b'-');
        let long = text.len() >= HEXADECIMAL_RUN;
        if self.host.is_empty() && !long && !text.bytes().any(suspect) {
            return text.to_string();
        }
        let mut hidden = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !is_of_token(c)).unwrap_or(rest.len());
            let (token, after) = rest.split_at(end);
            hidden += &self.token(token);
            let separator = after.chars().next().map_or(0, char::len_utf8);
            hidden += &after[..separator];
            rest = &after[separator..];
        }
        for name in &self.host {
            hidden = replace_word(&hidden, name);
        }
        hidden
    }

    /// Redacts a token: a run of letters, digits and `.:-`.
    fn token(&mut self, token: &str) -> String {
        if token.len() < 4 {
            return token.to_string();
        }
        if is_ipv4(token) || is_ipv6(token) || is_hardware_address(token) {
            return "hidden".to_string();
        }
        let mut hidden = String::with_capacity(token.len());
        let mut rest = token;
        while let Some(first) = rest.chars().next() {
            let bounded = hidden.chars().next_back().is_none_or(|c| !c.is_ascii_hexdigit());
            let length = if bounded { identifier(rest) } else { 0 };
            match length {
                0 => {
                    hidden.push(first);
                    rest = &rest[first.len_utf8()..];
                }
                _ => {
                    hidden += &self.replacement(&rest[..length]);
                    rest = &rest[length..];
                }
            }
        }
        hidden
    }

    /// Returns zeros with a number at the end, in the shape of the identifier.
    fn replacement(&mut self, identifier: &str) -> String {
        let digits: String = identifier.chars().filter(char::is_ascii_hexdigit).collect();
        if digits.starts_with("0000000000000000") {
            return identifier.to_string();
        }
        let number = self.known.len() + 1;
        let known = self.known.entry(identifier.to_string()).or_insert_with(|| {
            let mut digits =
                format!("{number:0>width$x}", width = digits.len()).into_bytes().into_iter();
            let shape = identifier.chars().map(|c| match c.is_ascii_hexdigit() {
                true => digits.next().map_or('0', char::from),
                false => c,
            });
            shape.collect()
        });
        known.clone()
    }
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-')
}

/// Returns the length of the UUID or long hexadecimal name at the start of a text; 0 for none.
fn identifier(text: &str) -> usize {
    let bytes = text.as_bytes();
    let uuid = bytes.len() >= 36
        && bytes[..36].iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    let run = bytes.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let ends = |at: usize| bytes.get(at).is_none_or(|byte| !byte.is_ascii_hexdigit());
    match uuid && ends(36) {
        true => 36,
        // A run of one repeated digit is a mask or a number, not an identifier.
        false if run >= HEXADECIMAL_RUN && bytes[..run].iter().any(|b| *b != bytes[0]) => run,
        false => 0,
    }
}

fn is_ipv4(token: &str) -> bool {
    let address = token.split_once(':').map_or(token, |(address, _)| address);
    address.split('.').count() == 4 && address.parse::<std::net::Ipv4Addr>().is_ok()
}

fn is_ipv6(token: &str) -> bool {
    // Names of SCSI devices (`3:0:0:1`) do not parse as addresses.
    token.bytes().filter(|byte| *byte == b':').count() >= 2
        && token.parse::<std::net::Ipv6Addr>().is_ok()
}

/// Whether a token is an address of Ethernet, InfiniBand or Fibre Channel: six or more pairs of
/// hexadecimal digits with one separator.
fn is_hardware_address(token: &str) -> bool {
    [':', '-'].iter().any(|separator| {
        let pair = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
        token.split(*separator).count() >= 6 && token.split(*separator).all(pair)
    })
}

/// Replaces a word with `host` where no letter or digit is next to it.
fn replace_word(text: &str, word: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let inside = letter(before.chars().next_back()) || letter(after.chars().next());
        replaced += before;
        replaced += if inside { word } else { "host" };
        rest = after;
    }
    replaced + rest
}

#[cfg(test)]
mod tests;
