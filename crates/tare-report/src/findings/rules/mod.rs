//! The rules, grouped by subject.

mod baseline;
mod code;
mod cpus;
mod doubts;
mod fabrics;
mod instances;
mod latency;
mod layers;
mod neighbours;
mod network;
mod none;
mod pmu;
mod shares;
mod tuning;

use super::Rule;

/// Every rule. A new one goes into its group's `RULES`.
pub(super) const ALL: &[&[Rule]] = &[
    baseline::RULES,
    layers::RULES,
    neighbours::RULES,
    network::RULES,
    fabrics::RULES,
    cpus::RULES,
    instances::RULES,
    latency::RULES,
    code::RULES,
    pmu::RULES,
    shares::RULES,
    tuning::RULES,
    doubts::RULES,
    none::RULES,
];
