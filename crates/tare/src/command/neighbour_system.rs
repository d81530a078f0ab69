//! Runs another system under load beside the one that is weighed: a neighbour of kind `system`, for
//! `tare weigh`.
//!
//! Method: this process is in the neighbour's cgroup, CPUs and network namespace, and so are the
//! system and the driver that it starts. It writes the rows, creates the file that shows that the
//! neighbour is ready, and orders one window of load after the other until it is killed.
//!
//! Limits: all of it is frozen between the slices, and clocks go on. A driver that therefore misses
//! a deadline is started again, and at a fixed rate the operations that were due in the rest of a
//! window are not made up for.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use tare_driver::{Client, DriverInfo};
use tare_env::neighbour::{UNDER_LOAD, arguments};
use tare_host::{RUN_VARIABLE, error_line, exec};
use tare_lab::PartError;
use tare_lab::access::ClientAccess;
use tare_lab::driver::{Driver, Pacing, SliceOrder, TargetId};
use tare_lab::environment::Endpoint;
use tare_lab::layer::OtherSystem;
use tare_lab::study::WorkloadSpec;
use tare_lab::system::{Instances, System};
use tare_std::cpus::CpuSet;
use tare_system::ClientRoute;

use crate::campaign::neighbours;
use crate::cli::NeighbourSystem;
use crate::exit::Exit;

/// The port of the system, in a network namespace without any other.
const PORT: u16 = 7000;
const READY_POLL: Duration = Duration::from_millis(50);
/// Windows of load. Short at a fixed rate, because a window goes on after a pause.
const CLOSED: Duration = Duration::from_secs(5);
const AT_RATE: Duration = Duration::from_secs(1);
/// Failures in a row after which the neighbour ends. Those after a pause do not count.
const FAILURES_MAX: u32 = 3;
/// A window that takes longer than this beyond its length was paused.
const PAUSE: Duration = Duration::from_secs(10);
/// Bytes of the system's output that an error shows.
const SAID_BYTES: usize = 1000;

pub(crate) fn run(options: &NeighbourSystem) -> anyhow::Result<Exit> {
    let plan: OtherSystem = serde_json::from_str(&options.plan).context("cannot read the plan")?;
    let (info, driver) = neighbours::parts(&plan)?;
    let spec = neighbours::system_spec(&plan);
    let system = info.make(&spec, &ClientRoute::default()).map_err(|error| anyhow!(error))?;
    let cpus = tare_host::process::cpus_of_this_thread().context("cannot read the allowed CPUs")?;
    let mut server = Server::start(&*system, cpus.len(), &options.folder)?;
    server.wait_until_ready(&*system)?;
    let mut load = Load {
        driver,
        speaks: info.speaks(&spec),
        program: crate::own_program()?,
        cpus,
        folder: options.folder.clone(),
        address: server.at.address,
        workload: neighbours::workload(&plan),
        pacing: match plan.rate_per_s {
            Some(rate) => Pacing::Open { rate_per_s: f64::from(rate) },
            None => Pacing::Closed,
        },
    };
    load.go(&mut server, &options.folder.join(UNDER_LOAD))
}

/// The running system.
struct Server {
    child: Child,
    at: Endpoint,
    log: PathBuf,
}

impl Server {
    fn start(system: &dyn System, cpus: usize, folder: &Path) -> anyhow::Result<Self> {
        let (data, log) = (folder.join("data"), folder.join("system-log"));
        fs::create_dir(&data).with_context(|| format!("cannot create {}", data.display()))?;
        let launch = system.launch(cpus);
        let listen = SocketAddrV4::new(Ipv4Addr::LOCALHOST, launch.port.unwrap_or(PORT));
        let words = arguments(&launch, listen, &data).map_err(|error| anyhow!(error))?;
        let file =
            File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let errors = file.try_clone().context("cannot share the log")?;
        let child = exec::Command::new(crate::own_program()?).args(words).spawn(
            Stdio::null(),
            file.into(),
            errors.into(),
        )?;
        let at = Endpoint { address: listen.into(), data: Some(data), inside: None };
        Ok(Self { child, at, log })
    }

    /// Waits until it answers.
    fn wait_until_ready(&mut self, system: &dyn System) -> anyhow::Result<()> {
        let deadline = Instant::now() + system.ready_limit();
        loop {
            let announced = system.announces().is_none_or(|text| self.printed().contains(text));
            let error = match announced.then(|| system.ready(&self.at)) {
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) => error_line(&*error),
                None => "it has not announced that it is up".into(),
            };
            self.check_alive()?;
            if Instant::now() > deadline {
                bail!("the system does not answer: {error}: {}", self.said());
            }
            thread::sleep(READY_POLL);
        }
    }

    fn check_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait().context("cannot wait for the system")? {
            Some(status) => bail!("the system has ended, {status}: {}", self.said()),
            None => Ok(()),
        }
    }

    fn printed(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Returns what it printed last, on one line.
    fn said(&self) -> String {
        let text = self.printed();
        let start = text.ceil_char_boundary(text.len().saturating_sub(SAID_BYTES));
        text[start..].trim().replace('\n', "; ")
    }
}

/// What loads the system.
struct Load {
    driver: &'static DriverInfo,
    /// The protocol of the system.
    speaks: String,
    program: PathBuf,
    cpus: CpuSet,
    folder: PathBuf,
    address: SocketAddr,
    workload: WorkloadSpec,
    pacing: Pacing,
}

impl Load {
    fn open(&self) -> Result<(Box<dyn Driver>, TargetId), PartError> {
        let run = std::env::var(RUN_VARIABLE).unwrap_or_default();
        let client = Client {
            program: &self.program,
            cpus: &self.cpus,
            namespace: None,
            scratch: &self.folder,
            run: &run,
            speaks: &self.speaks,
            access: &ClientAccess::default(),
        };
        let mut driver = self.driver.make(&client, Instances::ONE)?;
        let target = driver.open(&[self.address], tare_lab::system::READY_LIMIT)?;
        Ok((driver, target))
    }

    /// Writes the rows, creates the file `sign`, and loads the system until that fails.
    fn go(&mut self, server: &mut Server, sign: &Path) -> anyhow::Result<Exit> {
        let (mut driver, mut target) = self.open().map_err(|error| anyhow!(error))?;
        driver
            .populate(target, &self.workload, 0, &mut |_, _| ())
            .map_err(|error| anyhow!(error))
            .context("cannot write the rows")?;
        let window = if self.pacing == Pacing::Closed { CLOSED } else { AT_RATE };
        let mut failures = 0;
        File::create(sign).with_context(|| format!("cannot create {}", sign.display()))?;
        for seed in 1.. {
            let order = SliceOrder {
                workload: self.workload.clone(),
                pacing: self.pacing,
                lead_in: Duration::ZERO,
                window,
                seed,
            };
            let began = Instant::now();
            let result = driver.run(target, &order, &mut |_| ());
            let error = match result {
                Ok(load) if load.operations > 0 => {
                    failures = 0;
                    continue;
                }
                Ok(load) => match load.errors.first() {
                    Some((kind, count)) => format!("{count} operations failed: {kind}"),
                    None => "no operation ended".into(),
                },
                Err(error) => error_line(&*error),
            };
            server.check_alive()?;
            let was_paused = began.elapsed() > window + PAUSE;
            failures += u32::from(!was_paused);
            if failures >= FAILURES_MAX {
                bail!("the load failed {failures} times in a row: {error}");
            }
            // It may be ended already, or in the middle of a window.
            let _ = driver.stop();
            (driver, target) = self.open().map_err(|error| anyhow!(error))?;
        }
        Ok(Exit::Failure)
    }
}
