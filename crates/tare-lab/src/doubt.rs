//! Doubts: typed reasons to trust a figure less. A doubt is data: the record stores it with the
//! slice, and reports show it with the figure and with advice. [`crate::judge`] decides when a
//! figure deserves one.

use serde::{Deserialize, Serialize};
use tare_std::units::significant;

/// A reason to trust a slice, an environment or the whole record less. Shares are from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Doubt {
    /// The hypervisor gave the CPUs of the plan to other guests.
    Steal { share: f64 },
    /// Processes that are not part of the study used the CPUs.
    Strangers { share: f64 },
    /// The client used more than 85 % of its CPUs, or its busiest thread more than 85 % of one, so
    /// that it may be the bottleneck. `busiest_thread_share` is set where only the thread was busy.
    ClientSaturated {
        share: f64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        busiest_thread_share: Option<f64>,
    },
    /// At capacity neither the system nor the client used its CPUs: the load was too small.
    NeitherSaturated { system_share: f64, client_share: f64 },
    /// Client and system may run on the same CPUs.
    ClientSharesCpus { cpus: String },
    /// Client and system use different hardware threads of the same cores.
    ClientSharesCores { cpus: String },
    /// The CPU quota held the system back.
    Throttled { share: f64 },
    /// The system worked in the background: `share` of the window, where its time is known.
    BackgroundWork { work: String, share: Option<f64> },
    /// The system polls, and its own account of busy time could not be read: its CPU time is not
    /// its work.
    NoPollingAccount { reason: String },
    /// Another share of the reads came from disk than the study asks for.
    ReadsNotFromDisk { asked_share: f64, found_share: f64 },
    /// A node of a system on several hosts, counted from 1, used far less CPU time than the others
    /// did on average.
    NodeBehind { node: u32, share: f64 },
    /// The accounts of a node, counted from 1, were read later than those of the others, as a share
    /// of the window.
    NodeReadLate { node: u32, share: f64 },
    /// The open loop did not reach the requested rate.
    RateNotReached { asked_per_s: f64, reached_per_s: f64 },
    /// The client sent operations more than 1 ms after they were due. `waited_share` is the share
    /// of time that its threads waited for a CPU, where the kernel reports it.
    SentLate { late_share: f64, waited_share: Option<f64> },
    /// Operations failed.
    OperationErrors { error: String, count: u64, operations: u64 },
    /// A requested layer was not in force; the slice is void.
    LayerNotInForce { layer: String, wanted: String, found: String },
    /// The two copies of the baseline differ by more than the smallest claimed cost.
    ControlBeyondClaim { control_percent: f64, smallest_percent: f64 },
    /// The baseline's network namespace has NAT or a container bridge, which slows the native run.
    BaselineNotClean { found: String },
    /// The system chose a different I/O engine than in the baseline.
    IoEngineDiffers { baseline: String, here: String },
    /// The guest's instructions are emulated: the guest works, but its figures are the emulator's.
    Emulated { accelerator: String },
    /// The guest's kernel is a process of the host that intercepts every system call: its figures
    /// are not those of a virtual machine.
    UserModeKernel { accelerator: String },
    /// The load did not become steady before the measurement began.
    NotSteady { workload: String, criterion: String, waited_s: u64 },
    /// Random writes were measured on storage that the workload did not make steady before.
    NotMadeSteady { workload: String },
    /// At the fixed rate the driver measures latency from the send, not from the scheduled start.
    CoordinatedOmission { driver: String },
    /// The driver reports latency over its whole run, lead-in and tail included.
    LatencyBeyondWindow { driver: String },
    /// A probe failed to read its values.
    ProbeFailed { probe: String, reason: String },
    /// Too few rounds for a reliable interval. The record's format calls rounds blocks.
    #[serde(rename = "few_blocks")]
    FewRounds {
        #[serde(rename = "blocks")]
        rounds: u32,
    },
    /// This host could not run an environment of the study.
    EnvironmentLeftOut { environment: String, reason: String },
    /// The study has a control of this environment's runtime, which did not run. So nothing shows
    /// what the runtime changes for everything under it.
    NoRuntimeControl { runtime: String, reason: String },
    /// This many systems were attached, and so not frozen while another one was measured.
    NotFrozen { systems: u32 },
    /// The window of a loader was away from that of the accounts by this share of it.
    LoaderLate { loader: String, share: f64 },
    /// The clock of a loader may be wrong by this share of the window.
    LoaderClock { loader: String, share: f64 },
    /// The load used this share of the speed of the link of the system's host.
    LinkFilled { share: f64 },
    /// The path from a loader to the system has no network card: it is a veth pair, a bridge or the
    /// like.
    NoCardInPath { loader: String, what: String },
    /// A loader used most of its CPUs or of one of them, or its threads waited for a CPU.
    LoaderSaturated {
        loader: String,
        share: f64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waited_share: Option<f64>,
    },
    /// No operation ended in some slices. They are void, so that the others look better than all.
    EmptySlices { slices: u32, of: u32 },
    /// Throughput rose by this much from the first third of the rounds to the last.
    StillWarming {
        percent: f64,
        /// The length of the schedule's warm-up, where it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warm_up_s: Option<f64>,
    },
}

impl Doubt {
    /// Returns how much of its limit a saturated client used: of its CPUs, or of the one CPU of its
    /// busiest thread.
    pub fn client_use(share: f64, busiest_thread_share: Option<f64>) -> f64 {
        busiest_thread_share.unwrap_or(share)
    }

    /// Returns the kind as the record names it: `steal`, `client_saturated` ...
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Steal { .. } => "steal",
            Self::Strangers { .. } => "strangers",
            Self::ClientSaturated { .. } => "client_saturated",
            Self::NeitherSaturated { .. } => "neither_saturated",
            Self::ClientSharesCpus { .. } => "client_shares_cpus",
            Self::ClientSharesCores { .. } => "client_shares_cores",
            Self::Throttled { .. } => "throttled",
            Self::BackgroundWork { .. } => "background_work",
            Self::NoPollingAccount { .. } => "no_polling_account",
            Self::ReadsNotFromDisk { .. } => "reads_not_from_disk",
            Self::NodeBehind { .. } => "node_behind",
            Self::NodeReadLate { .. } => "node_read_late",
            Self::RateNotReached { .. } => "rate_not_reached",
            Self::SentLate { .. } => "sent_late",
            Self::OperationErrors { .. } => "operation_errors",
            Self::LayerNotInForce { .. } => "layer_not_in_force",
            Self::ControlBeyondClaim { .. } => "control_beyond_claim",
            Self::BaselineNotClean { .. } => "baseline_not_clean",
            Self::IoEngineDiffers { .. } => "io_engine_differs",
            Self::Emulated { .. } => "emulated",
            Self::UserModeKernel { .. } => "user_mode_kernel",
            Self::NotSteady { .. } => "not_steady",
            Self::NotMadeSteady { .. } => "not_made_steady",
            Self::CoordinatedOmission { .. } => "coordinated_omission",
            Self::LatencyBeyondWindow { .. } => "latency_beyond_window",
            Self::ProbeFailed { .. } => "probe_failed",
            Self::FewRounds { .. } => "few_blocks",
            Self::EnvironmentLeftOut { .. } => "environment_left_out",
            Self::NoRuntimeControl { .. } => "no_runtime_control",
            Self::NotFrozen { .. } => "not_frozen",
            Self::LoaderLate { .. } => "loader_late",
            Self::LoaderClock { .. } => "loader_clock",
            Self::LoaderSaturated { .. } => "loader_saturated",
            Self::LinkFilled { .. } => "link_filled",
            Self::NoCardInPath { .. } => "no_card_in_path",
            Self::EmptySlices { .. } => "empty_slices",
            Self::StillWarming { .. } => "still_warming",
        }
    }

    /// Returns the observation as one sentence without its full stop, the figure first.
    pub fn text(&self) -> String {
        let percent = |share: &f64| format!("{} %", significant(share * 100.0, 2));
        match self {
            Self::NoPollingAccount { .. } | Self::NotMadeSteady { .. } => self.load_text(),
            Self::Steal { share } => {
                format!("{} of the CPU time was stolen by the hypervisor", percent(share))
            }
            Self::Strangers { share } => {
                format!("{} of the CPUs was used by processes outside the study", percent(share))
            }
            Self::ClientSaturated { .. }
            | Self::NeitherSaturated { .. }
            | Self::RateNotReached { .. }
            | Self::LoaderLate { .. }
            | Self::LoaderClock { .. }
            | Self::LoaderSaturated { .. }
            | Self::LinkFilled { .. }
            | Self::NoCardInPath { .. }
            | Self::EmptySlices { .. }
            | Self::StillWarming { .. } => self.load_text(),
            Self::NodeBehind { .. } | Self::NodeReadLate { .. } => self.node_text(),
            Self::ClientSharesCpus { cpus } => {
                format!("CPU {cpus} may run both client and system")
            }
            Self::ClientSharesCores { cpus } => {
                format!("client and system use hardware threads of the same cores: CPUs {cpus}")
            }
            Self::Throttled { share } => {
                format!("{} of the time the CPU quota throttled the system", percent(share))
            }
            Self::BackgroundWork { work, share: None } => format!("background work ran: {work}"),
            Self::BackgroundWork { work, share: Some(share) } => {
                format!("background work took {} of the time: {work}", percent(share))
            }
            Self::ReadsNotFromDisk { asked_share, found_share } => format!(
                "{} of the reads came from disk, not {} as the study asks",
                percent(found_share),
                percent(asked_share)
            ),
            Self::SentLate { late_share, waited_share } => {
                let waited = waited_share.as_ref().map(|share| {
                    format!("; its threads waited for a CPU {} of the time", percent(share))
                });
                format!(
                    "{} of the operations left the client more than 1 ms late{}",
                    percent(late_share),
                    waited.unwrap_or_default()
                )
            }
            Self::OperationErrors { error, count, operations } => {
                format!("{count} operations failed, {operations} succeeded: {error}")
            }
            Self::LayerNotInForce { layer, wanted, found } => {
                format!("layer {layer} was not in force: wanted {wanted}, found {found}")
            }
            Self::ControlBeyondClaim { control_percent, smallest_percent } => {
                control_text(*control_percent, *smallest_percent)
            }
            Self::BaselineNotClean { found } => {
                format!("the baseline also pays for container networking: {found}")
            }
            Self::IoEngineDiffers { baseline, here } => {
                format!("the system uses {here} for I/O here, {baseline} in the baseline")
            }
            Self::Emulated { accelerator } => format!(
                "the guest's CPU is emulated ({accelerator}): functional, not a measurement"
            ),
            Self::UserModeKernel { .. } => {
                "the guest's kernel runs in user mode and intercepts every system call: its costs are \
                 not those of a virtual machine"
                    .to_string()
            }
            Self::NotSteady { workload, criterion, waited_s } => {
                format!("after {waited_s} s under {workload:?} the load was not steady ({criterion})")
            }
            Self::CoordinatedOmission { driver } => format!(
                "{driver} measures latency at the fixed rate from the send, not from the schedule: the \
                 wait for a slow system is missing"
            ),
            Self::LatencyBeyondWindow { driver } => {
                format!("{driver} reports latency over its whole run, lead-in and tail included")
            }
            Self::ProbeFailed { probe, reason } => format!("probe {probe} failed: {reason}"),
            Self::FewRounds { rounds } => {
                let plural = if *rounds == 1 { "" } else { "s" };
                format!("{rounds} round{plural} measured: too few for a reliable interval")
            }
            Self::EnvironmentLeftOut { environment, reason } => {
                format!("\"{environment}\" was left out: {reason}")
            }
            Self::NoRuntimeControl { runtime, reason } => {
                format!("no control shows what {runtime} itself changes: {reason}")
            }
            Self::NotFrozen { systems } => {
                let plural = if *systems == 1 { "system" } else { "systems" };
                format!("{systems} attached {plural} ran on while another one was measured")
            }
        }
    }

    /// Returns the observation about a node of a system on several hosts.
    fn node_text(&self) -> String {
        let percent = |share: &f64| format!("{} %", significant(share * 100.0, 2));
        match self {
            Self::NodeBehind { node, share } => {
                format!("node {node} used {} of the CPU time of the other nodes", percent(share))
            }
            Self::NodeReadLate { node, share } => {
                let share = percent(share);
                format!("{share} of the window passed until the accounts of node {node} were read")
            }
            _ => String::new(),
        }
    }

    /// Returns the text of a doubt about the size of the load.
    fn load_text(&self) -> String {
        let percent = |share: f64| format!("{} %", significant(share * 100.0, 2));
        match *self {
            Self::LinkFilled { share } => {
                format!(
                    "{} of the speed of the link the load used: throughput is the link's",
                    percent(share)
                )
            }
            Self::NoPollingAccount { ref reason } => {
                format!(
                    "the system polls, and how much of its CPU time was work is unknown: {reason}"
                )
            }
            Self::NotMadeSteady { ref workload } => {
                format!(
                    "the random writes of {workload:?} met the storage as it was, not made steady"
                )
            }
            Self::NoCardInPath { ref loader, ref what } => {
                format!("no network card is in the path from {loader}: it is a {what}")
            }
            Self::LoaderLate { ref loader, share } => format!(
                "{} of the window is how far that of {loader} was from that of the accounts",
                percent(share)
            ),
            Self::LoaderClock { ref loader, share } => {
                format!("{} of the window is the error of the clock of {loader}", percent(share))
            }
            Self::LoaderSaturated { ref loader, waited_share: Some(waited), .. } => {
                format!("{} of the time the threads of {loader} waited for a CPU", percent(waited))
            }
            Self::LoaderSaturated { ref loader, share, .. } => format!(
                "{} of its CPUs, or of one of them, {loader} used: it may be the bottleneck",
                percent(share)
            ),
            Self::ClientSaturated { share, busiest_thread_share: Some(thread) } => format!(
                "{} of a CPU went to the client's busiest thread, {} of its CPUs to all of it: that \
                 thread may be the bottleneck",
                percent(thread),
                percent(share)
            ),
            Self::ClientSaturated { share, .. } => format!(
                "{} of the client's CPUs were busy: the client may be the bottleneck",
                percent(share)
            ),
            Self::NeitherSaturated { system_share, client_share } => format!(
                "{} of the system's CPUs and {} of the client's were busy: too little load to show a \
                 capacity",
                percent(system_share),
                percent(client_share)
            ),
            Self::RateNotReached { asked_per_s, reached_per_s } => format!(
                "{reached_per_s:.0} of {asked_per_s:.0} operations/s reached at the fixed rate"
            ),
            Self::EmptySlices { slices, of } => {
                format!("no operation ended in {slices} of {of} slices, which do not count")
            }
            Self::StillWarming { percent, warm_up_s } => format!(
                "throughput rose by {percent:.0} % from the first third of the rounds to the last{}",
                warm_up_s.map_or_else(String::new, |s| format!(
                    ", after a warm_up of {} s",
                    significant(s, 2)
                ))
            ),
            _ => String::new(),
        }
    }

    /// Returns the advice as one sentence without its full stop.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Steal { .. } => {
                "trust CPU per operation before throughput; repeat at a quieter time or on a dedicated \
                 host"
            }
            Self::Strangers { .. } => {
                "stop them (top shows them) and repeat; CPU per operation suffers less than throughput"
            }
            Self::ClientSaturated { busiest_thread_share: None, .. } => {
                "read this throughput as a lower bound; give the client more CPUs ([cpus] client) \
                 or the system fewer"
            }
            Self::ClientSaturated { .. } => {
                "read this throughput as a lower bound; give the client more threads (threads or jobs \
                 of a load tool, connections of tare-load)"
            }
            Self::NeitherSaturated { .. } => {
                "read this throughput as that of the round trip; write load = \"saturate\" instead of \
                 in_flight, or raise the clients or threads of a load tool"
            }
            Self::ClientSharesCpus { .. } => {
                "part of the cost comes from this sharing; pinned environments avoid it"
            }
            Self::ClientSharesCores { .. } => {
                "each slows the other down; give both whole cores ([cpus] in the study, or none for \
                 Tare's own division)"
            }
            Self::Throttled { .. } => {
                "raise the quota, or count the throttling as part of its cost"
            }
            Self::BackgroundWork { .. } => {
                "it is part of these figures; compare how often it ran in each environment, and use a \
                 longer window if it ran in few slices"
            }
            Self::ReadsNotFromDisk { .. } => {
                "change the rows of the workload or the memory of the system; the share from disk is \
                 the measured one"
            }
            Self::RateNotReached { .. } => {
                "this latency is that of an overloaded system; lower latency_share or the rate"
            }
            Self::SentLate { .. } => {
                "the response time includes this delay; give the client its own CPUs, or more \
                 connections"
            }
            Self::OperationErrors { .. } => {
                "check the system's log; a failed operation often costs less than a successful one"
            }
            Self::LayerNotInForce { .. } => {
                "the slice does not count; `tare doctor` shows what this host supports"
            }
            Self::ControlBeyondClaim { .. } => {
                "claim no cost of that size from this record; measure longer or on a quieter host"
            }
            Self::BaselineNotClean { .. } => {
                "real costs are larger than shown; run the baseline without NAT tables and container \
                 bridges"
            }
            Self::IoEngineDiffers { .. } => {
                "the cost includes the other I/O engine; security = \"default+io_uring\" separates the \
                 two"
            }
            Self::Emulated { .. } => {
                "draw no cost of a virtual machine from it; use a host where KVM boots a guest \
                 (`tare doctor` checks)"
            }
            Self::UserModeKernel { .. } => {
                "user code runs at full speed, system calls many times slower; use a host where KVM \
                 boots a guest (`tare doctor` checks)"
            }
            Self::CoordinatedOmission { .. } => {
                "read these percentiles as lower bounds; use a driver that measures from the schedule"
            }
            Self::LatencyBeyondWindow { .. } => {
                "compare its percentiles between environments only; make the window much longer than \
                 the lead-in"
            }
            Self::ProbeFailed { .. } => "doubts that need this probe are missing here",
            Self::FewRounds { .. } => "raise the budget or the number of rounds",
            Self::EnvironmentLeftOut { .. } => "`tare doctor` shows what is missing",
            Self::NoRuntimeControl { .. } => {
                "small differences from the baseline may come from the runtime's set-up and not from \
                 a layer; make room for the control (fewer rows or environments) and repeat"
            }
            Self::NodeBehind { .. }
            | Self::NodeReadLate { .. }
            | Self::LinkFilled { .. }
            | Self::NoCardInPath { .. }
            | Self::LoaderLate { .. }
            | Self::LoaderClock { .. }
            | Self::LoaderSaturated { .. } => self.advice_for_hosts(),
            Self::EmptySlices { .. }
            | Self::NoPollingAccount { .. }
            | Self::NotSteady { .. }
            | Self::NotMadeSteady { .. }
            | Self::StillWarming { .. }
            | Self::NotFrozen { .. } => self.advice_for_time(),
        }
    }

    /// Returns the advice about slices, what runs between them, and accounts of their time.
    fn advice_for_time(&self) -> &'static str {
        match self {
            Self::NotFrozen { .. } => {
                "what they do meanwhile, for other clients or in the background, is noise of all; \
                 give each its own CPUs, or measure one alone"
            }
            Self::NotSteady { .. } => {
                "the figures may still drift; raise steadystate_limit, steadystate_rounds or lead_in"
            }
            Self::NotMadeSteady { .. } => {
                "a solid-state disk may become slower after hours of such writes; set steadystate = \"snia\""
            }
            Self::NoPollingAccount { .. } => {
                "its CPU per operation is that of polling and is not compared; let Tare reach its \
                 metrics, or compare throughput and latency"
            }
            Self::EmptySlices { .. } => {
                "throughput and latency are worse than shown; use a longer window, or a quieter CPU and \
                 disk"
            }
            Self::StillWarming { warm_up_s: Some(_), .. } => {
                "the system still compiled its code or filled its caches, and an environment that \
                 slows it down also warms it up later; give the schedule a longer warm_up"
            }
            _ => {
                "the system still compiled its code or filled its caches, and an environment that \
                 slows it down also warms it up later; give the schedule a warm_up"
            }
        }
    }

    /// Returns the advice about other hosts and the way to them.
    fn advice_for_hosts(&self) -> &'static str {
        match self {
            Self::NodeBehind { .. } => {
                "the sum hides an uneven cluster: see the node's log, its host, and how the keys are \
                 spread"
            }
            Self::NodeReadLate { .. } => {
                "the nodes were read at different times; use a longer window, or a faster line to the \
                 host"
            }
            Self::LinkFilled { .. } => {
                "throughput is not compared; use a faster link, smaller rows, or latency at a fixed rate"
            }
            Self::NoCardInPath { .. } => {
                "the figures say nothing about cards, their queues and interrupts; for those use a \
                 loader on another machine"
            }
            Self::LoaderLate { .. } => {
                "operations and CPU time are of slightly different times; use a longer \
                 schedule.window, and leave a loader nothing else to do"
            }
            Self::LoaderClock { .. } => "use a longer schedule.window, or a shorter line to it",
            Self::LoaderSaturated { .. } => {
                "read this throughput as a lower bound; give the loader more CPUs, leave it nothing \
                 else to do, or add another [[loader]]"
            }
            _ => "",
        }
    }
}

/// Returns the text of a control whose difference is beyond chance, or as large as a cost.
fn control_text(control_percent: f64, smallest_percent: f64) -> String {
    let smallest = significant(smallest_percent, 2);
    let beyond = if smallest_percent == 0.0 {
        "chance does not explain it".to_string()
    } else if control_percent.abs() < smallest_percent {
        format!("chance does not explain it (smallest cost found: {smallest} %)")
    } else {
        format!("as much as the smallest cost found ({smallest} %)")
    };
    let control = significant(control_percent, 2);
    format!("{control} % between two copies of the baseline: {beyond}")
}
