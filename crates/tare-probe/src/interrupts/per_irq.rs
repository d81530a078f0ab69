//! Reads the interrupts of some devices on a host whose table takes too long to read.
//!
//! Method: the table is read between slices, before the load starts, to find the devices that
//! interrupt the CPUs of the plan most, and no more often than takes [`SHARE_MAX`] of the time. The
//! edges read one small file per device, `/sys/kernel/irq/N/per_cpu_count`, which has a number for
//! each possible CPU (kernel/irq/irqdesc.c, `per_cpu_count_show`), and the first number of the line
//! `intr` of `/proc/stat`, which counts all interrupts of the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tare_lab::probe::Counter;
use tare_std::cpus::CpuSet;

use super::{KIND, Names, read_table, source_name};
use crate::cpu_table::{Counts, CpuTable};
use crate::source::Source;
use crate::{ProbeError, Roots, counter};

/// The most devices, of those whose files an edge has the time to read.
const DEVICES_MAX: usize = 16;
/// The share of the time that readings of the table may take between slices.
const SHARE_MAX: f64 = 0.005;
/// The first two slices always read the table: the growth between them is that of the load.
const ALWAYS: u32 = 2;

pub(super) struct PerIrq {
    folder: PathBuf,
    stat: Source,
    source: Source,
    table: CpuTable,
    /// The time that a reading of the table takes, and the longest time for an edge.
    took: Duration,
    longest: Duration,
    last: Counts,
    last_at: Instant,
    readings: u32,
    /// For each number of a file, the CPU that it belongs to, if it is observed.
    wanted: Vec<Option<u32>>,
    devices: Vec<Device>,
}

/// A device whose file is read at the edges.
struct Device {
    /// Its place in the table.
    index: usize,
    name: String,
    file: Source,
}

/// The interrupts of the host, and by device (the place in the table) and CPU.
pub(super) struct Values {
    host: u64,
    devices: Vec<(usize, Vec<u64>)>,
}

#[cfg(test)]
impl Values {
    pub(super) fn devices(&self) -> &[(usize, Vec<u64>)] {
        &self.devices
    }
}

impl PerIrq {
    pub(super) fn open(
        roots: &Roots,
        mut source: Source,
        mut table: CpuTable,
        (took, longest): (Duration, Duration),
    ) -> Result<Self, ProbeError> {
        let folder = roots.sys.join("kernel/irq");
        if !folder.is_dir() {
            let path = roots.proc.join("interrupts");
            return Err(ProbeError::Slow { path, took, limit: longest, instead: folder });
        }
        let stat = Source::open(&roots.proc.join("stat"), KIND.needs)?;
        let wanted = wanted(&roots.sys, table.cpus());
        let last = read_table(&mut source, &mut table)?;
        let (last_at, devices) = (Instant::now(), Vec::new());
        let mut reader = Self {
            folder,
            stat,
            source,
            table,
            took,
            longest,
            last,
            last_at,
            readings: 0,
            wanted,
            devices,
        };
        // Until the load has run, the devices with the most interrupts since the host started.
        reader.choose(&reader.last.clone());
        reader.read()?;
        Ok(reader)
    }

    pub(super) fn method(&self) -> String {
        format!(
            "it reads the files of {} devices, because /proc/interrupts takes {} ms, and reads that between slices at most \
             every {} s",
            self.devices.len(),
            tare_std::units::significant(self.took.as_secs_f64() * 1e3, 2),
            tare_std::units::significant(self.pause().as_secs_f64(), 2),
        )
    }

    fn pause(&self) -> Duration {
        self.took.div_f64(SHARE_MAX)
    }

    /// Reads the table if it is time, and observes the devices that have interrupted the CPUs most
    /// since the last reading.
    pub(super) fn prepare(&mut self) -> Result<(), ProbeError> {
        if self.readings >= ALWAYS && self.last_at.elapsed() < self.pause() {
            return Ok(());
        }
        let now = read_table(&mut self.source, &mut self.table)?;
        let grown = now.since(&self.last);
        self.last = now;
        self.last_at = Instant::now();
        self.readings = self.readings.saturating_add(1);
        self.choose(&grown);
        Ok(())
    }

    /// Observes the devices with the highest counts. The others stay while there is room.
    fn choose(&mut self, counts: &Counts) {
        let cpus = self.table.cpus().len();
        let sum = |index: usize| (0..cpus).map(|cpu| counts.of(index, cpu)).sum::<u64>();
        let numbered = |index: &usize| self.table.sources()[*index].label.parse::<u32>().is_ok();
        let all = (0..self.table.sources().len()).filter(numbered);
        let mut busy: Vec<(u64, usize)> =
            all.map(|index| (sum(index), index)).filter(|(sum, _)| *sum > 0).collect();
        busy.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let known = self.devices.iter().map(|device| device.index);
        let mut order: Vec<usize> = busy.into_iter().map(|(_, index)| index).collect();
        let idle: Vec<usize> = known.filter(|index| !order.contains(index)).collect();
        order.extend(idle);
        order.truncate(DEVICES_MAX);
        let mut before = std::mem::take(&mut self.devices);
        let mut spent = Duration::ZERO;
        for index in order {
            let at = before.iter().position(|device| device.index == index);
            let device = at.map(|at| before.swap_remove(at)).or_else(|| self.device(index));
            // The file of an interrupt that has just been freed is gone.
            let Some(mut device) = device else { continue };
            let began = Instant::now();
            let readable = device.file.read().is_ok();
            spent += began.elapsed();
            if spent > self.longest && !self.devices.is_empty() {
                break;
            }
            if readable {
                self.devices.push(device);
            }
        }
        self.devices.sort_by_key(|device| device.index);
    }

    fn device(&self, index: usize) -> Option<Device> {
        let source = &self.table.sources()[index];
        let path = self.folder.join(&source.label).join("per_cpu_count");
        let file = Source::with_room(&path, KIND.needs, 4096).ok()?;
        Some(Device { index, name: source_name(source), file })
    }

    pub(super) fn read(&mut self) -> Result<Values, ProbeError> {
        let host = self.stat.number("intr line", |text| {
            let line = text.lines().find_map(|line| line.strip_prefix("intr "))?;
            line.split(' ').next()?.parse().ok()
        })?;
        let mut devices = Vec::with_capacity(self.devices.len());
        for device in &mut self.devices {
            // An interrupt that is freed in the slice has no further counts.
            let Ok(text) = device.file.read() else { continue };
            let numbers = text.trim_ascii_end().split(',').zip(&self.wanted);
            let ours = numbers.filter(|(_, cpu)| cpu.is_some());
            let numbers = ours.map(|(number, _)| number.parse().unwrap_or(0)).collect();
            devices.push((device.index, numbers));
        }
        Ok(Values { host, devices })
    }

    pub(super) fn counters(&self, begin: &Values, end: &Values, names: &mut Names) -> Vec<Counter> {
        let cpus: Vec<u32> = self.wanted.iter().flatten().copied().collect();
        let mut sums = vec![0; cpus.len()];
        let mut places = Vec::new();
        for (index, after) in &end.devices {
            let Some((_, before)) = begin.devices.iter().find(|(known, _)| known == index) else {
                continue;
            };
            let device = self.devices.iter().find(|device| device.index == *index);
            for (at, ((cpu, after), before)) in cpus.iter().zip(after).zip(before).enumerate() {
                let grown = after.saturating_sub(*before);
                sums[at] += grown;
                if let Some(device) = device.filter(|_| grown > 0) {
                    places.push((device.name.clone(), *cpu, grown));
                }
            }
        }
        let host = end.host.saturating_sub(begin.host) as f64;
        let mut counters = vec![counter("interrupts_on_host", host)];
        let sums = cpus.iter().zip(sums);
        counters.extend(
            sums.map(|(cpu, sum)| counter(format!("device_interrupts_cpu{cpu}"), sum as f64)),
        );
        counters.extend(names.select(places));
        counters
    }
}

/// For each number of a file, which has one for each possible CPU, the CPU if it is observed.
fn wanted(sys: &Path, cpus: &[u32]) -> Vec<Option<u32>> {
    let possible = fs::read_to_string(sys.join("devices/system/cpu/possible")).ok();
    let possible = possible.and_then(|text| CpuSet::parse_list(text.trim()).ok());
    let last = cpus.last().copied().unwrap_or(0);
    let possible = possible.unwrap_or_else(|| (0..=last).collect());
    possible.iter().map(|cpu| cpus.contains(&cpu).then_some(cpu)).collect()
}
