use std::time::Duration;

use super::*;
use crate::campaign::SLICE_EXTRA_GUESS;
use crate::study::{KnownPart, Vocabulary, parse};

/// Five environments and three workloads of whole runs: a run takes 30 s.
const STUDY: &str = r#"
name = "s"
baseline = "native"
[schedule]
kind = "trials"
data = "loaded"
window = "25s"
lead_in = "4950ms"
rounds = 10
rounds_min = 8
budget = "10h"
[[environment]]
name = "a"
runtime = "fake"
[[environment]]
name = "native"
runtime = "fake"
[[environment]]
name = "b"
runtime = "fake"
[[environment]]
name = "c"
runtime = "fake"
[[environment]]
name = "d"
runtime = "fake"
[[workload]]
name = "first"
latency_share = 0
[[workload]]
name = "second"
latency_share = 0
[[workload]]
name = "third"
latency_share = 0
"#;

fn study(budget: Duration) -> Study {
    let part = || vec![KnownPart { name: "fake".into(), ..KnownPart::default() }];
    let vocabulary = Vocabulary {
        runtimes: vec!["fake".into()],
        systems: part(),
        drivers: part(),
        ..Vocabulary::default()
    };
    let mut study = parse(STUDY, "s.toml", &vocabulary).unwrap();
    study.schedule.budget = budget;
    study
}

/// A start and an end take 2 s together.
fn start(_: &Study, _: &EnvironmentSpec) -> Duration {
    Duration::from_secs(2) - TEARDOWN_GUESS
}

fn here(absent: &[String]) -> Conditions<'_> {
    Conditions {
        absent,
        start: &start,
        load: &|_| LOAD,
        cached: None,
        slice_extra: &|_| SLICE_EXTRA_GUESS,
        short_slices: &|study| study.driver == "fake",
    }
}

/// The load of restored data.
const LOAD: Duration = Duration::from_secs(600);

#[test]
fn data_of_the_cache_is_not_loaded() {
    let mut restored = study(hours(10.0));
    let setup = |study: &Study, cached: Option<&[WorkloadSpec]>| {
        Forecast::of(study, &Conditions { cached, ..here(&[]) }).setup
    };
    let loaded = setup(&restored, None);
    restored.schedule.data = DataStart::Restored;
    let workloads = restored.workloads.clone();
    // Once in the baseline: its start, the load and its end.
    let once = Duration::from_secs(2) + LOAD;
    assert_eq!(setup(&restored, None), loaded + once);
    assert_eq!(setup(&restored, Some(&workloads)), loaded);
    // The data of other workloads, or of a part of them, is other data.
    assert_eq!(setup(&restored, Some(&workloads[1..])), loaded + once);
}

fn hours(hours: f64) -> Duration {
    Duration::from_secs_f64(3600.0 * hours)
}

/// Returns what a budget chooses: environments, workloads.
fn chosen(budget: Duration, absent: &[&str]) -> (String, String) {
    let absent: Vec<String> = absent.iter().map(|name| (*name).to_string()).collect();
    let whole = study(budget);
    let part = part_in_budget(&whole, &here(&absent)).unwrap_or_else(|| whole.clone());
    let left = part.budget_part.clone().unwrap_or_default();
    assert_eq!(part.environments.len() + left.environments.len(), whole.environments.len());
    assert_eq!(part.workloads.len() + left.workloads.len(), whole.workloads.len());
    assert!(part.environments.iter().all(|spec| !left.environments.contains(&spec.name)));
    let names: Vec<&str> = part.environments.iter().map(|spec| spec.name.as_str()).collect();
    let workloads: Vec<&str> = part.workloads.iter().map(|one| one.name.as_str()).collect();
    (names.join(" "), workloads.join(" "))
}

#[test]
fn trials_start_anew_in_each_round() {
    // Five environments and the control: 2 s and three runs of 30 s each.
    let forecast = Forecast::of(&study(hours(10.0)), &here(&[]));
    assert_eq!(forecast.round, Duration::from_secs(6 * 92));
    assert_eq!((forecast.setup, forecast.teardown), (Duration::ZERO, Duration::ZERO));
    assert_eq!(forecast.time(10), Duration::from_secs(5520));
    assert_eq!(forecast.rounds_in(Duration::from_secs(5519)), 9);
    assert_eq!(forecast.whole(&study(Duration::from_secs(1000))), Duration::from_secs(552));
    assert_eq!(forecast.whole(&study(hours(10.0))), Duration::from_secs(5520));
}

#[test]
fn slices_start_once() {
    let mut slices = study(hours(1.0));
    slices.schedule.kind = ScheduleKind::Slices;
    let forecast = Forecast::of(&slices, &here(&[]));
    assert_eq!(forecast.round, Duration::from_secs(6 * 90));
    // Six starts, and one slice of warm-up of each environment under each workload.
    assert_eq!(forecast.setup + forecast.teardown, Duration::from_secs(6 * 2 + 6 * 90));
    // A phase at a fixed rate doubles the slices, and its rate is found first.
    for workload in &mut slices.workloads {
        workload.latency_share = 0.5;
    }
    let twice = Forecast::of(&slices, &here(&[]));
    assert_eq!(twice.round, forecast.round * 2);
    assert_eq!(twice.setup - forecast.setup, Duration::from_secs(3 * 5 * 10));
}

#[test]
fn environments_that_cannot_run_take_no_time() {
    let absent = ["b".to_string(), "d".to_string()];
    let forecast = Forecast::of(&study(hours(10.0)), &here(&absent));
    assert_eq!(forecast.round, Duration::from_secs(4 * 92));
}

#[test]
fn a_budget_for_all_leaves_nothing_out() {
    // Eight rounds take 4,416 s.
    assert_eq!(part_in_budget(&study(Duration::from_secs(4416)), &here(&[])), None);
    assert!(part_in_budget(&study(Duration::from_secs(4415)), &here(&[])).is_some());
}

#[test]
fn the_order_of_the_file_says_what_matters() {
    let all = "a native b c d";
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let check = |budget, environments: &str, workloads: &str| {
        let expect = (environments.to_string(), workloads.to_string());
        assert_eq!(chosen(minutes(budget), &[]), expect, "{budget} min");
    };
    // Eight rounds of a workload take 256 s in each environment, and 240 s more for each workload.
    check(73, all, "first second");
    check(60, all, "first second");
    check(40, all, "first");
    check(25, "a native b c", "first");
    check(20, "a native b", "first");
    check(15, "a native", "first");
    // The baseline, its control and one comparison stay in any budget.
    check(1, "a native", "first");
}

#[test]
fn the_chosen_part_gets_its_rounds() {
    for minutes in 14..80 {
        let whole = study(Duration::from_secs(60 * minutes));
        let part = part_in_budget(&whole, &here(&[])).unwrap_or(whole);
        let rounds = Forecast::of(&part, &here(&[])).rounds(&part);
        assert!(rounds >= part.schedule.rounds_min, "{minutes} min: {rounds} rounds");
    }
}

#[test]
fn what_cannot_run_is_not_left_out_for_the_budget() {
    let minutes = Duration::from_secs(60 * 15);
    let (environments, _) = chosen(minutes, &["a", "c"]);
    assert_eq!(environments, "a native b c", "a and c cannot run, so b is the first");
    let part = part_in_budget(&study(minutes), &here(&["a".into(), "c".into()])).unwrap();
    assert_eq!(part.budget_part.unwrap().environments, ["d"]);
}

#[test]
fn chosen_window_counts_with_its_trial() {
    let mut study = study(Duration::from_secs(600));
    study.schedule.kind = ScheduleKind::Slices;
    (study.schedule.window, study.schedule.lead_in) = (AutoWindow::AT_RATE, Duration::ZERO);
    let fixed = Forecast::of(&study, &here(&[]));
    study.schedule.auto_window = Some(AutoWindow::default());
    let auto = Forecast::of(&study, &here(&[]));
    // 60 ms instead of 250 ms for each slice.
    assert_eq!(auto.round * 25, fixed.round * 6);
    // 16 pairs of 25, 50, 100 and 200 ms; the 18 slices of the warm-up take 40 ms less.
    let trial = Duration::from_millis(2 * 16 * (375 + 4 * 10) - 18 * 40);
    assert_eq!(auto.setup - fixed.setup, trial);
    // Slices at a fixed rate stay long, in every fourth round.
    study.workloads.iter_mut().for_each(|one| one.rate_per_s = Some(1000.0));
    let rates = Forecast::of(&study, &here(&[]));
    assert_eq!((rates.round - auto.round) * 4 * 25, fixed.round * 21);
    // A quota needs long slices, and so does a load tool that starts in each slice.
    study.environments[0].cpu = "quota=0.5".parse().unwrap();
    let quota = Forecast::of(&study, &here(&[]));
    assert_eq!(quota.round, 2 * fixed.round);
    study.environments[0].cpu = "shared".parse().unwrap();
    study.driver = "tool".into();
    assert_eq!(Forecast::of(&study, &here(&[])), quota);
}
