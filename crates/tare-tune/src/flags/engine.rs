//! Databases: recognises images and computes the options that fit a set of CPUs.

use super::{Context, Flag, FlagsError, Instance, Layer};

/// Port of CQL.
const CQL_PORT: u32 = 9042;

/// A database whose options are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Scylla,
    Cassandra,
    TareDb,
    PostgreSql,
    /// Any other database, which gets container flags but no options.
    Other,
}

impl Engine {
    /// Recognises a database by the last part of an image's name.
    pub fn of_image(image: &str) -> Self {
        let name = image.split('@').next().unwrap_or(image);
        let last = name.rsplit('/').next().unwrap_or(name);
        match last.split(':').next().unwrap_or(last) {
            "scylla" | "scylla-nightly" | "scylla-enterprise" => Self::Scylla,
            "cassandra" => Self::Cassandra,
            "tare" => Self::TareDb,
            "postgres" | "postgresql" => Self::PostgreSql,
            _ => Self::Other,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Scylla => "scylla",
            Self::Cassandra => "cassandra",
            Self::TareDb => "tare-db",
            Self::PostgreSql => "postgres",
            Self::Other => "db",
        }
    }

    /// Returns the default image.
    pub fn image(self) -> &'static str {
        match self {
            Self::Scylla => "docker.io/scylladb/scylla",
            Self::Cassandra => "docker.io/library/cassandra",
            Self::TareDb => "localhost/tare",
            Self::PostgreSql => "docker.io/library/postgres",
            Self::Other => "IMAGE",
        }
    }

    /// Returns its data directory inside the container. PostgreSQL's image moved it in version 18.
    pub(super) fn data(self, image: &str) -> &'static str {
        let digits = |tag: &str| tag.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
        let version: Option<u32> = image.rsplit_once(':').and_then(|(_, tag)| digits(tag));
        match self {
            Self::Scylla => "/var/lib/scylla",
            Self::Cassandra => "/var/lib/cassandra",
            Self::PostgreSql if version.is_some_and(|version| version < 18) => {
                "/var/lib/postgresql/data"
            }
            Self::PostgreSql => "/var/lib/postgresql",
            Self::TareDb | Self::Other => "/data",
        }
    }

    /// Whether it locks its memory.
    pub(super) fn locks_memory(self) -> bool {
        matches!(self, Self::Scylla | Self::Cassandra)
    }

    /// Whether it calls mbind or set_mempolicy.
    pub(super) fn binds_memory(self) -> bool {
        matches!(self, Self::Scylla)
    }

    /// Whether it uses io_uring where it is allowed. Scylla always uses linux-aio.
    pub(super) fn wants_io_uring(self) -> bool {
        matches!(self, Self::TareDb | Self::PostgreSql | Self::Other)
    }

    /// Whether its processes share memory through /dev/shm.
    pub(super) fn wants_shared_memory(self) -> bool {
        matches!(self, Self::PostgreSql | Self::Other)
    }
}

/// Returns the memory that Seastar reserves for the system by default: 7 %, at least 1.5 GiB
/// (seastar's `--reserve-memory`).
pub(super) fn reserve_bytes(total: u64) -> u64 {
    (total / 100 * 7).max(3 << 29)
}

/// Returns the memory that an engine may use within a limit, in whole MiB, as bytes.
pub(super) fn inside(limit: u64, cpus: usize) -> Result<u64, FlagsError> {
    let reserve = reserve_bytes(limit);
    // Scylla refuses to start with less per shard, except in developer mode (its main.cc).
    const SHARD_MIN: u64 = 1 << 30;
    let least = SHARD_MIN * cpus as u64;
    let left = limit.saturating_sub(reserve);
    if left < least {
        // Plus 7 % or 1.5 GiB, whichever is more.
        let least_bytes = (least + (3 << 29)).max(least / 93 * 100 + (1 << 20));
        return Err(FlagsError::MemoryTooLittle {
            memory_bytes: limit,
            cpus,
            reserve_bytes: reserve,
            least_bytes,
        });
    }
    Ok((left >> 20) << 20)
}

const ENTRYPOINT: &str = "scylladb: the image's entrypoint";

impl Context<'_> {
    /// Returns the options of the engine inside a container, one argument each. `numbers`: whether
    /// the CPU numbers are known now (under Kubernetes the kubelet chooses the CPUs).
    pub(super) fn engine_options(
        &self,
        instance: &Instance,
        numbers: bool,
    ) -> Result<Vec<Flag>, FlagsError> {
        match self.engine {
            Engine::Scylla => self.scylla_options(instance, numbers),
            Engine::TareDb => Ok(self.tare_db_options(instance, numbers, true)),
            Engine::Cassandra | Engine::PostgreSql | Engine::Other => Ok(Vec::new()),
        }
    }

    /// Returns the options of `tare db` inside a container on the host's network, or on the host.
    pub(super) fn tare_db_options(
        &self,
        instance: &Instance,
        numbers: bool,
        inside: bool,
    ) -> Vec<Flag> {
        let data = match inside {
            true => self.engine.data(self.image()).to_string(),
            false => format!("/srv/{}", self.name(instance.number)),
        };
        let port = CQL_PORT + instance.number - 1;
        let own = "tare db --help";
        let mut options = vec![
            self.flag(
                format!("--data={data}"),
                "The directory of the commit log, on a file system with its own device.",
                own,
                None,
            ),
            self.flag(
                "--listen=127.0.0.1",
                "Only clients on this host; other clients need passwords and TLS (--auth-file, \
                 --tls-cert, --tls-key).",
                own,
                None,
            ),
            self.flag(
                format!("--port={port}"),
                "A separate port for each instance on the host's network.",
                own,
                None,
            ),
            self.flag(
                format!("--smp={}", instance.cpus.len()),
                "As many shards as CPUs in the set.",
                own,
                None,
            ),
            self.flag(
                "--overprovisioned=no",
                "The CPUs are exclusive: the database polls instead of sleeping in the kernel.",
                own,
                None,
            ),
        ];
        if numbers {
            let cpus = format!("--cpus={}", instance.cpus);
            let why = "Each shard stays on its CPU.";
            options.insert(3, self.flag(cpus, why, own, Some(Layer::Cpu).filter(|_| !inside)));
        }
        if let Some(bytes) = self.memory_bytes() {
            let rows = (bytes / 2) >> 20;
            let why = "Memory for rows: half of the instance's memory, which is also the default.";
            options.push(self.flag(format!("--memory={rows}M"), why, own, None));
        }
        options
    }

    /// Returns the options of the Scylla image, most of which the binary takes too.
    pub(super) fn scylla_options(
        &self,
        instance: &Instance,
        numbers: bool,
    ) -> Result<Vec<Flag>, FlagsError> {
        let mut options = vec![self.flag(
            format!("--smp={}", instance.cpus.len()),
            "As many shards as CPUs in the set; any other number leaves CPUs idle or puts two shards \
             on one.",
            "scylladb #1848, seastar #712",
            None,
        )];
        if numbers {
            options.push(self.flag(
                format!("--cpuset={}", instance.cpus),
                "Each shard stays on its CPU. The container's CPU set allows it.",
                "seastar: docs of --cpuset",
                None,
            ));
        }
        options.push(self.flag(
            "--overprovisioned=0",
            "The CPUs are exclusive: shards poll, stay pinned and bind their memory. Overprovisioned, \
             a shard at queue depth 1 fell from 12.1k to 2.7k IOPS (seastar #3202).",
            ENTRYPOINT,
            None,
        ));
        options.push(self.flag(
            "--developer-mode=0",
            "The image's default is 1, which relaxes the checks and skips iotune.",
            ENTRYPOINT,
            None,
        ));
        if let Some(limit) = self.memory_bytes() {
            let inside = inside(limit, instance.cpus.len())? >> 20;
            options.push(self.flag(
                format!("--memory={inside}M"),
                "The instance's memory without Seastar's reserve (7 %, at least 1.5 GiB), so that \
                 instances do not count the same memory twice.",
                "seastar: docs of --memory and --reserve-memory",
                None,
            ));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_database_by_image() {
        let check = |image: &str, engine: Engine| {
            assert_eq!(Engine::of_image(image), engine, "{image}");
        };
        check("docker.io/scylladb/scylla:6.2.0", Engine::Scylla);
        check("localhost:5000/cassandra", Engine::Cassandra);
        check("tare@sha256:00", Engine::TareDb);
        check("postgres:18", Engine::PostgreSql);
        check("redis", Engine::Other);
    }

    #[test]
    fn too_little_memory_names_minimum() {
        assert_eq!(
            inside(64 << 30, 30).unwrap(),
            ((64u64 << 30) - (64 << 30) / 100 * 7) >> 20 << 20
        );
        for cpus in [1, 2, 30, 64] {
            let error = inside(1 << 30, cpus).unwrap_err();
            let FlagsError::MemoryTooLittle { least_bytes, .. } = error else { panic!("{error}") };
            assert!(inside(least_bytes, cpus).is_ok(), "{cpus}");
        }
    }
}
