//! The names that a study may use. The program gives them, because this crate knows no runtime, no
//! system and no driver.

/// Valid names. One that ends in `*` stands for every name with that beginning and something after
/// it: `oci:*`, `quota=*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    pub runtimes: Vec<String>,
    pub networks: Vec<String>,
    pub cpus: Vec<String>,
    pub securities: Vec<String>,
    pub cgroups: Vec<String>,
    pub hosts: Vec<String>,
    /// Kinds of storage.
    pub storages: Vec<PartWords>,
    /// Options of virtual machines.
    pub vm: Vec<OptionWords>,
    /// Options of gVisor.
    pub sandbox: Vec<OptionWords>,
    pub injections: Vec<String>,
    /// The first is the default.
    pub systems: Vec<PartWords>,
    /// The first is the default.
    pub drivers: Vec<String>,
}

/// A system or a kind of storage, and its options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartWords {
    pub name: String,
    pub options: Vec<OptionWords>,
}

/// An option and its values; without values, any text, number or flag is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionWords {
    pub name: String,
    pub values: Vec<String>,
}

/// Whether `value` is one of `known`, prefix forms included.
pub(crate) fn is_known(value: &str, known: &[String]) -> bool {
    known.iter().any(|word| match word.strip_suffix('*') {
        Some(prefix) => value.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()),
        None => value == word,
    })
}
