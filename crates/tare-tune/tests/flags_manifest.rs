//! Diffs of users' manifests: what changes, that every other byte stays, and what is refused.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

use tare_tune::fixture::Host as HostFixture;
use tare_tune::flags::manifest::{Manifest, ManifestDiff, ManifestError, diff};
use tare_tune::flags::{Host, Request};
use tare_tune::plan::{Options, cpus};
use tare_tune::planner::read_machine;

const POD: &str = include_str!("manifests/pod.yaml");
const STATEFUL_SET: &str = include_str!("manifests/statefulset.yaml");
const GUARANTEED: &str = include_str!("manifests/guaranteed.yaml");

fn manifest(text: &str) -> Manifest<'_> {
    Manifest { file: "pod.yaml", text, object: None, container: None }
}

/// Returns the diff on a host with 16 cores, 32 threads and 244 GiB, of which pods get 15 cores.
fn on_host(manifest: Manifest<'_>, request: &Request) -> Result<ManifestDiff, ManifestError> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts/i3.8xlarge.toml");
    let fixture: HostFixture = toml::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let snapshot = fixture.build();
    let options = Options::default();
    let machine = read_machine(&snapshot, &options).unwrap();
    let cpus = cpus::choose(&machine, &options).unwrap();
    diff(&manifest, request, &machine.topology, &cpus, &Host::read(&snapshot))
}

fn of(text: &str) -> ManifestDiff {
    on_host(manifest(text), &Request::default()).unwrap()
}

/// Applies a unified diff with git, which refuses it unless every line fits.
fn patched(text: &str, diff: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("pod.yaml"), text).unwrap();
    fs::write(folder.path().join("pod.diff"), diff).unwrap();
    let git = std::process::Command::new("git")
        .args(["apply", "-p0", "--whitespace=nowarn", "pod.diff"])
        .env("GIT_CEILING_DIRECTORIES", folder.path().parent().unwrap())
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(git.status.success(), "{}\n{diff}", String::from_utf8_lossy(&git.stderr));
    fs::read_to_string(folder.path().join("pod.yaml")).unwrap()
}

/// Returns the removed and added lines of a diff.
fn lines(diff: &str) -> Vec<&str> {
    let body = diff.lines().skip_while(|line| !line.starts_with("@@"));
    body.filter(|line| line.starts_with(['-', '+'])).collect()
}

#[test]
fn a_pod_keeps_its_format_and_becomes_guaranteed() {
    let found = of(POD);
    assert_eq!((&*found.object, &*found.container), ("Pod/scylla", "scylla"));
    assert_eq!(
        lines(&found.diff),
        [
            "+  hostNetwork: true",
            "+  dnsPolicy: ClusterFirstWithHostNet",
            "+    securityContext:",
            "+      capabilities:",
            "+        add:",
            "+          - \"SYS_NICE\"",
            "-    args: [\"--smp\", \"2\", --overprovisioned]   # small",
            "+    args: [\"--smp\", \"8\", \"--overprovisioned=0\", \"--developer-mode=0\", \
             \"--memory=60948M\"]   # small",
            "-      requests: { cpu: 7500m, memory: 64Gi }   # measured in May",
            "+      requests: { cpu: \"8\", memory: 64Gi }   # measured in May",
            "+          cpu: \"8\"",
        ]
    );
    let text = patched(POD, &found.text());
    let again = of(&text);
    assert_eq!((again.diff.as_str(), again.changes.len()), ("", 0), "{:?}", again.changes);
    assert!(again.text().contains("nothing to change"));
}

#[test]
fn the_template_of_a_stateful_set_is_found_among_other_documents() {
    let found = of(STATEFUL_SET);
    assert_eq!((&*found.object, &*found.container), ("StatefulSet/scylla", "scylla"));
    let text = patched(STATEFUL_SET, &found.text());
    for part in [
        "          name: scylla\n          securityContext:\n",
        "                - IPC_LOCK\n                - \"SYS_NICE\"\n",
        "            - \"--developer-mode=0\"\n            - --seeds=scylla-0\n            - \"--smp=30\"\n",
        "          resources:\n            limits:\n              cpu: \"30\"\n              memory: \"",
        "    spec:\n      hostNetwork: true\n      dnsPolicy: ClusterFirstWithHostNet\n      containers:\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // The service before it and the templates of volumes after it are as they were.
    assert!(text.starts_with(STATEFUL_SET.split("---").next().unwrap()), "{text}");
    assert!(
        text.ends_with("  volumeClaimTemplates:\n    - metadata:\n        name: data\n"),
        "{text}"
    );
    let sidecar = found.notes.iter().find(|note| note.contains("exporter")).unwrap();
    assert!(sidecar.contains("not Guaranteed"), "{sidecar}");
    assert_eq!(of(&text).diff, "");
}

#[test]
fn line_ends_of_the_file_are_kept() {
    let windows = POD.replace('\n', "\r\n");
    let found = of(&windows);
    let added = found.diff.lines().filter(|line| line.starts_with('+') && !line.starts_with("+++"));
    assert!(added.count() > 5);
    let text = patched(&windows, &found.diff);
    assert_eq!(text.matches('\n').count(), text.matches("\r\n").count());
    let unended = POD.trim_end();
    assert!(!patched(unended, &of(unended).diff).ends_with('\n'));
}

#[test]
fn a_pod_that_is_right_does_not_change() {
    let found = of(GUARANTEED);
    assert_eq!(found.changes, [], "{}", found.text());
}

#[test]
fn memory_and_seccomp_of_the_request_are_written() {
    let request = Request {
        memory_bytes: Some(16 << 30),
        seccomp: Some("/etc/tare/io.json".into()),
        ..Request::default()
    };
    let found = on_host(manifest(&GUARANTEED.replace("cassandra:5", "postgres:18")), &request);
    let found = found.unwrap();
    let text = found.text();
    for part in [
        "+          memory: \"17179869184\"",
        "+          type: Localhost",
        "+          localhostProfile: \"profiles/io.json\"",
        "Nothing is mounted at /dev/shm",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn a_command_of_ones_own_keeps_its_options() {
    let own = POD.replace("    args:", "    command: [sh, -c, start]\n    args:");
    let found = of(&own);
    assert!(!found.diff.contains("--smp=") && !found.diff.contains("\"--smp\", \"8\""));
    assert!(found.notes.iter().any(|note| note.contains("--smp=8")), "{:?}", found.notes);
}

#[test]
fn changes_with_one_reason_share_it() {
    let text = of(POD).text();
    let words = text.replace("\n#  ", "");
    assert_eq!(words.matches("Requests equal to limits").count(), 1, "{text}");
    let both = "requests.cpu: 7500m -> 8; spec.containers[0].resources.limits.cpu: 8. Requests";
    assert!(words.contains(both), "{text}");
}

proptest::proptest! {
    #[test]
    fn damaged_manifests_are_refused_or_changed_without_a_panic(
        line in 0_usize..60,
        text in "[ \\-:#{}\\[\\]&*|>'\"a\n]{0,6}",
        at in 0_usize..40,
    ) {
        let mut lines: Vec<String> = STATEFUL_SET.lines().map(str::to_string).collect();
        let index = line % lines.len();
        let column = at % (lines[index].len() + 1);
        lines[index].insert_str(column, &text);
        let damaged = lines.join("\n");
        match on_host(manifest(&damaged), &Request::default()) {
            Ok(found) => {
                // What is removed is in the file.
                let removed = found.diff.lines().skip(2).filter_map(|line| line.strip_prefix('-'));
                for line in removed {
                    proptest::prop_assert!(damaged.contains(line), "{line:?} {damaged}");
                }
            }
            Err(error) => proptest::prop_assert_eq!(error.to_string().lines().count(), 1),
        }
    }
}

#[test]
fn what_cannot_be_read_is_refused_in_one_line() {
    let check = |manifest: Manifest<'_>, part: &str| {
        let error = on_host(manifest, &Request::default()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    };
    let text = |text: &'static str| manifest(text);
    check(text("a: [1\nb"), "cannot read pod.yaml as YAML: ");
    check(text("spec:\n  image: {{ .Values.image }}\n"), "pod.yaml");
    check(text(""), "has no object with pods");
    check(text("kind: Service\nmetadata: {name: s}"), "it has Service/s");
    check(text("kind: List\nitems: []"), "it has List/unnamed");
    check(text("kind: Pod\nmetadata: {name: p}"), "Pod/p in pod.yaml has no spec");
    check(text("kind: Pod\nspec: {containers: []}"), "has no spec.containers");
    let two = "kind: Pod\nmetadata: {name: a}\n---\nkind: Deployment\nmetadata: {name: b}\n";
    check(text(two), "several objects with pods: Pod/a, Deployment/b; choose one with --object");
    check(Manifest { object: Some("Pod/c"), ..text(two) }, "has no object Pod/c: it has Pod/a");
    check(Manifest { object: Some("pod/a"), ..text(two) }, "Pod/a in pod.yaml has no spec");
    let pods =
        "kind: Pod\nspec:\n  containers:\n  - {name: a, image: x}\n  - {name: b, image: y}\n";
    check(text(pods), "has the containers a, b; choose the database's with --container NAME");
    check(Manifest { container: Some("c"), ..text(pods) }, "has no container c: it has a, b");
    let amount =
        "kind: Pod\nspec:\n  containers:\n  - name: a\n    resources: {limits: {cpu: two}}\n";
    check(text(amount), "cannot read resources (cpu) of Pod/unnamed: \"two\" is no amount");
    let large =
        "kind: Pod\nspec:\n  containers:\n  - name: a\n    resources: {limits: {cpu: 64}}\n";
    check(text(large), "asks for 64 CPUs, but this node has 30 for pods");
    let shared = "kind: Pod\nspec:\n  containers:\n  - &c\n    name: a\n    image: x\n";
    check(text(shared), "cannot change pod.yaml: spec.containers[0] is shared by an anchor");
}
