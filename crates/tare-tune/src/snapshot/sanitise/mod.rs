//! What a snapshot must not hold: addresses, names of hosts and people, identifiers.
//!
//! Two steps. What is *taken* is cut to what a planner reads: mounts without options, boot
//! parameters that matter, options of irqbalance without comments. What is *saved* leaves the host,
//! so that identifiers in what is left are replaced: UUIDs, addresses of networks, long
//! hexadecimal names (containers), the host's name. A snapshot in memory keeps those, for some are
//! part of the paths of devices (Hyper-V), which a tuning on the spot has to write to.

use std::collections::BTreeMap;

use super::patterns::BOOT_PARAMETERS;
use super::{Node, Snapshot};

/// Where `take` leaves the host's name for `sanitised`, which removes it. Never saved.
pub(super) const HOST_NAME: &str = "/tare/private/hostname";

/// Shorter host names are words that mean something else (`db`, `cpu`).
const HOST_NAME_LENGTH_MIN: usize = 4;

/// Names with as many hexadecimal digits in a row are identifiers of containers, images, disks.
const HEXADECIMAL_RUN: usize = 24;

/// Parts of a mount point that has no block device behind it, longer than which it is left out.
const MOUNT_PART_LENGTH_MAX: usize = 32;

/// Lines of /proc/meminfo that are kept.
const MEMORY: &[&str] = &["MemTotal", "MemFree", "MemAvailable", "SwapTotal", "SwapFree", "Huge"];

/// Cuts what was just taken.
pub(super) fn taken(snapshot: &mut Snapshot) {
    let mut mounts = String::new();
    snapshot.edit("/proc/self/mountinfo", |text| {
        mounts = mountinfo(text);
        mounts.clone()
    });
    snapshot.edit("/proc/cmdline", boot_parameters);
    for process in ["1", "self"] {
        // What the limits may be raised to; the rest is about the process, not the host.
        let capabilities = |text: &str| keep_lines(text, |line| line.starts_with("CapBnd"));
        snapshot.edit(&format!("/proc/{process}/status"), capabilities);
    }
    for folder in ["default", "sysconfig", "conf.d"] {
        snapshot.edit(&format!("/etc/{folder}/irqbalance"), irqbalance_options);
    }
    let memory = |text: &str| {
        keep_lines(text, |line| {
            let name =
                line.trim_start_matches("Node ").trim_start_matches(|c: char| c.is_ascii_digit());
            MEMORY.iter().any(|wanted| name.trim_start().starts_with(wanted))
        })
    };
    let paths: Vec<String> = snapshot.nodes().map(|(path, _)| path.to_string()).collect();
    for path in paths {
        if path.ends_with("/dm/uuid") {
            // `LVM-...`, `CRYPT-LUKS2-...`, `mpath-...`: the first word is the kind.
            snapshot.edit(&path, |text| text.split('-').next().unwrap_or_default().to_string());
        } else if path.ends_with("/loop/backing_file") {
            snapshot.edit(&path, |text| backing_file(text, &mounts));
        } else if path.ends_with("/meminfo") {
            snapshot.edit(&path, memory);
        } else if path.starts_with("/sys/kernel/debug/irq/irqs/") {
            // The flags: `IRQD_AFFINITY_MANAGED` means that the kernel sets the affinity.
            snapshot.edit(&path, |text| {
                let flags = text.split_whitespace().filter(|word| word.starts_with("IRQD_"));
                flags.collect::<Vec<_>>().join(" ")
            });
        }
    }
}

/// Mounts without options and without sources that are no devices; mounts without a block device
/// only where their names are plain, for the others lie in people's homes, in containers or pods.
fn mountinfo(text: &str) -> String {
    let lines = text.lines().filter_map(|line| {
        // id parent major:minor root mountpoint options optional* - fstype source superoptions
        // (proc_pid_mountinfo(5))
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let [id, parent, device, _root, point, ..] = left.as_slice() else { return None };
        let mut right = right.split(' ');
        let (kind, source) = (right.next()?, right.next().unwrap_or("none"));
        let source = if source.starts_with("/dev/") { source } else { "none" };
        let block = source != "none" || !device.starts_with("0:");
        (block || is_plain(point))
            .then(|| format!("{id} {parent} {device} / {point} rw - {kind} {source} rw"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn is_plain(point: &str) -> bool {
    let mut parts = point.split('/').skip(1);
    let home = point == "/root" || point.starts_with("/root/") || point.starts_with("/home/");
    let plain = |part: &str| {
        part.len() <= MOUNT_PART_LENGTH_MAX
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    !home && !point.starts_with("/run/user/") && parts.all(plain)
}

fn boot_parameters(text: &str) -> String {
    let wanted = |word: &&str| {
        let name = word.split_once('=').map_or(*word, |(name, _)| name);
        BOOT_PARAMETERS.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *wanted,
        })
    };
    text.split_whitespace().filter(wanted).collect::<Vec<_>>().join(" ")
}

fn irqbalance_options(text: &str) -> String {
    keep_lines(text, |line| {
        let line = line.trim_start().trim_start_matches("export ");
        let options = line.starts_with("IRQBALANCE_") || line.starts_with("OPTIONS");
        options || line.starts_with(crate::irqbalance::options_file::MARK)
    })
}

/// Identifies the file of a loop device by its mount, which leads to its disk.
fn backing_file(text: &str, mounts: &str) -> String {
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let over = |point: &&str| {
        let below = text.strip_prefix(point.trim_end_matches('/'));
        below.is_some_and(|below| below.starts_with('/'))
    };
    let longest = points.filter(over).max_by_key(|point| point.len()).unwrap_or("/");
    format!("{}/file", longest.trim_end_matches('/'))
}

fn keep_lines(text: &str, wanted: impl Fn(&str) -> bool) -> String {
    text.lines().filter(|line| wanted(line)).collect::<Vec<_>>().join("\n")
}

impl Snapshot {
    /// The snapshot as it may leave the host: identifiers replaced, everywhere by the same
    /// replacement. Nothing changes when it is done again.
    pub fn sanitised(&self) -> Self {
        let name = match self.nodes.get(HOST_NAME) {
            Some(Node::File(text)) => Some(text.trim().to_string()),
            _ => None,
        };
        let mut hider = Hider::new(name.as_deref());
        let mut clean = Self::default();
        let kept = self.nodes().filter(|(path, _)| !path.starts_with("/tare/private"));
        for (path, node) in kept {
            let node = match node {
                Node::File(text) => Node::File(hider.hide(text)),
                Node::Link(target) => Node::Link(hider.hide(target)),
                Node::Directory => Node::Directory,
            };
            clean.nodes.insert(hider.hide(path), node);
        }
        clean
    }

    fn edit(&mut self, path: &str, edit: impl FnOnce(&str) -> String) {
        if let Some(Node::File(text)) = self.nodes.get_mut(path) {
            *text = edit(text);
        }
    }
}

/// Replaces identifiers in text.
struct Hider {
    host: Vec<String>,
    /// Replacements of UUIDs and hexadecimal names, so that a path and the links to it stay one.
    known: BTreeMap<String, String>,
}

impl Hider {
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

    fn hide(&mut self, text: &str) -> String {
        // Masks of CPUs and counters of interrupts make most of the text; they hold none of it.
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

    /// A run of letters, digits and `.:-`.
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

    /// Zeros with a number at the end, in the shape of what they replace.
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

/// Length of the UUID or long hexadecimal name at the start of a text; 0 when there is none.
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
        // A run of one digit is a mask or a number that is no identifier.
        false if run >= HEXADECIMAL_RUN && bytes[..run].iter().any(|b| *b != bytes[0]) => run,
        false => 0,
    }
}

fn is_ipv4(token: &str) -> bool {
    let address = token.split_once(':').map_or(token, |(address, _)| address);
    address.split('.').count() == 4 && address.parse::<std::net::Ipv4Addr>().is_ok()
}

fn is_ipv6(token: &str) -> bool {
    // Names of SCSI devices (`3:0:0:1`) are none.
    token.bytes().filter(|byte| *byte == b':').count() >= 2
        && token.parse::<std::net::Ipv6Addr>().is_ok()
}

/// Six or more pairs of hexadecimal digits with one separator: Ethernet, InfiniBand, Fibre Channel.
fn is_hardware_address(token: &str) -> bool {
    [':', '-'].iter().any(|separator| {
        let pair = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
        token.split(*separator).count() >= 6 && token.split(*separator).all(pair)
    })
}

/// Replaces a word that is surrounded by characters other than letters and digits.
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
