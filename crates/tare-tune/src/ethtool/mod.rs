//! Settings of network devices that ethtool(8) reads and writes: channels, rings, coalescing and
//! features, over generic netlink (Documentation/networking/ethtool-netlink.rst of the kernel).
//!
//! Method: one table lists the numbers of each kind of message. The devices are those of the
//! network namespace of the thread that opens the connection.
//!
//! Limits: kernels before 5.6 do not have the family. Groups of features (`tx-checksumming`) are
//! not offered, only the features in them.

mod message;
mod socket;

use std::collections::BTreeMap;

use rustix::io::Errno;

use crate::setting::EthtoolSetting;
use message::{Reply, Request, attributes, number, text};
use socket::{NAME_LENGTH_MAX, Socket};

/// Why a setting of a device could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EthtoolError {
    #[error("cannot open a netlink socket: {errno}")]
    Socket { errno: Errno },
    #[error("this kernel has no ethtool netlink family ({errno}); it came with Linux 5.6")]
    Family { errno: Errno },
    #[error("cannot read {file} of network device {nic}: {errno}")]
    Read { nic: String, file: &'static str, errno: Errno },
    #[error("cannot set {name} of {file} of network device {nic} to {value:?}: {errno}")]
    Write { nic: String, file: &'static str, name: String, value: String, errno: Errno },
    #[error("network device {nic} has no {name} in its {file}")]
    Missing { nic: String, file: &'static str, name: String },
    #[error("{value:?} is not a value for {name} of network device {nic}")]
    Value { nic: String, name: String, value: String },
    #[error("cannot list the {file} of the network devices: {errno}")]
    List { file: &'static str, errno: Errno },
}

impl EthtoolError {
    /// Returns the kernel's error number; `None` when the error does not come from the kernel.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Socket { errno }
            | Self::Family { errno }
            | Self::Read { errno, .. }
            | Self::Write { errno, .. }
            | Self::List { errno, .. } => Some(*errno),
            Self::Missing { .. } | Self::Value { .. } => None,
        }
    }
}

/// A kind of message that holds numbers.
struct Table {
    /// Name of the pseudo file that its numbers make.
    file: &'static str,
    get: u8,
    set: u8,
    fields: &'static [Field],
    /// Numbers that the kernel omits because the device has none count as 0.
    zeros: bool,
}

struct Field {
    name: &'static str,
    attribute: u16,
    /// One byte, `on` or `off`, instead of a number of 32 bits.
    switch: bool,
}

const fn field(name: &'static str, attribute: u16) -> Field {
    Field { name, attribute, switch: false }
}

/// Numbers from the kernel's include/uapi/linux/ethtool_netlink.h.
const TABLES: &[Table] = &[
    Table {
        file: "channels",
        get: 17,
        set: 18,
        fields: &[
            field("rx", 6),
            field("rx-max", 2),
            field("tx", 7),
            field("tx-max", 3),
            field("combined", 9),
            field("combined-max", 5),
        ],
        zeros: true,
    },
    Table {
        file: "rings",
        get: 15,
        set: 16,
        fields: &[field("rx", 6), field("rx-max", 2), field("tx", 9), field("tx-max", 5)],
        zeros: true,
    },
    Table {
        file: "coalesce",
        get: 19,
        set: 20,
        fields: &[
            field("rx-usecs", 2),
            field("tx-usecs", 6),
            Field { name: "adaptive-rx", attribute: 11, switch: true },
        ],
        zeros: false,
    },
];

const FEATURES: &str = "features";
const FEATURES_GET: u8 = 11;
const FEATURES_SET: u8 = 12;
const FEATURES_CHANGEABLE: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
const FEATURES_NEVER_CHANGED: u16 = 5;
/// `ETHTOOL_A_BITSET_BITS`, `.._BITS_BIT`, `.._BIT_NAME`, `.._BIT_VALUE`.
const BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// Features whose name in the kernel differs from ethtool's, which this program uses.
const FEATURE_NAMES: &[(&str, &str)] = &[
    ("rx-checksum", "rx-checksumming"),
    ("tx-generic-segmentation", "generic-segmentation-offload"),
    ("rx-gro", "generic-receive-offload"),
    ("rx-lro", "large-receive-offload"),
    ("rx-vlan-hw-parse", "rx-vlan-offload"),
    ("tx-vlan-hw-insert", "tx-vlan-offload"),
    ("rx-ntuple-filter", "ntuple"),
    ("rx-hashing", "receive-hashing"),
];

/// Ethtool's data of a device: the texts of `channels`, `rings`, `coalesce` and `features`, as far
/// as the device has them.
pub type Files = BTreeMap<&'static str, String>;

/// A connection to the kernel.
#[derive(Debug)]
pub struct Ethtool {
    socket: Socket,
}

impl Ethtool {
    /// Opens a netlink socket.
    ///
    /// # Errors
    /// When the kernel has no ethtool over netlink, or the process may open no socket.
    pub fn open() -> Result<Self, EthtoolError> {
        Ok(Self { socket: Socket::open()? })
    }

    /// Reads a setting: a decimal number, `on` or `off`.
    ///
    /// # Errors
    /// When there is no such device or it does not have the setting.
    pub fn read(&mut self, nic: &str, setting: &EthtoolSetting) -> Result<String, EthtoolError> {
        let (file, name) = setting.pseudo();
        let mut lines = Vec::new();
        let read = match TABLES.iter().find(|table| table.file == file) {
            Some(table) => self.socket.device(table.get, nic, |_| (), |r| lines = table.lines(r)),
            None => self.socket.device(FEATURES_GET, nic, |_| (), |r| lines = features(r)),
        };
        read.map_err(|errno| EthtoolError::Read { nic: nic.into(), file, errno })?;
        let found = lines.into_iter().find(|(of, _)| of == ethtool_name(name));
        let missing = || EthtoolError::Missing { nic: nic.into(), file, name: name.into() };
        found.map(|(_, value)| value).ok_or_else(missing)
    }

    /// Writes a setting. The kernel may accept the change of a feature without making it, so the
    /// caller should read it back.
    ///
    /// # Errors
    /// When there is no such device, it does not have the setting or refuses the value, or the
    /// process lacks CAP_NET_ADMIN.
    pub fn write(
        &mut self,
        nic: &str,
        setting: &EthtoolSetting,
        value: &str,
    ) -> Result<(), EthtoolError> {
        let (file, name) = setting.pseudo();
        let wrong =
            || EthtoolError::Value { nic: nic.into(), name: name.into(), value: value.into() };
        let missing = || EthtoolError::Missing { nic: nic.into(), file, name: name.into() };
        let switch = || match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(wrong()),
        };
        let written = match TABLES.iter().find(|table| table.file == file) {
            Some(table) => {
                let found = table.fields.iter().find(|field| field.name == name);
                let field = found.ok_or_else(missing)?;
                let bytes = match field.switch {
                    true => vec![u8::from(switch()?)],
                    false => value.parse::<u32>().map_err(|_| wrong())?.to_ne_bytes().to_vec(),
                };
                let fill = |request: &mut Request| request.attribute(field.attribute, &bytes);
                self.socket.device(table.set, nic, fill, |_| ())
            }
            None if name.len() > NAME_LENGTH_MAX => return Err(missing()),
            None => {
                let on = switch()?;
                let fill = |request: &mut Request| wanted_feature(request, kernel_name(name), on);
                self.socket.device(FEATURES_SET, nic, fill, |_| ())
            }
        };
        let (nic, name, value) = (nic.into(), name.into(), value.into());
        written.map_err(|errno| EthtoolError::Write { nic, file, name, value, errno })
    }

    /// Reads ethtool's data of every device of the namespace, by the device's name.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn files(&mut self) -> Result<BTreeMap<String, Files>, EthtoolError> {
        let mut devices: BTreeMap<String, Files> = BTreeMap::new();
        let mut add = |nic: &str, file: &'static str, lines: Vec<(String, String)>| {
            let lines: Vec<String> = lines.iter().map(|(n, v)| format!("{n} {v}")).collect();
            if !lines.is_empty() {
                devices.entry(nic.into()).or_default().insert(file, lines.join("\n"));
            }
        };
        for table in TABLES {
            let file = table.file;
            let take = |nic: &str, reply: &Reply<'_>| add(nic, file, table.lines(reply));
            let listed = self.socket.every_device(table.get, take);
            listed.map_err(|errno| EthtoolError::List { file, errno })?;
        }
        let take = |nic: &str, reply: &Reply<'_>| add(nic, FEATURES, features(reply));
        let listed = self.socket.every_device(FEATURES_GET, take);
        listed.map_err(|errno| EthtoolError::List { file: FEATURES, errno })?;
        Ok(devices)
    }
}

impl Table {
    fn lines(&self, reply: &Reply<'_>) -> Vec<(String, String)> {
        let given: BTreeMap<u16, &[u8]> = reply.attributes().collect();
        let value = |field: &Field| match given.get(&field.attribute) {
            Some(value) if field.switch => {
                let on = value.first().is_some_and(|byte| *byte != 0);
                Some(on_or_off(on).to_string())
            }
            Some(value) => number(value).map(|number| number.to_string()),
            None => self.zeros.then(|| "0".to_string()),
        };
        let lines = self.fields.iter().filter_map(|f| Some((f.name.to_string(), value(f)?)));
        lines.collect()
    }
}

/// Returns `NAME on|off` for each feature, and `NAME-fixed yes` for one that cannot be changed.
fn features(reply: &Reply<'_>) -> Vec<(String, String)> {
    let set = |wanted: u16| {
        let mut sets = reply.attributes().filter(|(kind, _)| *kind == wanted);
        sets.next().map(|(_, set)| bits(set)).unwrap_or_default()
    };
    // Without a mask a set lists only its members. The set of changeable features has a mask and so
    // names all features.
    let active: Vec<&str> = set(FEATURES_ACTIVE).into_iter().map(|(name, _)| name).collect();
    let never: Vec<&str> = set(FEATURES_NEVER_CHANGED).into_iter().map(|(name, _)| name).collect();
    let mut lines = Vec::new();
    // Bits that no feature has yet have no name.
    for (feature, changeable) in
        set(FEATURES_CHANGEABLE).into_iter().filter(|bit| !bit.0.is_empty())
    {
        let name = ethtool_name(feature);
        lines.push((name.to_string(), on_or_off(active.contains(&feature)).to_string()));
        if !changeable || never.contains(&feature) {
            lines.push((format!("{name}-fixed"), "yes".to_string()));
        }
    }
    lines
}

/// Returns the names in a set of bits with their values.
fn bits(set: &[u8]) -> Vec<(&str, bool)> {
    let bits = attributes(set).filter(|(kind, _)| *kind == BITS);
    let bits = bits.flat_map(|(_, bits)| attributes(bits)).filter(|(kind, _)| *kind == BIT);
    let named = bits.filter_map(|(_, bit)| {
        let (mut name, mut value) = (None, false);
        for (kind, content) in attributes(bit) {
            match kind {
                BIT_NAME => name = text(content),
                BIT_VALUE => value = true,
                _ => {}
            }
        }
        Some((name?, value))
    });
    named.collect()
}

fn wanted_feature(request: &mut Request, name: &str, on: bool) {
    request.nested(FEATURES_WANTED, |set| {
        set.nested(BITS, |bits| {
            bits.nested(BIT, |bit| {
                bit.text(BIT_NAME, name);
                if on {
                    bit.attribute(BIT_VALUE, &[]);
                }
            });
        });
    });
}

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Returns ethtool's name of a kernel feature.
fn ethtool_name(name: &str) -> &str {
    let mut names = FEATURE_NAMES.iter().filter(|(kernel, _)| *kernel == name);
    names.next().map_or(name, |(_, ethtool)| ethtool)
}

/// Returns the kernel's name of a feature of ethtool.
fn kernel_name(name: &str) -> &str {
    let mut names = FEATURE_NAMES.iter().filter(|(_, ethtool)| *ethtool == name);
    names.next().map_or(name, |(kernel, _)| kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_names_map_both_ways() {
        for (kernel, ethtool) in FEATURE_NAMES {
            assert_eq!(kernel_name(ethtool_name(kernel)), *kernel);
            assert_eq!(ethtool_name(kernel_name(ethtool)), *ethtool);
        }
        assert_eq!(kernel_name("tx-nocache-copy"), "tx-nocache-copy");
    }

    #[test]
    fn every_setting_has_a_field() {
        use EthtoolSetting::{ChannelsCombined, ChannelsRx, RingRx, RingTx};
        use EthtoolSetting::{CoalesceAdaptiveRx, CoalesceRxUs};
        let channels = [ChannelsRx, ChannelsCombined];
        let rest = [RingRx, RingTx, CoalesceRxUs, CoalesceAdaptiveRx];
        for setting in channels.into_iter().chain(rest) {
            let (file, name) = setting.pseudo();
            let table = TABLES.iter().find(|table| table.file == file).unwrap();
            assert!(table.fields.iter().any(|field| field.name == name), "{file} {name}");
        }
    }
}
