//! The studies that ship inside the program.

/// Name and text of each, as in `studies/`.
pub(crate) const ALL: &[(&str, &str)] = &[
    ("quick", include_str!("../../../studies/quick.toml")),
    ("docker-cost", include_str!("../../../studies/docker-cost.toml")),
    ("storage-database", include_str!("../../../studies/storage-database.toml")),
    ("fake", include_str!("../../../studies/fake.toml")),
];

/// The text of a shipped study.
pub(crate) fn find(name: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
