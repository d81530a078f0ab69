//! Predicts the queues of a device after its channels are set; the rest of the plan is based on
//! them.
//!
//! Channels follow perftune.py: one receive queue per interrupt CPU (seastar #503: a second queue
//! on one CPU only adds the work of serving it). `rx` is set where the device counts receive
//! channels separately, `combined` otherwise. Tare requests at most what the device has;
//! perftune.py requests more and the driver refuses, which leaves the channels unchanged.
//!
//! When the number shrinks, only the queues below the new number stay. When it grows, the new
//! queues do not exist yet: they are planned when the host is read again after the change.

use std::collections::BTreeSet;

use super::{CpuSets, EthtoolSetting, Group, Identity, Mode, Options};
use crate::machine::nics::names;
use crate::machine::{Irq, Nic};
use crate::snapshot::Snapshot;

/// The queues and interrupts of a device after the change of its channels.
#[derive(Clone, Debug, PartialEq)]
pub struct Queues<'a> {
    /// The channels to set; `None` when the device has none to set or none were requested.
    pub channels: Option<ChannelsWanted>,
    /// Receive queues that exist now and stay.
    pub rx: Vec<u32>,
    /// Transmit queues that exist now and stay.
    pub tx: Vec<u32>,
    /// Interrupts of the queues that will receive packets, in the order of the queues.
    pub irqs: Vec<&'a Irq>,
    /// Interrupts of queues that are not in use, and of flow directors where perftune.py moves
    /// them.
    pub rest: Vec<&'a Irq>,
    /// The existing queues that `serving` counts.
    serving: usize,
}

/// The current, wanted and largest number of channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelsWanted {
    pub setting: EthtoolSetting,
    pub now: u32,
    pub wanted: u32,
    pub max: u32,
}

impl Queues<'_> {
    /// Returns the number of queues that will receive packets and whose interrupts can be moved,
    /// queues that do not exist yet included. Transmit queues with their own interrupts do not
    /// count, because completions are light compared with received packets.
    pub fn serving(&self) -> usize {
        self.serving + self.grown()
    }

    /// Returns the number of queues that the change adds.
    pub fn grown(&self) -> usize {
        let wanted = self.channels.as_ref();
        wanted.map_or(0, |channels| channels.wanted.saturating_sub(channels.now) as usize)
    }
}

/// Predicts the queues of a device after the plan's change of its channels.
pub fn predict<'a>(nic: &'a Nic, options: &Options, cpus: &CpuSets) -> Queues<'a> {
    let channels = channels(nic, options, cpus);
    let change = channels.as_ref().filter(|channels| channels.wanted < channels.now);
    let kept = |queues: &[u32], shrinks: bool| -> Vec<u32> {
        let Some(change) = change.filter(|_| shrinks) else { return queues.to_vec() };
        let (now, wanted) = (change.now as usize, change.wanted as usize);
        // Some drivers have several queues for each channel: mlx5 doubles its receive queues in
        // Linux 5.3 to 6.0, and has a transmit queue for each traffic class.
        let each = (queues.len() / now).max(1);
        queues.iter().copied().filter(|queue| (*queue as usize) < wanted * each).collect()
    };
    let combined = change.is_some_and(|c| c.setting == EthtoolSetting::ChannelsCombined);
    let rx = kept(&nic.rx_queues, true);
    let tx = kept(&nic.tx_queues, combined);
    let irqs = candidates(nic, options);
    let most = names::rss_queues_max(&nic.driver).unwrap_or(usize::MAX);
    let in_use = (rx.len() / doubled(nic)).min(most);
    // By rank, because mlx4 counts from 1; perftune.py uses the number.
    let numbers: BTreeSet<u32> = irqs.iter().filter_map(|irq| nic.queue_of(irq)).collect();
    let beyond = numbers.iter().nth(in_use).copied();
    let serves = |irq: &&Irq| match nic.queue_of(irq) {
        Some(queue) if options.like_perftune => (queue as usize) < in_use,
        Some(queue) => beyond.is_none_or(|beyond| queue < beyond),
        None => numbers.is_empty(),
    };
    // perftune.py checks queues only where it set channels or the hash cannot feed all of them.
    let separates = !options.like_perftune || channels.is_some() || most < irqs.len();
    let (irqs, mut rest): (Vec<&Irq>, Vec<&Irq>) = match separates && !rx.is_empty() {
        true => irqs.into_iter().partition(serves),
        false => (irqs, Vec::new()),
    };
    if change.is_some() {
        // Most drivers free them with the change; those that remain are planned after it.
        rest.clear();
    }
    let movable = irqs.iter().filter(|irq| irq.managed != Some(true));
    let movable: BTreeSet<u32> =
        movable.map(|irq| nic.queue_of(irq).unwrap_or(irq.number)).collect();
    let serving = movable.len().min(if rx.is_empty() { usize::MAX } else { in_use });
    Queues { channels, rx, tx, irqs, rest, serving }
}

/// Returns the interrupts that are moved, in the order of their queues.
fn candidates<'a>(nic: &'a Nic, options: &Options) -> Vec<&'a Irq> {
    if !options.like_perftune {
        return nic.irqs[..nic.irqs_of_queues].iter().collect();
    }
    let known = nic.irqs.iter().filter(|irq| names::known_to_perftune(&irq.name));
    let known: Vec<&Irq> = known.collect();
    if known.is_empty() {
        let mut all: Vec<&Irq> = nic.irqs.iter().collect();
        all.sort_by_key(|irq| irq.number);
        return all;
    }
    known
}

/// Returns the number of receive queues per channel: 2 for mlx5 of Linux 5.3 to 6.0, which shows a
/// second queue for AF_XDP, otherwise 1. The number of queues decides, not the kernel version,
/// because the kernel may be patched.
fn doubled(nic: &Nic) -> usize {
    let combined = nic.channels.map_or(0, |channels| channels.combined as usize);
    let twice = nic.driver == "mlx5_core" && combined > 0 && nic.rx_queues.len() == 2 * combined;
    if twice { 2 } else { 1 }
}

/// Returns the number of channels that a device gets.
fn channels(nic: &Nic, options: &Options, cpus: &CpuSets) -> Option<ChannelsWanted> {
    let untouched = options.mode == Mode::None && !options.like_perftune;
    if !chosen(options, "nic_channels", Group::Network) || untouched && options.rx_queues.is_none()
    {
        return None;
    }
    let has = nic.channels?;
    let (setting, now, max) = match has.rx_max > 0 && (has.rx > 0 || has.combined_max == 0) {
        true => (EthtoolSetting::ChannelsRx, has.rx, has.rx_max),
        false => (EthtoolSetting::ChannelsCombined, has.combined, has.combined_max),
    };
    let requested = options.rx_queues.unwrap_or(u32::try_from(cpus.irq.len()).unwrap_or(u32::MAX));
    let refused = options.like_perftune && requested > max;
    if max == 0 || requested == 0 || now == 0 || refused {
        return None;
    }
    Some(ChannelsWanted { setting, now, wanted: requested.min(max), max })
}

/// Whether the options keep a knob in the plan.
pub fn chosen(options: &Options, knob: &str, group: Group) -> bool {
    let names = |list: &[String]| list.iter().any(|name| name == knob || name == group.name());
    (options.only.is_empty() || names(&options.only)) && !names(&options.except)
}

/// Formats a count with its noun: `1 queue`, `2 queues`.
pub fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

/// Returns the identity of a device, for its settings.
pub fn identity(snapshot: &Snapshot, nic: &Nic) -> Identity {
    let index = snapshot.read(&format!("/sys/class/net/{}/ifindex", nic.name));
    Identity { pci: nic.pci.clone(), irq_name: None, device: index.map(str::to_string) }
}
