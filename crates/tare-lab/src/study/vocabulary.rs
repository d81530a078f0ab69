//! The names that a study may use. The program gives them, because this crate knows no runtime, no
//! system and no driver.

/// Valid names. One that ends in `*` stands for every name with that beginning and something after
/// it: `oci:*`, `quota=*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    pub runtimes: Vec<String>,
    /// Groups of knobs that `host = "tuned=..."` can name.
    pub host_groups: Vec<String>,
    /// Kinds of storage.
    pub storages: Vec<KnownPart>,
    /// Options of virtual machines.
    pub vm: Vec<KnownOption>,
    /// Options of gVisor.
    pub sandbox: Vec<KnownOption>,
    /// The first is the default.
    pub systems: Vec<KnownPart>,
    /// The first is the default. Options are those of a workload: a driver that has some is asked
    /// in its own words, under its name.
    pub drivers: Vec<KnownPart>,
    /// Workloads that drivers without words of their own know by name.
    pub workloads: Vec<KnownWorkload>,
}

/// A workload that has a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownWorkload {
    pub name: String,
    /// The rows that it has if the study does not say.
    pub rows: u64,
}

/// A system, a driver or a kind of storage, and its options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownPart {
    pub name: String,
    pub options: Vec<KnownOption>,
}

/// An option and its values; without values, any text, number or flag is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownOption {
    pub name: String,
    pub values: Vec<String>,
}

/// One option of a system or a driver, as it says it itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionInfo {
    pub name: &'static str,
    /// The values that it takes; empty where any text does.
    pub values: &'static [&'static str],
    /// One line.
    pub help: &'static str,
}

impl From<&OptionInfo> for KnownOption {
    fn from(info: &OptionInfo) -> Self {
        let values = info.values.iter().map(|value| (*value).to_string()).collect();
        Self { name: info.name.into(), values }
    }
}
