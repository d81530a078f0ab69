//! A study killed at random moments, then `tare clean`: the host is as it was.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::process::Stdio;
use std::time::Duration;

use common::{run_in, stderr, stdout, tare};
use tare_std::rng::Rng;
use tare_testkit::host_state::{self, HostState};
use tare_testkit::{Need, skipped, tiny};

/// Kills, at moments drawn uniformly from the first seconds: start-up, population, slices.
const KILLS: u64 = 20;
const LATEST: Duration = Duration::from_secs(4);

#[test]
fn a_study_killed_at_random_moments_leaves_no_trace_after_clean() {
    let needs = [Need::Root, Need::Program("runc"), Need::Program("nft"), Need::Program("ip")];
    if skipped("a_study_killed_at_random_moments_leaves_no_trace_after_clean", &needs) {
        return;
    }
    let _alone = host_state::alone();
    let before = HostState::read();
    let mut rng = Rng::new(20);
    for kill in 0..KILLS {
        let here = tempfile::tempdir().unwrap();
        let state = here.path().join("state");
        tiny::write(here.path(), "slices", 2000);
        let mut child = tare()
            .args(["weigh", "tiny.toml", "-o", "k.tare", "--state", state.to_str().unwrap()])
            .current_dir(here.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Denser early on, where most things are made.
        let share = rng.next_f64();
        let delay = LATEST.mul_f64(share * share);
        std::thread::sleep(delay);
        child.kill().unwrap();
        child.wait().unwrap();
        let clean = run_in(here.path(), ["clean", "--state", state.to_str().unwrap()]);
        assert!(clean.status.success(), "kill {kill} after {delay:?}: {}", stderr(&clean));
        let left = before.difference(&HostState::read());
        assert!(
            left.is_empty(),
            "kill {kill} after {delay:?}: the host is not as it was:\n{}\nclean said:\n{}",
            left.join("\n"),
            stdout(&clean),
        );
    }
}
