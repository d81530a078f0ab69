//! Seastar's `io_properties.yaml`.
//! Format: doc/io-properties-file.md in scylladb/seastar (all four rates, one list entry per disk).

use std::path::Path;

/// The properties of one disk for Seastar. Bandwidths in bytes per second, rates in operations per
/// second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IoProperties {
    pub read_iops: f64,
    pub read_bandwidth: f64,
    pub write_iops: f64,
    pub write_bandwidth: f64,
}

/// Returns the file's text.
///
/// ```
/// use std::path::Path;
///
/// use tare_disk::io_properties::{IoProperties, yaml};
///
/// let disk = IoProperties {
///     read_iops: 95_000.0,
///     read_bandwidth: 545e6,
///     write_iops: 60_000.0,
///     write_bandwidth: 430e6,
/// };
/// let text = yaml(Path::new("/var/lib/scylla"), &disk);
/// assert!(text.starts_with("disks:\n  - mountpoint: /var/lib/scylla\n    read_iops: 95000\n"));
/// ```
pub fn yaml(mount_point: &Path, disk: &IoProperties) -> String {
    // A quoted scalar of YAML is JSON's, apart from the slash, which needs no escape in either.
    let quoted = mount_point.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let point = match quoted.chars().all(plain) {
        true => quoted,
        false => format!("\"{quoted}\""),
    };
    format!(
        "disks:\n  - mountpoint: {point}\n    read_iops: {:.0}\n    read_bandwidth: {:.0}\n    \
         write_iops: {:.0}\n    write_bandwidth: {:.0}\n",
        disk.read_iops, disk.read_bandwidth, disk.write_iops, disk.write_bandwidth
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_matches_seastar() {
        let disk = IoProperties {
            read_iops: 95_000.4,
            read_bandwidth: 545e6,
            write_iops: 85_000.0,
            write_bandwidth: 510e6,
        };
        let expect = "disks:\n  - mountpoint: /var/lib/scylla\n    read_iops: 95000\n    \
                      read_bandwidth: 545000000\n    write_iops: 85000\n    \
                      write_bandwidth: 510000000\n";
        assert_eq!(yaml(Path::new("/var/lib/scylla"), &disk), expect);
        assert!(yaml(Path::new("/a b: #"), &disk).contains("mountpoint: \"/a b: #\"\n"));
    }
}
