//! The studies that ship inside the program.

/// Their names and texts, as in `studies/`.
pub(crate) const ALL: &[(&str, &str)] = &[
    ("quick", include_str!("../../../studies/quick.toml")),
    ("docker-cost", include_str!("../../../studies/docker-cost.toml")),
    ("network", include_str!("../../../studies/network.toml")),
    ("storage-database", include_str!("../../../studies/storage-database.toml")),
    ("storage-options", include_str!("../../../studies/storage-options.toml")),
    ("remote-storage", include_str!("../../../studies/remote-storage.toml")),
    ("remote-database", include_str!("../../../studies/remote-database.toml")),
    ("remote-database-cassandra", include_str!("../../../studies/remote-database-cassandra.toml")),
    ("nic", include_str!("../../../studies/nic.toml")),
    ("virtualization", include_str!("../../../studies/virtualization.toml")),
    ("kata", include_str!("../../../studies/kata.toml")),
    ("redis", include_str!("../../../studies/redis.toml")),
    ("redis-latency", include_str!("../../../studies/redis-latency.toml")),
    ("memcached", include_str!("../../../studies/memcached.toml")),
    ("postgres", include_str!("../../../studies/postgres.toml")),
    ("mariadb", include_str!("../../../studies/mariadb.toml")),
    ("cassandra", include_str!("../../../studies/cassandra.toml")),
    ("cluster", include_str!("../../../studies/cluster.toml")),
    ("kata-pair", include_str!("../../../studies/kata-pair.toml")),
    ("scaling", include_str!("../../../studies/scaling.toml")),
    ("scaling-cassandra", include_str!("../../../studies/scaling-cassandra.toml")),
    ("scaling-ycsb", include_str!("../../../studies/scaling-ycsb.toml")),
    ("dividing", include_str!("../../../studies/dividing.toml")),
    ("throttling", include_str!("../../../studies/throttling.toml")),
    ("neighbours", include_str!("../../../studies/neighbours.toml")),
    ("kubernetes", include_str!("../../../studies/kubernetes.toml")),
    ("kubernetes-network", include_str!("../../../studies/kubernetes-network.toml")),
    ("guaranteed-or-burstable", include_str!("../../../studies/guaranteed-or-burstable.toml")),
    ("docker-or-kubernetes", include_str!("../../../studies/docker-or-kubernetes.toml")),
    ("redis-hostnetwork", include_str!("../../../studies/redis-hostnetwork.toml")),
    ("fake", include_str!("../../../studies/fake.toml")),
];

/// Returns the text of a shipped study.
pub(crate) fn find(name: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    /// Every shipped study is listed under the name of its file, and is valid.
    #[test]
    fn shipped_studies_are_valid() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut files: Vec<String> =
            files.map(|name| name.to_string_lossy().replace(".toml", "")).collect();
        files.sort();
        let mut listed: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        listed.sort_unstable();
        assert_eq!(files, listed);
        for (name, text) in ALL {
            let study = tare_lab::study::parse(text, name, &registry::vocabulary())
                .unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(study.name, *name);
        }
    }

    #[test]
    fn quick_parts_take_at_most_ten_minutes() {
        for (name, text) in ALL.iter().filter(|(_, text)| text.contains("\n[quick]")) {
            let part = tare_lab::study::parse_quick(text, name, &registry::vocabulary())
                .unwrap_or_else(|error| panic!("{error}"));
            assert!(part.schedule.budget.as_secs() <= 600, "{name}");
            assert!(part.quick.is_some(), "{name}");
        }
    }
}
