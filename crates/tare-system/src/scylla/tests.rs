use tare_host::tree_copy::FileUse;

use super::*;
use crate::tests::{plan_of, try_make};

/// Makes a directory that looks like an installation, and returns its path.
fn installation() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    for file in ["libexec/scylla", "libreloc/ld.so"] {
        let path = directory.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    let path = directory.path().to_string_lossy().into_owned();
    (directory, path)
}

fn plan(options: &[(&str, &str)]) -> StartPlan {
    let (_directory, path) = installation();
    let named = [("directory", path.as_str()), ("memory", "2G")];
    let options: Vec<_> = named.into_iter().chain(options.iter().copied()).collect();
    let mut plan = plan_of(&*try_make("scylla", &options).unwrap());
    let general = |text: &mut String| *text = text.replace(&path, "DIR");
    plan.command.iter_mut().for_each(general);
    plan.files.iter_mut().for_each(|(_, text)| general(text));
    plan.variables.iter_mut().for_each(|(_, text)| general(text));
    plan
}

fn error(options: &[(&str, &str)]) -> String {
    let (_directory, path) = installation();
    let all: Vec<_> = [("directory", path.as_str())].iter().chain(options).copied().collect();
    try_make("scylla", &all).err().unwrap().to_string()
}

#[test]
fn flags_match_the_container_image() {
    let plan = plan(&[]);
    let expect = "DIR/libexec/scylla --log-to-syslog 0 --log-to-stdout 1 --default-log-level info \
        --network-stack posix --developer-mode 1 --memory 2147483648 --smp 2 --overprovisioned \
        --listen-address {node} --broadcast-address {advertised_node} --rpc-address {listen} --seed-provider-parameters seeds={node} \
        --broadcast-rpc-address {advertised} \
        --blocked-reactor-notify-ms 999999999 --options-file {data}/conf/scylla.yaml";
    assert_eq!(plan.command.join(" "), expect);
    let [(name, configuration)] = &plan.files[..] else { panic!("{:?}", plan.files) };
    let expect = "cluster_name: tare\nworkdir: \"{data}\"\nnative_transport_port: {port}\nstorage_port: {node_port}\n\
        native_shard_aware_transport_port_ssl: 19142\nprometheus_address: {node}\nprometheus_port: 9180\napi_address: {node}\n\
        endpoint_snitch: SimpleSnitch\nauto_snapshot: false\napi_doc_dir: \"DIR/api/api-doc/\"\n";
    assert_eq!((name.as_str(), configuration.as_str()), ("conf/scylla.yaml", expect));
    let libraries = ("LD_LIBRARY_PATH".to_string(), "DIR/libreloc".to_string());
    assert!(plan.variables.contains(&libraries), "{:?}", plan.variables);
}

#[test]
fn study_options_override_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("io.yaml");
    let measured = "disks:\n  - mountpoint: /var/lib/scylla\n    read_iops: 680915\n";
    std::fs::write(&file, measured).unwrap();
    let plan = plan(&[
        ("cpuset", "1,3"),
        ("smp", "2"),
        ("developer_mode", "0"),
        ("io_properties", &file.to_string_lossy()),
        ("settings", "prometheus_port=9181 num_tokens=16"),
        ("arguments", "--task-quota-ms 1"),
        ("instances", "1"),
    ]);
    let command = plan.command.join(" ");
    let expect = "--network-stack posix --io-properties-file {data}/conf/io_properties.yaml \
        --cpuset 1,3 --developer-mode 0 --memory 2147483648 --smp 2 --listen-address {node}";
    assert!(command.contains(expect), "{command}");
    assert!(command.ends_with("--task-quota-ms 1"), "{command}");
    let files: std::collections::HashMap<_, _> = plan.files.into_iter().collect();
    let expect = "disks:\n  - mountpoint: \"{data}\"\n    read_iops: 680915\n";
    assert_eq!(files["conf/io_properties.yaml"], expect);
    assert!(files["conf/scylla.yaml"].contains("prometheus_port: 9181\nnum_tokens: 16\n"));
    std::fs::write(&file, "disks: []\n").unwrap();
    let path = file.to_string_lossy();
    let error = error(&[("memory", "2G"), ("io_properties", &path)]);
    assert!(error.contains("has no mountpoint"), "{error}");
}

#[test]
fn cluster_nodes_share_seeds() {
    let plan = plan(&[("cluster", "true"), ("overprovisioned", "0")]);
    let command = plan.command.join(" ");
    assert!(command.contains("--smp 2 --listen-address {node}"), "{command}");
    assert!(command.contains("seeds={seeds}"), "{command}");
    let error = error(&[("memory", "2G"), ("cluster", "true"), ("cpuset", "0-1")]);
    assert!(error.contains("the cpu layer divides"), "{error}");
}

#[test]
fn missing_needs_are_errors() {
    assert!(error(&[]).contains("needs memory"), "{}", error(&[]));
    let error_of = |pair| error(&[("memory", "2G"), pair]);
    assert!(error_of(("developer_mode", "0")).contains("needs io_properties"));
    assert!(error_of(("cpuset", "x")).contains("is not a list of CPUs"));
    assert!(error_of(("smp", "0")).contains("is not a whole number"));
    assert!(error_of(("settings", "x")).contains("NAME=VALUE"));
    let nowhere = try_make("scylla", &[("directory", "/nowhere")]).err().unwrap().to_string();
    assert!(nowhere.contains("no libexec/scylla"), "{nowhere}");
    let (_directory, path) = installation();
    let options = [("directory", path.as_str()), ("memory", "3G")];
    let need = try_make("scylla", &options).unwrap().memory(1).unwrap();
    assert_eq!((need.bytes, need.what.as_str()), (3 << 30, "memory = 3072 MiB of a node"));
}

#[test]
fn node_counts_once_up_and_normal() {
    let node = |up: u8, status: &str| vec![vec![up], status.as_bytes().to_vec()];
    assert_eq!(up_and_normal(&[]), 0);
    assert_eq!(up_and_normal(&[node(1, "NORMAL"), node(1, "NORMAL")]), 2);
    assert_eq!(up_and_normal(&[node(1, "NORMAL"), node(1, "BOOTSTRAP"), node(0, "NORMAL")]), 1);
}

#[test]
fn only_written_once_components_are_shared() {
    let check = |path: &str, expect| assert_eq!((DATA.use_of)(Path::new(path)), expect, "{path}");
    // Names of docs/architecture/sstable/sstable3 in scylladb/scylladb.
    let table = "data/tare/rows-3e1f0/me-3g8w_0qt6_2ilogtyk-big";
    for component in ["Data.db", "Index.db", "CompressionInfo.db", "Digest.crc32", "CRC.db"] {
        check(&format!("{table}-{component}"), FileUse::Constant);
    }
    for component in ["Statistics.db", "Summary.db", "Filter.db", "Scylla.db", "TOC.txt"] {
        check(&format!("{table}-{component}"), FileUse::Changing);
    }
    check("data/tare/rows-3e1f0/ms-3g8w_0qt6_2ilogtyk-big-Partitions.db", FileUse::Constant);
    check("commitlog/CommitLog-2-36028797018963970.log", FileUse::Changing);
    check("conf/scylla.yaml", FileUse::LeftOut);
}
