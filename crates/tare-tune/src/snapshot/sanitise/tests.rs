use super::*;

#[test]
fn redacts_only_identifiers() {
    let check = |text: &str, expect: &str| {
        let mut redactor = Redactor::new(Some("db-node.example.org"));
        assert_eq!(redactor.redact(text), expect, "{text}");
        let expect = expect.to_string();
        assert_eq!(redactor.redact(&expect), expect);
    };
    check("inet 10.1.2.3/24 up", "inet hidden/24 up");
    check("listen 10.1.2.3:9042", "listen hidden");
    check("fe80::1ff:fe23:4567:890a", "hidden");
    check("2001:db8:0:1:1:1:1:1", "hidden");
    check("52:54:00:12:34:56", "hidden");
    check("52-54-00-12-34-56", "hidden");
    check(
        "/dev/mapper/luks-8ea46ef1-4d2c-4ae7-a7bb-b86c9add4d7c",
        "/dev/mapper/luks-00000000-0000-0000-0000-000000000001",
    );
    check(
        "docker-4f1d0e5c8b7a69d2f3c41b0a9e8d7c6b.scope",
        "docker-00000000000000000000000000000001.scope",
    );
    check("db--node--vg-root", "host--vg-root");
    check("mdb-nodes", "mdb-nodes");
    for same in [
        "0000:00:03.0",
        "pci0000:00/0000:00:1f.2/host3/target3:0:0/3:0:0:0",
        "6.18.44-fc-v657",
        "ffffffff,ffffffff,ffffffff,ffffffff",
        "ffffffffffffffffffffffffffffffff",
        "virtio:d00000001v00001AF4",
        "pci:v00001AF4d00001041sv00001AF4sd00001041bc02sc00i00",
        " 28:          0          0 PCI-MSIX-0000:00:01.0   0-edge      virtio0-config",
        "192 256 4.18.0-305.12.1.el8_4.x86_64",
        "ünïcode: 1.2.3.4.5",
    ] {
        check(same, same);
    }
}

#[test]
fn redacts_path_and_its_links_alike() {
    let mut snapshot = Snapshot::default();
    let device = "devices/VMBUS:01/000d3a12-3456-000d-3a12-3456000d3a12/net/eth0";
    snapshot.insert(&format!("/sys/{device}/mtu"), Node::File("1500".into()));
    snapshot.insert("/sys/class/net/eth0", Node::Link(format!("../../{device}")));
    snapshot.insert(HOST_NAME, Node::File("db-node".into()));
    let clean = snapshot.sanitised();
    assert_eq!(clean.read("/sys/class/net/eth0/mtu"), Some("1500"));
    assert!(clean.nodes().all(|(path, _)| !path.contains("3a12") && !path.contains("private")));
    assert_eq!(clean.sanitised(), clean);
}

proptest::proptest! {
    #[test]
    fn redacting_is_idempotent(texts in proptest::collection::vec("[0-9a-f:. -]{0,90}", 1..6)) {
        let mut snapshot = Snapshot::default();
        for (number, text) in texts.into_iter().enumerate() {
            snapshot.insert(&format!("/sys/{number}"), Node::File(text));
        }
        let once = snapshot.sanitised();
        proptest::prop_assert_eq!(once.sanitised(), once);
    }
}
