//! irqbalance's options file, for banning interrupts where it has no socket.
//!
//! Tare does not write this file: a wrong line keeps irqbalance from starting; its path, its key
//! and the restart of the service differ by distribution; and other tools edit it too (cri-o,
//! tuned, perftune.py). The plan prints the line with a mark above it. The next printed line
//! replaces the previous one, so bans of interrupts whose numbers have changed do not pile up.

use crate::snapshot::Snapshot;

/// The files that a snapshot keeps for this module.
pub const FILES: &[&str] = &[
    "/etc/default/irqbalance",
    "/etc/sysconfig/irqbalance",
    "/etc/conf.d/irqbalance",
    "/usr/lib/systemd/system/irqbalance.service",
    "/lib/systemd/system/irqbalance.service",
    "/etc/systemd/system/irqbalance.service",
    "/etc/systemd/system/irqbalance.service.d/*.conf",
    "/etc/init.d/irqbalance",
    "/run/systemd/system",
];

/// Starts the comment above a line of Tare, which lists the banned numbers.
pub(crate) const MARK: &str = "# tare banned:";

/// The file with the options of irqbalance's service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsFile {
    pub path: String,
    /// The variable of the options: `IRQBALANCE_ARGS`, `OPTIONS`, `IRQBALANCE_OPTS`.
    pub key: String,
    /// The words of the current line; empty if there is none.
    pub options: Vec<String>,
    /// The interrupts that Tare's mark lists as banned before.
    pub marked: Vec<u32>,
    /// The command that restarts irqbalance, so that it reads the file.
    pub restart: String,
}

impl OptionsFile {
    /// Finds the file of a host; `None` if none of the known files exists.
    ///
    /// The unit of the service names the variable and its file. Guessing by the distribution has
    /// been wrong (seastar #502, #571).
    pub fn find(snapshot: &Snapshot) -> Option<Self> {
        let unit = unit(snapshot);
        let known =
            ["/etc/default/irqbalance", "/etc/sysconfig/irqbalance", "/etc/conf.d/irqbalance"];
        let of_unit = unit.as_deref().and_then(environment_file);
        let there = |path: &&&str| snapshot.read(path).is_some();
        let path = match of_unit {
            Some(path) => path,
            None => (*known.iter().find(there)?).to_string(),
        };
        let key = match unit.as_deref().and_then(variable) {
            Some(key) => key,
            None if path.starts_with("/etc/conf.d/") => "IRQBALANCE_OPTS".into(),
            None if path.starts_with("/etc/sysconfig/") => "IRQBALANCE_ARGS".into(),
            None => "OPTIONS".into(),
        };
        let text = snapshot.read(&path).unwrap_or_default();
        let marks = text.lines().filter_map(|line| line.trim().strip_prefix(MARK));
        let marked = marks.flat_map(str::split_whitespace).filter_map(|word| word.parse().ok());
        let options = value(text, &key).unwrap_or_default();
        let options = options.split_whitespace().map(str::to_string).collect();
        let marked = marked.collect();
        Some(Self { path, key, options, marked, restart: restart(snapshot) })
    }

    /// Returns the interrupts that the current line bans, ascending.
    pub fn bans(&self) -> Vec<u32> {
        let mut bans = split(&self.options).0;
        bans.sort_unstable();
        bans.dedup();
        bans
    }

    /// Returns the lines that replace the current ones: the mark, and the options with the bans.
    ///
    /// Bans that Tare's mark lists and bans of interrupts that do not exist are dropped; all other
    /// options stay.
    pub fn lines(&self, ours: &[u32], exists: impl Fn(u32) -> bool) -> String {
        let (bans, mut words) = split(&self.options);
        let others = bans.into_iter().filter(|ban| exists(*ban) && !self.marked.contains(ban));
        let mut all: Vec<u32> = others.chain(ours.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        words.extend(all.iter().map(|irq| format!("--banirq={irq}")));
        format!("{MARK} {}\n{}", super::numbers(ours), self.line(&words))
    }

    /// Returns the line that perftune.py would write: each missing ban appended, none removed.
    pub fn line_of_perftune(&self, irqs: &[u32]) -> String {
        let now = self.bans();
        let missing = irqs.iter().filter(|irq| !now.contains(irq));
        let mut words = self.options.clone();
        words.extend(missing.map(|irq| format!("--banirq={irq}")));
        self.line(&words)
    }

    fn line(&self, words: &[String]) -> String {
        let value = words.join(" ");
        let quote = if value.contains('"') { '\'' } else { '"' };
        format!("{}={quote}{value}{quote}", self.key)
    }
}

/// Splits options into bans and the rest. `--banirq=38`, `--banirq 38`, `-i38` and `-i 38` are the
/// same.
fn split(options: &[String]) -> (Vec<u32>, Vec<String>) {
    let (mut bans, mut rest) = (Vec::new(), Vec::new());
    let mut words = options.iter().peekable();
    while let Some(word) = words.next() {
        let joined = word.strip_prefix("--banirq=").or_else(|| match word.strip_prefix("-i") {
            Some("") | None => None,
            number => number,
        });
        if let Some(number) = joined.and_then(|number| number.parse().ok()) {
            bans.push(number);
            continue;
        }
        let apart = word == "--banirq" || word == "-i";
        let next = words.peek().filter(|_| apart).and_then(|number| number.parse().ok());
        if let Some(number) = next {
            words.next();
            bans.push(number);
            continue;
        }
        rest.push(word.clone());
    }
    (bans, rest)
}

/// Returns the value of the last assignment of a variable, without its quotes. An unbalanced quote
/// is dropped too: perftune.py leaves one behind an unquoted value.
fn value(text: &str, key: &str) -> Option<String> {
    let mut assignments = text.lines().filter_map(|line| {
        let line = line.trim();
        let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
        (name.trim() == key).then_some(value.trim())
    });
    let value = assignments.next_back()?;
    let quotes = ['"', '\''];
    let Some(quote) = value.chars().next().filter(|first| quotes.contains(first)) else {
        return Some(value.trim_end_matches(quotes).to_string());
    };
    let inner = &value[1..];
    Some(inner.split(quote).next().unwrap_or(inner).to_string())
}

/// Returns the unit of the service with its drop-ins as one text.
fn unit(snapshot: &Snapshot) -> Option<String> {
    let folders = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
    let path = |folder: &&str| snapshot.read(&format!("{folder}/irqbalance.service"));
    let mut text = folders.iter().find_map(path)?.to_string();
    let drop_ins = "/etc/systemd/system/irqbalance.service.d";
    for name in snapshot.names(drop_ins) {
        text += "\n";
        text += snapshot.read(&format!("{drop_ins}/{name}")).unwrap_or_default();
    }
    Some(text)
}

/// Returns the last environment file in /etc that the unit names.
fn environment_file(unit: &str) -> Option<String> {
    let files = unit.lines().filter_map(|line| line.trim().strip_prefix("EnvironmentFile="));
    let mut files = files.map(|file| file.trim().trim_start_matches('-'));
    files.rfind(|file| file.starts_with("/etc/")).map(str::to_string)
}

/// Returns the variable with irqbalance's options in the unit: `$IRQBALANCE_ARGS` or
/// `${IRQBALANCE_ARGS}`.
fn variable(unit: &str) -> Option<String> {
    let mut starts = unit.lines().filter_map(|line| line.trim().strip_prefix("ExecStart="));
    let words = starts.rfind(|line| line.contains("irqbalance"))?.split_whitespace();
    let names = words.filter_map(|word| word.strip_prefix('$'));
    names.map(|name| name.trim_matches(['{', '}']).to_string()).next_back()
}

/// Returns the command that restarts irqbalance. A host without systemd, or a container that sees
/// only the host's processes, has no systemctl (seastar #930).
fn restart(snapshot: &Snapshot) -> String {
    if snapshot.exists("/run/systemd/system") {
        "systemctl try-restart irqbalance.service".into()
    } else if snapshot.exists("/etc/conf.d/irqbalance") {
        "rc-service irqbalance restart".into()
    } else if snapshot.exists("/etc/init.d/irqbalance") {
        "/etc/init.d/irqbalance restart".into()
    } else {
        "restart irqbalance as this host does (no systemd and no init script found)".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Node;

    fn host(files: &[(&str, &str)]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (path, text) in files {
            snapshot.insert(path, Node::File((*text).into()));
        }
        snapshot
    }

    const UNIT: &str = "[Service]\nEnvironmentFile=-/usr/lib/irqbalance/defaults.env\n\
        EnvironmentFile=-/etc/default/irqbalance\n\
        ExecStart=/usr/sbin/irqbalance --foreground $IRQBALANCE_ARGS\n";

    #[test]
    fn unit_names_file_and_key() {
        let check = |files: &[(&str, &str)], expect: Option<(&str, &str, &str)>| {
            let found = OptionsFile::find(&host(files));
            let found = found.as_ref().map(|f| (&*f.path, &*f.key, &*f.restart));
            assert_eq!(found, expect, "{files:?}");
        };
        let systemd = ("/run/systemd/system/x", "");
        let systemctl = "systemctl try-restart irqbalance.service";
        let unit = ("/usr/lib/systemd/system/irqbalance.service", UNIT);
        let debian = ("/etc/default/irqbalance", "");
        check(
            &[unit, debian, systemd],
            Some(("/etc/default/irqbalance", "IRQBALANCE_ARGS", systemctl)),
        );
        // seastar #502, #571: the key is the unit's, not the distribution's.
        let options = UNIT.replace("IRQBALANCE_ARGS", "{OPTIONS}");
        let unit = ("/usr/lib/systemd/system/irqbalance.service", &*options);
        check(&[unit, debian, systemd], Some(("/etc/default/irqbalance", "OPTIONS", systemctl)));
        let script = ("/etc/init.d/irqbalance", "#!/bin/sh");
        let init = "/etc/init.d/irqbalance restart";
        check(&[debian, script], Some(("/etc/default/irqbalance", "OPTIONS", init)));
        let gentoo = ("/etc/conf.d/irqbalance", "");
        let openrc = "rc-service irqbalance restart";
        check(&[gentoo, script], Some(("/etc/conf.d/irqbalance", "IRQBALANCE_OPTS", openrc)));
        // SLES from within a container: no systemctl, no script (seastar #930).
        let sles = OptionsFile::find(&host(&[("/etc/sysconfig/irqbalance", "")])).unwrap();
        assert_eq!(sles.key, "IRQBALANCE_ARGS");
        assert!(sles.restart.starts_with("restart irqbalance"), "{}", sles.restart);
        check(&[], None);
        check(&[script], None);
    }

    #[test]
    fn drop_in_overrides_unit() {
        let drop_in = "[Service]\nExecStart=\nExecStart=/usr/sbin/irqbalance $EXTRA\n\
            EnvironmentFile=/etc/irq.env";
        let found = OptionsFile::find(&host(&[
            ("/lib/systemd/system/irqbalance.service", UNIT),
            ("/etc/systemd/system/irqbalance.service.d/10.conf", drop_in),
        ]));
        let found = found.unwrap();
        assert_eq!((&*found.path, &*found.key), ("/etc/irq.env", "EXTRA"));
    }

    /// Defect 3: the new line has one pair of quotes, whatever the old one had.
    #[test]
    fn reads_lines_with_any_quotes() {
        let check = |line: &str, expect: &str| {
            let files = [
                ("/etc/default/irqbalance", line),
                ("/lib/systemd/system/irqbalance.service", UNIT),
            ];
            let found = OptionsFile::find(&host(&files)).unwrap();
            assert_eq!(found.line_of_perftune(&[38]), expect, "{line}");
        };
        let with = r#"IRQBALANCE_ARGS="--deepestcache=2 --banirq=38""#;
        check("IRQBALANCE_ARGS=--deepestcache=2", with);
        check(r#"IRQBALANCE_ARGS="--deepestcache=2""#, with);
        check("IRQBALANCE_ARGS='--deepestcache=2'", with);
        check("  export IRQBALANCE_ARGS=\"--deepestcache=2\" # mine", with);
        check("IRQBALANCE_ARGS=--deepestcache=1\nIRQBALANCE_ARGS=--deepestcache=2", with);
        // perftune.py leaves this quote behind an unquoted value.
        check("IRQBALANCE_ARGS=--deepestcache=2 --banirq=38\"", with);
        check("IRQBALANCE_ARGS=\"--deepestcache=2 --banirq=38", with);
        check("#IRQBALANCE_ARGS=--deepestcache=9", r#"IRQBALANCE_ARGS="--banirq=38""#);
        check("", r#"IRQBALANCE_ARGS="--banirq=38""#);
        check("IRQBALANCE_ARGS=", r#"IRQBALANCE_ARGS="--banirq=38""#);
        let policy = r#"IRQBALANCE_ARGS='-l "/etc/p" --banirq=38'"#;
        check(r#"IRQBALANCE_ARGS='-l "/etc/p"'"#, policy);
    }

    /// Defect 2: bans of an earlier boot are dropped.
    #[test]
    fn drops_stale_bans() {
        let check = |text: &str, ours: &[u32], expect: &str| {
            let files = [
                ("/etc/default/irqbalance", text),
                ("/lib/systemd/system/irqbalance.service", UNIT),
            ];
            let found = OptionsFile::find(&host(&files)).unwrap();
            // This boot has the interrupts 30 to 49.
            assert_eq!(found.lines(ours, |irq| (30..50).contains(&irq)), expect, "{text}");
        };
        check(
            "IRQBALANCE_ARGS=\"--banirq=31 -i 90 --banirq 91 -i92 -t 5\"",
            &[38, 39],
            "# tare banned: 38 39\nIRQBALANCE_ARGS=\"-t 5 --banirq=31 --banirq=38 --banirq=39\"",
        );
        check(
            "# tare banned: 38 39\nIRQBALANCE_ARGS=\"-t 5 --banirq=31 --banirq=38 --banirq=39\"",
            &[40, 39],
            "# tare banned: 39 40\nIRQBALANCE_ARGS=\"-t 5 --banirq=31 --banirq=39 --banirq=40\"",
        );
    }
}
