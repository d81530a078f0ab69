//! The definition of the command line.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tare_report::fleet::Fleet;
use tare_std::cpus::CpuSet;
use tare_std::units::UnitError;

use crate::exit::{self, Exit};
use crate::stream;

mod access;
mod check;
#[cfg(test)]
mod ci_guide_tests;
mod compare;
mod db;
mod disk;
mod elsewhere;
mod explain;
mod flags;
mod history;
mod image;
mod inside;
mod load_pace;
mod load_spec;
mod load_workload;
mod loaders;
mod on;
mod progress;
mod stacks;
mod tune;

pub use access::*;
pub use check::*;
pub use compare::*;
pub use db::*;
pub use disk::*;
pub use elsewhere::Elsewhere;
pub use explain::*;
pub use flags::*;
pub use history::*;
pub use image::MakeImage;
pub use inside::*;
pub use load_pace::*;
pub use load_spec::*;
pub use load_workload::*;
pub use loaders::*;
pub use on::*;
pub use progress::*;
pub use stacks::*;
pub use tune::*;

/// Measures what it costs to run a database inside an isolation layer on this host.
#[derive(Debug, Parser)]
#[command(name = "tare", version, max_term_width = 100, subcommand_required = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    /// Directory of the journals, from which everything that Tare creates on the host is undone
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/lib/tare")]
    pub state: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a study: measure what each isolation layer costs a database on this host
    Weigh(Weigh),
    /// Write files to start from
    Init(Init),
    /// Attribute a cost to layers, by adding them one at a time in every order
    Explain(Explain),
    /// Report a record: terminal, HTML, JSON, CSV, Markdown, Prometheus, or for a fleet
    Report(Report),
    /// Compare records
    Compare(Compare),
    /// Show the costs of many records over time, and where they changed
    History(History),
    /// Check costs against budgets, by running a study or from a record
    Check(Check),
    /// Copy a record without names, addresses, paths and serial numbers
    Share(Share),
    /// List runtimes, layers, storage, systems, drivers, probes, studies, workloads and knobs
    List(List),
    /// Check what can be measured on this host, what is missing and what is left over
    Doctor(Doctor),
    /// Remove what ended runs left on the host
    Clean(Clean),
    /// Show a run on another host, and bring its files when it ends
    Attach(Attach),
    /// Plan, apply, prove and revert host settings for a database
    Tune(Tune),
    /// Convert sets of CPUs, and calculate with them
    Cpus(Cpus),
    /// Save the files of this host that the planner reads
    Host(Host),
    /// Measure a disk: bandwidth, I/O per second, the depth that saturates it, latency at lower
    /// rates
    Disk(Disk),
    /// Run the reference database, or inspect its data
    Db(Db),
    /// Load a database that speaks CQL, Redis's protocol or memcached's
    Load(Load),
    /// Print an image with this program, as `docker save` does, for container engines and nodes of
    /// a cluster
    Image(MakeImage),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Write man pages to a directory
    Man(Man),
    /// Generate load as ordered on standard input (started by `weigh`)
    #[command(hide = true)]
    LoadAgent(LoadAgent),
    /// Run fio on request (started by `weigh`)
    #[command(hide = true)]
    FioServer(FioServer),
    /// Run an instance of a system on this host, as ordered on standard input (started by `weigh`)
    #[command(hide = true)]
    HostAgent,
    /// Prepare the data of a system and execute its program (started by `weigh`)
    #[command(hide = true)]
    StartSystem(StartSystem),
    /// Run another system under load beside the one that is weighed (started by `weigh`)
    #[command(hide = true)]
    NeighbourSystem(NeighbourSystem),
    /// Relay TCP connections, as docker's userland proxy does (started by `weigh`)
    #[command(hide = true)]
    Proxy(Proxy),
    /// Run as the first process of a virtual machine (started by its kernel)
    #[command(hide = true)]
    Guest,
    /// Serve a command that another host started here with `--on`
    #[command(hide = true)]
    RunServer(RunServer),
    /// Be the program of a pod (started by its container runtime, with `--tare-image`)
    #[command(hide = true)]
    Pod(PodProgram),
    /// Print what is visible inside a sandbox (executed there to verify its layers)
    #[command(hide = true)]
    Facts,
}

#[derive(Clone, Debug, Args)]
pub struct DestroyData {
    /// Block device, or NQN of an NVMe target, that the study may overwrite; all data on it is lost
    #[arg(long, value_name = "/dev/X")]
    pub destroy_data_on: Vec<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct AllowWrites {
    /// Let the study write more than 100 GB to condition its storage (fio's precondition and
    /// steadystate)
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct Weigh {
    /// A study file, or the name of a shipped study (see `tare list studies`)
    #[arg(value_name = "STUDY", default_value = "quick", conflicts_with = "resume")]
    pub study: String,
    /// Record to write [default: NAME.tare in the current directory]
    #[arg(short, long, value_name = "FILE.tare", conflicts_with = "resume")]
    pub output: Option<PathBuf>,
    /// Continue an interrupted record, with the same seed and order
    #[arg(long, value_name = "FILE.tare", conflicts_with = "AddLoaders")]
    pub resume: Option<PathBuf>,
    /// Run the quick part of the study, as defined by its table "quick"
    #[arg(long, conflicts_with = "resume")]
    pub quick: bool,
    /// Replace the workloads of the study by the load of this packet capture (pcap, pcapng) of CQL
    /// or of Redis's protocol
    #[arg(long, value_name = "TRACE", conflicts_with = "resume")]
    pub like: Option<PathBuf>,
    #[command(flatten)]
    pub elsewhere: Elsewhere,
    /// At most this many rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Time for the whole study, such as 5m or 1h. If not everything gets enough rounds, the last
    /// workloads and environments of the file are left out
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// Seed of order, keys and rows
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    pub seed: Option<u64>,
    /// Print the plan and start nothing: CPUs, environments, memory, disk, rounds and time
    #[arg(long, conflicts_with_all = ["resume", "inside", "html", "serve"])]
    pub dry_run: bool,
    #[command(flatten)]
    pub loaders: AddLoaders,
    #[command(flatten)]
    pub stacks: SampleStacks,
    #[command(flatten)]
    pub destroy: DestroyData,
    #[command(flatten)]
    pub writes: AllowWrites,
    #[command(flatten)]
    pub inside: RunInside,
    #[command(flatten)]
    pub show: ShowProgress,
    #[command(flatten)]
    pub on: RunOn,
    /// HTML page to write [default: next to the record]
    #[arg(long, value_name = "PATH")]
    pub html: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Report {
    /// The record
    #[arg(value_name = "FILE.tare")]
    pub record: PathBuf,
    #[command(flatten)]
    pub page: ServePage,
    /// Write the HTML page to this file (`-` for standard output)
    #[arg(long, value_name = "PATH")]
    pub html: Option<PathBuf>,
    /// Draw the costs as a slide of 16:9 for a talk (.svg, or .png if a converter is installed)
    #[arg(
        long,
        value_name = "FILE",
        value_parser = slide_file,
        conflicts_with_all = ["json", "csv", "figures_csv", "seconds_csv", "counters", "stacks", "markdown", "prometheus", "fleet"]
    )]
    pub slide: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV, one line per slice
    #[arg(long)]
    pub csv: bool,
    /// Print CSV, one line per figure with its interval
    #[arg(
        long,
        conflicts_with_all = ["json", "csv", "counters", "stacks", "markdown", "prometheus", "fleet"]
    )]
    pub figures_csv: bool,
    /// Print CSV, one line per second of windows of 10 s or more
    #[arg(
        long,
        conflicts_with_all = ["json", "csv", "figures_csv", "counters", "stacks", "markdown", "prometheus", "fleet"]
    )]
    pub seconds_csv: bool,
    #[command(flatten)]
    pub stacks: ShowStacks,
    /// Print the counters per operation of each environment next to those of the baseline
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    pub counters: bool,
    /// Print Markdown for a pull request
    #[arg(long, conflicts_with_all = ["json", "csv", "counters", "stacks"])]
    pub markdown: bool,
    /// Print metrics for the textfile collector of Prometheus' node_exporter
    #[arg(long, conflicts_with_all = ["json", "csv", "counters", "stacks", "markdown"])]
    pub prometheus: bool,
    /// Convert the costs for a fleet: nodes, and money per year (4.99USD/h, /month, /year)
    #[arg(
        long,
        value_name = "nodes=60,price=4.99/h",
        conflicts_with_all = ["json", "csv", "counters", "stacks", "markdown", "prometheus"]
    )]
    pub fleet: Option<Fleet>,
}

#[derive(Debug, Args)]
pub struct Init {
    #[command(subcommand)]
    pub what: InitWhat,
}

#[derive(Debug, Subcommand)]
pub enum InitWhat {
    /// Write a commented study of a database that runs or is installed on this host
    Study(InitStudy),
}

#[derive(Debug, Args)]
pub struct InitStudy {
    /// The database [default: the first that runs here, or else is installed]
    #[arg(value_name = "SYSTEM")]
    pub system: Option<String>,
    /// The file to write; - for standard output
    #[arg(long, short, value_name = "FILE.toml", default_value = "study.toml")]
    pub output: PathBuf,
}

#[derive(Debug, Args)]
pub struct Share {
    /// The record
    #[arg(value_name = "FILE.tare")]
    pub record: PathBuf,
    /// The copy to write [default: FILE-shared.tare]
    #[arg(value_name = "OUT.tare")]
    pub output: Option<PathBuf>,
    /// Keep the names of functions in sampled stacks
    #[arg(long)]
    pub stacks: bool,
}

fn slide_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let known = path.extension().is_some_and(|e| e == "svg" || e == "png");
    known.then_some(path).ok_or_else(|| "the file of a slide ends in .svg or .png".to_string())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListKind {
    Runtimes,
    Layers,
    Storage,
    Systems,
    Drivers,
    Probes,
    Studies,
    Workloads,
    Knobs,
    /// Loaded data that later studies restore
    Data,
}

#[derive(Debug, Args)]
pub struct List {
    /// Only this kind
    pub kind: Option<ListKind>,
    #[command(flatten)]
    pub on: RunOn,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Doctor {
    #[command(flatten)]
    pub on: RunOn,
    /// Only ask these loaders (ssh:HOST, pod:NODE, pods:LABEL=VALUE) which load tools they have.
    /// Repeatable, or a list with commas, whose last may be a selector
    #[arg(long = "loader", value_name = "HOST", value_parser = LoaderList::parse, conflicts_with = "on")]
    pub loaders: Vec<LoaderList>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Clean {
    #[command(flatten)]
    pub on: RunOn,
    /// With --on, also remove the copies of this program there
    #[arg(long, requires = "on")]
    pub programs: bool,
    /// Also remove the loaded data that later studies would restore (`tare list data`)
    #[arg(long)]
    pub data: bool,
    /// Remove the journal of this run, whose engine is gone, and print what may be left
    #[arg(long, value_name = "RUN", conflicts_with_all = ["on", "json", "data"])]
    pub forget: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Overprovisioned {
    /// Poll if no other process uses the CPUs
    Auto,
    /// Shared: sleep when there is no work
    Yes,
    /// Not shared: poll
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Io {
    /// io_uring if the environment allows it, else epoll
    Auto,
    #[value(name = "io_uring")]
    Uring,
    Epoll,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Db {
    #[command(subcommand)]
    pub task: Option<DbTask>,
    /// Directory of the data
    #[arg(long, value_name = "DIR", required = true)]
    pub data: Option<PathBuf>,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub listen: IpAddr,
    /// Port to listen on
    #[arg(long, value_name = "PORT", default_value_t = 9042)]
    pub port: u16,
    /// Port on which clients choose their shard, if there are several [default: 19042 with port
    /// 9042, else a free one]
    #[arg(long, value_name = "PORT")]
    pub shard_aware_port: Option<u16>,
    /// Authenticate clients by this file of users, with lines of `tare db password`
    #[arg(long, value_name = "FILE")]
    pub auth_file: Option<PathBuf>,
    /// Use TLS with this certificate (chain) in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Accept connections without TLS too
    #[arg(long, requires = "tls_cert")]
    pub tls_optional: bool,
    /// Listen on other addresses than loopback even without passwords or TLS
    #[arg(long)]
    pub insecure: bool,
    /// Number of shards [default: one per CPU, limited by a CPU quota]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub smp: Option<u16>,
    /// CPUs to run on [default: all that the environment allows]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// Whether other processes use the same CPUs
    #[arg(long, value_name = "WHETHER", default_value = "auto")]
    pub overprovisioned: Overprovisioned,
    /// `sync`: acknowledge after the log is on disk; `periodic` or `periodic=TIME`: sync every TIME
    #[arg(long, value_name = "WHEN", default_value = "sync", value_parser = durability)]
    pub durability: Durability,
    /// I/O engine
    #[arg(long, value_name = "ENGINE", default_value = "auto")]
    pub io: Io,
    /// Memory to use in total, such as 2G [default: half of what the environment allows]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory: Option<u64>,
    /// Serve Prometheus metrics on this address, at /metrics; loopback only without `--insecure`
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Report iterations of a shard's loop that take longer than this
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration)]
    pub stall_threshold: Duration,
    /// Waste this much CPU time per operation (`inject = "busy=TIME"` in a study)
    #[arg(long, value_name = "NS", hide = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub inject_busy_ns: Option<u64>,
    /// Install a system call filter of N instructions that allows everything
    /// (`inject = "filter=N"`)
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u16).range(1..=4095))]
    pub inject_filter: Option<u16>,
}

#[derive(Debug, Subcommand)]
pub enum DbTask {
    /// Verify the data of a stopped server: every checksum, order, index, filter, count
    Check(DbCheck),
    /// Create a snapshot of a data directory; it shares the table files, so this is quick
    Snapshot(DbCopy),
    /// Create a data directory from a snapshot, in the same way
    Restore(DbCopy),
    /// Print a table file: partitions, range tombstones, rows
    Dump(DbDump),
    /// Print the line of a user for `--auth-file`; reads the password from the terminal or standard
    /// input
    Password {
        /// Name of the user
        user: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    Sync,
    Periodic(Option<Duration>),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Load {
    #[command(subcommand)]
    pub task: Option<LoadTask>,
    #[command(flatten)]
    pub access: Access,
    #[command(flatten)]
    pub workload: LoadWorkload,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// Requests in flight over all connections (closed loop)
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub in_flight: u32,
    #[command(flatten)]
    pub pace: LoadPace,
    /// CPUs of the load threads, one thread each [default: one CPU]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// Seed of keys and rows
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write an HdrHistogram log: one interval per second, tagged by operation
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Completions {
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct Man {
    /// Directory for tare.1, tare-weigh.1 ...
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

#[derive(Debug, Args)]
pub struct LoadAgent {
    /// The driver that it serves.
    #[arg(long, value_name = "NAME", default_value = "tare-load")]
    pub driver: String,
    /// The protocol of the systems.
    #[arg(long, value_name = "PROTOCOL", default_value = "cql")]
    pub speaks: String,
    /// CPUs of the load threads; all that it may use without this.
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// End after so many seconds without a line of the driver.
    #[arg(long, value_name = "SECONDS")]
    pub silence: Option<u64>,
    /// Only find out whether this address can be connected to.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub reach: Option<SocketAddr>,
    /// Only print which load tools this host has, as JSON.
    #[arg(long)]
    pub tools: bool,
    /// Only print what the driver lacks here for the workloads on standard input, as JSON.
    #[arg(long)]
    pub missing: bool,
    /// Become a load tool that ends with its agent, whose process id this is.
    #[arg(long = "become", value_name = "PID", requires = "tool")]
    pub parent: Option<u32>,
    #[arg(last = true, value_name = "TOOL")]
    pub tool: Vec<String>,
}

#[derive(Debug, Args)]
pub struct FioServer {
    #[arg(long, value_name = "FILE")]
    pub program: PathBuf,
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    #[arg(long, value_name = "NAME")]
    pub report: String,
}

#[derive(Debug, Args)]
pub struct StartSystem {
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Configuration of the environment's image, as JSON
    #[arg(long, value_name = "CONFIG")]
    pub image: Option<String>,
    /// The program to execute, as JSON
    #[arg(value_name = "RECIPE")]
    pub recipe: String,
}

#[derive(Debug, Args)]
pub struct NeighbourSystem {
    /// The neighbour's directory
    #[arg(long, value_name = "DIR")]
    pub folder: PathBuf,
    /// The system and its load, as JSON
    #[arg(value_name = "PLAN")]
    pub plan: String,
}

#[derive(Debug, Args)]
pub struct Proxy {
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub to: SocketAddr,
    /// Delay every response by this time (`inject = "delay=TIME"` in a study)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub delay: Option<Duration>,
}

/// Prints the message of clap (an error, help or version) and returns the exit code.
pub fn usage_error(error: &clap::Error) -> ExitCode {
    let exit = match error.use_stderr() {
        true if is_check(std::env::args_os().skip(1)) => Exit::Usage.of_check(),
        true => Exit::Usage,
        false => Exit::Success,
    };
    // If the message cannot be printed, an error cannot be either.
    let _printed = stream::check_closed(error.print());
    exit::of(Ok(exit)).into()
}

/// Whether a command line is one of `tare check`, whose outcomes have codes of other errors.
fn is_check(arguments: impl Iterator<Item = OsString>) -> bool {
    let mut words = arguments.peekable();
    while let Some(option) = words.next_if(|word| word.to_string_lossy().starts_with('-')) {
        // The only option with a value that may stand before a command.
        if option == "--state" {
            words.next();
        }
    }
    words.next().is_some_and(|word| word == "check")
}

fn duration(text: &str) -> Result<Duration, UnitError> {
    tare_std::units::parse_duration(text)
}

fn bytes(text: &str) -> Result<u64, UnitError> {
    tare_std::units::parse_bytes(text)
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "a share is a number from 0 to 1".to_string())?;
    let good = (0.0..=1.0).contains(&share);
    good.then_some(share).ok_or_else(|| "a share is a number from 0 to 1".to_string())
}

fn durability(text: &str) -> Result<Durability, String> {
    match text.split_once('=') {
        None if text == "sync" => Ok(Durability::Sync),
        None if text == "periodic" => Ok(Durability::Periodic(None)),
        Some(("periodic", time)) => match duration(time) {
            Ok(time) => Ok(Durability::Periodic(Some(time))),
            Err(error) => Err(error.to_string()),
        },
        _ => Err("durability is sync, periodic or periodic=TIME".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
