use super::*;
use proptest::prelude::*;
use tare_std::rng::Rng;

/// Searches on a system that keeps the SLO up to a rate that varies a little from run to run.
fn search(capacity_per_s: f64, noise_share: f64, first_per_s: f64, seed: u64) -> SearchState {
    let mut noise = Rng::new(seed);
    let mut run = |rate_per_s: f64, confirms: bool| {
        let limit_per_s = capacity_per_s * (1.0 + noise_share * (2.0 * noise.next_f64() - 1.0));
        let holds = rate_per_s <= limit_per_s;
        Ok::<_, ()>(SearchRun {
            rate_per_s,
            throughput_per_s: rate_per_s.min(limit_per_s),
            latencies_ns: vec![Some(1)],
            holds,
            confirms,
            doubts: Vec::new(),
        })
    };
    let mut found = SearchState::default();
    found.search(first_per_s, 3, seed, &AtomicBool::new(false), &mut run).unwrap();
    found
}

#[test]
fn impossible_slo_ends_soon() {
    let found = search(0.0, 0.0, 1e5, 1);
    assert_eq!((found.holds_per_s, found.is_unfinished), (None, false));
    assert!(found.runs.len() < 20, "{}", found.runs.len());
}

#[test]
fn interrupted_search_keeps_its_runs() {
    let stop = AtomicBool::new(true);
    let tried = SearchRun {
        rate_per_s: 1.0,
        throughput_per_s: 1.0,
        latencies_ns: Vec::new(),
        holds: true,
        confirms: false,
        doubts: Vec::new(),
    };
    let mut run = |_, _| Ok::<_, ()>(tried.clone());
    let mut found = SearchState::default();
    found.search(10.0, 3, 1, &stop, &mut run).unwrap();
    assert!(found.is_unfinished && found.runs.len() == 1 && found.holds_per_s.is_none());
}

proptest! {
    #[test]
    fn interval_contains_the_limit(
        capacity in 10.0f64..1e6, first in 0.01f64..20.0, seed in 0u64..1_000,
        noise in prop::sample::select(vec![0.0, 0.02, 0.05]),
    ) {
        let found = search(capacity, noise, (capacity * first).max(1.0), seed);
        prop_assert!(!found.is_unfinished);
        let holds = found.holds_per_s.unwrap();
        // Without noise the interval holds the limit; with noise the limit is off by at most the
        // noise.
        prop_assert!(holds <= capacity * (1.0 + noise));
        prop_assert!(found.broken_per_s.is_none_or(|broken| broken >= capacity * (1.0 - noise)));
        prop_assert!(holds >= capacity * (1.0 - noise) / GRID.powi(GRID_RATES));
        if noise == 0.0 {
            prop_assert!(found.broken_per_s.unwrap() <= holds * GRID * 1.000_001);
        }
        prop_assert!(found.runs.len() <= 100, "{}", found.runs.len());
    }
}
