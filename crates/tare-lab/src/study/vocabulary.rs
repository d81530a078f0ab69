//! The names that a study may use. The caller supplies them, because this crate contains no
//! runtime, no system and no driver.

/// Valid names. A name that ends in `*` means every longer name with that prefix: `oci:*`,
/// `quota=*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    pub runtimes: Vec<String>,
    /// Groups of knobs, and knobs, that `host = "tuned=..."` can name.
    pub host_groups: Vec<String>,
    /// Kinds of storage.
    pub storages: Vec<KnownPart>,
    /// Options of virtual machines.
    pub vm: Vec<KnownOption>,
    /// Options of gVisor.
    pub sandbox: Vec<KnownOption>,
    /// The first is the default.
    pub systems: Vec<KnownPart>,
    /// The first is the default. The options of a driver are those of a workload, in a table with
    /// the driver's name.
    pub drivers: Vec<KnownPart>,
    /// Predefined workloads, and files of the user, for drivers without options.
    pub workloads: Vec<KnownWorkload>,
}

/// A predefined workload, or a file of the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownWorkload {
    /// Its name, or the path of the file as the study has it.
    pub name: String,
    /// What the file says.
    pub text: Option<String>,
    /// Default number of rows.
    pub rows: u64,
}

/// A system, a driver or a kind of storage, and its options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownPart {
    pub name: String,
    pub options: Vec<KnownOption>,
    /// Whether it is a system that has no data in files, so that none can be restored.
    pub in_memory: bool,
}

/// An option and its valid values. Without values, any text, number or flag is valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownOption {
    pub name: String,
    pub values: Vec<String>,
}

/// An option of a system or a driver, as its implementation describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionInfo {
    pub name: &'static str,
    /// The valid values. Empty if any text is valid.
    pub values: &'static [&'static str],
    /// The description on one line.
    pub help: &'static str,
}

impl From<&OptionInfo> for KnownOption {
    fn from(info: &OptionInfo) -> Self {
        let values = info.values.iter().map(|value| (*value).to_string()).collect();
        Self { name: info.name.into(), values }
    }
}
