//! Databases: what an image holds, and the options that fit a set of CPUs.

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
    /// Anything else: the container's flags, without options for what runs in it.
    Other,
}

impl Engine {
    /// By the last part of an image's name.
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

    /// The image where none is named.
    pub fn image(self) -> &'static str {
        match self {
            Self::Scylla => "docker.io/scylladb/scylla",
            Self::Cassandra => "docker.io/library/cassandra",
            Self::TareDb => "localhost/tare",
            Self::PostgreSql => "docker.io/library/postgres",
            Self::Other => "IMAGE",
        }
    }

    /// Its data inside the container. PostgreSQL's image moved it with version 18.
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

    /// It locks its memory.
    pub(super) fn locks_memory(self) -> bool {
        matches!(self, Self::Scylla | Self::Cassandra)
    }

    /// It calls mbind or set_mempolicy.
    pub(super) fn binds_memory(self) -> bool {
        matches!(self, Self::Scylla)
    }

    /// It asks for io_uring where it is allowed. Scylla itself forces linux-aio.
    pub(super) fn wants_io_uring(self) -> bool {
        matches!(self, Self::TareDb | Self::PostgreSql | Self::Other)
    }

    /// It shares memory among processes through /dev/shm.
    pub(super) fn wants_shared_memory(self) -> bool {
        matches!(self, Self::PostgreSql | Self::Other)
    }
}

/// What Seastar leaves to the system unless told otherwise: 7 %, at least 1.5 GiB
/// (seastar's `--reserve-memory`).
pub(super) fn reserve_bytes(total: u64) -> u64 {
    (total / 100 * 7).max(3 << 29)
}

/// The memory an engine may use inside a limit, in whole MiB.
pub(super) fn inside(limit: u64, cpus: usize) -> Result<u64, FlagsError> {
    let reserve = reserve_bytes(limit);
    // Scylla refuses to start with less for each shard, unless in developer mode (its main.cc).
    const SHARD_MIN: u64 = 1 << 30;
    let least = SHARD_MIN * cpus as u64;
    let left = limit.saturating_sub(reserve);
    if left < least {
        // With 7 % or 1.5 GiB on top, whichever is more.
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
    /// The options of the engine inside a container, one argument each. `numbers`: whether the CPUs
    /// have numbers that are known now (under Kubernetes the kubelet chooses them).
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

    /// `tare db` inside a container, on the host's network, or on the host.
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
                "The commit log, on a file system of its own device.",
                own,
                None,
            ),
            self.flag(
                "--listen=127.0.0.1",
                "Clients of this host only; for others it demands passwords and TLS (--auth-file, \
                 --tls-cert, --tls-key).",
                own,
                None,
            ),
            self.flag(
                format!("--port={port}"),
                "A port for each instance on the host's network.",
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
                "The CPUs are its own: it polls instead of sleeping in the kernel.",
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
            let why = "Memory for rows: half of what the instance has, as it takes by itself.";
            options.push(self.flag(format!("--memory={rows}M"), why, own, None));
        }
        options
    }

    /// Options of the Scylla image, and of the binary where they are the same.
    pub(super) fn scylla_options(
        &self,
        instance: &Instance,
        numbers: bool,
    ) -> Result<Vec<Flag>, FlagsError> {
        let mut options = vec![self.flag(
            format!("--smp={}", instance.cpus.len()),
            "As many shards as CPUs in the set; another number leaves CPUs idle or puts two shards \
             on one.",
            "scylladb #1848, seastar #712",
            None,
        )];
        if numbers {
            options.push(self.flag(
                format!("--cpuset={}", instance.cpus),
                "Each shard stays on its CPU. The container's own set lets it do so.",
                "seastar: docs of --cpuset",
                None,
            ));
        }
        options.push(self.flag(
            "--overprovisioned=0",
            "The CPUs are its own: shards poll, stay pinned and bind their memory. Overprovisioned, a \
             shard at queue depth 1 fell from 12.1k to 2.7k IOPS (seastar #3202).",
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
                "What is left of the instance's memory after Seastar's reserve (7 %, at least \
                 1.5 GiB), so that instances do not count the same memory twice.",
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
    fn images_say_what_is_in_them() {
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
    fn memory_that_is_too_little_is_refused_with_what_would_do() {
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
