//! A volume of a storage class of a Kubernetes cluster, by a claim. `runtime::kubernetes` makes the
//! claim and reads the volume back; this file describes it.

use super::options::Options;
use super::{At, DataLocation, Kind, MountView, ReadBack, Storage, StorageError};

/// The least size of a volume, and the unit of sizes.
const LEAST: u64 = 1 << 20;

pub(super) const KIND: Kind = Kind {
    name: "class",
    help: "a volume of a storage class of the cluster, by a claim (pods)",
    options: &[
        ("class", "the storage class; default: the cluster's own default class"),
        ("size", "of the claim, such as 2G (default)"),
    ],
    needs: "kubernetes, and a storage class",
    cleanup: "the claim is deleted and waited for, and its volume with it; with the reclaim policy Retain a directory \
              of the node is emptied of the data and made available again, and any other volume stays, which is said",
    read_back: "the claim's volume in the API, and the mount table inside: the directory of the data in it",
    parse: Some(|options: &Options<'_>| {
        let class = options.get("class").map(str::to_owned);
        let name = |text: &String| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            !text.is_empty() && text.chars().all(plain)
        };
        if class.as_ref().is_some_and(|text| !name(text)) {
            return Err(options.bad("class", "the name of a storage class"));
        }
        let bytes = options.size("size", 2 << 30, LEAST, "a whole number of MiB, such as 2G")?;
        Ok(Box::new(Claim { class, bytes }))
    }),
};

/// What is claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The storage class; `None` is the cluster's default.
    pub(crate) class: Option<String>,
    pub(crate) bytes: u64,
}

impl Storage for Claim {
    fn location(&self) -> DataLocation {
        DataLocation::Volume
    }

    fn claim(&self) -> Option<&Claim> {
        Some(self)
    }

    /// Creates nothing: the cluster does.
    fn make(&self, _at: &At<'_>) -> Result<(), StorageError> {
        Ok(())
    }

    fn read_back(&self, _at: &At<'_>, seen: &MountView) -> ReadBack {
        ReadBack { text: seen.text(), in_force: seen.is_whole() }
    }
}
