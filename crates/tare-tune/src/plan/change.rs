//! A change of a setting and what its failure means.

use serde::{Deserialize, Serialize};

use crate::setting::{Identity, Key, ValueFormat};

/// A write that the plan contains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub key: Key,
    pub form: ValueFormat,
    pub now: String,
    pub wanted: String,
    #[serde(rename = "need")]
    pub requirement: Requirement,
    pub identity: Identity,
    /// 0: applied first, after which the host is read and planned again (channels); 1: the rest.
    pub stage: u8,
}

/// What a failed write means for the tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Requirement {
    /// The tuning is useless without it: everything is rolled back.
    #[serde(rename = "must")]
    Required,
    /// The rest is useful without it; the failure is reported.
    #[serde(rename = "should")]
    Wanted,
    /// The kernel usually refuses it (affinity of an NVMe queue); a refusal is no failure.
    #[serde(rename = "try")]
    BestEffort,
}
