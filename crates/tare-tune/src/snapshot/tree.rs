//! The tree of a snapshot: lookups through links, listing, changes.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::{Node, Snapshot};

/// Links that are followed in one lookup, as in the kernel (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

impl Snapshot {
    /// Returns the content of a file without surrounding white space; `None` when there is no file.
    pub fn read(&self, path: &str) -> Option<&str> {
        match self.nodes.get(&self.real(path)?)? {
            Node::File(text) => Some(text.trim()),
            _ => None,
        }
    }

    /// Parses a file with one decimal number.
    pub fn read_number<N: std::str::FromStr>(&self, path: &str) -> Option<N> {
        self.read(path)?.parse().ok()
    }

    /// Returns ethtool's data of a device: the value of the line `NAME VALUE` in one of its pseudo
    /// files.
    pub fn ethtool(&self, nic: &str, file: &str, name: &str) -> Option<String> {
        let text = self.read(&format!("/tare/ethtool/{nic}/{file}"))?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(of, _)| *of == name).map(|(_, value)| value.trim().to_string())
    }

    /// Whether a path leads to a file, or to a folder that is listed or has content.
    pub fn exists(&self, path: &str) -> bool {
        self.real(path).is_some()
    }

    /// Returns the path with every link followed; `None` when it leads nowhere.
    pub fn real(&self, path: &str) -> Option<String> {
        // Paths in the tree are real, so a path that is in the tree needs no walk. This holds for
        // nearly all of the thousands of lookups of a plan.
        if self.nodes.get(path).is_some_and(|node| !matches!(node, Node::Link(_))) {
            return Some(path.to_string());
        }
        let mut links = 0;
        let mut rest: Vec<String> = parts(path);
        rest.reverse();
        let mut real = String::new();
        while let Some(part) = rest.pop() {
            if part == ".." {
                real.truncate(real.rfind('/')?);
                continue;
            }
            let next = format!("{real}/{part}");
            match self.nodes.get(&next) {
                Some(Node::Link(target)) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return None;
                    }
                    if target.starts_with('/') {
                        real.clear();
                    }
                    rest.extend(parts(target).into_iter().rev());
                }
                _ => real = next,
            }
        }
        (self.nodes.contains_key(&real) || self.first_below(&real).is_some()).then_some(real)
    }

    /// Lists the names in a folder in byte order. Empty when it is not a folder.
    pub fn names(&self, folder: &str) -> Vec<&str> {
        let Some(real) = self.real(folder) else { return Vec::new() };
        let prefix = format!("{real}/");
        let mut names = BTreeSet::new();
        let mut from = Bound::Excluded(prefix.clone());
        while let Some((path, _)) = self.nodes.range((from, Bound::<String>::Unbounded)).next() {
            let Some(below) = path.strip_prefix(&prefix) else { break };
            let name = below.split('/').next().unwrap_or(below);
            names.insert(name);
            // Skips everything deeper: '0' is the character after '/'.
            from = match below.len() == name.len() {
                true => Bound::Excluded(path.clone()),
                false => Bound::Included(format!("{prefix}{name}0")),
            };
        }
        names.into_iter().collect()
    }

    /// Returns every path with its node, sorted by path.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// Inserts a node at a path, which must be real: no part of it may be a link.
    pub fn insert(&mut self, path: &str, node: Node) {
        debug_assert!(path.starts_with('/') && !path.ends_with('/'), "{path}");
        self.nodes.insert(path.to_string(), node);
    }

    /// Replaces the content of a file, following links. Creates the file if it does not exist.
    pub fn write(&mut self, path: &str, text: &str) {
        let real = self.real(path).unwrap_or_else(|| path.to_string());
        self.insert(&real, Node::File(text.to_string()));
    }

    /// Removes a path and all below it. Of a link, only the link is removed.
    pub fn remove(&mut self, path: &str) {
        let below = format!("{path}/");
        self.nodes.retain(|name, _| name != path && !name.starts_with(&below));
    }

    /// Returns the first path below a folder.
    pub(super) fn first_below(&self, folder: &str) -> Option<&str> {
        let prefix = format!("{folder}/");
        let after = self.nodes.range(prefix.clone()..).next().map(|(path, _)| path.as_str());
        after.filter(|path| path.starts_with(&prefix))
    }

    /// Inserts an empty folder at the target of every link below /sys that leads nowhere. Nothing
    /// was read at such a target, but the name of the link's target is data: a driver, for example.
    pub(crate) fn keep_ends_of_links(&mut self) {
        let is_link = |(path, node): (&str, &Node)| match node {
            Node::Link(target) => Some((path.to_string(), target.clone())),
            _ => None,
        };
        let links: Vec<(String, String)> = self.nodes().filter_map(is_link).collect();
        for (path, target) in links {
            let folder = path.rfind('/').map_or("", |slash| &path[..slash]);
            if self.real(&path).is_some() || !path.starts_with("/sys/") {
                continue;
            }
            let mut end: Vec<&str> = match target.starts_with('/') {
                true => Vec::new(),
                false => folder.split('/').filter(|part| !part.is_empty()).collect(),
            };
            for part in target.split('/').filter(|part| !matches!(*part, "" | ".")) {
                match part {
                    ".." => {
                        end.pop();
                    }
                    part => end.push(part),
                }
            }
            // If the path leads through further links, this end is not used.
            let end = format!("/{}", end.join("/"));
            if end.len() > 1 && !self.nodes.contains_key(&end) {
                self.insert(&end, Node::Directory);
            }
        }
    }

    /// Removes the nodes of folders that have content, which shows that they exist.
    pub(crate) fn drop_full_folders(&mut self) {
        let full: Vec<String> = self
            .nodes()
            .filter(|(_, node)| **node == Node::Directory)
            .map(|(path, _)| path.to_string())
            .filter(|path| self.first_below(path).is_some())
            .collect();
        for path in full {
            self.nodes.remove(&path);
        }
    }

    /// Replaces the content of a file if it exists. Links are not followed.
    pub(crate) fn edit(&mut self, path: &str, edit: impl FnOnce(&str) -> String) {
        if let Some(Node::File(text)) = self.nodes.get_mut(path) {
            *text = edit(text);
        }
    }
}

fn parts(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    parts.map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Snapshot {
        let mut tree = Snapshot::default();
        let file = |text: &str| Node::File(text.into());
        tree.insert("/sys/devices/pci0/0000:00:03.0/net/eth0/mtu", file("1500\n"));
        tree.insert("/sys/devices/pci0/0000:00:03.0/vendor", file("0x1af4"));
        tree.insert("/sys/devices/pci0/0000:00:03.0/msi_irqs", Node::Directory);
        tree.insert(
            "/sys/devices/pci0/0000:00:03.0/net/eth0/device",
            Node::Link("../../../0000:00:03.0".into()),
        );
        let target = "../../devices/pci0/0000:00:03.0/net/eth0";
        tree.insert("/sys/class/net/eth0", Node::Link(target.into()));
        tree.insert("/sys/class/net/eth0-2/mtu", file("1"));
        tree
    }

    #[test]
    fn follows_links() {
        let tree = tree();
        assert_eq!(tree.read("/sys/class/net/eth0/mtu"), Some("1500"));
        assert_eq!(tree.read("/sys/class/net/eth0/device/vendor"), Some("0x1af4"));
        let device = tree.real("/sys/class/net/eth0/device").unwrap();
        assert_eq!(device, "/sys/devices/pci0/0000:00:03.0");
        assert_eq!(tree.read("/sys/class/net/eth1/mtu"), None);
        assert!(!tree.exists("/sys/class/net/eth"));
    }

    #[test]
    fn lists_folders() {
        let tree = tree();
        assert_eq!(tree.names("/sys/class/net"), ["eth0", "eth0-2"]);
        assert_eq!(tree.names("/sys/class/net/eth0/device"), ["msi_irqs", "net", "vendor"]);
        assert!(tree.names("/sys/class/net/eth0/device/msi_irqs").is_empty());
        assert!(tree.exists("/sys/class/net/eth0/device/msi_irqs"));
    }

    #[test]
    fn writes_through_links() {
        let mut tree = tree();
        tree.write("/sys/class/net/eth0/mtu", "9000");
        assert_eq!(tree.read("/sys/devices/pci0/0000:00:03.0/net/eth0/mtu"), Some("9000"));
        tree.remove("/sys/devices/pci0/0000:00:03.0/net");
        assert!(!tree.exists("/sys/class/net/eth0/mtu"));
        assert_eq!(tree.read("/sys/class/net/eth0-2/mtu"), Some("1"));
    }

    #[test]
    fn loop_of_links_leads_nowhere() {
        let mut tree = Snapshot::default();
        tree.insert("/a", Node::Link("b".into()));
        tree.insert("/b", Node::Link("a".into()));
        assert_eq!(tree.real("/a"), None);
    }
}
