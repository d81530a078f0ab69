//! Checks the texts of all consumers with their readers: bash, a parser of YAML's structure,
//! systemd.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::process::{Command, Stdio};

use tare_std::cpus::CpuSet;
use tare_testkit::{Need, skipped};
use tare_tune::flags::{self, Host, Request};
use tare_tune::machine::Topology;
use tare_tune::machine::topology::{Core, Node};
use tare_tune::plan::CpuSets;

/// Two nodes of 16 cores with two threads; interrupts on the first core of each.
fn machine() -> (Topology, CpuSets, Host) {
    let node = |id: u32| {
        let core =
            |core: u32| Core { cpus: [16 * id + core, 32 + 16 * id + core].into_iter().collect() };
        Node { id, cores: (0..16).map(core).collect() }
    };
    let topology = Topology { nodes: vec![node(0), node(1)], ..Topology::default() };
    let irq = CpuSet::parse_list("0,16,32,48").unwrap();
    let universe = topology.cpus();
    let compute = universe.difference(&irq);
    let host = Host { memory_bytes: Some(244 << 30), ..Host::default() };
    (topology, CpuSets { universe, irq, compute, why: String::new() }, host)
}

/// Returns a consumer's texts for one and for several instances, with and without options.
fn texts(consumer: &str) -> Vec<String> {
    let (topology, cpus, host) = machine();
    let consumer = flags::consumer(consumer).unwrap();
    let text = |request: &Request| {
        flags::write(consumer, request, &topology, &cpus, &host).unwrap().text()
    };
    let images = [None, Some("tare:1"), Some("cassandra:5"), Some("postgres:17"), Some("redis")];
    let mut texts = Vec::new();
    for instances in [1, 2, 3] {
        for image in images {
            let seccomp = (instances == 2).then(|| "/etc/tare/seccomp.json".to_string());
            let image = image.map(str::to_string);
            texts.push(text(&Request { instances, image, seccomp, ..Request::default() }));
        }
    }
    texts
}

/// Runs a script in bash, or only parses it, and returns its output.
fn bash(arguments: &[&str], script: &str) -> String {
    let mut child = Command::new("bash")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{script}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_parses_scripts() {
    if skipped("bash_parses_scripts", &[Need::Program("bash")]) {
        return;
    }
    for consumer in ["docker", "podman", "nerdctl", "scylla", "tare-db"] {
        for text in texts(consumer) {
            bash(&["-n"], &text);
        }
    }
}

#[test]
fn bash_passes_every_argument_unchanged() {
    if skipped("bash_passes_every_argument_unchanged", &[Need::Program("bash")]) {
        return;
    }
    let (topology, cpus, host) = machine();
    let path = "/tmp/a b/it's $(touch /tmp/x); \"q\".json";
    let request =
        Request { seccomp: Some(path.into()), image: Some("tare:1".into()), ..Request::default() };
    let docker = flags::consumer("docker").unwrap();
    let script = flags::write(docker, &request, &topology, &cpus, &host).unwrap().text();
    // A function in place of the engine prints its arguments, one a line.
    let words = bash(&[], &format!("docker() {{ printf '%s\\n' \"$@\"; }}\n{script}"));
    let words: Vec<&str> = words.lines().collect();
    assert_eq!(words[0], "run");
    assert!(words.contains(&"--cpuset-cpus=1-15,17-31,33-47,49-63"), "{words:?}");
    assert!(words.contains(&format!("--security-opt=seccomp={path}").as_str()), "{words:?}");
    let image = words.iter().position(|word| *word == "tare:1").unwrap();
    assert_eq!(words[image + 1..image + 3], ["/tare", "db"]);
    assert!(words[image..].contains(&"--smp=60"), "{words:?}");
    assert!(words.iter().all(|word| !word.starts_with('#')), "{words:?}");
}

/// Checks the YAML that these documents use: blocks by indentation, `- ` items, `key:` and `key:
/// value`, scalars plain or in double quotes. Returns the number of keys and items.
fn yaml(text: &str) -> usize {
    let mut open: Vec<usize> = Vec::new();
    let mut previous: Option<(usize, bool)> = None;
    let mut seen = 0;
    for line in text.lines() {
        let body = line.trim_start();
        if body.is_empty() || body.starts_with('#') {
            continue;
        }
        if line == "---" {
            (open, previous) = (Vec::new(), None);
            continue;
        }
        let indent = line.len() - body.len();
        let item = body.starts_with("- ");
        let content = body.strip_prefix("- ").unwrap_or(body);
        // A deeper line must follow a key without a value, or be inside an item.
        if let Some((last, awaits)) = previous {
            if indent > last {
                assert!(awaits, "unexpected indentation: {line:?}\n{text}");
            } else if awaits && !item {
                panic!("a key without a value before {line:?}\n{text}");
            }
        }
        open.retain(|level| *level <= indent);
        if open.last() != Some(&indent) {
            open.push(indent);
        }
        let (key, value) = match content.split_once(':') {
            Some((key, value)) if !content.starts_with('"') => (Some(key), value.trim()),
            _ => (None, content),
        };
        if let Some(key) = key {
            assert!(key.chars().all(|c| c.is_alphanumeric() || "-_".contains(c)), "{line:?}");
        }
        if let Some(rest) = value.strip_prefix('"') {
            let inner =
                rest.strip_suffix('"').unwrap_or_else(|| panic!("unclosed quote: {line:?}"));
            assert!(!inner.replace("\\\"", "").contains('"'), "{line:?}");
        } else {
            assert!(!value.contains(": ") && !value.contains(" #"), "must be quoted: {line:?}");
        }
        // Keys of an item's mapping are aligned with the start of its content.
        let at = if item && key.is_some() { indent + 2 } else { indent };
        if at != indent {
            open.push(at);
        }
        previous = Some((at, value.is_empty()));
        seen += 1;
    }
    seen
}

#[test]
fn compose_and_kubernetes_are_yaml() {
    for consumer in ["compose", "kubernetes"] {
        for text in texts(consumer) {
            assert!(yaml(&text) > 20, "{text}");
        }
    }
}

#[test]
fn units_have_only_sections_and_settings() {
    for consumer in ["quadlet", "systemd"] {
        for text in texts(consumer) {
            for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
                let section = line.starts_with('[') && line.ends_with(']');
                let setting = line.split_once('=').is_some_and(|(key, value)| {
                    key.chars().all(|c| c.is_ascii_alphanumeric()) && !value.is_empty()
                });
                assert!(section || setting, "{line:?}");
                assert!(!line.ends_with('\\') && !line.contains('%'), "{line:?}");
            }
        }
    }
}

#[test]
fn systemd_accepts_drop_in() {
    if skipped("systemd_accepts_drop_in", &[Need::Program("systemd-analyze")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (number, text) in texts("systemd").iter().take(5).enumerate() {
        let unit = folder.path().join(format!("tare-flags-{number}.service"));
        // The drop-in continues the unit's section.
        let whole = format!("[Unit]\nDescription=x\n[Service]\nExecStart=/bin/true\n{text}");
        std::fs::write(&unit, whole).unwrap();
        let output = Command::new("systemd-analyze").arg("verify").arg(&unit).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let ours: Vec<&str> = said.lines().filter(|line| line.contains("tare-flags-")).collect();
        assert!(ours.is_empty(), "{ours:?}\n{text}");
    }
}
