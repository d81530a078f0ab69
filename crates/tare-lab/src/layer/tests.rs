use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use super::*;
use crate::environment::{EnvironmentSpec, StorageSpec};
use crate::fake;

/// Checks that each value round-trips through its text, alone and in JSON.
#[track_caller]
fn round_trip<T>(values: &[(&str, T)])
where
    T: Display + FromStr<Err = BadLayerValue> + PartialEq + fmt::Debug,
    T: Serialize + serde::de::DeserializeOwned,
{
    for (text, value) in values {
        assert_eq!(value.to_string(), *text);
        assert_eq!(text.parse().as_ref(), Ok(value), "{text}");
        let json = serde_json::to_value(value).unwrap();
        assert_eq!(json, serde_json::json!(text));
        assert_eq!(&serde_json::from_value::<T>(json).unwrap(), value, "{text}");
    }
}

#[track_caller]
fn refused<T: FromStr<Err = BadLayerValue> + fmt::Debug>(layer: Layer, texts: &[&str]) {
    for text in texts {
        let error = text.parse::<T>().expect_err(text);
        assert_eq!((error.layer, error.value.as_str()), (layer, *text));
    }
}

#[test]
fn words_round_trip() {
    round_trip(&[
        ("host", Network::Host),
        ("bridge", Network::Bridge { proxy: false }),
        ("bridge+proxy", Network::Bridge { proxy: true }),
        ("macvlan", Network::Macvlan),
        ("ipvlan", Network::Ipvlan),
        ("vxlan", Network::Vxlan),
        ("pasta", Network::Pasta),
        ("service", Network::Service),
        ("node-port", Network::NodePort),
        ("host-port", Network::HostPort),
        ("none", Network::None),
    ]);
    let words: Vec<String> = Network::ALL.iter().map(ToString::to_string).collect();
    let listed: Vec<&str> = Network::VALUES.iter().map(|(word, _)| *word).collect();
    assert_eq!(words, listed);
    refused::<Network>(Layer::Network, &["", "hosts", "bridge+", "*"]);
    round_trip(&[
        ("default", Security::Default),
        ("default+io_uring", Security::DefaultWithIoUring),
        ("none", Security::None),
    ]);
    refused::<Security>(Layer::Security, &["", "privileged"]);
    round_trip(&[("default", Capabilities::Default), ("none", Capabilities::None)]);
    refused::<Capabilities>(Layer::Capabilities, &["", "all"]);
    round_trip(&[("host", User::Host), ("namespace", User::Namespace)]);
    refused::<User>(Layer::User, &["", "rootless"]);
    round_trip(&[
        ("none", Apparmor::None),
        ("default", Apparmor::Default),
        ("runtime", Apparmor::Runtime),
    ]);
    round_trip(&[("none", Sidecar::None), ("idle", Sidecar::Idle), ("proxy", Sidecar::Proxy)]);
    refused::<Apparmor>(Layer::Apparmor, &["", "docker-default"]);
    round_trip(&[
        ("host", Pages::Host),
        ("never", Pages::Never),
        ("madvise", Pages::Madvise),
        ("always", Pages::Always),
    ]);
    refused::<Pages>(Layer::Pages, &["", "huge"]);
    round_trip(&[("own", Cgroup::Own), ("none", Cgroup::None)]);
    refused::<Cgroup>(Layer::Cgroup, &["", "sone"]);
    let groups = |names: &[&str]| Host::TunedGroups(names.iter().map(|n| n.to_string()).collect());
    round_trip(&[
        ("as-is", Host::AsIs),
        ("tuned", Host::Tuned),
        ("tuned=disk", groups(&["disk"])),
        ("tuned=disk+network", groups(&["disk", "network"])),
    ]);
    refused::<Host>(Layer::Host, &["", "asis", "tuned=", "tuned=disk+", "tuned=+disk"]);
}

#[test]
fn quotas_round_trip() {
    round_trip(&[
        ("shared", Cpu::Shared),
        ("pinned", Cpu::Pinned),
        ("quota=1.5", Cpu::Quota(Quota::of(1.5))),
        ("quota=0.01", Cpu::Quota(Quota::of(0.01))),
        ("quota=4096", Cpu::Quota(Quota::of(4096.0))),
    ]);
    assert_eq!("quota=1.50".parse(), Ok(Cpu::Quota(Quota::of(1.5))));
    let quota = |cpus, period_us, burst_us| Cpu::Quota(Quota { cpus, period_us, burst_us });
    round_trip(&[
        ("cpus=2", Cpu::Cpus(2)),
        ("request=0.5", Cpu::Request(Request { cpus: 0.5, limit: None })),
        ("request=0.5..2", Cpu::Request(Request { cpus: 0.5, limit: Some(2.0) })),
        ("quota=1.5/10ms", quota(1.5, 10_000, 0)),
        ("quota=1.5/2500us", quota(1.5, 2500, 0)),
        ("quota=0.5/10ms+5ms", quota(0.5, 10_000, 5000)),
        ("quota=0.5/100ms+50ms", quota(0.5, 100_000, 50_000)),
        ("quota=0.5/100ms+500us", quota(0.5, 100_000, 500)),
    ]);
    assert_eq!("quota=1.5/100ms".parse(), Ok(Cpu::Quota(Quota::of(1.5))));
    let bad = [
        "pined",
        "quota",
        "quota=",
        "quota=0",
        "quota=x",
        "quota=-1",
        "quota=NaN",
        "quota=1/",
        "quota=1/10",
        "quota=1/100us",
        "quota=1/2s",
        "quota=0.05/10ms",
        "quota=1/10ms+",
        "quota=1/10ms+11ms",
        "quota=1+5ms",
        "cpus",
        "cpus=",
        "cpus=0",
        "cpus=1.5",
        "cpus=5000",
        "request=",
        "request=0",
        "request=1..",
        "request=2..1",
        "request=1..1",
    ];
    refused::<Cpu>(Layer::Cpu, &bad);
}

#[test]
fn injections_round_trip() {
    let none = Inject::default();
    let (us, ns) = (Duration::from_micros, Duration::from_nanos);
    round_trip(&[
        ("none", none),
        ("busy=2us", Inject { busy: Some(us(2)), ..none }),
        ("busy=350ns", Inject { busy: Some(ns(350)), ..none }),
        ("busy=1500us", Inject { busy: Some(us(1500)), ..none }),
        ("delay=0us", Inject { delay: Some(us(0)), ..none }),
        ("delay=20ms", Inject { delay: Some(us(20_000)), ..none }),
        ("quota=97%", Inject { quota_percent: Some(97.0), ..none }),
        ("quota=97.5%", Inject { quota_percent: Some(97.5), ..none }),
        ("filter=200", Inject { filter: Some(200), ..none }),
        ("busy=20us+quota=90%", Inject { busy: Some(us(20)), quota_percent: Some(90.0), ..none }),
    ]);
    assert_eq!("busy=0.35us".parse(), Ok(Inject { busy: Some(ns(350)), ..none }));
    assert_eq!("busy=1.5ms".parse(), Ok(Inject { busy: Some(us(1500)), ..none }));
    let bad = [
        "",
        "busy",
        "busy=",
        "busy=2",
        "busy=0us",
        "busy=2s",
        "busy=-1us",
        "busy=NaNus",
        "busy=2us+",
        "busy=1us+busy=2us",
        "quota=97",
        "quota=0%",
        "quota=101%",
        "filter=0",
        "filter=4096",
        "none+busy=2us",
        "delay=200",
    ];
    refused::<Inject>(Layer::Inject, &bad);
}

#[test]
fn root_file_systems_round_trip_as_lists() {
    for (json, value) in [
        ("[]", Rootfs::None),
        (r#"[["packages","redis-server dash=1"]]"#, Rootfs::Packages("redis-server dash=1".into())),
        (r#"[["image","/srv/redis.tar"]]"#, Rootfs::Image("/srv/redis.tar".into())),
        (r#"[["directory","/srv/root"]]"#, Rootfs::Directory("/srv/root".into())),
    ] {
        assert_eq!(serde_json::to_string(&value).unwrap(), json);
        assert_eq!(serde_json::from_str::<Rootfs>(json).unwrap(), value);
    }
    for (name, _) in Rootfs::VALUES {
        let value = Rootfs::new(name, "x".into()).unwrap();
        assert_eq!(value.option(), Some((*name, "x")));
    }
    for bad in [r#"[["imag","x"]]"#, r#"[["image","x"],["packages","y"]]"#] {
        assert!(serde_json::from_str::<Rootfs>(bad).is_err(), "{bad}");
    }
}

#[test]
fn runtimes_have_a_kind_and_an_argument() {
    let parts = |name: &str| {
        let runtime = Runtime::from(name);
        (runtime.kind().to_string(), runtime.argument().map(String::from))
    };
    assert_eq!(parts("process"), ("process".into(), None));
    assert_eq!(parts("docker:kata:x"), ("docker".into(), Some("kata:x".into())));
    assert!(Runtime::from("process").is_process() && !Runtime::from("oci:runc").is_process());
}

#[test]
fn accepts_every_listed_value() {
    type Takes = fn(&str) -> bool;
    let takes: [(Layer, Takes); 11] = [
        (Layer::Sidecar, |text| text.parse::<Sidecar>().is_ok()),
        (Layer::Capabilities, |text| text.parse::<Capabilities>().is_ok()),
        (Layer::User, |text| text.parse::<User>().is_ok()),
        (Layer::Apparmor, |text| text.parse::<Apparmor>().is_ok()),
        (Layer::Pages, |text| text.parse::<Pages>().is_ok()),
        (Layer::Network, |text| text.parse::<Network>().is_ok()),
        (Layer::Cpu, |text| text.parse::<Cpu>().is_ok()),
        (Layer::Security, |text| text.parse::<Security>().is_ok()),
        (Layer::Cgroup, |text| text.parse::<Cgroup>().is_ok()),
        (Layer::Host, |text| text.parse::<Host>().is_ok()),
        (Layer::Inject, |text| text.parse::<Inject>().is_ok()),
    ];
    for (layer, takes) in takes {
        for (word, help) in layer.values() {
            // The help of an open value ends with an example.
            let example = help.rsplit("such as ").next().unwrap();
            let word = if word.ends_with('*') { example } else { word };
            assert!(takes(word), "{layer}: {word}");
        }
    }
}

#[test]
fn lists_every_layer_once() {
    let names: Vec<&str> = Layer::ALL.iter().map(|layer| layer.name()).collect();
    let mut once = names.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), names.len(), "{names:?}");
    for layer in Layer::ALL {
        assert_eq!(Layer::by_name(layer.name()), Some(layer));
        assert_eq!(serde_json::to_value(layer).unwrap(), serde_json::json!(layer.name()));
        assert!(!layer.help().is_empty(), "{layer}");
    }
    assert_eq!(Layer::by_name("storages"), None);
}

#[test]
fn copies_each_layer_alone() {
    let plain = fake::spec("plain", "process");
    for layer in Layer::ALL {
        let changed = fake::changed(layer, &plain);
        let differ: Vec<Layer> =
            Layer::ALL.into_iter().filter(|one| one.differs(&plain, &changed)).collect();
        assert_eq!(differ, [layer]);
        let mut copy = plain.clone();
        layer.copy(&changed, &mut copy);
        assert_eq!(copy, changed, "{layer}");
    }
}

/// Records of earlier versions have no confinement; one with defaults is written without it.
#[test]
fn confinement_is_written_only_where_it_is_set() {
    let plain = fake::spec("plain", "oci:runc");
    let json = serde_json::to_value(&plain).unwrap();
    assert!(json.get("confinement").is_none(), "{json}");
    assert_eq!(serde_json::from_value::<EnvironmentSpec>(json).unwrap(), plain);
    let mut set = plain;
    set.confinement = Confinement { pages: Pages::Never, node: Some(0), ..Confinement::default() };
    let json = serde_json::to_value(&set).unwrap();
    assert_eq!(json["confinement"], serde_json::json!({ "pages": "never", "node": 0 }));
    assert_eq!(serde_json::from_value::<EnvironmentSpec>(json).unwrap(), set);
}

#[test]
fn environment_json_is_stable() {
    let mut spec = fake::spec("plain", "oci:runc");
    spec.storage = StorageSpec { kind: "ext4".into(), options: vec![("size".into(), "2G".into())] };
    spec.rootfs = Rootfs::Image("/x".into());
    spec.cpu = Cpu::Quota(Quota::of(1.5));
    let json = serde_json::json!({
        "name": "plain", "runtime": "oci:runc", "network": "host", "cpu": "quota=1.5",
        "security": "none", "cgroup": "none",
        "storage": { "kind": "ext4", "options": [["size", "2G"]] },
        "rootfs": [["image", "/x"]], "limits": { "memory_bytes": null }, "optional": false,
    });
    assert_eq!(serde_json::to_value(&spec).unwrap(), json);
    assert_eq!(serde_json::from_value::<EnvironmentSpec>(json).unwrap(), spec);
}
