//! memcached, with its text protocol
//! (<https://github.com/memcached/memcached/blob/master/doc/protocol.txt>).

use tare_lab::PartError;
use tare_lab::environment::{Endpoint, HostProgram, Launch};
use tare_lab::study::OptionInfo;
use tare_lab::system::{BackgroundWork, Instances, System};

use super::client_route::{ClientRoute, ClientRouteError};
use super::instances;
use super::options::Options;
use super::starter::StartPlan;
use super::{SystemInfo, TlsSupport};

pub(super) const INFO: SystemInfo = SystemInfo {
    name: "memcached",
    help: "memcached of the host (apt-get install memcached)",
    speaks: |_| "memcached".into(),
    found: Some(|| super::program("memcached", "apt-get install memcached")),
    options: &[
        OptionInfo {
            name: "program",
            values: &[],
            help: "name on PATH or path of the server (default: memcached)",
        },
        OptionInfo {
            name: "memory_mb",
            values: &[],
            help: "memory for items in MB (default 1024)",
        },
        OptionInfo {
            name: "threads",
            values: &[],
            help: "worker threads (default: one for each CPU of the baseline)",
        },
        OptionInfo { name: "arguments", values: &[], help: "more words of its command line" },
        instances::INSTANCES,
    ],
    takes_device: false,
    in_memory: true,
    tls: TlsSupport::No,
    make: |spec, client_route| {
        let options = Options::new(spec);
        let memory_mb = options.count("memory_mb", 1024)?;
        let threads = options.text("threads").map(|_| options.count("threads", 1)).transpose()?;
        let instances = instances::read(&options)?;
        Ok(Box::new(Memcached {
            options,
            instances,
            memory_mb,
            threads,
            client_route: client_route.clone(),
        }))
    },
};

/// Statistics that a record keeps.
const SETTINGS: &[&str] =
    &["version", "threads", "limit_maxbytes", "max_connections", "hash_power_level", "libevent"];

/// Statistics that are not 0 while it works in the background.
const BUSY: &[&str] = &["hash_is_expanding", "slab_reassign_running"];

/// memcached with the options of a study.
#[derive(Clone, Debug)]
pub struct Memcached {
    options: Options,
    instances: Instances,
    memory_mb: u32,
    threads: Option<u32>,
    client_route: ClientRoute,
}

impl Memcached {
    /// Reads the statistics as (name, value): `STAT name value` each, `END` at the end.
    fn stats(&self, at: &Endpoint) -> Result<Vec<(String, String)>, ClientRouteError> {
        let mut line = self.client_route.connect(at.address)?;
        line.send("stats", b"stats\r\n")?;
        let mut stats = Vec::new();
        loop {
            let text = line.line()?;
            match text.strip_prefix("STAT ").and_then(|rest| rest.split_once(' ')) {
                Some((name, value)) => stats.push((name.to_string(), value.to_string())),
                None if text == "END" => return Ok(stats),
                None => return Err(line.unexpected_answer(text)),
            }
        }
    }
}

impl System for Memcached {
    fn name(&self) -> &str {
        INFO.name
    }

    fn launch(&self, cpus: usize) -> Launch {
        let threads = self.threads.map_or(cpus.to_string(), |threads| threads.to_string());
        let memory = self.memory_mb.to_string();
        let words =
            ["{program}", "--listen={listen}", "--port={port}", "--udp-port=0", "--threads"];
        let words = words.into_iter().chain([&*threads, "--memory-limit", &*memory]);
        let mut command: Vec<String> = words.map(String::from).collect();
        command.extend(self.options.words("arguments"));
        // It refuses to run as root unless a user is named, and there may be no list of users.
        let arguments =
            StartPlan { command, unprivileged: true, ..StartPlan::default() }.arguments();
        let name = self.options.text_or("program", "memcached").to_string();
        Launch {
            arguments,
            program: Some(HostProgram { name, ..HostProgram::default() }),
            ..Launch::default()
        }
    }

    fn instances(&self) -> Instances {
        self.instances
    }

    fn ready(&self, at: &Endpoint) -> Result<(), PartError> {
        Ok(self.stats(at).map(drop)?)
    }

    fn settings(&self, at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        let mut stats = self.stats(at)?;
        stats.retain(|(name, _)| SETTINGS.contains(&name.as_str()));
        Ok(stats)
    }

    fn pending(&self, at: &Endpoint) -> Result<Option<String>, PartError> {
        let mut stats = self.stats(at)?;
        stats.retain(|(name, value)| BUSY.contains(&name.as_str()) && value != "0");
        Ok(stats.first().map(|(name, value)| format!("{name} = {value}")))
    }

    fn background(&self, at: &Endpoint) -> Result<Vec<BackgroundWork>, PartError> {
        let stats = self.stats(at)?;
        let total = |stat: &str, name: &'static str| {
            let (_, value) = stats.iter().find(|(own, _)| own == stat)?;
            Some(BackgroundWork::total(name, value.parse().ok()?))
        };
        let moves = total("slabs_moved", "slab_moves");
        Ok(total("evictions", "evictions").into_iter().chain(moves).collect())
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{command_of, make};

    #[test]
    fn threads_default_to_cpus() {
        let expect = "{program} --listen={listen} --port={port} --udp-port=0 --threads 2 --memory-limit 1024";
        assert_eq!(command_of(&*make("memcached", &[])), expect);
        let system =
            make("memcached", &[("threads", "4"), ("memory_mb", "64"), ("arguments", "-R 40")]);
        assert!(command_of(&*system).ends_with("--threads 4 --memory-limit 64 -R 40"));
    }
}
