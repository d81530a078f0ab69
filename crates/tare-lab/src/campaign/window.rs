//! Chooses the window of slices at capacity on the host, before the rounds (`window = "auto"`).
//!
//! Method: the baseline and its second copy do not differ, so the ratio of a pair of their slices
//! is noise. Pairs of all candidates follow each other in random order, so that drift of the host
//! meets all alike. After a given time, the standard error of a cost is proportional to the noise
//! of a pair times the square root of the time of a pair. A shorter window is chosen if it makes
//! that smaller by a tenth: at equal noise 50 ms takes a third of the time of 200 ms.
//!
//! Limits: the noise of so few pairs is known within about a quarter. Only the first workload is
//! tried. Figures of an environment that needs time after a thaw are not tried: the A/A control and
//! the pairs of the study show whether a short window is biased.

use std::time::Duration;

use tare_stats::median;

use super::measure::{self, Measured};
use super::{CALIBRATION_SLICES, Campaign, CampaignError, Event, Stage};
use crate::environment::EnvironmentSpec;
use crate::record::{Phase, Slice};
use crate::schedule::{self, Cell};
use crate::study::{AutoWindow, TriedWindow};
use tare_std::rng::Rng;

/// The number of pairs for each window.
const PAIRS_MIN: u32 = 6;
const PAIRS_MAX: u32 = 16;
/// Share of the budget that this may take, unless the fewest pairs take more.
const BUDGET_SHARE: f64 = 0.05;
/// Expected time of one pair of every candidate.
const PAIR_TIME: Duration = Duration::from_millis(1000);
/// A window with fewer pairs, because slices failed, is not chosen.
const PAIRS_NEEDED: usize = 4;
/// The standard error of a shorter window, as a share of that of the best longer one, at which it
/// is chosen.
const GAIN: f64 = 0.9;

/// The log ratios and times of the pairs of one window.
#[derive(Default)]
struct Trial {
    log_ratios: Vec<f64>,
    time: Duration,
}

impl Campaign<'_, '_> {
    /// Returns the window of a phase.
    pub(super) fn window(&self, phase: Phase) -> Duration {
        match phase {
            Phase::Capacity => self.window,
            Phase::Latency | Phase::Traced | Phase::Slo => self.study.schedule.window_at_rate(),
        }
    }

    /// Chooses the window, unless the study sets it or a resumed record has it.
    pub(super) fn choose_window(&mut self) -> Result<(), CampaignError> {
        let chosen = self.study.schedule.auto_window.as_ref();
        if chosen.is_none_or(AutoWindow::is_decided) {
            return Ok(());
        }
        let Some(control) = self.members.iter().position(|member| member.record.control) else {
            return Ok(());
        };
        if let Some(why) = self.needs_long_window() {
            let kept_because = Some(why.to_string());
            return self.decide(self.window, AutoWindow { kept_because, ..AutoWindow::default() });
        }
        self.stage(Stage::ChoosingWindow);
        let trials = self.try_windows(control);
        let tried: Vec<TriedWindow> =
            AutoWindow::CANDIDATES.iter().zip(&trials).filter_map(|(w, t)| t.result(*w)).collect();
        let window = best(&tried).unwrap_or(self.window);
        let kept_because = tried.is_empty().then(|| "the slices of all windows failed".into());
        self.decide(window, AutoWindow { tried, kept_because })
    }

    fn decide(&mut self, window: Duration, chosen: AutoWindow) -> Result<(), CampaignError> {
        self.window = window;
        self.writer().put_window(window, &chosen)?;
        self.observer.event(&Event::WindowChosen { window, chosen: &chosen });
        Ok(())
    }

    /// Returns why this study cannot have short slices, if it cannot.
    fn needs_long_window(&self) -> Option<&'static str> {
        if self.members.iter().any(|member| has_quota(&member.record.spec)) {
            return Some("an environment has a CPU quota, whose periods take 100 ms");
        }
        if !self.parts.accounts_are_exact {
            return Some(
                "the CPU accounts are up to one scheduler tick (1 to 10 ms) old here, at least 0.5 % \
                 of a slice; CAP_SYS_NICE makes them exact",
            );
        }
        let is_exact = self.parts.driver.loads_at_edges();
        (!is_exact).then_some("the driver's load does not cover both readings of the accounts")
    }

    fn try_windows(&mut self, control: usize) -> [Trial; AutoWindow::CANDIDATES.len()] {
        let mut trials: [Trial; AutoWindow::CANDIDATES.len()] = Default::default();
        let mut rng = Rng::stream(self.seed, schedule::STREAM_WINDOW);
        for number in 0..pairs(self.study.schedule.budget) {
            let mut candidates: Vec<usize> = (0..trials.len()).collect();
            rng.shuffle(&mut candidates);
            for candidate in candidates {
                let mut members = [self.baseline, control];
                rng.shuffle(&mut members);
                let seed =
                    schedule::calibration_seed(self.seed, 0, CALIBRATION_SLICES + 1 + number);
                let window = AutoWindow::CANDIDATES[candidate];
                let order = self.order(0, None, seed, window);
                let mut costs = [None; 2];
                let began = self.parts.clock.now();
                for member in members {
                    if self.stopped() {
                        return trials;
                    }
                    self.announce_slice(member, Cell { workload: 0, phase: Phase::Capacity });
                    let measured = self.measure(member, &order, true, &mut |_| {});
                    costs[usize::from(member == control)] = measured.ok().and_then(cpu_cost);
                }
                if let [Some(baseline), Some(control)] = costs {
                    trials[candidate].time += self.parts.clock.now() - began;
                    trials[candidate].log_ratios.push(f64::ln(control / baseline));
                }
            }
        }
        trials
    }
}

/// Whether the environment's CPU time is limited by a quota.
pub(crate) fn has_quota(spec: &EnvironmentSpec) -> bool {
    spec.cpu.quota().is_some() || spec.inject.quota_percent.is_some()
}

/// Returns the expected time of the trial of all windows, from that of a slice with each window.
pub(crate) fn trial_time(budget: Duration, slice: impl Fn(Duration) -> Duration) -> Duration {
    2 * pairs(budget) * AutoWindow::CANDIDATES.into_iter().map(slice).sum::<Duration>()
}

impl Trial {
    fn result(&self, window: Duration) -> Option<TriedWindow> {
        if self.log_ratios.len() < PAIRS_NEEDED {
            return None;
        }
        let pairs = u32::try_from(self.log_ratios.len()).ok()?;
        let noise_percent = 100.0 * deviation(&self.log_ratios)?;
        Some(TriedWindow { window, pairs, noise_percent, pair_time: self.time / pairs })
    }
}

/// Returns how many pairs of each window to measure.
fn pairs(budget: Duration) -> u32 {
    let fit = budget.as_secs_f64() * BUDGET_SHARE / PAIR_TIME.as_secs_f64();
    (PAIRS_MIN..PAIRS_MAX).find(|pairs| f64::from(*pairs) >= fit).unwrap_or(PAIRS_MAX)
}

/// Returns the window whose pairs give the smallest standard error in a given time. A longer one
/// wins if the next shorter one is not better by a tenth.
fn best(tried: &[TriedWindow]) -> Option<Duration> {
    let error = |one: &TriedWindow| one.noise_percent * one.pair_time.as_secs_f64().sqrt();
    let mut longest_first: Vec<&TriedWindow> = tried.iter().collect();
    longest_first.sort_by_key(|one| std::cmp::Reverse(one.window));
    let better = |best: &'_ TriedWindow, one: &'_ TriedWindow| error(one) < GAIN * error(best);
    let found =
        longest_first.into_iter().reduce(|best, one| if better(best, one) { one } else { best })?;
    Some(found.window)
}

/// Returns the CPU time of system and layer per operation, without idle polling.
fn cpu_cost(measured: Measured) -> Option<f64> {
    let slice: Slice = measure::accounts(measured);
    let layer: u64 = slice.layer_cpu_ns.iter().map(|(_, ns)| ns).sum();
    let ns = slice.system_cpu_ns - slice.idle_poll_cpu_ns() + layer;
    (slice.operations > 0 && ns > 0).then(|| ns as f64 / slice.operations as f64)
}

/// Returns the standard deviation of normal noise with this mean distance from the median. One
/// outlier among few pairs matters less than in the usual formula.
fn deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values.iter().copied())?;
    let distance: f64 = values.iter().map(|value| (value - middle).abs()).sum();
    // sqrt(pi / 2); n - 1 because the median is fitted too.
    Some(1.2533 * distance / (values.len() as f64 - 1.0).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(ms: u64, noise_percent: f64) -> TriedWindow {
        let pair_time = Duration::from_millis(2 * (ms + 18));
        TriedWindow { window: Duration::from_millis(ms), pairs: 12, noise_percent, pair_time }
    }

    #[test]
    fn chooses_the_shortest_window_without_more_noise() {
        let check = |noise: [f64; 4], ms: u64| {
            let all: Vec<TriedWindow> =
                [25, 50, 100, 200].into_iter().zip(noise).map(|(w, n)| tried(w, n)).collect();
            assert_eq!(best(&all), Some(Duration::from_millis(ms)), "{noise:?}");
        };
        // As found on a quiet machine of 2 CPUs.
        check([15.9, 9.8, 9.9, 10.0], 50);
        check([10.0, 10.0, 10.0, 10.0], 25);
        // Independent noise of the slices: longer ones win nothing but lose less overhead.
        check([20.0, 14.1, 10.0, 7.1], 200);
        check([40.0, 30.0, 10.0, 10.0], 100);
        assert_eq!(best(&[]), None);
        assert_eq!(best(&[tried(100, 5.0)]), Some(Duration::from_millis(100)));
    }

    #[test]
    fn number_of_pairs_fits_the_budget() {
        assert_eq!(pairs(Duration::from_secs(30)), 6);
        assert_eq!(pairs(Duration::from_secs(200)), 10);
        assert_eq!(pairs(Duration::from_secs(3600)), 16);
    }

    #[test]
    fn deviation_of_normal_noise() {
        let mut rng = Rng::new(3);
        let values: Vec<f64> = (0..4000).map(|_| 0.1 * rng.normal()).collect();
        assert!((deviation(&values).unwrap() - 0.1).abs() < 0.005);
    }
}
