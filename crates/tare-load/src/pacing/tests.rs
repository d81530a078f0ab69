use super::wake::EARLY_NS_MAX;
use super::*;
use crate::report::histogram::{self, Histogram};
use proptest::prelude::*;

/// A model of a system that answers one operation after the other, each in `service_ns`, but stops
/// from `stall_from_ns` to `stall_to_ns`. The client has at most `slots` requests in flight and a
/// virtual clock that jumps from event to event.
struct Model {
    service_ns: u64,
    stall_from_ns: u64,
    stall_to_ns: u64,
    slots: usize,
}

impl Model {
    /// Returns the response and service times of every operation that is due before `end_ns`.
    fn run(&self, mut pacer: Pacer, end_ns: u64) -> (Histogram, Histogram) {
        let (mut response, mut service) = (histogram::new(), histogram::new());
        let mut ends = std::collections::VecDeque::new();
        let mut free_ns = 0;
        while pacer.next_due_ns() < end_ns {
            // The next event: a slot gets free, or an operation is due.
            let slot_ns = if ends.len() < self.slots { 0 } else { ends.pop_front().unwrap() };
            let now_ns = pacer.next_due_ns().max(slot_ns);
            let due = pacer.take(now_ns).unwrap();
            let mut begin_ns = now_ns.max(free_ns);
            if (self.stall_from_ns..self.stall_to_ns).contains(&begin_ns) {
                begin_ns = self.stall_to_ns;
            }
            free_ns = begin_ns + self.service_ns;
            ends.push_back(free_ns);
            histogram::record(&mut response, free_ns - due.intended_ns);
            histogram::record(&mut service, free_ns - now_ns);
        }
        (response, service)
    }
}

/// Returns a pacer of one rate.
fn steady(rate_per_s: f64, start_ns: u64, part: (u64, u64)) -> Pacer {
    let steps = vec![Step::steady(rate_per_s, Duration::from_secs(1))];
    let schedule = Schedule::new(steps, Arrivals::Constant).unwrap();
    Pacer::new(&schedule, Duration::ZERO, start_ns, part, 1)
}

/// Returns the due times of `parts` threads before `end_ns`, in order.
fn all_due(schedule: &Schedule, lead_in: Duration, parts: u64, end_ns: u64) -> Vec<u64> {
    let mut times = Vec::new();
    for part in 0..parts {
        let mut pacer = Pacer::new(schedule, lead_in, 0, (part, parts), 7);
        times.extend(std::iter::from_fn(|| pacer.take(end_ns - 1)).map(|due| due.intended_ns));
    }
    times.sort_unstable();
    times
}

#[test]
fn steps_and_ramps_send_their_area() {
    let second = Duration::from_secs(1);
    let step =
        |from_per_s, to_per_s, seconds| Step { from_per_s, to_per_s, length: second * seconds };
    let check = |steps: &[Step], lead_in: Duration, until_s: u64, expect: f64| {
        let schedule = Schedule::new(steps.to_vec(), Arrivals::Constant).unwrap();
        for parts in [1, 3] {
            let count = all_due(&schedule, lead_in, parts, until_s * SECOND).len() as f64;
            assert!((count - expect).abs() <= 1.0, "{steps:?} {lead_in:?} {count} {expect}");
        }
    };
    check(&[step(1e3, 1e3, 2), step(5e3, 5e3, 1)], Duration::ZERO, 3, 7e3);
    // The lead-in has the first rate, and what follows the last step its last one.
    check(&[step(1e3, 1e3, 2), step(5e3, 5e3, 1)], second, 6, 18e3);
    check(&[step(1e3, 9e3, 4)], Duration::ZERO, 4, 20e3);
    check(&[step(1e3, 9e3, 4)], second, 6, 1e3 + 20e3 + 9e3);
    check(&[step(9e3, 1e3, 4)], Duration::ZERO, 2, 14e3);
    check(&[step(100.0, 200.0, 1), step(200.0, 50.0, 2)], Duration::ZERO, 3, 400.0);
}

#[test]
fn ramp_has_its_rate_at_each_time() {
    let steps = vec![Step { from_per_s: 1e3, to_per_s: 1e4, length: Duration::from_secs(9) }];
    let schedule = Schedule::new(steps, Arrivals::Constant).unwrap();
    let times = all_due(&schedule, Duration::ZERO, 2, 9 * SECOND);
    for pair in times.windows(2) {
        let at_s = pair[0] as f64 / 1e9;
        let rate = 1e9 / (pair[1] - pair[0]) as f64;
        assert!((rate / (1e3 + 1e3 * at_s) - 1.0).abs() < 0.01, "{at_s} {rate}");
    }
}

#[test]
fn poisson_arrivals_have_exponential_gaps_of_the_right_mean() {
    let steps = vec![Step::steady(10_000.0, Duration::from_secs(1))];
    let schedule = Schedule::new(steps, Arrivals::Poisson).unwrap();
    for parts in [1, 4] {
        let times = all_due(&schedule, Duration::ZERO, parts, 10 * SECOND);
        let mut gaps: Vec<f64> =
            times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e5).collect();
        let count = gaps.len() as f64;
        // Within 5 deviations of a Poisson count of 100,000.
        assert!((count - 1e5).abs() < 5.0 * 1e5f64.sqrt(), "{count}");
        gaps.sort_by(f64::total_cmp);
        // Kolmogorov's distance to the exponential distribution; 1.95 / sqrt(n) is passed once in
        // a thousand samples.
        let distance = (0..)
            .zip(&gaps)
            .map(|(rank, gap)| ((f64::from(rank) + 0.5) / count - (1.0 - (-gap).exp())).abs());
        let distance = distance.fold(0.0, f64::max);
        assert!(distance < 1.95 / count.sqrt(), "{parts} {distance}");
    }
}

#[test]
fn bad_schedule_is_refused() {
    let refused = |steps| Schedule::new(steps, Arrivals::Constant).unwrap_err().to_string();
    let second = Duration::from_secs(1);
    assert!(refused(vec![Step::steady(0.0, second)]).starts_with("the load's rate is 0;"));
    assert!(refused(vec![Step::steady(f64::NAN, second)]).starts_with("the load's rate is NaN;"));
    assert!(refused(vec![]).contains("have length 0"));
    assert!(refused(vec![Step::steady(1.0, Duration::ZERO)]).contains("have length 0"));
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn stall_shows_in_response_times() {
    // 10,000 operations/s for 10 s, 10 µs each, one stall of 1 s. In closed form: an operation due
    // x before the end of the stall ends (1 s - x) / 100 µs * 10 µs later than the stall, so it
    // takes 0.9 x + 0.1 s. Then the queue of 10,000 shrinks by 90 µs with each further operation.
    let model = Model {
        service_ns: 10_000,
        stall_from_ns: 2 * SECOND,
        stall_to_ns: 3 * SECOND,
        slots: usize::MAX,
    };
    let (response, _) = model.run(steady(10_000.0, 0, (0, 1)), 10 * SECOND);
    assert_eq!(response.len(), 100_000);
    // 1.0 s down to 0 in steps of 90 µs: 11,112 of the 100,000 are late.
    let check = |quantile: f64, expect_ns: f64| {
        let found = response.value_at_quantile(quantile) as f64;
        assert!((found / expect_ns - 1.0).abs() < 0.002, "{quantile}: {found} {expect_ns}");
    };
    check(1.0, 1e9);
    check(0.99, 0.91e9);
    check(0.95, 0.55e9);
    check(0.90, 0.1e9);
    check(0.85, 10e3);
    check(0.5, 10e3);
}

#[test]
fn single_request_hides_stall_from_service_time() {
    let stalled = |slots| Model {
        service_ns: 10_000,
        stall_from_ns: 2 * SECOND,
        stall_to_ns: 3 * SECOND,
        slots,
    };
    let pacer = || steady(10_000.0, 0, (0, 1));
    let (response, service) = stalled(1).run(pacer(), 10 * SECOND);
    let (response_free, _) = stalled(usize::MAX).run(pacer(), 10 * SECOND);
    // A client that waits for each answer sees one slow operation, yet the users saw thousands.
    assert_eq!(service.value_at_quantile(0.9999), histogram::equivalent(&service, 10_000));
    assert_eq!(response, response_free);
}

#[test]
fn nothing_is_skipped_however_late() {
    let mut pacer = steady(1e9 / 7.0, 1_000, (1, 3));
    assert_eq!(pacer.take(1_006), None);
    let taken: Vec<Due> = std::iter::from_fn(|| pacer.take(1_100)).collect();
    let expect: Vec<Due> =
        [1, 4, 7, 10, 13].map(|index| Due { index, intended_ns: 1_000 + index * 7 }).to_vec();
    assert_eq!(taken, expect);
}

#[test]
fn wake_early_adapts_to_timer_lateness() {
    let mut wake = WakeEarly::default();
    assert_eq!(wake.timer_ns(1_000_000), 1_000_000);
    for _ in 0..100 {
        wake.woke(1_000_000, 1_030_000);
    }
    assert_eq!(wake.timer_ns(1_000_000), 970_000);
    // One long delay in five changes little.
    for turn in 0..1_000 {
        wake.woke(1_000_000, if turn % 5 == 0 { 9_000_000 } else { 1_030_000 });
    }
    assert!((965_000..=970_000).contains(&wake.timer_ns(1_000_000)), "{wake:?}");
    for _ in 0..100 {
        wake.woke(1_000_000, 9_000_000);
    }
    assert_eq!(wake.timer_ns(1_000_000), 1_000_000 - EARLY_NS_MAX);
    for _ in 0..100 {
        wake.woke(1_000_000, 1_000_000);
    }
    assert_eq!(wake.timer_ns(1_000_000), 1_000_000);
}

proptest! {
    #[test]
    fn threads_share_the_schedule_without_gap_or_overlap(
        rate in 0.5f64..3e7, parts in 1u64..9, until_ns in 0u64..2_000_000,
    ) {
        let mut indices = Vec::new();
        for part in 0..parts {
            let mut pacer = steady(rate, 5, (part, parts));
            let mut last_ns = 0;
            while let Some(due) = pacer.take(5 + until_ns) {
                prop_assert!(due.intended_ns <= 5 + until_ns && due.intended_ns >= last_ns);
                let exact = due.index as f64 * 1e9 / rate;
                prop_assert!((due.intended_ns as f64 - 5.0 - exact).abs() <= 1.0);
                last_ns = due.intended_ns;
                indices.push(due.index);
            }
        }
        indices.sort_unstable();
        prop_assert!(indices.iter().copied().eq(0..indices.len() as u64));
    }

    #[test]
    fn not_taken_counts_what_would_have_been_sent(
        rate in 0.5f64..3e7, part in 0u64..3, taken in 0usize..50,
        from_ns in 0u64..1_000_000, length_ns in 0u64..1_000_000,
    ) {
        let mut pacer = steady(rate, 100, (part, 3));
        for _ in 0..taken {
            pacer.take(u64::MAX);
        }
        let (from_ns, to_ns) = (from_ns, from_ns + length_ns);
        let unsent = pacer.not_taken(from_ns, to_ns);
        let mut counted = 0;
        while pacer.next_due_ns() < to_ns {
            let due = pacer.take(u64::MAX).unwrap();
            counted += u64::from(due.intended_ns >= from_ns);
        }
        prop_assert_eq!(unsent, counted);
    }
}
