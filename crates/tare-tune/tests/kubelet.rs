//! The kubelet of a host: its process, files and flags in a folder, and the advice about it.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

use tare_std::cpus::CpuSet;
use tare_tune::fixture::Host;
use tare_tune::machine::Kubelet;
use tare_tune::machine::kubelet::runs_kubelet;
use tare_tune::plan::{KubeletAdvice, Options};
use tare_tune::planner::{kubelet_advice, plan};
use tare_tune::snapshot::{Node, Snapshot};

const KUBEADM: &str = include_str!("kubelet/kubeadm-1.34.yaml");
const STATIC: &str = include_str!("kubelet/static-1.29.yaml");
const EKS: &str = include_str!("kubelet/eks-1.30.json");

/// A folder with the process of a kubelet and its files.
struct Root(tempfile::TempDir);

impl Root {
    fn new(command: &str, files: &[(&str, &str)]) -> Self {
        let root = Self(tempfile::tempdir().unwrap());
        root.process(812, "kubelet", command);
        for (path, text) in files {
            root.put(path, text);
        }
        root
    }

    fn process(&self, process: u32, name: &str, command: &str) {
        self.put(&format!("/proc/{process}/comm"), &format!("{name}\n"));
        self.put(&format!("/proc/{process}/cmdline"), &command.replace(' ', "\0"));
    }

    fn put(&self, path: &str, text: &str) {
        let place = self.0.path().join(&path[1..]);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    }

    fn kubelet(&self) -> Kubelet {
        Kubelet::read(&Snapshot::take(self.0.path())).unwrap()
    }
}

fn kubelet(command: &str, files: &[(&str, &str)]) -> Kubelet {
    Root::new(command, files).kubelet()
}

/// Returns a described host with a kubelet of a version.
fn host(name: &str, mut kubelet: Kubelet, version: Option<&str>) -> Snapshot {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts").join(name);
    let host: Host = toml::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let mut snapshot = host.build();
    kubelet.version = version.map(str::to_string);
    snapshot.insert("/tare/kubelet", Node::File(serde_json::to_string(&kubelet).unwrap()));
    snapshot
}

fn advice(name: &str, kubelet: Kubelet, version: Option<&str>) -> KubeletAdvice {
    kubelet_advice(&host(name, kubelet, version), &Options::default()).unwrap().unwrap()
}

/// Formats findings as `SETTING: NOW > WANTED`, `=` if in force, `?` with a condition.
fn texts(advice: &KubeletAdvice) -> Vec<String> {
    let line = |finding: &tare_tune::plan::Finding| {
        let mark = match (finding.in_force, &finding.condition) {
            (true, _) => "=",
            (false, None) => ">",
            (false, Some(_)) => "?",
        };
        format!("{}: {} {mark} {}", finding.setting, finding.now, finding.wanted)
    };
    advice.findings.iter().map(line).collect()
}

const CONFIG: &str = "/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --v 2";
const FILE: &str = "/var/lib/kubelet/config.yaml";

#[test]
fn a_host_without_a_kubelet_has_no_advice() {
    let root = Root(tempfile::tempdir().unwrap());
    root.process(7, "kubelet-wrapper", "kubelet-wrapper --config=/x");
    assert!(!runs_kubelet(root.0.path()));
    assert_eq!(Kubelet::read(&Snapshot::take(root.0.path())), None);
    root.process(8, "kubelet", "kubelet");
    assert!(runs_kubelet(root.0.path()));
}

#[test]
fn files_drop_ins_and_flags_are_merged_in_their_order() {
    let drop_in = |body: &str| {
        format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{body}")
    };
    let first =
        drop_in("reservedSystemCPUs: '0'\ncpuManagerPolicyOptions:\n  align-by-socket: 'true'");
    let second = drop_in("reservedSystemCPUs: 0-3\ntopologyManagerPolicy: null");
    let command = "/usr/bin/kubelet --config /etc/kubelet.yaml --config-dir=/etc/kubelet.d/ \
                   --cpu-cfs-quota=false --feature-gates A=true,B=false --root-dir=/srv/kubelet \
                   --memory-manager-policy=Static --reserved-memory 0:memory=1Gi;1:memory=2Gi";
    let files = [
        ("/etc/kubelet.yaml", STATIC),
        ("/etc/kubelet.d/20-b.conf", &second),
        ("/etc/kubelet.d/10-a.conf", &first),
        ("/etc/kubelet.d/30-c.yaml", "kind: KubeletConfiguration\nreservedSystemCPUs: '9'"),
        ("/srv/kubelet/cpu_manager_state", r#"{"policyName":"none","defaultCpuSet":""}"#),
    ];
    let kubelet = kubelet(command, &files);
    assert_eq!(kubelet.troubles, [""; 0]);
    assert_eq!((kubelet.process, &*kubelet.root_dir), (812, "/srv/kubelet"));
    assert_eq!(kubelet.running_policy.as_deref(), Some("none"));
    let settings = &kubelet.settings;
    assert_eq!(settings.cpu_manager_policy.as_deref(), Some("static"));
    assert_eq!(settings.reserved_system_cpus.as_deref(), Some("0-3"));
    assert_eq!(settings.topology_manager_policy, None);
    assert_eq!(settings.cpu_cfs_quota, Some(false));
    let options: Vec<&str> = settings.cpu_manager_policy_options.keys().map(|k| &**k).collect();
    assert_eq!(options, ["align-by-socket", "full-pcpus-only"]);
    let gates: Vec<&str> = settings.feature_gates.keys().map(|k| &**k).collect();
    assert_eq!(gates, ["A", "B", "GracefulNodeShutdown"]);
    assert_eq!(settings.reserved_memory[1].limits["memory"], "2Gi");
    let flags =
        ["--cpu-cfs-quota", "--feature-gates", "--memory-manager-policy", "--reserved-memory"];
    assert_eq!(kubelet.flags, flags);
}

#[test]
fn flags_are_read_in_both_forms_and_after_a_wrapper() {
    let check = |command: &str, policy: &str, quota: Option<bool>| {
        let settings = kubelet(command, &[]).settings;
        assert_eq!(settings.cpu_manager_policy.as_deref(), Some(policy), "{command}");
        assert_eq!(settings.cpu_cfs_quota, quota, "{command}");
    };
    check("kubelet --cpu-manager-policy=static", "static", None);
    check("/hyperkube kubelet --cpu-manager-policy static --v 4", "static", None);
    check("/bin/sh /usr/bin/kubelet --cpu-cfs-quota --cpu-manager-policy=none", "none", Some(true));
    check("kubelet --cpu-cfs-quota=false --cpu-manager-policy=none", "none", Some(false));
}

#[test]
fn unreadable_files_make_settings_unknown_in_one_line() {
    let check = |files: &[(&str, &str)], trouble: &str| {
        let kubelet = kubelet(CONFIG, files);
        assert_eq!(kubelet.troubles.len(), 1, "{:?}", kubelet.troubles);
        assert!(kubelet.troubles[0].contains(trouble), "{:?}", kubelet.troubles);
        assert_eq!(kubelet.troubles[0].lines().count(), 1);
        let advice = advice("i3.8xlarge.toml", kubelet, None);
        assert_eq!(texts(&advice)[0], "cpuManagerPolicy: unknown > static");
        assert!(advice.notes.iter().any(|note| note.contains(trouble)), "{:?}", advice.notes);
    };
    check(&[], "cannot read /var/lib/kubelet/config.yaml of the kubelet: No such file");
    check(&[(FILE, "a: [1\nb: 2")], "cannot read /var/lib/kubelet/config.yaml as YAML: ");
    check(&[(FILE, "kind: Pod")], "is of kind \"Pod\", not a KubeletConfiguration");
    check(&[(FILE, "cpuManagerPolicy: static")], "has no kind");
    check(&[(FILE, "static")], "is not a map of settings");
    check(&[(FILE, "")], "is not a map of settings");
}

#[test]
fn what_a_snapshot_keeps_has_no_other_setting() {
    let root = Root::new(CONFIG, &[(FILE, KUBEADM)]);
    let text = Snapshot::take(root.0.path()).read("/tare/kubelet").unwrap().to_string();
    for private in ["10.96.0.10", "ca.crt", "containerd.sock", "cluster.local"] {
        assert!(!text.contains(private), "{text}");
    }
}

#[test]
fn a_kubelet_as_kubeadm_leaves_it_gets_everything() {
    let advice = advice("i3.8xlarge.toml", kubelet(CONFIG, &[(FILE, KUBEADM)]), Some("v1.34.1"));
    assert_eq!(
        texts(&advice),
        [
            "cpuManagerPolicy: none (default) > static",
            "reservedSystemCPUs: none (default) > 0,16",
            "cpuManagerPolicyOptions full-pcpus-only: false (default) > true",
            "cpuManagerPolicyOptions strict-cpu-reservation: false (default) ? true",
            "cpuCFSQuotaPeriod: 100ms (default) ? 10ms",
        ]
    );
    assert_eq!(
        advice.fragment,
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         cpuManagerPolicy: static\nreservedSystemCPUs: \"0,16\"\n\
         cpuManagerPolicyOptions:\n  full-pcpus-only: \"true\"\n"
    );
    let words = ["drain", "stop", "cpu_manager_state", "merge", "start", "uncordon", "verify"];
    assert_eq!(advice.steps.len(), words.len());
    for (step, word) in advice.steps.iter().zip(words) {
        assert!(step.contains(word), "{step}: {word}");
    }
    assert!(advice.notes.iter().any(|note| note.contains("kubelet-config")), "{:?}", advice.notes);
    assert!(!advice.is_in_force());
}

#[test]
fn advice_fits_the_version() {
    let settings = |version: Option<&str>| {
        let advice = advice("i3.8xlarge.toml", kubelet(CONFIG, &[(FILE, KUBEADM)]), version);
        let names =
            advice.findings.iter().map(|f| f.setting.replace("cpuManagerPolicyOptions ", ""));
        names.skip(2).collect::<Vec<_>>().join(" ")
    };
    let (full, strict) = ("full-pcpus-only", "strict-cpu-reservation");
    let (quota, period) = ("cpuCFSQuota", "cpuCFSQuotaPeriod");
    assert_eq!(settings(Some("v1.21.9")), format!("{quota} {period}"));
    assert_eq!(settings(Some("v1.29.4-gke.1")), format!("{full} {quota} {period}"));
    assert_eq!(settings(Some("v1.32.0")), format!("{full} {strict} {quota} {period}"));
    assert_eq!(settings(Some("v1.33.1+rke2r1")), format!("{full} {strict} {period}"));
    assert_eq!(settings(None), format!("{full} {strict} {quota} {period}"));
    let alpha = advice("i3.8xlarge.toml", kubelet(CONFIG, &[(FILE, KUBEADM)]), Some("v1.32.0"));
    let strict = alpha.findings.iter().find(|f| f.setting.ends_with(strict)).unwrap();
    assert!(strict.fragment.ends_with("CPUManagerPolicyAlphaOptions: true\n"), "{strict:?}");
}

#[test]
fn settings_in_force_need_no_fragment() {
    let state = ("/var/lib/kubelet/cpu_manager_state", r#"{"policyName":"static"}"#);
    let found = kubelet(CONFIG, &[(FILE, STATIC), state]);
    let good = advice("i3.8xlarge.toml", found.clone(), Some("v1.29.4"));
    assert!(good.is_in_force(), "{:?}", texts(&good));
    assert_eq!((good.fragment.as_str(), good.steps.len()), ("", 0));
    // The file was changed, the kubelet was not restarted.
    let waiting = Kubelet { running_policy: Some("none".into()), ..found };
    let waiting = advice("i3.8xlarge.toml", waiting, Some("v1.29.4"));
    assert_eq!(texts(&waiting)[0], "cpuManagerPolicy: none, static after the next start > static");
}

#[test]
fn hosts_with_several_nodes_align_cpus_and_memory() {
    let files = [(FILE, STATIC)];
    let advice = advice("i4i.24xlarge.toml", kubelet(CONFIG, &files), Some("v1.31.0"));
    let found = texts(&advice);
    assert!(
        found.contains(&"topologyManagerPolicy: restricted = single-numa-node".into()),
        "{found:?}"
    );
    assert!(found.contains(&"memoryManagerPolicy: None (default) > Static".into()), "{found:?}");
    // 1 GiB, 512 MiB and 100 MiB on two nodes.
    let memory = "memoryManagerPolicy: Static\nreservedMemory:\n  - numaNode: 0\n    limits:\n      \
                  memory: \"818Mi\"\n  - numaNode: 1\n    limits:\n      memory: \"818Mi\"\n";
    assert!(advice.fragment.ends_with(memory), "{}", advice.fragment);
    assert!(advice.steps[2].contains("memory_manager_state"), "{:?}", advice.steps);
}

#[test]
fn a_share_of_memory_makes_the_memory_manager_a_condition() {
    let kubelet = kubelet(CONFIG, &[(FILE, EKS)]);
    let advice = advice("i4i.24xlarge.toml", kubelet, Some("v1.30.2"));
    let memory = advice.findings.iter().find(|f| f.setting == "memoryManagerPolicy").unwrap();
    assert!(memory.condition.as_deref().unwrap().contains("evictionHard"), "{memory:?}");
    assert!(!advice.fragment.contains("memoryManager"), "{}", advice.fragment);
}

#[test]
fn flags_that_override_files_have_to_go() {
    let command = format!("{CONFIG} --cpu-manager-policy=none --reserved-cpus=3");
    let advice = advice("i3.8xlarge.toml", kubelet(&command, &[(FILE, STATIC)]), Some("v1.29.0"));
    assert_eq!(texts(&advice)[1], "reservedSystemCPUs: 3 > 0,16");
    let step = "remove --cpu-manager-policy, --reserved-cpus from the kubelet's command line";
    assert!(advice.steps.iter().any(|found| found.starts_with(step)), "{:?}", advice.steps);
}

#[test]
fn the_reservation_follows_the_interrupt_cpus_of_the_plan() {
    let host = host("i3.8xlarge.toml", kubelet(CONFIG, &[(FILE, KUBEADM)]), Some("v1.34.1"));
    let irq_cpus = Some(CpuSet::parse_list("3,5").unwrap());
    let plan = plan(&host, &Options { irq_cpus, ..Options::default() }).unwrap();
    // Whole cores: 3 and 5 with their siblings.
    let advice = plan.kubelet.clone().unwrap();
    assert_eq!(advice.findings[1].wanted, "3,5,19,21");
    assert!(plan.changes().all(|(item, _)| item.knob != "kubelet"));
    let like = Options { like_perftune: true, ..Options::default() };
    assert_eq!(tare_tune::planner::plan(&host, &like).unwrap().kubelet, None);
}
