//! `tare image`: the archive is taken by the engines of this machine, which run the program in it.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::terminal::{NEEDS, OnTerminal};
use common::{run_in, stderr, stdout};
use tare_testkit::skip::{Need, Reason, skip, skipped};

/// Writes the archive of an image of this name.
fn write_image(folder: &Path, name: &str) -> std::path::PathBuf {
    let made = run_in(folder, ["image", "--name", name]);
    assert!(made.status.success(), "{}", stderr(&made));
    let archive = folder.join("tare.tar");
    fs::write(&archive, &made.stdout).unwrap();
    archive
}

/// An image of an engine. Dropping it removes it.
struct Loaded {
    engine: &'static str,
    name: String,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = Command::new(self.engine).args(["rmi", "--force", &self.name]).output();
    }
}

fn engine_runs_the_image(engine: &'static str, variable: &str, test: &str) {
    if skipped(test, &[Need::Root, Need::Program(engine)]) {
        return;
    }
    // Podman's client without a service would load into the host's own storage.
    let answers = std::env::var_os(variable).is_some()
        && Command::new(engine).arg("info").output().is_ok_and(|output| output.status.success());
    if !answers {
        return skip(test, Reason::not_installed(format!("a {engine} that answers")));
    }
    let here = tempfile::tempdir().unwrap();
    let name = format!("localhost/tare-test-{}:one", std::process::id());
    let archive = write_image(here.path(), &name);
    let loaded = Loaded { engine, name };
    let run = |words: &[&str]| {
        let output = Command::new(engine).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        stdout(&output)
    };
    let said = run(&["load", "--input", archive.to_str().unwrap()]);
    assert!(said.contains(&loaded.name), "{said}");
    let inspected = run(&["image", "inspect", "--format", "{{json .Config}}", &loaded.name]);
    assert!(inspected.contains("[\"/tare\"]"), "{inspected}");
    let in_it = |words: &[&str]| {
        // Podman raises these limits unless they are given, which takes CAP_SYS_RESOURCE.
        let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"];
        let how = ["run", "--rm", "--network", "none"];
        run(&[&how[..], &limits, &[loaded.name.as_str()], words].concat())
    };
    let version = in_it(&["--version"]);
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    let placed = in_it(&["pod", "place"]);
    assert!(placed.contains("\"path\":\"/tare\""), "{placed}");
}

#[test]
fn docker_runs_the_image() {
    engine_runs_the_image("docker", "DOCKER_HOST", "docker_runs_the_image");
}

#[test]
fn podman_runs_the_image() {
    engine_runs_the_image("podman", "CONTAINER_HOST", "podman_runs_the_image");
}

#[test]
fn the_same_program_gives_the_same_image() {
    let here = tempfile::tempdir().unwrap();
    let first = fs::read(write_image(here.path(), "tare:1")).unwrap();
    let again = fs::read(write_image(here.path(), "tare:1")).unwrap();
    assert!(first == again, "two images of one program differ");
    let program = fs::metadata(env!("CARGO_BIN_EXE_tare")).unwrap().len();
    assert!((first.len() as u64) < program, "{} bytes of {program}", first.len());
}

#[test]
fn a_terminal_gets_no_image() {
    if skipped("a_terminal_gets_no_image", &NEEDS) {
        return;
    }
    let here = tempfile::tempdir().unwrap();
    let (status, shown) = OnTerminal::start(here.path(), &["image"], &[]).end();
    assert_eq!(status.code(), Some(2), "{shown}");
    assert!(shown.contains("write it to a file: tare image > tare.tar"), "{shown}");
}

#[test]
fn a_name_of_no_image_is_a_usage_error() {
    let here = tempfile::tempdir().unwrap();
    let refused = run_in(here.path(), ["image", "--name", "Tare:1"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("NAME:TAG"), "{}", stderr(&refused));
}
