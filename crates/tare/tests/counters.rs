//! Counters per operation through the built program, on real runtimes: each environment has its own
//! counters, and the report shows them in text, JSON and HTML.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;

use common::{run_in, stderr, stdout};
use tare_testkit::host_state;
use tare_testkit::{Need, skipped, tiny};

const NEEDS: [Need; 4] =
    [Need::Root, Need::Program("runc"), Need::Program("nft"), Need::Program("ip")];

#[test]
fn each_environment_has_its_own_counters() {
    if skipped("each_environment_has_its_own_counters", &NEEDS) {
        return;
    }
    let _alone = host_state::alone();
    let here = tempfile::tempdir().unwrap();
    let study = tiny::write(here.path(), "slices", 3);
    let state = here.path().join("state");
    let arguments = ["weigh", study.to_str().unwrap(), "-o", "c.tare", "--json", "--state"];
    let output = run_in(here.path(), arguments.into_iter().chain([state.to_str().unwrap()]));
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let value = |environment: &str, name: &str| {
        let environments = report["environments"].as_array().unwrap();
        let found = environments.iter().find(|one| one["name"] == environment).unwrap();
        let counters = found["counters"].as_array().unwrap();
        let of = |one: &&serde_json::Value| one["name"] == name && one["phase"] == "capacity";
        counters.iter().find(of).map(|one| one["value"]["value"].as_f64().unwrap())
    };
    // Counters that every kernel has.
    for environment in ["native", "runc bridge", "runc proxy"] {
        for name in [
            "system_switches_voluntary",
            "system_run_queue_wait_ns",
            "system_rss_anon_bytes_at_end",
            "system_net_in_bytes",
            "client_tcp_segments_out",
            "softirqs_net_rx",
            "interrupts",
            "host_cpu_ns",
        ] {
            let seen = value(environment, name);
            assert!(seen.is_some_and(|value| value >= 0.0), "{name} of {environment}: {seen:?}");
        }
    }
    // Whole rows of 5 x 64 bytes arrive through each environment's own device.
    for environment in ["native", "runc bridge", "runc proxy"] {
        let bytes = value(environment, "system_net_in_bytes").unwrap();
        assert!(bytes >= 320.0, "{environment}: {bytes}");
    }
    // Only the proxy layer has processes.
    assert!(value("runc proxy", "layer_switches_voluntary").is_some());
    assert_eq!(value("runc bridge", "layer_switches_voluntary"), None);
    assert!(value("runc bridge", "system_net_eth0_in_bytes").unwrap() >= 320.0);

    let output = run_in(here.path(), ["report", "c.tare", "--counters"]);
    let text = stdout(&output);
    assert!(text.contains("runc proxy against native: write, at capacity"), "{text}");
    assert!(text.contains("system_switches_voluntary"), "{text}");
    let page = fs::read_to_string(here.path().join("c.html")).unwrap();
    assert!(page.contains("Counters per operation") && page.contains("system_net_in_bytes"));
    // A probe that does not work on this host is a doubt about the record, not about a slice.
    let doubts = report["doubts"].as_array().unwrap().iter().filter(|one| !one["slice"].is_null());
    let failed: Vec<_> = doubts.filter(|one| one["doubt"]["kind"] == "probe_failed").collect();
    assert!(failed.is_empty(), "{failed:?}");
}
