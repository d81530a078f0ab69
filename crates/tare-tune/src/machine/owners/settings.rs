//! Settings in system files that are applied at boot or when a device appears: sysctl.d, udev
//! rules, link files of systemd, connections of NetworkManager.
//!
//! One line each in `/tare/owners/settings`: kind, path, key and value, separated by tabs.

use std::fs;
use std::path::Path;

use super::files::entries;
use super::{OwnedSettings, Owner};

/// A kind of file and how its lines are read.
struct Kind {
    name: &'static str,
    /// Files, or folders with a file extension.
    places: &'static [(&'static str, &'static str)],
    /// Parses key and value of a line in a section.
    read: fn(section: &str, line: &str) -> Option<(String, String)>,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "sysctl",
        places: &[
            ("/usr/lib/sysctl.d", "conf"),
            ("/usr/local/lib/sysctl.d", "conf"),
            ("/run/sysctl.d", "conf"),
            ("/etc/sysctl.d", "conf"),
            ("/etc/sysctl.conf", ""),
        ],
        read: |_, line| {
            let (key, value) = pair(line)?;
            let key = key.trim_start_matches('-').trim().replace('/', ".");
            knob_of_sysctl(&key).map(|_| (key, value))
        },
    },
    Kind {
        name: "udev",
        places: &[
            ("/usr/lib/udev/rules.d", "rules"),
            ("/run/udev/rules.d", "rules"),
            ("/etc/udev/rules.d", "rules"),
        ],
        read: |_, line| {
            // `==` compares, `=` assigns.
            let assigned =
                |(attribute, _): &&(&str, _)| line.contains(&format!("{attribute}}}=\""));
            let (attribute, _) = ATTRIBUTES.iter().find(assigned)?;
            Some(((*attribute).to_string(), String::new()))
        },
    },
    Kind {
        name: "link",
        places: &[
            ("/usr/lib/systemd/network", "link"),
            ("/run/systemd/network", "link"),
            ("/etc/systemd/network", "link"),
        ],
        read: |section, line| {
            let (key, value) = pair(line)?;
            (section == "Link" && knob_of_link(&key).is_some()).then_some((key, value))
        },
    },
    Kind {
        name: "NetworkManager",
        places: &[
            ("/usr/lib/NetworkManager/system-connections", "nmconnection"),
            ("/run/NetworkManager/system-connections", "nmconnection"),
            ("/etc/NetworkManager/system-connections", "nmconnection"),
        ],
        read: |section, line| {
            let (key, value) = pair(line)?;
            (section == "ethtool" && knob_of_connection(&key).is_some()).then_some((key, value))
        },
    },
    Kind {
        name: "scylla",
        places: &[("/etc/default/scylla-server", ""), ("/etc/sysconfig/scylla-server", "")],
        read: |_, line| {
            let (key, value) = pair(line)?;
            let known = ["SET_NIC", "SET_NIC_AND_DISKS", "SET_CLOCKSOURCE"];
            known.contains(&&*key).then_some((key, value))
        },
    },
    Kind {
        name: "waagent",
        places: &[("/etc/waagent.conf", "")],
        read: |_, line| pair(line).filter(|(key, _)| key == "ResourceDisk.EnableSwap"),
    },
];

/// Attributes that a udev rule can write, with their knobs (udev(7): `ATTR{KEY}="value"`).
const ATTRIBUTES: &[(&str, &str)] = &[
    ("queue/scheduler", "disk_scheduler"),
    ("queue/nomerges", "disk_nomerges"),
    ("queue/write_cache", "disk_write_cache"),
];

/// A setting that a file writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting<'a> {
    pub(super) kind: &'a str,
    pub(super) path: &'a str,
    pub(super) key: &'a str,
    pub(super) value: &'a str,
}

/// Reads the settings of the live host, one per line.
pub(super) fn collect() -> String {
    let mut lines = Vec::new();
    for kind in KINDS {
        for (place, ending) in kind.places {
            let files = match ending.is_empty() {
                true => vec![place.into()],
                false => entries(place),
            };
            let wanted = |file: &&std::path::PathBuf| {
                ending.is_empty() || file.extension().is_some_and(|is| is == *ending)
            };
            for file in files.iter().filter(wanted) {
                let Ok(text) = fs::read_to_string(file) else { continue };
                // The name of a connection may be the name of a private network.
                let path = match kind.name {
                    "NetworkManager" => Path::new(place),
                    _ => file,
                };
                let lines_of = read(kind, &text);
                let line =
                    |(key, value)| format!("{}\t{}\t{key}\t{value}", kind.name, path.display());
                lines.extend(lines_of.into_iter().map(line));
            }
        }
    }
    lines.join("\n")
}

fn read(kind: &Kind, text: &str) -> Vec<(String, String)> {
    let mut section = "";
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
    let mut found = Vec::new();
    for line in lines {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) => section = name,
            None => found.extend((kind.read)(section, line)),
        }
    }
    found
}

/// Parses `key = value`, without quotes around the value.
fn pair(line: &str) -> Option<(String, String)> {
    let (key, value) = line.split_once('=')?;
    Some((key.trim().to_string(), value.trim().trim_matches(['"', '\'']).to_string()))
}

/// Parses the lines of a snapshot.
pub(super) fn parse(text: &str) -> impl Iterator<Item = Setting<'_>> {
    text.lines().filter_map(|line| {
        let mut parts = line.splitn(4, '\t');
        let (kind, path) = (parts.next()?, parts.next()?);
        Some(Setting { kind, path, key: parts.next()?, value: parts.next().unwrap_or_default() })
    })
}

/// Returns the owners of settings. Of the files of sysctl.d the one that is read last comes first,
/// because it wins.
pub(super) fn owners(text: &str) -> Vec<OwnedSettings> {
    let mut settings: Vec<Setting<'_>> = parse(text).collect();
    let name = |setting: &Setting<'_>| match setting.path {
        "/etc/sysctl.conf" => "99-sysctl.conf".to_string(),
        path => path.rsplit('/').next().unwrap_or(path).to_string(),
    };
    settings.sort_by_key(|setting| std::cmp::Reverse(name(setting)));
    settings.iter().filter_map(owner).collect()
}

fn owner(setting: &Setting<'_>) -> Option<OwnedSettings> {
    let Setting { kind, path, key, value } = *setting;
    let (name, effect, knob) = match kind {
        "sysctl" => {
            let effect = format!("sets {key} to {value} at every boot");
            ("systemd-sysctl", effect, knob_of_sysctl(key)?)
        }
        "udev" => {
            let knob = ATTRIBUTES.iter().find(|(attribute, _)| *attribute == key)?.1;
            ("udev", format!("sets {key} whenever the device appears or changes"), knob)
        }
        "link" => {
            let effect = format!("sets {key}={value} when the network device appears");
            ("systemd-udevd", effect, knob_of_link(key)?)
        }
        "NetworkManager" => {
            let effect = format!("sets {key}={value} whenever the connection is activated");
            ("NetworkManager", effect, knob_of_connection(key)?)
        }
        "waagent" if value.eq_ignore_ascii_case("y") => {
            let effect = "creates a swap file on the resource disk at every boot";
            ("Azure Linux agent", effect.to_string(), "swap")
        }
        _ => return None,
    };
    let owner = Owner { name: name.into(), evidence: path.into(), effect };
    let settings = if kind == "sysctl" { vec![key.to_string()] } else { Vec::new() };
    Some(OwnedSettings { owner, knobs: vec![knob], settings, decided_in: None })
}

/// Returns the knob that writes a sysctl.
pub(super) fn knob_of_sysctl(key: &str) -> Option<&'static str> {
    Some(match key {
        "net.ipv4.tcp_mem" => "tcp_memory",
        "net.core.rps_sock_flow_entries" => "rfs",
        "vm.swappiness" => "swap",
        "kernel.numa_balancing" => "numa_balancing",
        "kernel.sched_wakeup_granularity_ns" => "wakeup_granularity",
        "net.core.somaxconn"
        | "net.ipv4.tcp_max_syn_backlog"
        | "fs.aio-max-nr"
        | "fs.file-max"
        | "fs.nr_open"
        | "fs.inotify.max_user_instances"
        | "vm.max_map_count"
        | "vm.zone_reclaim_mode"
        | "kernel.io_uring_disabled" => "sysctls",
        _ => return None,
    })
}

/// Returns the knob for a key of a link file (systemd.link(5), section Link).
fn knob_of_link(key: &str) -> Option<&'static str> {
    Some(match key {
        "RxChannels" | "TxChannels" | "CombinedChannels" => "nic_channels",
        "RxBufferSize" | "TxBufferSize" => "rings",
        "RxCoalesceSec" | "UseAdaptiveRxCoalesce" => "coalescing",
        "NTupleFilter" => "ntuple",
        "ReceivePacketSteeringCPUMask" => "rps",
        _ => return None,
    })
}

/// Returns the knob for an ethtool key of a connection (nm-settings-keyfile(5)).
fn knob_of_connection(key: &str) -> Option<&'static str> {
    Some(match key {
        "feature-ntuple" => "ntuple",
        _ if key.starts_with("channels-") => "nic_channels",
        _ if key.starts_with("ring-") => "rings",
        _ if key.starts_with("coalesce-") => "coalescing",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_settings_of_knobs() {
        let check = |kind: &str, text: &str, expect: &[(&str, &str)]| {
            let kind = KINDS.iter().find(|is| is.name == kind).unwrap();
            let found = read(kind, text);
            let found: Vec<_> = found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(found, expect, "{text}");
        };
        check(
            "sysctl",
            "# a\n-net.core.somaxconn = 4096\nvm/swappiness=1\nkernel.hostname = secret",
            &[("net.core.somaxconn", "4096"), ("vm.swappiness", "1")],
        );
        check(
            "udev",
            "ACTION==\"add\", ATTR{queue/rotational}==\"0\", ATTR{queue/scheduler}=\"none\"\n\
             ATTR{queue/scheduler}==\"none\", RUN=\"x\"",
            &[("queue/scheduler", "")],
        );
        check(
            "link",
            "[Match]\nMACAddress=aa:bb\n[Link]\nCombinedChannels=max\nName=eth0",
            &[("CombinedChannels", "max")],
        );
        check(
            "NetworkManager",
            "[wifi-security]\npsk=secret\n[ethtool]\nring-rx=512\nfeature-gro=on",
            &[("ring-rx", "512")],
        );
        check("scylla", "SET_NIC_AND_DISKS=\"yes\"\nUSER=x", &[("SET_NIC_AND_DISKS", "yes")]);
        check("waagent", "ResourceDisk.EnableSwap=y", &[("ResourceDisk.EnableSwap", "y")]);
    }
}
