//! Writes metrics in Prometheus' text format 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::{Display, Write};

/// A text of metric families under construction. Lines end in LF.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    name: String,
    /// HELP and TYPE of a family whose first sample has not been added.
    head: String,
}

impl Exposition {
    /// Starts a family; the next samples belong to it. A family without a sample is left out.
    /// `kind` is the TYPE: `counter`, `gauge`, `histogram` or `summary`.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.name = name.to_string();
        self.head = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Adds a sample of the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample_of("", labels, value);
    }

    /// Adds a sample whose name is the family's with a suffix, such as `_sum`.
    pub fn sample_of(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(&std::mem::take(&mut self.head));
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        for (index, (name, value)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{open}{name}=\"{}\"", escape(value));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{close} {value}");
    }

    /// The whole text.
    pub fn text(self) -> String {
        self.text
    }
}

/// Escapes a label's value: backslash, quote and line feed.
fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_empty_families_left_out() {
        let mut out = Exposition::default();
        out.family("a", "gauge", "A.");
        out.family("b", "summary", "B.");
        out.sample(&[("x", "\\\"\n"), ("y", "")], 1);
        out.sample_of("_sum", &[], 2.5);
        let samples = "b{x=\"\\\\\\\"\\n\",y=\"\"} 1\nb_sum 2.5\n";
        assert_eq!(out.text(), format!("# HELP b B.\n# TYPE b summary\n{samples}"));
    }
}
