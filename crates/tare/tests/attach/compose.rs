//! A service of a compose file that the real docker-compose or podman-compose has started: `tare
//! weigh` and `tare explain --attach` find it, and neither changes anything.

use tare_testkit::{Need, Reason, skip, skipped};

use crate::bed::{self, Bed, Compose, attach, json, study, weigh};
use crate::common::{run_in, stderr, stdout};
use crate::layer;

fn check_service(engine: &'static str, compose: &'static str, test: &'static str) {
    let needs = [Need::Root, Need::Program("nft"), Need::Program(engine), Need::Program(compose)];
    if skipped(test, &needs) {
        return;
    }
    // In a thread of its own, which enters the network of the engine.
    let run = std::thread::spawn(move || service_is_found(engine, test)).join();
    run.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn service_is_found(engine: &'static str, test: &str) {
    let bed = Bed::new();
    if let Err(said) = bed::enter_network_of_engine(engine) {
        return skip(test, Reason::unavailable(engine, &said));
    }
    let project = bed.compose(engine).unwrap();
    let before = project.state();
    let target = format!("compose = \"{}:db\"", Compose::FILE);
    let text = study("tare-db", &attach("box", &target, project.port));
    let output = weigh(bed.path(), &text, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&stdout(&output));
    let runtime = layer(&report, "runtime").1;
    assert!(runtime.contains(engine) && runtime.contains("db"), "{runtime}");
    assert!(layer(&report, "network").1.contains("is its own"), "{report}");

    let explain = |target: &str| run_in(bed.path(), ["explain", "--attach", target, "--json"]);
    let found = explain(&format!("compose:{}:db", Compose::FILE));
    assert!(found.status.success(), "{}", stderr(&found));
    let found = json(&stdout(&found));
    assert_eq!(found["ports"], serde_json::json!([9042]));
    let layers = found["layers"].as_array().unwrap();
    assert!(layers.iter().any(|layer| layer["name"] == "network namespace"), "{found}");
    assert_eq!(project.state(), before);

    // A service that is not there or does not run, and a file that is not there, are one line.
    let check = |target: &str, expect: &str| {
        let said = stderr(&explain(target));
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(expect), "{expect:?} is not in {said}");
    };
    check(&format!("compose:{}:cache", Compose::FILE), "there is no container of service cache");
    check("compose:shop/none.yml:db", "cannot find the compose file shop/none.yml");
    std::fs::write(bed.path().join("docker-compose.yml"), "services: {}\n").unwrap();
    check("compose:docker-compose.yml:db", "there is no container of service db");
    project.run(&["stop", "-t", "1"]).unwrap();
    check(&format!("compose:{}:db", Compose::FILE), "docker compose start db starts it");
}

#[test]
fn service_of_docker_compose_is_found() {
    check_service("docker", "docker-compose", "service_of_docker_compose_is_found");
}

#[test]
fn service_of_podman_compose_is_found() {
    check_service("podman", "podman-compose", "service_of_podman_compose_is_found");
}
