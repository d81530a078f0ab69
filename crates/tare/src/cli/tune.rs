//! The command line of `tare tune`, `tare cpus` and `tare host`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use tare_std::cpus::CpuSet;

use super::{GiveUp, ShowProgress, TuneFlags, duration, share};

#[derive(Debug, Args)]
pub struct Tune {
    #[command(subcommand)]
    pub command: TuneCommand,
}

#[derive(Debug, Subcommand)]
pub enum TuneCommand {
    /// Say what should change on this host, and why; reads only
    Plan(TunePlan),
    /// Make the changes, journalled first, each read back
    Apply(TuneApply),
    /// Say whether what was applied is still in force, and where interrupts arrive
    Verify(TuneVerify),
    /// Put everything back that still is as it was written
    Revert(TuneRevert),
    /// List what is applied
    Status(TuneStatus),
    /// Write flags for a container, a service or a database, ready to paste
    Flags(TuneFlags),
    /// Weigh before and after in turns, and say what each group of knobs gains
    Prove(TuneProve),
    /// Apply the plan at every boot (a systemd unit)
    Persist(TunePersist),
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
    /// Leave interrupts where they are
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Like {
    /// Plan what perftune.py would do
    Perftune,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WriteCache {
    Back,
    Through,
}

/// What to plan; the same for all subcommands that plan.
#[derive(Clone, Debug, Args)]
pub struct PlanOptions {
    /// Network device to tune, a bond or VLAN too; without it every one with hardware that is up
    #[arg(long = "nic", value_name = "IF")]
    pub nics: Vec<String>,
    /// Directory whose disks are tuned
    #[arg(long = "dir", value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Block device to tune
    #[arg(long = "dev", value_name = "DEVICE")]
    pub devices: Vec<PathBuf>,
    /// CPUs for the database and its interrupts; without it all
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// CPUs for interrupts; without it by the number of cores
    #[arg(long, value_name = "LIST", conflicts_with = "mode")]
    pub irq_cpus: Option<CpuSet>,
    /// Cores for each core of interrupts, 5 or more; 16 without it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(5..))]
    pub ratio: Option<u32>,
    /// How interrupts and compute share the CPUs
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub mode: Mode,
    /// Plan what another tool would do
    #[arg(long, value_name = "TOOL")]
    pub like: Option<Like>,
    /// Only this knob or group (see `tare list knobs`)
    #[arg(long, value_name = "KNOB")]
    pub only: Vec<String>,
    /// Not this knob or group
    #[arg(long, value_name = "KNOB")]
    pub except: Vec<String>,
    /// Receive queues of each network device; without it one for each CPU of interrupts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rx_queues: Option<u32>,
    /// Accelerated receive flow steering
    #[arg(long, value_name = "WHETHER", action = clap::ArgAction::Set)]
    pub arfs: Option<bool>,
    /// Entries of the receive and transmit rings; without it as they are
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ring: Option<u32>,
    /// Delay of receive interrupts, in µs; without it as it is
    #[arg(long, value_name = "US")]
    pub coalesce: Option<u32>,
    /// Write cache of the disks; without it as it is
    #[arg(long, value_name = "HOW")]
    pub write_cache: Option<WriteCache>,
    /// Share of memory for TCP buffers; 0.03 without it
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub tcp_memory: Option<f64>,
    /// Switch the clock source too
    #[arg(long)]
    pub clock: bool,
}

#[derive(Debug, Args)]
pub struct TunePlan {
    #[command(flatten)]
    pub plan: PlanOptions,
    /// Plan for a host that `tare host record` saved
    #[arg(long, value_name = "DIR")]
    pub snapshot: Option<PathBuf>,
    /// Every setting in a line of its own, those that are right too
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
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Apply the plan that `tare tune persist` stored (started at boot)
    #[arg(long, hide = true)]
    pub stored: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TuneVerify {
    /// Look again after this time, and at where interrupts arrived meanwhile; best under load
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub after: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TuneRevert {
    /// Put back only what was applied after this tuning, so that the host is as it left it
    #[arg(long, value_name = "ID")]
    pub to: Option<String>,
    /// Leave settings that somebody else changed since to them, and forget them
    #[arg(long)]
    pub forget_drift: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TuneStatus {
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
pub struct TuneProve {
    /// A study file, or the name of a study that ships (see `tare list studies`)
    #[arg(value_name = "STUDY", default_value = "quick")]
    pub study: String,
    /// Environment to tune; without it the first that is not the baseline
    #[arg(long, value_name = "NAME")]
    pub environment: Option<String>,
    /// At most this many rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Time for the whole study, such as 5m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,
    /// Seed of the order, the keys and the rows
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Record to write; without it STUDY-proof.tare in the current directory
    #[arg(short, long, value_name = "FILE.tare")]
    pub output: Option<PathBuf>,
    /// Apply what was proven to help, to stay; without it the host is left as it was found
    #[arg(long)]
    pub keep_only_proven: bool,
    #[command(flatten)]
    pub give_up: GiveUp,
    #[command(flatten)]
    pub show: ShowProgress,
    #[command(flatten)]
    pub plan: PlanOptions,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Convert sets of CPUs, and calculate with them.
#[derive(Debug, Args)]
pub struct Cpus {
    /// Lists (0-3,8) or masks (0xff or 0x1,,0x1), with `plus`, `minus`, `and` or `xor` between
    /// them, calculated from left to right: 0-31 minus 0,16
    #[arg(value_name = "SET", required = true, num_args = 1..)]
    pub sets: Vec<String>,
    /// How to print the result
    #[arg(long, value_name = "FORM", default_value = "list")]
    pub to: CpuForm,
    /// The sets are masks, with or without 0x, as the files of the kernel have them
    #[arg(long)]
    pub mask: bool,
    /// Print every form as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CpuForm {
    /// 0-3,8
    List,
    /// 0x0000010f, as hwloc and perftune.yaml write it
    Mask,
    /// 0000010f, as the kernel's files take it
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
    /// Save everything that the planner reads, without secrets or addresses
    Record(HostRecord),
}

#[derive(Debug, Args)]
pub struct HostRecord {
    /// Directory to write; it must not exist
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}
