use super::*;
use crate::histogram::{self, Histogram};
use proptest::prelude::*;

/// A system that answers one operation after the other, each in `service_ns`, but does nothing
/// from `stall_from_ns` to `stall_to_ns`. A client with `slots` requests in flight at most, driven
/// by a virtual clock that jumps from event to event.
struct Model {
    service_ns: u64,
    stall_from_ns: u64,
    stall_to_ns: u64,
    slots: usize,
}

impl Model {
    /// Response and service times of every operation that is due before `end_ns`.
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

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_stall_shows_in_response_times_as_arithmetic_says() {
    // 10,000 operations/s for 10 s, 10 µs each, one stall of 1 s. In closed form: an operation due
    // x before the end of the stall ends (1 s - x) / 100 µs * 10 µs later than the stall, so it
    // takes 0.9 x + 0.1 s. Then the queue of 10,000 shrinks by 90 µs with each further operation.
    let model = Model {
        service_ns: 10_000,
        stall_from_ns: 2 * SECOND,
        stall_to_ns: 3 * SECOND,
        slots: usize::MAX,
    };
    let (response, _) = model.run(Pacer::new(0, 10_000.0, 0, 1), 10 * SECOND);
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
fn one_request_in_flight_hides_the_stall_from_service_time_only() {
    let stalled = |slots| Model {
        service_ns: 10_000,
        stall_from_ns: 2 * SECOND,
        stall_to_ns: 3 * SECOND,
        slots,
    };
    let pacer = || Pacer::new(0, 10_000.0, 0, 1);
    let (response, service) = stalled(1).run(pacer(), 10 * SECOND);
    let (response_free, _) = stalled(usize::MAX).run(pacer(), 10 * SECOND);
    // A client that waits for each answer sees one slow operation, yet the users saw thousands.
    assert_eq!(service.value_at_quantile(0.9999), histogram::equivalent(&service, 10_000));
    assert_eq!(response, response_free);
}

#[test]
fn nothing_is_skipped_however_late() {
    let mut pacer = Pacer::new(1_000, 1e9 / 7.0, 1, 3);
    assert_eq!(pacer.take(1_006), None);
    let taken: Vec<Due> = std::iter::from_fn(|| pacer.take(1_100)).collect();
    let expect: Vec<Due> =
        [1, 4, 7, 10, 13].map(|index| Due { index, intended_ns: 1_000 + index * 7 }).to_vec();
    assert_eq!(taken, expect);
}

#[test]
fn waking_early_learns_how_late_timers_are() {
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
            let mut pacer = Pacer::new(5, rate, part, parts);
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
    fn unsent_is_what_taking_would_have_sent(
        rate in 0.5f64..3e7, part in 0u64..3, taken in 0usize..50,
        from_ns in 0u64..1_000_000, length_ns in 0u64..1_000_000,
    ) {
        let mut pacer = Pacer::new(100, rate, part, 3);
        for _ in 0..taken {
            pacer.take(u64::MAX);
        }
        let (from_ns, to_ns) = (from_ns, from_ns + length_ns);
        let unsent = pacer.unsent(from_ns, to_ns);
        let mut counted = 0;
        while pacer.next_due_ns() < to_ns {
            let due = pacer.take(u64::MAX).unwrap();
            counted += u64::from(due.intended_ns >= from_ns);
        }
        prop_assert_eq!(unsent, counted);
    }
}
