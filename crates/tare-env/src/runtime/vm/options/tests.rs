//! Tests of the options.

use tare_lab::environment::StorageSpec;

use super::*;
use tare_testkit::EnvironmentBuilder;

fn spec(vm: &[(&str, &str)], network: &str, memory_bytes: Option<u64>) -> EnvironmentSpec {
    EnvironmentBuilder::new("vm:qemu")
        .name("guest")
        .network(network)
        .vm(vm)
        .memory_bytes(memory_bytes)
        .build()
}

fn parse(vm: &[(&str, &str)], network: &str, memory: Option<u64>) -> Result<Options, OptionError> {
    let spec = spec(vm, network, memory);
    Options::parse(&spec, &Layers::checked(&spec).unwrap(), MonitorKind::Qemu)
}

fn parse_uml(vm: &[(&str, &str)], security: &str) -> Result<Options, OptionError> {
    let mut spec = spec(vm, "bridge", None);
    spec.security = security.parse().unwrap();
    Options::parse(&spec, &Layers::checked(&spec).unwrap(), MonitorKind::Uml)
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
fn user_mode_linux_refuses_options_of_qemu() {
    let plain = parse_uml(&[("vcpus", "1"), ("memory", "512M")], "none").unwrap();
    assert_eq!((plain.vcpus, plain.cache.as_str(), plain.direct()), (Some(1), "writeback", false));
    assert!(!parse_uml(&[("cache", "writethrough")], "none").unwrap().write_cache());
    for (bad, says) in [
        (parse_uml(&[("vcpus", "2")], "none"), "one CPU"),
        (parse_uml(&[("accelerator", "kvm")], "none"), "has no accelerator"),
        (parse_uml(&[("iothread", "no")], "none"), "has no iothread"),
        (parse_uml(&[("huge_pages", "yes")], "none"), "has no huge_pages"),
        (parse_uml(&[("aio", "threads")], "none"), "has no aio"),
        (parse_uml(&[("cache", "none")], "none"), "writeback or writethrough"),
        (parse_uml(&[], "default"), "security = \"none\""),
    ] {
        let text = bad.unwrap_err().to_string();
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn guests_and_hosts_refuse_the_storage_of_the_other() {
    let mut guest = spec(&[], "bridge", None);
    let layers = Layers::checked(&guest).unwrap();
    let check = |spec: &EnvironmentSpec, runtime: &str, monitor: Option<&str>| {
        super::super::check(spec, &layers, (runtime, monitor)).map_err(|error| error.to_string())
    };
    let (qemu, uml) = (Some("qemu"), Some("uml"));
    guest.storage = StorageSpec { kind: "nvme".into(), options: Vec::new() };
    assert_eq!(check(&guest, "vm", qemu), Ok(()));
    assert!(check(&guest, "vm", uml).unwrap_err().contains("ubd, hostfs"));
    assert!(check(&guest, "process", None).unwrap_err().contains("only a virtual machine"));
    guest.storage.kind = "hostfs".into();
    assert_eq!(check(&guest, "vm", uml), Ok(()));
    assert!(check(&guest, "vm", qemu).unwrap_err().contains("no storage \"hostfs\""));
    assert!(check(&guest, "oci", None).unwrap_err().contains("vm:uml"));
    guest.storage.kind = "loop".into();
    assert!(check(&guest, "vm", qemu).unwrap_err().contains("no storage \"loop\""));
    let cache = vec![("cache".into(), "hot".into())];
    guest.storage = StorageSpec { kind: "9p".into(), options: cache };
    assert!(check(&guest, "vm", qemu).unwrap_err().contains("none, loose or mmap"));
    guest.storage = StorageSpec::default();
    guest.vm = vec![("vcpus".into(), "2".into())];
    assert!(check(&guest, "oci", None).unwrap_err().contains("vm options"));
}
