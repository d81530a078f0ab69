//! Tests of the options.

use super::super::tests::spec;
use super::super::{StorageError, parse};

type Pairs = &'static [(&'static str, &'static str)];

fn error(options: Pairs) -> String {
    let error: Option<StorageError> = parse(&spec("process", "nvme-of", options)).err();
    error.map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn checks_options() {
    let given = ("nqn", "nqn.2014-08.org.example:disk");
    for (options, words) in [
        (&[][..] as Pairs, ""),
        (&[("transport", "rdma"), ("queues", "2"), ("depth", "64"), ("filesystem", "xfs")], ""),
        (&[("address", "192.0.2.1"), ("device", "/dev/vdb")], ""),
        (&[("nqn", "nqn.2014-08.org.example:disk"), ("address", "2001:db8::1")], ""),
        (&[("filesystem", "none"), ("size", "1M")], ""),
        (&[("filesystem", "none"), ("mkfs", "-b 4096")], "only for a file system"),
        (&[("transport", "fc")], "tcp or rdma"),
        (&[("depth", "8")], "16 to 1024"),
        (&[("ctrl_loss_tmo", "0")], "1 to 600"),
        (&[("address", "example.org")], "an IP address"),
        (&[("port", "4420")], "only with nqn"),
        (&[("nqn", "nqn.2014-08.org.example:disk")], "nqn needs it"),
        (&[("nqn", "nqn.a,ctrl_loss_tmo=-1"), ("address", "192.0.2.1")], "a name such as"),
        (&[("device", "/dev/vdb"), ("size", "1G")], "only for an image"),
    ] {
        let said = error(options);
        assert!(
            said.contains(words) && said.is_empty() == words.is_empty(),
            "{words:?} in {said:?}"
        );
    }
    let with_size = [given, ("address", "192.0.2.1"), ("size", "1G")];
    let said = parse(&spec("process", "nvme-of", &with_size)).unwrap_err().to_string();
    assert!(said.contains("only for one that Tare creates"), "{said}");
}
