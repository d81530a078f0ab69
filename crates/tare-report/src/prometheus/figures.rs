//! Metric families whose samples are figures with few digits.

use tare_std::prometheus::Exposition;
use tare_std::units::significant;

/// Digits of a figure: more than its interval justifies, fewer than an `f64` has.
const DIGITS: u32 = 6;

/// An [`Exposition`] of figures. A figure that is not finite has no sample.
#[derive(Debug, Default)]
pub(crate) struct Figures(Exposition);

impl Figures {
    pub(crate) fn gauge(&mut self, name: &str, help: &str) {
        self.0.family(name, "gauge", help);
    }

    pub(crate) fn summary(&mut self, name: &str, help: &str) {
        self.0.family(name, "summary", help);
    }

    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.sample_of("", labels, value);
    }

    pub(crate) fn sample_of(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        if value.is_finite() {
            self.0.sample_of(suffix, labels, float(value));
        }
    }

    pub(crate) fn text(self) -> String {
        self.0.text()
    }
}

/// A figure without trailing zeros after the point.
fn float(value: f64) -> String {
    let text = significant(value, DIGITS);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_never_in_exponent_form() {
        for (value, text) in [
            (12.0, "12"),
            (0.000_011_600_6, "0.0000116006"),
            (1_795_229_398.398, "1795229398"),
            (-0.125, "-0.125"),
            (0.0, "0"),
            (6000.0, "6000"),
        ] {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn infinite_figures_have_no_sample() {
        let mut out = Figures::default();
        out.gauge("a", "A.");
        out.sample(&[], f64::NAN);
        assert_eq!(out.text(), "");
    }
}
