//! Groups the slices of a record into cells. A cell is one environment under one workload, in one
//! phase of one round.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{Phase, Record, Slice};
use tare_stats::{Estimate, estimate, log_ratios};

/// Sums over the slices of a cell. Nearly always it has one slice.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    operations: u64,
    window_ns: u64,
    system_cpu_ns: u64,
    /// Sum of [`Slice::idle_poll_cpu_ns`].
    idle_poll_ns: u64,
    layer_cpu_ns: BTreeMap<String, u64>,
    client_cpu_ns: u64,
    /// Number of the start of the environment.
    pub(super) start: u32,
}

impl Cell {
    fn add(&mut self, slice: &Slice) {
        self.start = slice.start;
        self.operations += slice.operations;
        self.window_ns += slice.window_ns;
        self.system_cpu_ns += slice.system_cpu_ns;
        self.idle_poll_ns += slice.idle_poll_cpu_ns();
        for (layer, ns) in &slice.layer_cpu_ns {
            *self.layer_cpu_ns.entry(layer.clone()).or_default() += ns;
        }
        self.client_cpu_ns += slice.client_cpu_ns;
    }

    fn us_per_operation(&self, ns: u64) -> f64 {
        ns as f64 / 1000.0 / self.operations as f64
    }

    /// Returns the CPU time of the system and the layer. `busy` excludes idle polling.
    pub(super) fn server_cpu_us(&self, busy: bool) -> f64 {
        let idle = if busy { self.idle_poll_ns } else { 0 };
        let layer: u64 = self.layer_cpu_ns.values().sum();
        self.us_per_operation(self.system_cpu_ns - idle + layer)
    }

    pub(super) fn client_cpu_us(&self) -> f64 {
        self.us_per_operation(self.client_cpu_ns)
    }

    pub(super) fn total_cpu_us(&self, busy: bool) -> f64 {
        self.server_cpu_us(busy) + self.client_cpu_us()
    }

    pub(super) fn system_cpu_us(&self) -> f64 {
        self.us_per_operation(self.system_cpu_ns)
    }

    pub(super) fn idle_poll_us(&self) -> f64 {
        self.us_per_operation(self.idle_poll_ns)
    }

    pub(super) fn layer_cpu_us(&self, layer: &str) -> f64 {
        self.us_per_operation(self.layer_cpu_ns.get(layer).copied().unwrap_or(0))
    }

    pub(super) fn throughput_per_s(&self) -> f64 {
        self.operations as f64 * 1e9 / self.window_ns as f64
    }
}

/// One environment under one workload in one phase, round by round.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    rounds: BTreeMap<u32, Cell>,
    pub(super) slices: u32,
    pub(super) slices_void: u32,
    slices_without_busy_time: u32,
}

impl Series {
    /// Returns whether the system measured its busy time in every slice.
    pub(super) fn has_busy_time(&self) -> bool {
        self.slices > 0 && self.slices_without_busy_time == 0
    }

    pub(super) fn polls(&self) -> bool {
        self.rounds.values().any(|cell| cell.idle_poll_ns > 0)
    }

    pub(super) fn round_numbers(&self) -> impl Iterator<Item = u32> {
        self.rounds.keys().copied()
    }

    pub(super) fn cell(&self, round: u32) -> Option<&Cell> {
        self.rounds.get(&round)
    }

    /// Returns the cells of the rounds that both series have: (this, the baseline's).
    pub(super) fn pairs<'s>(
        &'s self,
        baseline: &'s Self,
    ) -> impl Iterator<Item = (&'s Cell, &'s Cell)> {
        self.rounds.iter().filter_map(|(round, here)| Some((here, baseline.rounds.get(round)?)))
    }

    /// Returns a figure over all rounds. Its interval is computed on the log scale, like those of
    /// ratios.
    pub(super) fn level(&self, figure: impl Fn(&Cell) -> f64) -> Option<Estimate> {
        Some(estimate(&self.logs(figure))?.map(f64::exp))
    }

    /// Returns the logarithm of a figure in each round.
    pub(super) fn logs(&self, figure: impl Fn(&Cell) -> f64) -> Vec<f64> {
        log_ratios(self.rounds.values().map(|cell| (figure(cell), 1.0)))
    }

    /// Returns the share of its CPUs that the client used.
    pub(super) fn client_cpu_share(&self, client_cpus: usize) -> Option<f64> {
        let used: u64 = self.rounds.values().map(|cell| cell.client_cpu_ns).sum();
        let window: u64 = self.rounds.values().map(|cell| cell.window_ns).sum();
        let given = window as f64 * client_cpus as f64;
        (given > 0.0).then(|| used as f64 / given)
    }

    /// Returns the mean of a figure per operation over all operations of all rounds.
    pub(super) fn mean_per_operation(&self, figure: &dyn Fn(&Cell) -> f64) -> f64 {
        let operations = |cell: &Cell| cell.operations as f64;
        let sum: f64 = self.rounds.values().map(|cell| figure(cell) * operations(cell)).sum();
        sum / self.rounds.values().map(operations).sum::<f64>()
    }

    /// Returns the names of the parts that the layer adds outside the system.
    pub(super) fn layers(&self) -> BTreeSet<&str> {
        self.rounds.values().flat_map(|cell| cell.layer_cpu_ns.keys().map(String::as_str)).collect()
    }
}

/// All series of a record.
#[derive(Debug)]
pub(super) struct Cells {
    series: BTreeMap<(String, Phase, String), Series>,
    empty: Series,
}

impl Cells {
    pub(super) fn of(record: &Record) -> Self {
        let mut series: BTreeMap<_, Series> = BTreeMap::new();
        for slice in &record.slices {
            let key = (slice.workload.clone(), slice.phase, slice.environment.clone());
            let series = series.entry(key).or_default();
            if slice.void.is_some() || slice.operations == 0 || slice.window_ns == 0 {
                series.slices_void += 1;
                continue;
            }
            series.slices += 1;
            series.slices_without_busy_time += u32::from(slice.busy_time.is_none());
            series.rounds.entry(slice.round).or_default().add(slice);
        }
        Self { series, empty: Series::default() }
    }

    pub(super) fn series(&self, workload: &str, phase: Phase, environment: &str) -> &Series {
        let key = (workload.to_string(), phase, environment.to_string());
        self.series.get(&key).unwrap_or(&self.empty)
    }

    /// Returns the number of rounds with the baseline and at least one other environment.
    pub(super) fn paired_rounds(&self, baseline: &str) -> u32 {
        let mut paired: BTreeSet<u32> = BTreeSet::new();
        for ((workload, phase, environment), series) in &self.series {
            if environment != baseline {
                let base = self.series(workload, *phase, baseline);
                paired.extend(series.rounds.keys().filter(|b| base.rounds.contains_key(b)));
            }
        }
        u32::try_from(paired.len()).unwrap_or(u32::MAX)
    }
}
