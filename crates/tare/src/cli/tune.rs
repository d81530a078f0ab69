//! The command line of `tare tune`, `tare cpus` and `tare host`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use tare_std::cpus::CpuSet;

use super::{AddLoaders, DestroyData, RunOn, ShowProgress, TuneFlags, duration, share};

#[derive(Debug, Args)]
pub struct Tune {
    #[command(subcommand)]
    pub command: TuneCommand,
}

#[derive(Debug, Subcommand)]
pub enum TuneCommand {
    /// Print the recommended changes to this host, and why; reads only
    Plan(TunePlan),
    /// Journal the changes, make them, and read each back
    Apply(TuneApply),
    /// Check whether the applied settings are in force, and where interrupts arrive
    Verify(TuneVerify),
    /// Restore the settings that still have the written value
    Revert(TuneRevert),
    /// List the applied tunings
    Status(TuneStatus),
    /// Write flags for a container, a service or a database, ready to paste
    Flags(TuneFlags),
    /// Weigh the host before and after in interleaved slices, and report what each group of knobs
    /// gains
    Prove(TuneProve),
    /// Apply the plan at every boot (a systemd unit)
    Persist(TunePersist),
    /// Print a DaemonSet that applies the plan on nodes of a cluster and reverts it at its end
    Manifest(TuneManifest),
    /// Store the plan on standard input (started by the pods of `manifest`)
    #[command(hide = true)]
    Store,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// By the number of cores and threads
    Auto,
    /// Interrupts and compute share all CPUs
    Mq,
    /// One hardware thread takes the interrupts
    Sq,
    /// One core, with all its threads, takes the interrupts
    #[value(name = "sq_split")]
    SqSplit,
    /// Leave interrupts unchanged
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImitatedTool {
    /// Plan the changes of perftune.py
    Perftune,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WriteCache {
    Back,
    Through,
}

/// The options of the planner, the same for all subcommands that plan.
#[derive(Clone, Debug, Args)]
pub struct PlanOptions {
    /// Network device to tune, or a bond or VLAN [default: all hardware devices that are up]
    #[arg(long = "nic", value_name = "IF")]
    pub nics: Vec<String>,
    /// Directory whose disks to tune
    #[arg(long = "dir", value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Block device to tune
    #[arg(long = "dev", value_name = "DEVICE")]
    pub devices: Vec<PathBuf>,
    /// CPUs for the database and its interrupts [default: all]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// CPUs for interrupts [default: by the number of cores]
    #[arg(long, value_name = "LIST", conflicts_with = "mode")]
    pub irq_cpus: Option<CpuSet>,
    /// Cores per core for interrupts, 5 or more [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(5..))]
    pub ratio: Option<u32>,
    /// How interrupts and compute share the CPUs
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub mode: Mode,
    /// Plan the changes of another tool
    #[arg(long, value_name = "TOOL")]
    pub like: Option<ImitatedTool>,
    /// Only this knob or group (see `tare list knobs`)
    #[arg(long, value_name = "KNOB", value_delimiter = ',')]
    pub only: Vec<String>,
    /// All except this knob or group
    #[arg(long, value_name = "KNOB", value_delimiter = ',')]
    pub except: Vec<String>,
    /// Receive queues of each network device [default: one per CPU for interrupts]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rx_queues: Option<u32>,
    /// Accelerated receive flow steering
    #[arg(long, value_name = "WHETHER", action = clap::ArgAction::Set)]
    pub arfs: Option<bool>,
    /// Entries of the receive and transmit rings [default: unchanged]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ring: Option<u32>,
    /// Delay of receive interrupts, in µs [default: unchanged]
    #[arg(long, value_name = "US")]
    pub coalesce: Option<u32>,
    /// Write cache of the disks [default: unchanged]
    #[arg(long, value_name = "HOW")]
    pub write_cache: Option<WriteCache>,
    /// Share of memory for TCP buffers [default: 0.03]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub tcp_memory: Option<f64>,
    /// Also switch the clock source
    #[arg(long)]
    pub clock: bool,
}

#[derive(Debug, Args)]
pub struct TunePlan {
    #[command(flatten)]
    pub plan: PlanOptions,
    #[command(flatten)]
    pub on: RunOn,
    /// Plan for a host that `tare host record` saved
    #[arg(long, value_name = "DIR")]
    pub snapshot: Option<PathBuf>,
    /// Print a line for every setting, also for those that are right
    #[arg(long)]
    pub long: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TuneApply {
    #[command(flatten)]
    pub plan: PlanOptions,
    #[command(flatten)]
    pub on: RunOn,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
    /// Apply the plan of `tare tune persist` (run at boot)
    #[arg(long, hide = true)]
    pub stored: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TuneVerify {
    #[command(flatten)]
    pub on: RunOn,
    /// Check again after this time, and where interrupts arrived in between; best under load
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub after: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TuneRevert {
    #[command(flatten)]
    pub on: RunOn,
    /// Restore only what was applied after this tuning
    #[arg(long, value_name = "ID")]
    pub to: Option<String>,
    /// Drop settings that changed since the tuning from the journal, unrestored
    #[arg(long)]
    pub forget_drift: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TuneStatus {
    #[command(flatten)]
    pub on: RunOn,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TunePersist {
    #[command(flatten)]
    pub plan: PlanOptions,
    /// Print the unit and change nothing
    #[arg(long)]
    pub print: bool,
    /// Remove the unit and the stored plan
    #[arg(long, conflicts_with = "print")]
    pub remove: bool,
}

#[derive(Debug, Args)]
pub struct TuneManifest {
    #[command(flatten)]
    pub plan: PlanOptions,
    #[command(flatten)]
    pub on: RunOn,
    /// Path of Tare's program on the nodes, which `--tare-image` does not need
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/usr/local/bin/tare",
        conflicts_with = "tare_image"
    )]
    pub program: String,
    /// Tare's state directory on the nodes
    #[arg(long, value_name = "DIR", default_value = "/var/lib/tare")]
    pub node_state: String,
    /// Image of the pause program, the only one of the pods without `--tare-image`
    #[arg(
        long,
        value_name = "NAME",
        default_value = "registry.k8s.io/pause:3.10",
        conflicts_with = "tare_image"
    )]
    pub image: String,
    /// Namespace to create
    #[arg(long, value_name = "NAME", default_value = "tare-tune")]
    pub namespace: String,
    /// Only nodes with this label (may be repeated) [default: all of this architecture]
    #[arg(long = "node-label", value_name = "NAME=VALUE", value_parser = label)]
    pub node_labels: Vec<(String, String)>,
}

/// Parses a label of a node.
fn label(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = parts.ok_or("write NAME=VALUE, such as disk=nvme")?;
    Ok((name.into(), value.into()))
}

#[derive(Debug, Args)]
pub struct TuneProve {
    /// A study file, or the name of a shipped study (see `tare list studies`)
    #[arg(value_name = "STUDY", default_value = "quick")]
    pub study: String,
    /// Environment to tune [default: the first that is not the baseline]
    #[arg(long, value_name = "NAME")]
    pub environment: Option<String>,
    /// At most this many rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Time for the whole study, such as 5m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// Seed of order, keys and rows
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Record to write [default: STUDY-proof.tare in the current directory]
    #[arg(short, long, value_name = "FILE.tare")]
    pub output: Option<PathBuf>,
    /// Keep the changes that were proven to help; otherwise the host is left as it was found
    #[arg(long)]
    pub keep_only_proven: bool,
    /// Weigh each knob alone, not each group of knobs
    #[arg(long)]
    pub each_knob: bool,
    #[command(flatten)]
    pub loaders: AddLoaders,
    #[command(flatten)]
    pub destroy: DestroyData,
    #[command(flatten)]
    pub show: ShowProgress,
    #[command(flatten)]
    pub on: RunOn,
    #[command(flatten)]
    pub plan: PlanOptions,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Cpus {
    /// Lists (0-3,8) or masks (0xff or 0x1,,0x1), with `plus`, `minus`, `and` or `xor` between
    /// them, calculated from left to right: 0-31 minus 0,16
    #[arg(value_name = "SET", required = true, num_args = 1..)]
    pub sets: Vec<String>,
    /// How to print the result
    #[arg(long, value_name = "FORM", default_value = "list")]
    pub to: CpuForm,
    /// Read the sets as masks, with or without 0x, as in the files of the kernel
    #[arg(long)]
    pub mask: bool,
    /// Print all formats as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CpuForm {
    /// 0-3,8
    List,
    /// 0x0000010f, as hwloc and perftune.yaml write it
    Mask,
    /// 0000010f, as the files of the kernel accept it
    Kernel,
    /// The number of CPUs
    Count,
}

#[derive(Debug, Args)]
pub struct Host {
    #[command(subcommand)]
    pub command: HostCommand,
}

#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// Save the files that the planner reads, without secrets or addresses
    Record(HostRecord),
}

#[derive(Debug, Args)]
pub struct HostRecord {
    #[command(flatten)]
    pub on: RunOn,
    /// Directory to write; it must not exist
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}
