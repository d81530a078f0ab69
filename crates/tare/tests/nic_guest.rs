//! `tare tune` on a network card with several queues: a guest whose virtio-net card ends at another
//! machine. Channels, rings, interrupts and packet steering of the card really change, and are as
//! before after a revert.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, process};

use common::guest::cannot_start;
use common::{run_in, stderr, stdout};
use serde_json::Value;
use tare_env::inside::{Command, Guest, RESULTS, Status};
use tare_host::netns;
use tare_testkit::host_state;
use tare_testkit::ssh_bed::SshBed;
use tare_tune::plan::{Action, Options};
use tare_tune::planner::plan;
use tare_tune::snapshot::Snapshot;

/// The machine at the other end of the card.
const OTHER: &str = "load1";
const ADDRESS: [&str; 2] = ["10.98.0.1", "10.98.0.2"];

/// Prints the settings of the card by the names of its queues and interrupts, whose numbers change.
const SETTINGS: &str = "
    ethtool --show-channels eth0 | sed -n '/Current/,$p' | grep Combined
    ethtool --show-ring eth0 | sed -n '/Current/,$p' | grep -E '^(RX|TX):'
    for queue in /sys/class/net/eth0/queues/*; do
        echo \"$(basename $queue): $(cat $queue/rps_cpus $queue/rps_flow_cnt $queue/xps_cpus \
            2>/dev/null | tr '\\n' ' ')\"
    done
    grep -E 'virtio[0-9]+-(in|out)put' /proc/interrupts | while read number rest; do
        echo \"${rest##* } on $(cat /proc/irq/${number%:}/smp_affinity)\"
    done
    cat /proc/sys/net/core/rps_sock_flow_entries";

/// Where the host's export directory is mounted in a guest, and where the files for ssh are.
const EXPORT: &str = "/run/tare/export";
const SSH: &str = "/root/ssh";
const SSH_CONFIG: &str = "/root/ssh/config";

/// How long a command in a guest without KVM may take on a loaded machine.
const LIMIT: Duration = Duration::from_secs(900);

/// The cards of guests.
const FOUR_QUEUES: &str = "queues=4";
const E1000E: &str = "card=e1000e";

/// A tap device for a card, in the network namespace of a machine. It ends with that.
fn add_tap(bed: &SshBed, card: &str) {
    let namespace = format!("--net=/run/netns/{}", bed.namespace(OTHER));
    let add = ["tuntap", "add", "tap0", "mode", "tap", "multi_queue"];
    let several = card == FOUR_QUEUES;
    for words in [
        &add[..add.len() - usize::from(!several)],
        &["address", "add", &format!("{}/24", ADDRESS[0]), "dev", "tap0"],
        &["link", "set", "tap0", "up"],
    ] {
        let ran = process::Command::new("nsenter").arg(&namespace).arg("ip").args(words).output();
        let ran = ran.unwrap();
        assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

/// A guest with a card, and what its commands print.
struct Host(Guest);

impl Host {
    /// Boots a guest whose card is on the tap device. QEMU opens that device in the namespace of
    /// the calling thread.
    fn boot(card: &str, state: &Path) -> Self {
        let address = ADDRESS[1];
        let options = format!(
            "vm:qemu,vcpus=4,memory=2G,disk=6G,accelerator=tcg,tap=tap0,address={address}/24,{card}"
        );
        let program = Path::new(env!("CARGO_BIN_EXE_tare"));
        Self(Guest::boot(&options.parse().unwrap(), state, program).unwrap())
    }

    fn sh(&mut self, script: &str) -> (Status, String, String) {
        let command = Command::new(["sh", "-c", script])
            .variable("TARE", env!("CARGO_BIN_EXE_tare"))
            .variable("TARE_SSH_CONFIG", SSH_CONFIG);
        self.0.output(&command.limit(LIMIT)).unwrap()
    }

    /// Gives the guest a way to the machine at the other end: a route, and the configuration of
    /// ssh, whose files the guest does not have.
    fn reach(&mut self, bed: &SshBed) {
        let there = self.0.export().join("ssh");
        fs::create_dir(&there).unwrap();
        for file in ["key", "known", "config"] {
            fs::copy(bed.directory().join(file), there.join(file)).unwrap();
        }
        let from = bed.directory().display().to_string();
        let config = fs::read_to_string(there.join("config")).unwrap();
        fs::write(there.join("config"), config.replace(&from, SSH)).unwrap();
        self.ok(&format!(
            "cp -r {EXPORT}/ssh {SSH} && chmod 600 {SSH}/* && \
             ip route add {} via {}",
            bed.ip(OTHER),
            ADDRESS[0]
        ));
    }

    /// Runs a script that must succeed, and returns its output.
    fn ok(&mut self, script: &str) -> String {
        let (status, out, error) = self.sh(script);
        assert_eq!(status, Status::Code(0), "{script}:\n{out}\n{error}\n{}", self.0.console());
        out
    }
}

/// Boots a guest with this card and runs `work`, in the network namespace of a machine at the other
/// end of the card.
fn with_card(test: &str, card: &str, work: impl FnOnce(&SshBed, Host) + Send) {
    if cannot_start(test, "vm:qemu") {
        return;
    }
    let Some(bed) = SshBed::start(test, &[OTHER]) else { return };
    add_tap(&bed, card);
    let _lock = host_state::beside_others();
    let state = tempfile::tempdir().unwrap();
    let namespace = PathBuf::from("/run/netns").join(bed.namespace(OTHER));
    netns::within(&namespace, || work(&bed, Host::boot(card, state.path()))).unwrap();
}

#[test]
fn card_of_guest_is_tuned_and_restored() {
    with_card("card_of_guest_is_tuned_and_restored", FOUR_QUEUES, |_, mut host| {
        let found = host.ok(SETTINGS);
        assert!(found.contains("rx-3: 0 0"), "{found}");

        // The recorded guest plans the card like the guest itself.
        let options = "--nic eth0 --only interrupts,network --irq-cpus 0-1 --ring 128";
        let made = host
            .ok(&format!("$TARE tune plan {options} --json; $TARE host record {RESULTS}/host >&2"));
        let recorded = Snapshot::load(&host.0.collect().unwrap().join("host")).unwrap();
        let plan_there: serde_json::Value = serde_json::from_str(&made).unwrap();
        let plan_here = plan(
            &recorded,
            &Options {
                nics: vec!["eth0".into()],
                only: vec!["interrupts".into(), "network".into()],
                irq_cpus: Some("0-1".parse().unwrap()),
                ring: Some(128),
                ..Options::default()
            },
        )
        .unwrap();
        let changed: Vec<&str> = plan_here.changes().map(|(item, _)| item.knob.as_str()).collect();
        for knob in ["nic_channels", "rings", "rps", "rfs", "xps"] {
            assert!(changed.contains(&knob), "{knob}: {changed:?}");
        }
        let items = plan_there["items"].as_array().unwrap();
        assert_eq!(items.len(), plan_here.items.len(), "{made}");
        assert!(plan_here.items.iter().all(|item| !matches!(item.action, Action::Advise { .. })));

        host.ok(&format!("$TARE tune apply --yes {options}"));
        let tuned = host.ok(SETTINGS);
        for line in [
            "RX:\t\t128",
            "TX:\t\t128",
            "rx-0: c 16384",
            "rx-1: c 16384",
            "tx-0: 3",
            "tx-1: c",
            "virtio4-input.0 on 1",
            "virtio4-input.1 on 2",
            "32768",
        ] {
            assert!(
                tuned.lines().any(|found| found.trim() == line),
                "{line:?} is not in:\n{tuned}"
            );
        }
        assert!(!tuned.contains("rx-2"), "two channels:\n{tuned}");

        // Packets of the other machine interrupt the interrupt CPUs alone.
        let verified = host.ok("$TARE tune verify --after 1s --json");
        let verified: serde_json::Value = serde_json::from_str(&verified).unwrap();
        assert!(verified.to_string().contains("rps"), "{verified}");

        let reverted = host.ok("$TARE tune revert");
        assert!(reverted.contains("restored"), "{reverted}");
        assert_eq!(host.ok(SETTINGS), found, "after the revert");
        assert!(host.0.close().is_empty());
    });
}

/// Its driver has no switch for an adapted delay, but values of the delay: 3 as found.
#[test]
fn coalescing_of_e1000e_changes_and_comes_back() {
    with_card("coalescing_of_e1000e_changes_and_comes_back", E1000E, |_, mut host| {
        let delay = "ethtool --show-coalesce eth0 | sed -n 's/^rx-usecs:[[:blank:]]*//p'";
        let apply = |knob: &str| format!("$TARE tune apply --yes --nic eth0 --only {knob}");
        assert_eq!(host.ok(delay).trim(), "3");
        host.ok(&apply("coalescing_off"));
        assert_eq!(host.ok(delay).trim(), "0");
        let verified = host.ok("$TARE tune verify --json");
        assert!(verified.contains("coalescing_off"), "{verified}");
        host.ok("$TARE tune revert");
        assert_eq!(host.ok(delay).trim(), "3");

        let plan = host.ok("$TARE tune plan --nic eth0 --only coalescing_adaptive --json");
        assert!(plan.contains("\"right\""), "{plan}");
        host.ok("ethtool --coalesce eth0 rx-usecs 125");
        host.ok(&apply("coalescing_adaptive"));
        assert_eq!(host.ok(delay).trim(), "3");
        host.ok("$TARE tune revert");
        assert_eq!(host.ok(delay).trim(), "125");
        assert!(host.0.close().is_empty());
    });
}

/// How much of the study and of the proof runs: with `TARE_NIC_ROUNDS=N` all of both in N rounds,
/// else a part of each that an emulated guest ends within minutes.
enum Extent {
    Part,
    Whole { rounds: String },
}

impl Extent {
    fn asked() -> Self {
        std::env::var("TARE_NIC_ROUNDS").map_or(Self::Part, |rounds| Self::Whole { rounds })
    }

    fn options_of_study(&self) -> String {
        let stacks = "--stacks --stack-kinds interrupt-cpus --stack-rounds 1 --stack-window 1s";
        match self {
            Self::Part => "--quick --rounds 2".into(),
            Self::Whole { rounds } => format!("--rounds {rounds} {stacks}"),
        }
    }

    fn options_of_proof(&self) -> String {
        match self {
            Self::Part => "--only nic_irqs,rps --rounds 2".into(),
            Self::Whole { rounds } => {
                format!("--only interrupts,rps,rfs,xps,rings --ring 128 --rounds {rounds}")
            }
        }
    }
}

/// The shipped study `nic` for a host without KVM: fewer rows, short windows, and one CPU kept for
/// interrupts.
fn small_study() -> String {
    let shipped = include_str!("../../../studies/nic.toml");
    let changes = [
        ("window = \"1s\"", "window = \"500ms\""),
        ("lead_in = \"500ms\"", "lead_in = \"300ms\""),
        ("rows = 50_000", "rows = 500"),
        ("rows = 2_000", "rows = 500"),
        ("latency_share = 0.5", "latency_share = 0\nconnections = 4\nin_flight = 16"),
        ("[schedule]", "[cpus]\ninterrupts = 1\n[schedule]"),
    ];
    changes.into_iter().fold(shipped.to_string(), |text, (from, to)| {
        assert!(text.contains(from), "{from:?} is not in studies/nic.toml");
        text.replacen(from, to, 1)
    })
}

/// Returns a record of a guest as JSON. Its page must say that the guest is emulated.
fn report(directory: &Path, record: &str) -> Value {
    let output = run_in(directory, ["report", record, "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = fs::read_to_string(directory.join(record).with_extension("html")).unwrap();
    assert!(page.contains("functional, not a measurement"), "the page of {record}");
    serde_json::from_str(&stdout(&output)).unwrap()
}

/// Checks that each environment ran with the settings that it names, and returns their names.
fn ran(record: &Value) -> Vec<&str> {
    let environments = record["environments"].as_array().unwrap().iter();
    let ran = environments.filter(|one| one["left_out"].is_null()).map(|one| {
        let layers = one["layers"].as_array().unwrap();
        let host = layers.iter().find(|layer| layer["layer"] == "host").unwrap();
        assert_eq!(host["in_force"], true, "{one}");
        let as_found = host["found"].as_str().unwrap().starts_with("0 of ");
        assert_eq!(as_found, host["wanted"] == "as-is", "{host}");
        one["name"].as_str().unwrap()
    });
    ran.collect()
}

/// Returns whether a slice of the record has a counter whose name begins so.
fn counts(record: &Value, name: &str) -> bool {
    let slices = record["slices"].as_array().unwrap().iter();
    let mut counters = slices.flat_map(|slice| slice["counters"].as_array().unwrap());
    counters.any(|counter| counter["name"].as_str().unwrap().starts_with(name))
}

/// The figures of an emulated guest mean nothing, so that only what runs, changes and comes back is
/// checked.
#[test]
fn knobs_of_card_are_weighed_by_loader_outside() {
    with_card("knobs_of_card_are_weighed_by_loader_outside", FOUR_QUEUES, |bed, mut host| {
        host.reach(bed);
        fs::write(host.0.export().join("nic.toml"), small_study()).unwrap();
        let found = host.ok(SETTINGS);
        let extent = Extent::asked();
        let study = format!("{EXPORT}/nic.toml --loader ssh:{OTHER} --seed 1");
        let mut run = |words: &str, options: &str, record: &str| {
            let script = format!("cd {RESULTS} && $TARE {words} {study} {options} -o {record}");
            let (status, out, error) = host.sh(&script);
            assert_eq!(status, Status::Code(0), "{script}:\n{out}\n{error}");
            assert_eq!(error.matches("connecting to ").count(), 1, "{error}");
            assert_eq!(host.ok(SETTINGS), found, "after {words}");
            out
        };
        run("weigh", &extent.options_of_study(), "nic.tare");
        let proven = run("tune prove --each-knob", &extent.options_of_proof(), "proof.tare");
        assert!(proven.contains("\nrestored: nic_irqs, "), "{proven}");

        let results = host.0.collect().unwrap();
        let record = report(&results, "nic.tare");
        let names = ran(&record);
        for name in ["cpuset", "+ interrupts apart", "+ RPS, RFS, XPS"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        // QEMU's card has no delay to turn off or to adapt.
        assert!(names.iter().all(|name| !name.contains("coalescing")), "{names:?}");
        assert_eq!(record["cpu_plan"]["interrupts"], "0");
        assert_eq!(record["paths"][0]["here"]["driver"], "virtio_net");
        for counter in
            ["interrupt_cpus_softirq_share", "interrupts_virtio", "softirqs_net_rx", "card_eth0_rx"]
        {
            assert!(counts(&record, counter), "{counter}");
        }
        let record = report(&results, "proof.tare");
        let names = ran(&record);
        for name in ["with flags", "with flags + nic_irqs", "with flags + rps"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        if let Some(kept) = std::env::var_os("TARE_NIC_RESULTS") {
            let copied = process::Command::new("cp").arg("-r").arg(results).arg(kept).status();
            assert!(copied.unwrap().success());
        }
        assert!(host.0.close().is_empty());
    });
}
