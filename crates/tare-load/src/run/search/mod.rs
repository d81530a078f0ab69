//! The highest rate at which a system keeps a service level objective (SLO).
//!
//! The search brackets that rate: from a first guess the rate goes up until the SLO breaks and down
//! until it holds; then the bracket is halved until its ends are 10 % apart. Near the limit the SLO
//! holds only at times, so one run says little. Rates around the bracket, 5 % apart, are therefore
//! tried several times each in random order. The result is the highest rate up to which every run
//! held. Its interval ends at the lowest rate from which every run broke.
//!
//! Every run is an open loop. Operations that were never sent, failed or got no answer count as
//! slower than any limit, so a system cannot keep an SLO by not answering.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use tare_std::rng::Rng;

use crate::error::LoadError;
use crate::pacing::{Arrivals, Pace, Schedule, Step};
use crate::report::{JSON_VERSION, LoadReport};
use crate::run::load::{LoadConfig, LoadEvent, Session};

mod slo;

pub use super::search_run::SearchRun;
pub use slo::{Limit, Slo};

/// The factor between two rates while the limit is bracketed.
const STRIDE: f64 = 1.5;
/// The bracket is narrow enough when its ends are this factor apart.
const BRACKET: f64 = 1.10;
/// The factor between two rates that are confirmed.
const GRID: f64 = 1.05;
/// How many rates are confirmed at once.
const GRID_RATES: i32 = 5;
/// The search gives up below this rate, in operations/s.
const RATE_MIN: f64 = 1.0;
/// The most runs before the confirmation.
const RUNS_MAX: usize = 40;
/// How often the confirmation may move to other rates.
const MOVES_MAX: usize = 6;

/// What to search for, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    pub slo: Slo,
    /// The first rate to try; `None`: half of the closed loop's throughput.
    pub first_per_s: Option<f64>,
    pub arrivals: Arrivals,
    /// The length of a run.
    pub window: Duration,
    /// The number of runs at each confirmed rate.
    pub confirmations: u32,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchReport {
    pub version: u32,
    pub slo: Vec<Limit>,
    pub arrivals: &'static str,
    pub window_s: f64,
    pub confirmations: u32,
    /// The highest rate up to which the SLO held in every confirming run, in operations/s; `None`
    /// if no rate keeps it.
    pub rate_per_s: Option<f64>,
    /// The lowest rate from which the SLO broke in every confirming run; `None` if no such rate was
    /// reached.
    pub broken_per_s: Option<f64>,
    /// The throughput of the closed loop, if one was run.
    pub closed_loop_per_s: Option<f64>,
    /// True if the search was interrupted or ran out of runs; the rates are those known by then.
    pub is_unfinished: bool,
    /// Why no further run could be made.
    pub error: Option<String>,
    /// All runs in order: the latency curve.
    pub runs: Vec<SearchRun>,
}

/// Searches for the highest rate at which the system of `config` keeps the SLO. The pace of
/// `config` is not used.
///
/// # Errors
/// If a load could not be made.
pub fn find_max(
    config: &LoadConfig,
    search: &Search,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(&LoadEvent<'_>),
) -> Result<SearchReport, LoadError> {
    let mut session = Session::open(config, stop, on_event)?;
    let mut closed_loop_per_s = None;
    let first_per_s = match search.first_per_s {
        Some(rate) => rate,
        None => {
            let closed = session.run(&Pace::Closed(search.window), None, on_event)?;
            closed_loop_per_s = Some(closed.throughput_per_s);
            (closed.throughput_per_s / 2.0).max(RATE_MIN)
        }
    };
    let mut run = |rate_per_s: f64, confirms: bool| {
        let steps = vec![Step::steady(rate_per_s, search.window)];
        let schedule = Schedule::new(steps, search.arrivals)?;
        let report = session.run(&Pace::Open(schedule), None, on_event)?;
        let tried = judge(&search.slo, rate_per_s, confirms, &report);
        on_event(&LoadEvent::Tried(&tried));
        Ok::<_, LoadError>(tried)
    };
    let mut found = SearchState::default();
    let outcome = found.search(first_per_s, search.confirmations, config.seed, stop, &mut run);
    // If the server goes away in the middle, the runs so far are still reported.
    let error = match outcome {
        Err(error) if found.runs.is_empty() => return Err(error),
        outcome => outcome.err().map(|error| tare_std::error_line(&error)),
    };
    Ok(SearchReport {
        version: JSON_VERSION,
        slo: search.slo.limits().to_vec(),
        arrivals: match search.arrivals {
            Arrivals::Constant => "constant",
            Arrivals::Poisson => "poisson",
        },
        window_s: search.window.as_secs_f64(),
        confirmations: search.confirmations,
        rate_per_s: found.holds_per_s,
        broken_per_s: found.broken_per_s,
        closed_loop_per_s,
        is_unfinished: found.is_unfinished || error.is_some(),
        error,
        runs: found.runs,
    })
}

/// Judges a run.
fn judge(slo: &Slo, rate_per_s: f64, confirms: bool, report: &LoadReport) -> SearchRun {
    let failed: u64 = report.errors.iter().map(|error| error.count).sum();
    let missing = report.dropped + failed;
    let latencies_ns = match &report.response_times {
        Some(response) => slo.latencies_ns(response, missing),
        None => vec![None; slo.limits().len()],
    };
    SearchRun {
        rate_per_s,
        throughput_per_s: report.throughput_per_s,
        holds: slo.holds(&latencies_ns),
        latencies_ns,
        confirms,
        doubts: report.doubts.iter().map(|doubt| doubt.text.clone()).collect(),
    }
}

/// What the search knows so far.
#[derive(Debug, Default)]
struct SearchState {
    holds_per_s: Option<f64>,
    broken_per_s: Option<f64>,
    is_unfinished: bool,
    runs: Vec<SearchRun>,
}

impl SearchState {
    /// Searches by calling `run` with a rate and whether it confirms. An error keeps what was found
    /// so far.
    fn search<E>(
        &mut self,
        first_per_s: f64,
        confirmations: u32,
        seed: u64,
        stop: &AtomicBool,
        run: &mut dyn FnMut(f64, bool) -> Result<SearchRun, E>,
    ) -> Result<(), E> {
        let Some(mut low) = self.bracket(first_per_s, stop, run)? else { return Ok(()) };
        let mut rng = Rng::stream(seed, 0x0073_6c6f);
        for _ in 0..MOVES_MAX {
            // The middle rate is the one that held.
            let rates: Vec<f64> =
                (0..GRID_RATES).map(|place| low * GRID.powi(place - GRID_RATES / 2)).collect();
            let Some(held) = self.confirm(&rates, confirmations, &mut rng, stop, run)? else {
                self.is_unfinished = true;
                return Ok(());
            };
            let all_held = |runs: &Vec<bool>| runs.iter().all(|&held| held);
            let kept = held.iter().take_while(|runs| all_held(runs)).count();
            let none_held = |runs: &&Vec<bool>| runs.iter().all(|&held| !held);
            let broken = held.iter().rev().take_while(none_held).count();
            let rate_at = |place: Option<usize>| place.and_then(|place| rates.get(place)).copied();
            self.holds_per_s = rate_at(kept.checked_sub(1));
            self.broken_per_s =
                if broken == 0 { None } else { rate_at(Some(rates.len() - broken)) };
            let span = GRID.powi(GRID_RATES - 1);
            match (self.holds_per_s, self.broken_per_s) {
                (None, _) if low / span < RATE_MIN => return Ok(()),
                (None, _) => low /= span,
                (Some(_), None) if kept == rates.len() => low *= span,
                (Some(_), _) => return Ok(()),
            }
        }
        self.is_unfinished = true;
        Ok(())
    }

    /// Returns the highest rate that held, once it is close to the lowest that broke; `None` if no
    /// rate held.
    fn bracket<E>(
        &mut self,
        first_per_s: f64,
        stop: &AtomicBool,
        run: &mut dyn FnMut(f64, bool) -> Result<SearchRun, E>,
    ) -> Result<Option<f64>, E> {
        let (mut low, mut high) = (None::<f64>, None::<f64>);
        let mut rate = first_per_s;
        for _ in 0..RUNS_MAX {
            let tried = run(rate, false)?;
            let holds = tried.holds;
            self.runs.push(tried);
            if stop.load(Ordering::Relaxed) {
                self.is_unfinished = true;
                return Ok(None);
            }
            if holds {
                low = Some(rate)
            } else {
                high = Some(rate)
            }
            rate = match (low, high) {
                (Some(low), Some(high)) if high / low <= BRACKET => return Ok(Some(low)),
                (Some(low), Some(high)) => (low * high).sqrt(),
                (Some(low), None) => low * STRIDE,
                (None, _) if rate <= RATE_MIN => return Ok(None),
                (None, _) => (rate / (STRIDE * STRIDE)).max(RATE_MIN),
            };
        }
        self.is_unfinished = low.is_none();
        Ok(low)
    }

    /// Tries each rate several times in random order; `None` if interrupted.
    fn confirm<E>(
        &mut self,
        rates: &[f64],
        confirmations: u32,
        rng: &mut Rng,
        stop: &AtomicBool,
        run: &mut dyn FnMut(f64, bool) -> Result<SearchRun, E>,
    ) -> Result<Option<Vec<Vec<bool>>>, E> {
        let mut held = vec![Vec::new(); rates.len()];
        for _ in 0..confirmations {
            let mut order: Vec<usize> = (0..rates.len()).collect();
            rng.shuffle(&mut order);
            for place in order {
                let tried = run(rates[place], true)?;
                let holds = tried.holds;
                self.runs.push(tried);
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                held[place].push(holds);
            }
        }
        Ok(Some(held))
    }
}

#[cfg(test)]
mod tests;
