//! Attached environments.

use super::*;
use crate::attach::{Attach, AttachTarget};

const NATIVE: &str = "name = \"native\"\nruntime = \"process\"\n";

/// Returns `GOOD` with an attached baseline, and without its other environment.
fn attached(attach: &str) -> String {
    let table = format!("name = \"native\"\nattach = {attach}\n");
    GOOD.replace("[[environment]]\nname = \"box\"\nextends = \"native\"\n", "")
        .replace(NATIVE, &table)
}

#[test]
fn one_attached_system_is_a_study() {
    let check = |words: &str, target: AttachTarget| {
        let text = attached(&format!("{{ address = \"10.0.0.5:9042\", {words} }}"));
        let study = read(&text);
        let address = "10.0.0.5:9042".parse().unwrap();
        let expect = Attach { target, address, data: None, read_only: false };
        assert_eq!(study.attached().collect::<Vec<_>>(), [&expect]);
        assert_eq!(study.environments[0].runtime, "attached");
        let runtime = Layer::Runtime.text(&study.environments[0]);
        assert!(runtime.starts_with("attached to "), "{runtime}");
        assert_eq!(Layer::Cpu.text(&study.environments[0]), "as found");
    };
    check("pid = 7", AttachTarget::Pid(7));
    check("unit = \"scylla-server.service\"", AttachTarget::Unit("scylla-server.service".into()));
    check("cgroup = \"/a/b\"", AttachTarget::Cgroup("/a/b".into()));
    let (engine, name) = ("podman".into(), "db".into());
    check("container = \"podman:db\"", AttachTarget::Container { engine, name });
    let (file, service) = ("a/compose.yml".into(), "db".into());
    check("compose = \"a/compose.yml:db\"", AttachTarget::Compose { file, service });
    check("pod = \"shop/db-0\"", pod(None));
    check("pod = \"shop/db-0\", container = \"db\"", pod(Some("db")));
}

fn pod(container: Option<&str>) -> AttachTarget {
    let container = container.map(str::to_owned);
    AttachTarget::Pod { namespace: "shop".into(), name: "db-0".into(), container }
}

#[test]
fn pod_has_an_address_of_its_own() {
    for (words, port, text) in [
        ("", 0, "attached to container db of pod shop/db-0"),
        (", port = 9042", 9042, "attached to container db of pod shop/db-0"),
    ] {
        let study =
            read(&attached(&format!("{{ pod = \"shop/db-0\", container = \"db\"{words} }}")));
        let found = study.attached().next().unwrap();
        assert_eq!(found.address, format!("0.0.0.0:{port}").parse().unwrap());
        assert!(found.has_address_of_pod());
        assert_eq!(Layer::Runtime.text(&study.environments[0]), text);
        let kept: Attach = serde_json::from_value(serde_json::to_value(found).unwrap()).unwrap();
        assert_eq!(kept, *found);
    }
}

#[test]
fn mistakes_of_attach_are_refused() {
    let refused = |text: &str, expect: &str| {
        let error = parse(text, "s.toml", &vocabulary()).expect_err(text).to_string();
        assert!(error.contains(expect), "{error}");
    };
    let with = |words: &str| attached(&format!("{{ {words} }}"));
    refused(&with("pid = 7"), "address");
    refused(
        &with("address = \"10.0.0.5:9042\""),
        "one of unit, container, compose, pid, cgroup and pod",
    );
    refused(&with("address = \"10.0.0.5:1\", pid = 7, unit = \"a.service\""), "one of unit");
    refused(&with("address = \"db:9042\", pid = 7"), "an IP address and a port");
    refused(&with("address = \"1.1.1.1:1\", container = \"db\""), "write docker:NAME");
    refused(&with("address = \"1.1.1.1:1\", unit = \"redis\""), "such as redis.service");
    refused(&with("address = \"1.1.1.1:1\", cgroup = \"/a/../b\""), "without ..");
    let anywhere = with("pod = \"shop/db-0\", address = \"0.0.0.0:9042\"");
    refused(&anywhere, "an IP address and a port");
    refused(&with("pod = \"db-0\""), "such as shop/redis-0");
    refused(&with("pod = \"shop/db-0/x\""), "such as shop/redis-0");
    refused(&with("pod = \"shop/DB\""), "such as shop/redis-0");
    refused(&with("pod = \"shop/db-0\", container = \"docker:db\""), "one of its containers");
    refused(&with("pod = \"shop/db-0\", pid = 7"), "one of unit");
    refused(&with("pod = \"shop/db-0\", port = 0"), "port");
    refused(&with("pod = \"shop/db-0\", port = 1, address = \"1.1.1.1:1\""), "leave out one");
    refused(&with("pid = 7, port = 1"), "a port alone is that of a pod");
    let good = with("address = \"1.1.1.1:1\", pid = 7");
    refused(&good.replace("attach =", "cpu = \"pinned\"\nattach ="), "Tare reads its layers");
    refused(&good.replace("rounds = 9", "kind = \"trials\""), "does not start");
    refused(&good.replace("rounds = 9", "data = \"restored\""), "does not start");
    refused(&good.replace("rounds = 9", "restarts = 2"), "does not restart");
    let loader = "[[loader]]\nhost = \"ssh:a\"\n";
    refused(&(good.clone() + loader), "the client of an attached system of this host");
    let other = |words: &str| format!("{good}[[environment]]\nname = \"b\"\n{words}\n");
    refused(&other("extends = \"native\""), "no layers to inherit");
    refused(&other("runtime = \"oci:runc\""), "only network");
    refused(&other("runtime = \"process\"\nhost = \"tuned\""), "tuning the host");
    refused(&other("runtime = \"attached\""), "attached");
    let read_only = good.replace("pid = 7", "pid = 7, read_only = true");
    refused(&(read_only + "[[environment]]\nname = \"b\"\nruntime = \"process\"\n"), "or none is");
    read(&other("runtime = \"process\""));
}

#[test]
fn attached_system_is_on_one_other_host() {
    let on = |hosts: &str, words: &str| {
        let text = attached(&format!("{{ {words} }}"));
        text.replace("[schedule]\n", &format!("[system]\nhosts = [{hosts}]\n[schedule]\n"))
    };
    let there = "address = \"10.0.0.5:9042\", unit = \"db.service\"";
    read(&on("\"ssh:db1\"", there));
    read(&(on("\"ssh:db1\"", there) + "[[loader]]\nhost = \"ssh:a\"\n"));
    read(&on("\"local=10.0.0.1\"", "address = \"127.0.0.1:9042\", pid = 7"));
    let refused = |hosts: &str, words: &str, expect: &str| {
        let text = on(hosts, words);
        let error = parse(&text, "s.toml", &vocabulary()).expect_err(&text).to_string();
        assert!(error.contains(expect), "{error}");
    };
    refused("\"ssh:db1\", \"ssh:db2\"", there, "runs on one host, and hosts of [system] has 2");
    refused("\"ssh:db1\"", "pod = \"shop/db-0\"", "through the API of its cluster");
    let own = "address = \"127.0.0.1:9042\", pid = 7";
    refused("\"ssh:db1\"", own, "the one at which this host reaches ssh:db1");
}
