//! Tests of the options.

use tare_lab::environment::{Limits, NOTHING_INJECTED, StorageSpec};

use super::*;

fn spec(vm: &[(&str, &str)], network: &str, memory_bytes: Option<u64>) -> EnvironmentSpec {
    EnvironmentSpec {
        name: "guest".into(),
        runtime: "vm:qemu".into(),
        network: network.into(),
        cpu: "shared".into(),
        security: "none".into(),
        cgroup: "own".into(),
        host: "as-is".into(),
        storage: StorageSpec::default(),
        vm: vm.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        sandbox: Vec::new(),
        inject: NOTHING_INJECTED.into(),
        limits: Limits { memory_bytes },
        optional: false,
    }
}

fn parse(vm: &[(&str, &str)], network: &str, memory: Option<u64>) -> Result<Options, OptionError> {
    let spec = spec(vm, network, memory);
    Options::parse(&spec, &Layers::parse(&spec).unwrap())
}

#[test]
fn options_are_parsed_and_checked_against_each_other() {
    let plain = parse(&[], "bridge", None).unwrap();
    assert_eq!(plain, Options::default());
    let options = [("vcpus", "3"), ("memory", "512M"), ("cache", "writeback")];
    let options = parse(&options, "bridge", None).unwrap();
    assert_eq!((options.vcpus, options.memory_bytes), (Some(3), 512 << 20));
    assert_eq!(options.aio, "threads", "native does not go through the host's cache");
    for (bad, says) in [
        (parse(&[("vcpus", "0")], "bridge", None), "vcpus"),
        (parse(&[("memory", "12M")], "bridge", None), "256M"),
        (parse(&[("colour", "red")], "bridge", None), "colour"),
        (parse(&[("accelerator", "hvf")], "bridge", None), "auto, kvm or tcg"),
        (parse(&[("aio", "native"), ("cache", "writeback")], "bridge", None), "page cache"),
        (parse(&[], "host", None), "network = \"bridge\""),
        (parse(&[], "bridge", Some(1 << 30)), "do not fit"),
    ] {
        let text = bad.unwrap_err().to_string();
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn storage_of_guests_is_for_guests_and_theirs_alone() {
    let mut guest = spec(&[], "bridge", None);
    let layers = Layers::parse(&guest).unwrap();
    let check = |spec: &EnvironmentSpec, runtime: &str| {
        super::super::check(spec, &layers, runtime).map_err(|error| error.to_string())
    };
    guest.storage = StorageSpec { kind: "nvme".into(), options: Vec::new() };
    assert_eq!(check(&guest, "vm"), Ok(()));
    assert!(check(&guest, "process").unwrap_err().contains("only a virtual machine"));
    guest.storage.kind = "loop".into();
    assert!(check(&guest, "vm").unwrap_err().contains("no storage \"loop\""));
    let cache = vec![("cache".into(), "hot".into())];
    guest.storage = StorageSpec { kind: "9p".into(), options: cache };
    assert!(check(&guest, "vm").unwrap_err().contains("none, loose or mmap"));
    guest.storage = StorageSpec::default();
    guest.vm = vec![("vcpus".into(), "2".into())];
    assert!(check(&guest, "oci").unwrap_err().contains("vm options"));
}
