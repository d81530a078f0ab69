//! Every value of the layers `security.capabilities`, `user`, `apparmor`, `memory.pages` and
//! `memory.node`, in every runtime that this machine has: set, read back from the running system,
//! and refused where a runtime or the host cannot have it. `docs/reference/confinement.md` has the
//! same list as a table.
#![expect(clippy::unwrap_used, reason = "what a test cannot go on without fails it")]

mod common;
#[path = "conformance/containerd.rs"]
mod containerd;

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{State, all_inside, host, own_guest, program, skipped_inside, skipped_runtime};
use tare_env::{EnvironmentFactory, FactoryOptions, inside};
use tare_host::cgroup::{Layout, Version};
use tare_host::error_line;
use tare_lab::environment::{CpuPlan, Environment, EnvironmentSpec, Launch, LayerState};
use tare_lab::layer::{Apparmor, Capabilities, Confinement, Layer, Pages, User};
use tare_std::cpus::CpuSet;
use tare_testkit::host_state::left_of_run;
use tare_testkit::{EnvironmentBuilder, Need, Reason, skip, skipped};

/// How long all tests may take in an emulated guest.
const LIMIT: Duration = Duration::from_secs(1200);

/// The host's setting of transparent huge pages.
const PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

const RUNTIMES: [&str; 8] =
    ["process", "oci:runc", "oci:crun", "oci:runsc", "containerd", "docker", "podman", "vm:qemu"];

/// A value that the suite sets: its layer, as a study writes it, and how.
type Value = (Layer, &'static str, fn(&mut Confinement));

const VALUES: [Value; 7] = [
    (Layer::Capabilities, "security.capabilities = \"none\"", |one| {
        one.capabilities = Capabilities::None;
    }),
    (Layer::User, "user = \"namespace\"", |one| one.user = User::Namespace),
    (Layer::Apparmor, "apparmor = \"default\"", |one| one.apparmor = Apparmor::Default),
    (Layer::Pages, "memory.pages = \"never\"", |one| one.pages = Pages::Never),
    (Layer::Pages, "memory.pages = \"madvise\"", |one| one.pages = Pages::Madvise),
    (Layer::Pages, "memory.pages = \"always\"", |one| one.pages = Pages::Always),
    (Layer::Node, "memory.node = 0", |one| one.node = Some(0)),
];

/// What a runtime does with a value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expected {
    InForce,
    /// In force on a kernel that has AppArmor.
    OnApparmor,
    /// The runtime cannot have it; the error contains this.
    Refused(&'static str),
}

impl Expected {
    fn of(layer: Layer, runtime: &str) -> Self {
        match (layer, runtime) {
            (Layer::Node, _) => Self::InForce,
            (_, "vm:qemu") => Self::Refused("the guest's kernel"),
            (_, "oci:runsc") => Self::Refused("another kernel"),
            (Layer::User, "docker") => Self::Refused("userns-remap"),
            (Layer::User, "podman") => Self::Refused("/etc/subuid"),
            (Layer::Apparmor, _) => Self::OnApparmor,
            _ => Self::InForce,
        }
    }

    fn cell(self) -> &'static str {
        match self {
            Self::InForce => "in force",
            Self::OnApparmor => "in force (AppArmor)",
            Self::Refused(_) => "refused",
        }
    }
}

fn page() -> String {
    let mut page = String::from(
        "# Rights and memory by runtime\n\n\
         What each runtime does with the values of the layers `security.capabilities`, `user`, `apparmor`, `memory.pages` \
         and `memory.node` ([layers.md](layers.md)). The suite `crates/tare-env/tests/confinement.rs` starts a system with \
         each of them in every runtime that a machine has, and reads it back while the system runs; this table is its \
         list. A value that cannot be had is one line before the study starts, and one that is not in force voids the \
         slices.\n\n\
         - (AppArmor): on a kernel that has AppArmor; any other refuses the value with one line.\n\
         - `user = \"namespace\"`: root of the system is the id 1000000 of the host. Its data is mounted with the ids of the \
         namespace, so no file changes its owner, and unmounting is all that is undone. Docker maps users for the whole \
         daemon (userns-remap), and Podman's API takes only ranges of /etc/subuid; both are refused.\n\
         - `memory.pages = \"always\"` is a setting of the whole host. Tare writes it when the environment starts or thaws and \
         puts it back when it is frozen or ends, with the old value in the journal; `never`, and `madvise` since Linux \
         6.18, are flags of the system's processes alone.\n\
         - gVisor and guests run the system on a kernel of their own, whose rights and pages this host cannot read back.\n\n",
    );
    let _ = writeln!(page, "| value | {} |", RUNTIMES.map(|name| format!("`{name}`")).join(" | "));
    let _ = writeln!(page, "|---|{}", "---|".repeat(RUNTIMES.len()));
    for (layer, written, _) in VALUES {
        let cells = RUNTIMES.map(|runtime| Expected::of(layer, runtime).cell()).join(" | ");
        let _ = writeln!(page, "| `{written}` | {cells} |");
    }
    page
}

#[test]
fn page_of_confinement_matches_list() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/confinement.md");
    tare_testkit::golden(&path, page());
}

fn open(state: &State) -> EnvironmentFactory {
    let all = tare_host::process::cpus_of_this_thread().unwrap();
    let last = all.iter().last().unwrap();
    let system: CpuSet = [last].into_iter().collect();
    let cpus = CpuPlan { client: all.difference(&system), system, all, ..CpuPlan::default() };
    let (state, program) = (state.0.clone(), program());
    let options = FactoryOptions { state, program, cpus, destroy: Vec::new(), reach: None };
    EnvironmentFactory::open(options).unwrap()
}

fn launch() -> Launch {
    let words = ["serve", "{listen}", "{port}", "{data}"];
    Launch { arguments: words.map(String::from).to_vec(), ..Launch::default() }
}

fn spec(runtime: &str, network: &str, confinement: Confinement) -> EnvironmentSpec {
    EnvironmentBuilder::new(runtime)
        .network(network)
        .security("none")
        .cgroup("own")
        .confinement(confinement)
        .build()
}

/// Starts an environment and returns it with what is read back.
fn started(
    factory: &EnvironmentFactory,
    spec: &EnvironmentSpec,
) -> Result<(Box<dyn Environment>, Vec<LayerState>), String> {
    let line = |error: tare_lab::PartError| error_line(error.as_ref());
    let mut environment = factory.environment(spec).map_err(line)?;
    let endpoint = environment
        .start(&launch())
        .map_err(|error| format!("{}\n{}", line(error), environment.log_tail()))?;
    // A process becomes its program by and by; a campaign waits until it answers. The data of a
    // guest are on its own disk.
    let seen = endpoint.data.map(|data| data.join("seen")).filter(|_| spec.runtime.kind() != "vm");
    let runs = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        seen.as_ref().is_none_or(|seen| seen.exists())
    });
    assert!(runs, "{}: {}", spec.runtime, environment.log_tail());
    let states = environment.read_back().map_err(line)?;
    Ok((environment, states))
}

fn has_apparmor() -> bool {
    fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|y| y.trim() == "Y")
}

/// Checks every value alone in a runtime, behind a bridge, and all that it can have at once on the
/// host's network.
fn check_runtime(test: &str, runtime: &str) {
    let _host = host();
    if skipped(test, &[Need::Root, Need::Program("nft")]) || skipped_runtime(test, runtime) {
        return;
    }
    let state = State::new(test);
    let factory = open(&state);
    let pages = fs::read_to_string(PAGES).unwrap();
    let mut all = Confinement::default();
    for (layer, written, set) in VALUES {
        let mut alone = Confinement::default();
        set(&mut alone);
        let spec = spec(runtime, "bridge", alone);
        let refused = match Expected::of(layer, runtime) {
            Expected::InForce => None,
            Expected::OnApparmor => (!has_apparmor()).then_some("needs AppArmor"),
            Expected::Refused(why) => Some(why),
        };
        if let Some(why) = refused {
            let error = started(&factory, &spec).map(drop).unwrap_err();
            assert!(error.contains(why) && error.contains(layer.name()), "{runtime}: {error}");
            continue;
        }
        set(&mut all);
        check(&factory, &spec, written);
        assert_eq!(fs::read_to_string(PAGES).unwrap(), pages, "{written} is put back");
    }
    if runtime != "vm:qemu" {
        check(&factory, &self::spec(runtime, "host", all), "all at once");
    }
    assert!(factory.close().is_empty());
    assert_eq!(fs::read_to_string(PAGES).unwrap(), pages);
    let left = left_of_run(factory.run());
    assert!(left.is_empty(), "{test}: left on the host: {left:#?}");
}

/// Checks that one environment has what its specification says, frozen and thawed too.
fn check(factory: &EnvironmentFactory, spec: &EnvironmentSpec, name: &str) {
    let runtime = &spec.runtime;
    let pages = fs::read_to_string(PAGES).unwrap();
    let (mut environment, states) =
        started(factory, spec).unwrap_or_else(|error| panic!("{runtime} {name}: {error}"));
    for state in &states {
        assert!(state.in_force, "{runtime} {name}: {state:?}");
    }
    let default = EnvironmentBuilder::new("process").build();
    for (layer, ..) in VALUES.iter().filter(|(layer, ..)| layer.differs(spec, &default)) {
        let found = states.iter().find(|state| state.layer == layer.name());
        let found = found.unwrap_or_else(|| panic!("{runtime} {name}: {layer} is not read back"));
        assert_eq!(found.wanted, layer.text(spec), "{runtime}: {found:?}");
    }
    environment.freeze().unwrap();
    assert_eq!(fs::read_to_string(PAGES).unwrap(), pages, "a frozen environment changes nothing");
    environment.thaw().unwrap();
    let states = environment.read_back().unwrap();
    assert!(states.iter().all(|state| state.in_force), "{runtime} {name}: {states:#?}");
    environment.stop().unwrap();
}

#[test]
fn confinement_of_process() {
    check_runtime("confinement_of_process", "process");
}

#[test]
fn confinement_of_runc() {
    check_runtime("confinement_of_runc", "oci:runc");
}

#[test]
fn confinement_of_crun() {
    check_runtime("confinement_of_crun", "oci:crun");
}

#[test]
fn confinement_of_runsc() {
    check_runtime("confinement_of_runsc", "oci:runsc");
}

#[test]
fn confinement_of_containerd() {
    let test = "confinement_of_containerd";
    if containerd::goes_on(test) {
        check_runtime(test, "containerd");
    }
}

#[test]
fn confinement_of_docker() {
    check_runtime("confinement_of_docker", "docker");
}

#[test]
fn confinement_of_podman() {
    check_runtime("confinement_of_podman", "podman");
}

#[test]
fn confinement_of_qemu() {
    check_runtime("confinement_of_qemu", "vm:qemu");
}

/// Checks everything again with cgroup v2, which guests have, if this host has v1.
#[test]
fn confinement_on_v2() {
    let test = "confinement_on_v2";
    let is_v2 = Layout::read(Path::new("/proc")).unwrap().version() == Version::V2;
    if is_v2 || inside::current_guest().is_some() {
        let place = "on this kernel, which has cgroup v2".into();
        return skip::skip(test, Reason::RunsElsewhere { place });
    }
    let _guest = own_guest();
    if !skipped_inside(test) {
        let but = [test, "docker", "podman", "qemu", "runsc", "crun", "containerd", "page"];
        all_inside("vm:qemu,memory=1G,disk=4G", LIMIT, &but);
    }
}

/// A system in a user namespace writes files that belong to root of the host, and nothing of the
/// data has another owner afterwards.
#[test]
fn data_of_a_user_namespace_keeps_its_owners() {
    let _host = host();
    let test = "data_of_a_user_namespace_keeps_its_owners";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let state = State::new(test);
    let factory = open(&state);
    for runtime in ["process", "oci:runc"] {
        if skipped_runtime(test, runtime) {
            continue;
        }
        let user = Confinement { user: User::Namespace, ..Confinement::default() };
        let spec = spec(runtime, "host", user);
        let mut environment = factory.environment(&spec).unwrap();
        let endpoint = environment.start(&launch()).unwrap();
        let seen = endpoint.data.unwrap().join("seen");
        let waited = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            seen.exists()
        });
        assert!(waited, "{runtime}: {}", environment.log_tail());
        assert_eq!(fs::metadata(&seen).unwrap().uid(), 0, "{runtime}");
        environment.stop().unwrap();
    }
    assert!(factory.close().is_empty());
    let left = left_of_run(factory.run());
    assert!(left.is_empty(), "{test}: left on the host: {left:#?}");
}

/// What another program changes is not in force any more.
#[test]
fn lost_huge_pages_are_not_in_force() {
    let _host = host();
    let test = "lost_huge_pages_are_not_in_force";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let state = State::new(test);
    let factory = open(&state);
    let pages = fs::read_to_string(PAGES).unwrap();
    let always = Confinement { pages: Pages::Always, ..Confinement::default() };
    let (mut environment, states) = started(&factory, &spec("process", "host", always)).unwrap();
    assert!(states.iter().all(|state| state.in_force), "{states:#?}");
    fs::write(PAGES, "never").unwrap();
    let states = environment.read_back().unwrap();
    let lost: Vec<&str> =
        states.iter().filter(|state| !state.in_force).map(|state| state.layer.as_str()).collect();
    environment.stop().unwrap();
    // Tare leaves what another program has written.
    let after = fs::read_to_string(PAGES).unwrap();
    let was = pages.split(['[', ']']).nth(1).unwrap();
    fs::write(PAGES, was).unwrap();
    assert_eq!(lost, ["memory.pages"], "{states:#?}");
    assert!(after.contains("[never]"), "{after}");
    assert!(factory.close().is_empty());
}

/// A node without memory is refused before anything is made.
#[test]
fn absent_node_is_refused() {
    let test = "absent_node_is_refused";
    if skipped(test, &[Need::Root, Need::Program("nft")]) {
        return;
    }
    let state = State::new(test);
    let factory = open(&state);
    let absent = Confinement { node: Some(1023), ..Confinement::default() };
    let error = started(&factory, &spec("process", "host", absent)).map(drop).unwrap_err();
    assert!(error.contains("memory.node = 1023 is no NUMA node"), "{error}");
    // The kernel itself is asked, so that the file above is right.
    let known = Command::new("cat").arg("/sys/devices/system/node/has_memory").output().unwrap();
    assert!(error.contains(String::from_utf8(known.stdout).unwrap().trim()), "{error}");
}
