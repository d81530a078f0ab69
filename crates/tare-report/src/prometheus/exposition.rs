//! Families and samples as lines of Prometheus' text format.

use tare_std::units::significant;

/// Digits of a figure: far more than it is worth, far fewer than an `f64` has.
const DIGITS: u32 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Gauge,
    Summary,
}

/// A text in the making.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
    name: String,
    /// HELP and TYPE, which wait for the first sample: a family without one is left out.
    head: String,
}

impl Exposition {
    /// Begins a family; what is sampled next belongs to it.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
        };
        self.name = name.to_string();
        self.head = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.sample_of("", labels, value);
    }

    /// A sample of the family's name with a suffix. What is not finite is no figure, and left out.
    pub(super) fn sample_of(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        if !value.is_finite() {
            return;
        }
        self.text.push_str(&std::mem::take(&mut self.head));
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
        let value = float(value);
        self.text.push_str(&format!("{}{suffix}{{{}}} {value}\n", self.name, labels.join(",")));
    }

    pub(super) fn text(self) -> String {
        self.text
    }
}

/// A figure without the zeros that end it.
fn float(value: f64) -> String {
    let text = significant(value, DIGITS);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    }
}

/// A label's value: the backslash, the quote and the line feed are what the format escapes.
fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
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
    fn a_family_without_a_sample_is_left_out() {
        let mut out = Exposition::default();
        out.family("a", Kind::Gauge, "A.");
        out.sample(&[], f64::NAN);
        out.family("b", Kind::Gauge, "B.");
        out.sample(&[("x", "\\\"\n")], 1.0);
        let expected = "# HELP b B.\n# TYPE b gauge\nb{x=\"\\\\\\\"\\n\"} 1\n";
        assert_eq!(out.text(), expected);
    }
}
