//! The reference database, `tare db`.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::tare_db::metrics::{BUCKETS, bound_us};
use ::tare_db::snapshot::{self, Sharing};
use ::tare_db::{SHARD_BYTES_MIN, row_bytes_in_memory};
use tare_host::process::ProcessHandle;
use tare_lab::PartError;
use tare_lab::environment::{DataSnapshot, Endpoint, Launch, RestoreStats};
use tare_lab::study::{OptionInfo, SystemSpec};
use tare_lab::system::{
    BackgroundWork, BusyTime, Instances, MemoryNeed, OwnCounts, OwnLatency, System,
};
use tare_std::units::parse_bytes;

use super::certificate::{CERTIFICATE_FILE, KEY_FILE, ServerCertificate};
use super::options::Options;
use super::starter::{StartPlan, TARE};
use super::{SystemInfo, TlsSupport, instances};

pub(super) const INFO: SystemInfo = SystemInfo {
    name: "tare-db",
    help: "the reference database: shard per core, CQL, commit log; part of this program",
    speaks: |_| "cql".into(),
    found: None,
    options: &[
        OptionInfo {
            name: "durability",
            values: &["periodic", "sync"],
            help: "periodic: acknowledge, sync the log every 100 ms (default); sync: acknowledge after the sync",
        },
        OptionInfo {
            name: "overprovisioned",
            values: &["auto", "yes", "no"],
            help: "auto: poll where the CPUs are its own, sleep where they are shared (default)",
        },
        OptionInfo {
            name: "io",
            values: &["auto", "io_uring", "epoll"],
            help: "I/O engine; auto: io_uring where the environment allows it (default)",
        },
        OptionInfo { name: "memory", values: &[], help: "total memory, such as 2G" },
        OptionInfo {
            name: MEMORY_PER_CPU,
            values: &[],
            help: "memory for each CPU of the system instead of a total, at least 32M",
        },
        instances::INSTANCES,
    ],
    takes_device: false,
    in_memory: false,
    tls: TlsSupport::Beside,
    make: |spec, client_route| {
        let given = Options::new(spec);
        if let Some(text) = given.text("memory").filter(|text| parse_bytes(text).is_err()) {
            return Err(given.bad("memory", text, "an amount such as \"2G\"").into());
        }
        let instances = instances::read(&given)?;
        let bytes_per_cpu = memory_per_cpu(spec)?;
        let mut options = spec.options.clone();
        options.retain(|(name, _)| name != instances::INSTANCES.name && name != MEMORY_PER_CPU);
        let certificate = client_route.certificate.clone();
        Ok(Box::new(TareDb { options, instances, bytes_per_cpu, certificate }))
    },
};

/// Name of the option that sizes the memory by the number of shards.
const MEMORY_PER_CPU: &str = "memory_per_cpu";

/// Time limit for a server to stop cleanly: it writes its memory to disk.
const END_LIMIT: Duration = Duration::from_secs(60);

/// Why the database's report cannot be used, or its data not kept.
#[derive(Debug, thiserror::Error)]
pub enum TareDbError {
    #[error("cannot read the database's report {}", .path.display())]
    ReadReport { path: PathBuf, source: std::io::Error },
    #[error("{} is not the report of a database of this version", .path.display())]
    Report { path: PathBuf, source: serde_json::Error },
    #[error("there is no process of the database to end")]
    NoProcess,
    #[error("cannot end the database (process {pid})")]
    End { pid: u32, source: std::io::Error },
    #[error("the system's options memory and memory_per_cpu cannot both be set")]
    TwoMemories,
    #[error("memory_per_cpu = \"{text}\": give an amount of at least {} MiB, such as 64M", SHARD_BYTES_MIN >> 20)]
    MemoryPerCpu { text: String },
    #[error("the database (process {pid}) has not ended {limit_s} s after SIGTERM")]
    StillThere { pid: u32, limit_s: u64 },
}

/// A snapshot of a loaded database.
#[derive(Debug)]
struct Snapshot {
    folder: PathBuf,
}

impl DataSnapshot for Snapshot {
    fn folder(&self) -> &Path {
        &self.folder
    }

    fn restore(&self, to: &Path) -> Result<RestoreStats, PartError> {
        let began = Instant::now();
        let copied = snapshot::put(&self.folder, to, Sharing::Wanted)?;
        Ok(RestoreStats {
            linked_bytes: copied.linked_bytes,
            cloned_bytes: 0,
            copied_bytes: copied.copied_bytes,
            took: began.elapsed(),
        })
    }
}

/// The reference database with the options of a study.
#[derive(Clone, Debug)]
pub struct TareDb {
    /// The options of its command line.
    options: Vec<(String, String)>,
    instances: Instances,
    /// The option `memory_per_cpu`.
    bytes_per_cpu: Option<u64>,
    /// Set if clients may use TLS.
    certificate: Option<Arc<ServerCertificate>>,
}

impl System for TareDb {
    fn name(&self) -> &str {
        INFO.name
    }

    fn launch(&self, cpus: usize) -> Launch {
        let mut arguments: Vec<String> =
            ["db", "--listen", "{listen}", "--port", "{port}", "--data", "{data}", "--smp"]
                .map(String::from)
                .into();
        arguments.push(cpus.to_string());
        // It listens only on networks that are created for the study.
        arguments.push("--insecure".into());
        // By default a study weighs the layer, not the disk's write cache.
        if !self.options.iter().any(|(name, _)| name == "durability") {
            arguments.extend(["--durability".into(), "periodic".into()]);
        }
        for (name, value) in &self.options {
            arguments.extend([format!("--{name}"), value.clone()]);
        }
        if let Some(bytes) = self.bytes_per_cpu {
            let all = bytes.saturating_mul(cpus as u64);
            arguments.extend(["--memory".into(), all.to_string()]);
        }
        if let Some(certificate) = &self.certificate {
            arguments = with_certificate(arguments, certificate);
        }
        Launch { arguments, ..Launch::default() }
    }

    fn instances(&self) -> Instances {
        self.instances
    }

    fn memory(&self, cpus: usize) -> Option<MemoryNeed> {
        let least = SHARD_BYTES_MIN.saturating_mul(cpus as u64);
        let shards = format!("{cpus} shards of {} MiB", SHARD_BYTES_MIN >> 20);
        Some(match self.memory_bytes(cpus) {
            // It refuses to start with less than its shards need.
            Some(asked) if asked < least => {
                MemoryNeed { bytes: least, limit_bytes: least, what: shards }
            }
            Some(asked) => {
                let what = format!("memory = {} MiB", asked >> 20);
                MemoryNeed { bytes: asked, limit_bytes: asked, what }
            }
            None => {
                let what = format!("{shards} in the half of a limit that it uses");
                MemoryNeed { bytes: least, limit_bytes: 2 * least, what }
            }
        })
    }

    fn row_memory_bytes(&self, cpus: usize) -> Option<u64> {
        self.memory_bytes(cpus).map(|bytes| row_bytes_in_memory(bytes, cpus.max(1)))
    }

    fn settings(&self, at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        let Some(data) = &at.data else { return Ok(Vec::new()) };
        let path = data.join(::tare_db::report::FILE);
        let text = std::fs::read_to_string(&path)
            .map_err(|source| TareDbError::ReadReport { path: path.clone(), source })?;
        let report: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&text).map_err(|source| TareDbError::Report { path, source })?;
        let mut settings = Vec::new();
        flatten("", report, &mut settings);
        Ok(settings)
    }

    fn can_save_data(&self) -> bool {
        true
    }

    fn save_data(
        &self,
        at: &Endpoint,
        processes: &[u32],
        to: &Path,
    ) -> Result<Option<Rc<dyn DataSnapshot>>, PartError> {
        let Some(data) = at.data.as_deref().filter(|data| snapshot::is_data(data)) else {
            return Ok(None);
        };
        let pid = *processes.first().ok_or(TareDbError::NoProcess)?;
        let hold = ProcessHandle::open(pid).ok_or(TareDbError::NoProcess)?;
        let end = |source| TareDbError::End { pid, source };
        hold.signal(rustix::process::Signal::TERM).map_err(end)?;
        if !hold.wait_end(Instant::now() + END_LIMIT).map_err(end)? {
            return Err(TareDbError::StillThere { pid, limit_s: END_LIMIT.as_secs() }.into());
        }
        snapshot::copy(data, to, Sharing::Wanted)?;
        Ok(Some(Rc::new(Snapshot { folder: to.into() })))
    }

    fn data_identity(&self, cpus: usize) -> Option<Vec<(String, String)>> {
        // The memory decides how much of a table is in one file.
        let memory = self.memory_bytes(cpus).map_or("auto".into(), |bytes| bytes.to_string());
        Some(vec![("shards".into(), cpus.to_string()), ("memory".into(), memory)])
    }

    fn open_data(
        &self,
        folder: &Path,
        _description: &str,
    ) -> Result<Option<Rc<dyn DataSnapshot>>, PartError> {
        Ok(Some(Rc::new(Snapshot { folder: folder.into() })))
    }

    fn background(&self, at: &Endpoint) -> Result<Vec<BackgroundWork>, PartError> {
        let Some(data) = &at.data else { return Ok(Vec::new()) };
        let total = ::tare_db::metrics::read(&data.join(::tare_db::metrics::FILE))?.total();
        let work = |name, total, running| BackgroundWork { name, total, is_running: running > 0 };
        Ok(vec![
            work("flushes", total.flushes, total.frozen_memtables),
            work("compactions", total.compactions, total.compactions_running),
        ])
    }

    fn busy_time(&self, data: &Path) -> Result<Option<BusyTime>, PartError> {
        let total = ::tare_db::metrics::read(&data.join(::tare_db::metrics::FILE))?.total();
        Ok(Some(BusyTime { busy_ns: total.busy_ns, idle_poll_ns: total.idle_poll_ns }))
    }

    fn own_counts(&self, data: &Path) -> Result<Option<OwnCounts>, PartError> {
        let metrics = ::tare_db::metrics::read(&data.join(::tare_db::metrics::FILE))?;
        let total = metrics.total();
        let mut buckets: Vec<(u64, u64)> =
            (0..=BUCKETS).map(|bucket| (bucket_middle_ns(bucket), 0)).collect();
        let mut sum_ns = 0u64;
        for histogram in metrics.latencies.iter().flatten() {
            sum_ns = sum_ns.saturating_add(histogram.sum_ns);
            for (bucket, count) in buckets.iter_mut().zip(histogram.counts) {
                bucket.1 += count;
            }
        }
        let (reads, disk_reads) = (total.reads, total.disk_reads);
        let requests = buckets.iter().map(|(_, count)| count).sum();
        let latency = OwnLatency { requests, sum_ns, buckets };
        Ok(Some(OwnCounts { reads, disk_reads, latency }))
    }
}

impl TareDb {
    /// Returns the memory that the study gives an instance on `cpus` CPUs; `None` if it leaves that
    /// to the database.
    fn memory_bytes(&self, cpus: usize) -> Option<u64> {
        let memory = self.options.iter().find(|(name, _)| name == "memory");
        let memory = memory.and_then(|(_, text)| parse_bytes(text).ok());
        memory.or(self.bytes_per_cpu.map(|bytes| bytes.saturating_mul(cpus as u64)))
    }
}

/// Returns the arguments of a server that accepts connections with and without TLS.
fn with_certificate(mut arguments: Vec<String>, certificate: &ServerCertificate) -> Vec<String> {
    let path = |file: &str| format!("{{data}}/{file}");
    arguments.extend(["--tls-cert".into(), path(CERTIFICATE_FILE)]);
    arguments.extend(["--tls-key".into(), path(KEY_FILE), "--tls-optional".into()]);
    arguments.insert(0, TARE.into());
    let files = certificate.files();
    StartPlan { files, command: arguments, ..StartPlan::default() }.arguments()
}

/// Returns the latency in the middle of a bucket; the last one has no upper bound.
fn bucket_middle_ns(bucket: usize) -> u64 {
    let above = bound_us(bucket.min(BUCKETS - 1));
    match bucket {
        0 => 500,
        BUCKETS => above * 1000,
        _ => (bound_us(bucket - 1) + above) * 500,
    }
}

/// Returns the option `memory_per_cpu` in bytes.
fn memory_per_cpu(spec: &SystemSpec) -> Result<Option<u64>, PartError> {
    let given = |wanted: &str| spec.options.iter().find(|(name, _)| name == wanted);
    let Some((_, text)) = given(MEMORY_PER_CPU) else { return Ok(None) };
    if given("memory").is_some() {
        return Err(TareDbError::TwoMemories.into());
    }
    let bytes = parse_bytes(text).ok().filter(|bytes| *bytes >= SHARD_BYTES_MIN);
    let wrong = || TareDbError::MemoryPerCpu { text: text.clone() };
    Ok(Some(bytes.ok_or_else(wrong)?))
}

/// Flattens names and values; names inside an object follow the object's name and a dot.
fn flatten(
    prefix: &str,
    object: serde_json::Map<String, serde_json::Value>,
    into: &mut Vec<(String, String)>,
) {
    for (name, value) in object {
        let name = format!("{prefix}{name}");
        match value {
            serde_json::Value::Object(inner) => flatten(&format!("{name}."), inner, into),
            serde_json::Value::String(text) => into.push((name, text)),
            other => into.push((name, other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(options: &[(&str, &str)]) -> Box<dyn System> {
        crate::tests::make("tare-db", options)
    }

    #[test]
    fn needs_memory_for_each_shard() {
        let check = |options: &[(&str, &str)], cpus: usize, bytes_mib: u64, limit_mib: u64| {
            let need = system(options).memory(cpus).unwrap();
            let found = (need.bytes >> 20, need.limit_bytes >> 20);
            assert_eq!(found, (bytes_mib, limit_mib), "{options:?} on {cpus}");
        };
        check(&[], 1, 32, 64);
        check(&[], 128, 4096, 8192);
        check(&[("memory", "6G")], 128, 6144, 6144);
        check(&[("memory", "1G")], 128, 4096, 4096);
    }

    #[test]
    fn memory_that_is_no_amount_is_refused() {
        let options = vec![("memory".to_string(), "lots".to_string())];
        let spec = tare_lab::study::SystemSpec { name: "tare-db".into(), options };
        let made = (INFO.make)(&spec, &crate::ClientRoute::default());
        let error = made.err().unwrap().to_string();
        assert_eq!(error, "[system] of tare-db: memory = \"lots\" is not an amount such as \"2G\"");
    }

    #[test]
    fn memory_per_cpu_grows_with_shards() {
        let small = system(&[(MEMORY_PER_CPU, "48M")]);
        let arguments = small.launch(4).arguments.join(" ");
        assert!(arguments.ends_with(&format!("--memory {}", 4 * (48 << 20))), "{arguments}");
        assert_eq!(small.memory(4).unwrap().bytes, 4 * (48 << 20));
        let check = |options: &[(&str, &str)], expect: &str| {
            let options = options.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            let error = memory_per_cpu(&SystemSpec { name: "tare-db".into(), options });
            let error = error.unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(&[(MEMORY_PER_CPU, "16M")], "at least 32 MiB");
        check(&[(MEMORY_PER_CPU, "much")], "at least 32 MiB");
        check(&[(MEMORY_PER_CPU, "48M"), ("memory", "1G")], "cannot both be set");
    }

    #[test]
    fn middle_of_buckets_rises() {
        let middles: Vec<u64> = (0..=BUCKETS).map(bucket_middle_ns).collect();
        assert_eq!(middles[..5], [500, 1_500, 2_500, 3_500, 5_000]);
        assert!(middles.is_sorted_by(|a, b| a < b), "{middles:?}");
    }

    #[test]
    fn options_become_arguments() {
        let arguments = system(&[("io", "epoll")]).launch(2).arguments.join(" ");
        let expect = "db --listen {listen} --port {port} --data {data} --smp 2 --insecure --durability periodic --io epoll";
        assert_eq!(arguments, expect);
        let arguments = system(&[("durability", "sync")]).launch(1).arguments.join(" ");
        assert!(arguments.ends_with("--smp 1 --insecure --durability sync"), "{arguments}");
        let two = system(&[("instances", "2")]);
        assert_eq!(two.instances(), Instances { count: 2, cluster: false });
        assert_eq!(two.launch(1), system(&[]).launch(1));
    }

    #[test]
    fn with_a_certificate_it_serves_clients_with_and_without_tls() {
        let made = ServerCertificate::make().unwrap();
        let certificate = Some(Arc::new(made.clone()));
        let route = crate::ClientRoute { certificate, ..crate::ClientRoute::default() };
        let spec = SystemSpec { name: "tare-db".into(), options: Vec::new() };
        let launch = INFO.make(&spec, &route).unwrap().launch(2);
        let plan: StartPlan = serde_json::from_str(launch.arguments.last().unwrap()).unwrap();
        assert_eq!(plan.command[..2], [TARE.to_string(), "db".into()]);
        let words = plan.command.join(" ");
        let tls =
            "--tls-cert {data}/tls/certificate.pem --tls-key {data}/tls/key.pem --tls-optional";
        assert!(words.ends_with(tls), "{words}");
        assert_eq!(plan.files, made.files());
    }

    #[test]
    fn settings_come_from_report() {
        let data = tempfile::tempdir().unwrap();
        let error = system(&[]).settings(&crate::tests::at(data.path())).unwrap_err().to_string();
        assert!(error.contains("the database's report"), "{error}");
        std::fs::write(
            data.path().join(::tare_db::report::FILE),
            r#"{"shards":1,"io_engine":"epoll","environment":{"quota":{"quota_us":50000}}}"#,
        )
        .unwrap();
        let settings = system(&[]).settings(&crate::tests::at(data.path())).unwrap();
        assert!(settings.contains(&("io_engine".into(), "epoll".into())), "{settings:?}");
        assert!(settings.contains(&("shards".into(), "1".into())), "{settings:?}");
        let quota = ("environment.quota.quota_us".into(), "50000".into());
        assert!(settings.contains(&quota), "{settings:?}");
    }
}
