//! Divides a load among loaders. Pure.

use tare_lab::driver::{Pacing, SliceOrder};
use tare_lab::study::WorkloadSpec;

/// One loader's part of a slice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoaderShare {
    /// With this loader's connections, requests in flight and rate.
    pub(crate) order: SliceOrder,
    /// Open loop: its operations are due this much later than those of the first loader.
    pub(crate) phase_ns: u64,
}

/// Divides a rate into whole operations/s as far as possible. The parts add up to it.
fn rates(rate_per_s: f64, count: u32) -> Vec<f64> {
    let number = f64::from(count.max(1));
    if rate_per_s < number {
        return vec![rate_per_s / number; count as usize];
    }
    let each = (rate_per_s / number).floor();
    let mut left = rate_per_s - each * number;
    let part = |_| {
        // All of the rest once it is less than 1.
        let more = if left >= 1.0 { 1.0 } else { left };
        left -= more;
        each + more
    };
    (0..count).map(part).collect()
}

/// Divides a slice among loaders with these workloads. A loader without a workload has no part.
pub(crate) fn divide(
    order: &SliceOrder,
    workloads: Vec<Option<WorkloadSpec>>,
) -> Vec<Option<LoaderShare>> {
    let working = workloads.iter().flatten().count();
    let working = u32::try_from(working).unwrap_or(u32::MAX).max(1);
    let mut rates = match order.pacing {
        Pacing::Closed => Vec::new(),
        Pacing::Open { rate_per_s } => rates(rate_per_s, working),
    }
    .into_iter();
    let mut number = 0;
    let mut share = |workload: WorkloadSpec| {
        let (pacing, phase) = match order.pacing {
            Pacing::Closed => (Pacing::Closed, 0.0),
            Pacing::Open { rate_per_s: all } => {
                let rate_per_s = rates.next().unwrap_or(all);
                (Pacing::Open { rate_per_s }, f64::from(number) * 1e9 / all)
            }
        };
        number += 1;
        let order = SliceOrder { workload, pacing, ..order.clone() };
        let phase = std::time::Duration::from_secs_f64(phase / 1e9);
        LoaderShare { order, phase_ns: u64::try_from(phase.as_nanos()).unwrap_or(0) }
    };
    workloads.into_iter().map(|workload| workload.map(&mut share)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharing::by_connections;
    use std::time::Duration;

    fn divide(order: &SliceOrder, count: u32) -> Vec<Option<LoaderShare>> {
        super::divide(order, by_connections(&order.workload, count))
    }

    fn order(connections: u32, in_flight: u32, pacing: Pacing) -> SliceOrder {
        let workload = WorkloadSpec { connections, in_flight, ..crate::tests::workload() };
        let (lead_in, window) = (Duration::ZERO, Duration::from_millis(100));
        SliceOrder { workload, pacing, lead_in, window, seed: 1 }
    }

    #[test]
    fn parts_add_up() {
        for count in 1..=9 {
            for (connections, in_flight, rate) in [(9, 64, 10_001.0), (20, 23, 1.5), (9, 9, 17.25)]
            {
                let parts = divide(&order(connections, in_flight, Pacing::Closed), count);
                let parts: Vec<_> = parts.into_iter().flatten().collect();
                let sum = |of: &dyn Fn(&WorkloadSpec) -> u32| {
                    parts.iter().map(|part| of(&part.order.workload)).sum::<u32>()
                };
                assert_eq!(sum(&|one| one.connections), connections);
                assert_eq!(sum(&|one| one.in_flight), in_flight);
                let open = order(connections, in_flight, Pacing::Open { rate_per_s: rate });
                let parts = divide(&open, count);
                let mut phases = Vec::new();
                let sum: f64 = parts
                    .iter()
                    .flatten()
                    .map(|part| {
                        phases.push(part.phase_ns);
                        let Pacing::Open { rate_per_s } = part.order.pacing else { panic!() };
                        assert!(rate_per_s > 0.0);
                        rate_per_s
                    })
                    .sum();
                assert!((sum - rate).abs() < 1e-9, "{sum} {rate}");
                assert!(phases.is_sorted() && phases[0] == 0);
            }
        }
    }

    #[test]
    fn loaders_without_a_connection_or_request_pause() {
        let parts = divide(&order(8, 2, Pacing::Open { rate_per_s: 100.0 }), 3);
        let rates: Vec<_> =
            parts.iter().map(|part| part.as_ref().map(|p| p.order.pacing)).collect();
        let half = Some(Pacing::Open { rate_per_s: 50.0 });
        assert_eq!(rates, [half, half, None]);
    }
}
