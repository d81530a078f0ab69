use tare_std::rng::Rng;

use super::*;

fn series(rng: &mut Rng, levels: &[(usize, f64)], noise: f64) -> Vec<Point> {
    let values = levels.iter().flat_map(|&(count, level)| std::iter::repeat_n(level, count));
    values.map(|level| Point { value: level + noise * rng.normal(), error: 0.004 }).collect()
}

fn places(points: &[Point]) -> Vec<usize> {
    changes(points).iter().map(|change| change.at).collect()
}

#[test]
fn finds_steps_where_they_are() {
    let mut rng = Rng::new(3);
    assert_eq!(places(&series(&mut rng, &[(17, 0.3), (3, 0.36)], 0.008)), [17]);
    assert_eq!(places(&series(&mut rng, &[(10, 0.3), (10, 0.2)], 0.008)), [10]);
    // Up and back: the mean of the whole rest is the same on both sides of no single split.
    assert_eq!(places(&series(&mut rng, &[(8, 0.3), (5, 0.36), (9, 0.3)], 0.008)), [8, 13]);
}

#[test]
fn step_has_its_interval() {
    let mut rng = Rng::new(3);
    let (mut found, mut held) = (0, 0);
    for _ in 0..400 {
        let changes = changes(&series(&mut rng, &[(15, 0.3), (5, 0.36)], 0.008));
        for change in changes.iter().filter(|change| change.at == 15) {
            assert_eq!((change.before, change.step.rounds), (15, 5));
            found += 1;
            held += u32::from(!change.step.excludes(0.06));
        }
    }
    assert!(found > 380 && held * 100 >= found * 90, "{held} of {found}");
}

#[test]
fn few_or_equal_or_unknown_records_have_no_change() {
    let point = |value| Point { value, error: 0.0 };
    assert!(changes(&[]).is_empty());
    assert!(changes(&[0.1, 0.1, 0.1, 0.9, 0.9].map(point)).is_empty());
    assert!(changes(&[0.25; 40].map(point)).is_empty());
    assert!(changes(&[0.1, 0.1, 0.1, f64::NAN, 0.9, 0.9, 0.9].map(point)).is_empty());
    // Without any noise, a step is certain.
    assert_eq!(places(&[0.1, 0.1, 0.1, 0.9, 0.9, 0.9].map(point)), [3]);
}

#[test]
fn own_errors_are_lower_limit_of_noise() {
    let point = |error| move |value| Point { value, error };
    let values = [0.30, 0.301, 0.30, 0.301, 0.30, 0.32, 0.321, 0.32];
    assert_eq!(places(&values.map(point(0.002))), [5]);
    assert!(changes(&values.map(point(0.02))).is_empty());
}

#[test]
fn one_outlier_is_no_change() {
    let mut rng = Rng::new(11);
    let mut points = series(&mut rng, &[(20, 0.3)], 0.008);
    points[12].value += 0.3;
    assert!(changes(&points).is_empty());
}

/// The promise of docs/concepts/history.md, with a fifth of the example's series: at most one false
/// change in 100 series (chance moves the share by 0.5 points), and a step of 5 % found after three
/// records of 20.
#[test]
fn keeps_promise_in_simulation() {
    const SERIES: u32 = 400;
    let mut rng = Rng::new(42);
    let (mut false_alarms, mut found) = (0, 0);
    for _ in 0..SERIES {
        false_alarms += u32::from(!changes(&series(&mut rng, &[(20, 0.3)], 0.01)).is_empty());
        let step = 1.05_f64.ln();
        found += u32::from(places(&series(&mut rng, &[(17, 0.3), (3, 0.3 + step)], 0.01)) == [17]);
    }
    assert!(false_alarms <= 8, "{false_alarms} of {SERIES}");
    assert!(found >= 360, "{found} of {SERIES}");
}
