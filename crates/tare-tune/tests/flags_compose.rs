//! Diffs of users' compose files: what changes, that every other byte stays, and what is refused.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

use tare_tune::fixture::Host as HostFixture;
use tare_tune::flags::compose_file::{ComposeError, ComposeFile, diff, is_compose};
use tare_tune::flags::{Diff, Host, Request};
use tare_tune::plan::{Options, cpus};
use tare_tune::planner::read_machine;

const FILE: &str = include_str!("found/compose.yaml");

/// Returns the diff on a host with 16 cores, 32 threads and 244 GiB, of which 15 cores are for
/// databases.
fn on_host(compose: ComposeFile<'_>, request: &Request) -> Result<Diff, ComposeError> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts/i3.8xlarge.toml");
    let fixture: HostFixture = toml::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let snapshot = fixture.build();
    let options = Options::default();
    let machine = read_machine(&snapshot, &options).unwrap();
    let cpus = cpus::choose(&machine, &options).unwrap();
    diff(&compose, request, &machine.topology, &cpus, &Host::read(&snapshot))
}

fn of(text: &str) -> Diff {
    let compose = ComposeFile { file: "compose.yaml", text, service: None };
    on_host(compose, &Request::default()).unwrap()
}

#[test]
fn a_service_keeps_its_format_and_gets_what_it_lacks() {
    assert!(is_compose(FILE));
    let found = of(FILE);
    assert_eq!(found.what, "service db in compose.yaml");
    let expect = "\
# The cluster of the shop.
services:
  web:
    image: nginx:1.27
    ports: [\"80:80\"]

  db:
    image: scylladb/scylla:6.2.0   # pinned
    cpuset: \"1,17\"
    network_mode: host
    cap_add:
      - \"SYS_NICE\"
    memswap_limit: 8589934592
    logging:
      driver: local
      options:
        max-size: \"100m\"
    command: \"--smp 2 --memory 6656M --overprovisioned 0 --cpuset=1,17 --developer-mode=0\"
    ulimits:
      nofile: 800000
      memlock:
        soft: -1
        hard: -1
    deploy:
      resources:
        limits: {memory: 8g}
    volumes:
      - data:/var/lib/scylla

    # The rest is as ever.
    restart: always

networks:
  backend: {}
volumes:
  data: {}
";
    assert_eq!(found.wanted, expect, "{}", found.text());
    let again = of(&found.wanted);
    assert_eq!((again.diff.as_str(), again.changes.as_slice()), ("", [].as_slice()));
    let narrow = found.notes.iter().find(|note| note.contains("127.0.0.1 only"));
    assert!(narrow.is_some(), "{:?}", found.notes);
    assert!(found.notes.iter().any(|note| note.contains("9043 -> 9042")), "{:?}", found.notes);
}

#[test]
fn the_diff_of_a_service_applies() {
    let found = of(FILE);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("compose.yaml"), FILE).unwrap();
    fs::write(folder.path().join("compose.diff"), found.text()).unwrap();
    let git = std::process::Command::new("git")
        .args(["apply", "-p0", "--whitespace=nowarn", "compose.diff"])
        .env("GIT_CEILING_DIRECTORIES", folder.path().parent().unwrap())
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(git.status.success(), "{}", String::from_utf8_lossy(&git.stderr));
    assert_eq!(fs::read_to_string(folder.path().join("compose.yaml")).unwrap(), found.wanted);
}

#[test]
fn variables_and_lists_are_left_to_the_user() {
    let text = "services:\n  db:\n    image: postgres:18\n    cpuset: ${CPUS}\n    \
                sysctls: [net.core.somaxconn=1, kernel.shmmax=2]\n    scale: 2\n    \
                shm_size: 2gb\n    ulimits: {nofile: {soft: 1000000, hard: 1000000}}\n    \
                restart: \"no\"\n    security_opt: [\"seccomp:mine.json\"]\n";
    let request = Request { seccomp: Some("/etc/tare/io.json".into()), ..Request::default() };
    let compose = ComposeFile { file: "compose.yaml", text, service: Some("db") };
    let found = on_host(compose, &request).unwrap();
    let says = |part: &str| {
        assert!(found.notes.iter().any(|note| note.contains(part)), "{part}: {:?}", found.notes)
    };
    says("cpuset is ${CPUS}");
    says("Remove net.core.somaxconn=1 from its sysctls");
    says("has 2 containers");
    says("seccomp profile of its own");
    says("Nothing is mounted at /var/lib/postgresql");
    assert!(found.wanted.contains("cpuset: ${CPUS}\n"), "{}", found.wanted);
    assert!(found.wanted.contains("restart: unless-stopped\n"), "{}", found.wanted);
    assert!(!found.wanted.contains("shm_size: 1"), "{}", found.wanted);
}

#[test]
fn a_list_of_words_keeps_its_other_words() {
    let text = "services:\n  db:\n    image: scylladb/scylla\n    mem_limit: 16g\n    \
                command: [\"--seeds=a\", --smp, \"4\"]\n    network_mode: host\n    cpuset: \"1-2,17-18\"\n";
    let found = of(text);
    let line = "    command: [\"--seeds=a\", --smp, \"4\", \"--cpuset=1-2,17-18\", \"--overprovisioned=0\", \
                \"--developer-mode=0\", \"--memory=14848M\"]\n";
    assert!(found.wanted.contains(line), "{}", found.wanted);
    assert!(!found.changes.iter().any(|change| change.place.ends_with("network_mode")));
}

#[test]
fn files_that_do_not_say_what_is_meant_are_one_line() {
    let refused = |text: &str, service: Option<&str>, reason: &str| {
        let compose = ComposeFile { file: "compose.yaml", text, service };
        let error = on_host(compose, &Request::default()).unwrap_err();
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        let error = format!("{error}{}", cause.unwrap_or_default());
        assert!(error.contains(reason), "{error}");
        assert!(!error.contains('\n'), "{error}");
    };
    let two = "services:\n  a: {image: redis}\n  b: {image: redis}\n";
    refused(
        two,
        None,
        "compose.yaml has the services a, b; choose the database's with --object SERVICE",
    );
    refused(two, Some("c"), "has no service c: it has a, b");
    refused("kind: Pod\n", None, "has no services");
    refused("services: {{ .Values }}\n", None, "compose.yaml");
    refused("services: [\n", None, "cannot read compose.yaml as YAML");
    refused(
        "services:\n  a: {image: redis, cpus: 64}\n",
        None,
        "service a: it needs 64 CPUs of its own, but this host has 30",
    );
    refused("services:\n  a: {image: redis, cpus: many}\n", None, "cannot read cpus of service a");
    refused("services:\n  a: {image: redis, mem_limit: 1x}\n", None, "cannot read mem_limit");
    let shared = "x: &x {image: redis}\nservices:\n  a:\n    <<: *x\n    image: redis\n";
    refused(shared, None, "shared by an anchor or a merge key");
}
