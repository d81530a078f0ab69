//! A study killed at random moments, then `tare clean`: the host is unchanged.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::process::Stdio;
use std::time::Duration;

use common::{run_in, stderr, stdout, tare};
use tare_std::rng::Rng;
use tare_testkit::host_state::{self, HostState};
use tare_testkit::{Need, skipped, tiny};

/// Minimum number of kills, at random moments of the first seconds: start-up, population, slices.
const KILLS: u64 = 20;
const LATEST: Duration = Duration::from_secs(4);

/// Minimum number of kills of a study that had already changed the host; more are added until it is
/// reached.
const HITS_MIN: u64 = 10;

/// Maximum number of kills, and the latest moment of one.
const KILLS_MAX: u64 = 60;
const LATEST_MAX: Duration = Duration::from_secs(60);

#[test]
fn clean_leaves_no_trace_of_a_killed_study() {
    let needs = [Need::Root, Need::Program("runc"), Need::Program("nft"), Need::Program("ip")];
    if skipped("clean_leaves_no_trace_of_a_killed_study", &needs) {
        return;
    }
    let _alone = host_state::alone();
    let before = HostState::read();
    let mut rng = Rng::new(20);
    let (mut kill, mut hits, mut latest) = (0, 0, LATEST);
    while kill < KILLS || hits < HITS_MIN {
        assert!(kill < KILLS_MAX, "{hits} of {kill} kills hit a study that had changed the host");
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
        // More often early on, when most things are created.
        let share = rng.next_f64();
        let delay = latest.mul_f64(share * share);
        std::thread::sleep(delay);
        assert_eq!(child.try_wait().unwrap(), None, "the study ended before it was killed");
        child.kill().unwrap();
        child.wait().unwrap();
        let hit = !before.difference(&HostState::read()).is_empty();
        hits += u64::from(hit);
        if !hit {
            // On a slow host a study starts to change the host later.
            latest = (latest * 5 / 4).min(LATEST_MAX);
        }
        let clean = run_in(here.path(), ["clean", "--state", state.to_str().unwrap()]);
        assert!(clean.status.success(), "kill {kill} after {delay:?}: {}", stderr(&clean));
        let left = before.difference(&HostState::read());
        assert!(
            left.is_empty(),
            "kill {kill} after {delay:?}: the host is not as it was:\n{}\nclean printed:\n{}",
            left.join("\n"),
            stdout(&clean),
        );
        kill += 1;
    }
}
