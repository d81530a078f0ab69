//! Says how the slices of a study were scheduled.

use tare_lab::analysis::Finding;
use tare_lab::study::{ScheduleSpec, TriedWindow};
use tare_std::units::duration;

/// Returns what a schedule of slices has besides its lengths: how the window was chosen, the
/// warm-up, and the restarts with their share of the variance. Empty without them.
pub(crate) fn text(schedule: &ScheduleSpec, findings: &[Finding]) -> String {
    let mut text = String::new();
    if let Some(auto) = &schedule.auto_window {
        text += &format!("; {} ms at a fixed rate", schedule.window_at_rate().as_millis());
        let tried = auto.tried.iter();
        let one = |one: &TriedWindow| {
            let (window, time) = (one.window.as_millis(), one.pair_time.as_millis());
            format!("{window} ms: {:.1} % in {time} ms", one.noise_percent)
        };
        let tried: Vec<String> = tried.map(one).collect();
        if !tried.is_empty() {
            let window = schedule.window.as_millis();
            text +=
                &format!("; {window} ms was chosen on this host, where it gives the narrowest ");
            text +=
                "intervals in a given time, or within a tenth of them (noise and time of a pair: ";
            text += &format!("{})", tried.join(", "));
        }
    }
    if let Some(why) = schedule.auto_window.as_ref().and_then(|auto| auto.kept_because.as_ref()) {
        text += &format!("; no shorter window was tried: {why}");
    }
    if !schedule.warm_up.is_zero() {
        text += &format!("; warmed up for {} by each workload", duration(schedule.warm_up));
    }
    match schedule.restarts {
        0 => {}
        1 => text += "; every environment was started again once",
        times => text += &format!("; every environment was started again {times} times"),
    }
    let shares: Vec<String> = findings
        .iter()
        .filter_map(|finding| {
            let percent = 100.0 * finding.starts?.share;
            Some(format!("{} {percent:.0} %", finding.environment))
        })
        .collect();
    if !shares.is_empty() {
        text += "; share of the variance of the CPU cost that comes from starts: ";
        text += &shares.join(", ");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tare_lab::analysis::Starts;
    use tare_lab::study::AutoWindow;

    use super::*;

    #[test]
    fn names_tried_windows_and_restarts() {
        let (record, analysis) = crate::fixture::quick();
        let mut findings = analysis.findings;
        let mut schedule = record.study.schedule;
        assert_eq!(text(&schedule, &findings), "");
        let (window, pair_time) = (Duration::from_millis(50), Duration::from_millis(140));
        let tried = vec![TriedWindow { window, pairs: 12, noise_percent: 9.52, pair_time }];
        (schedule.window, schedule.auto_window) =
            (window, Some(AutoWindow { tried, kept_because: None }));
        schedule.restarts = 3;
        findings.truncate(2);
        findings[1].starts = Some(Starts { count: 4, share: 0.6 });
        let name = findings[1].environment.clone();
        assert_eq!(
            text(&schedule, &findings),
            format!(
                "; 200 ms at a fixed rate; 50 ms was chosen on this host, where it gives the \
             narrowest intervals in a given time, or within a tenth of them (noise and time of a \
             pair: 50 ms: 9.5 % in 140 ms); every environment was started again 3 times; share of the variance of \
             the CPU cost that comes from starts: {name} 60 %"
            )
        );
    }
}
