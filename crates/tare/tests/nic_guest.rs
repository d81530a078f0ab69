//! `tare tune` on a network card with several queues: a guest whose virtio-net card ends at another
//! machine. Channels, rings, interrupts and packet steering of the card really change, and are as
//! before after a revert.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use common::guest::cannot_start;
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

/// A tap device with several queues in the network namespace of a machine. It ends with that.
fn add_tap(bed: &SshBed) {
    let namespace = format!("--net=/run/netns/{}", bed.namespace(OTHER));
    for words in [
        &["tuntap", "add", "tap0", "mode", "tap", "multi_queue"][..],
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
            "vm:qemu,vcpus=4,memory=1G,disk=1G,accelerator=tcg,tap=tap0,address={address}/24,{card}"
        );
        let program = Path::new(env!("CARGO_BIN_EXE_tare"));
        Self(Guest::boot(&options.parse().unwrap(), state, program).unwrap())
    }

    fn sh(&mut self, script: &str) -> (Status, String, String) {
        let tare = env!("CARGO_BIN_EXE_tare");
        let command = Command::new(["sh", "-c", script]).variable("TARE", tare);
        self.0.output(&command.limit(Duration::from_secs(120))).unwrap()
    }

    /// Runs a script that must succeed, and returns its output.
    fn ok(&mut self, script: &str) -> String {
        let (status, out, error) = self.sh(script);
        assert_eq!(status, Status::Code(0), "{script}:\n{out}\n{error}\n{}", self.0.console());
        out
    }
}

/// Runs `test` in the network namespace of a machine at the other end of the guest's card.
fn with_card(test: &str, work: impl FnOnce(&SshBed, &Path) + Send) {
    if cannot_start(test) {
        return;
    }
    let Some(bed) = SshBed::start(test, &[OTHER]) else { return };
    add_tap(&bed);
    let _lock = host_state::beside_others();
    let state = tempfile::tempdir().unwrap();
    let namespace = PathBuf::from("/run/netns").join(bed.namespace(OTHER));
    netns::within(&namespace, || work(&bed, state.path())).unwrap();
}

#[test]
fn card_of_guest_is_tuned_and_restored() {
    with_card("card_of_guest_is_tuned_and_restored", |_, state| {
        let mut host = Host::boot("queues=4", state);
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
