//! A dense chart: a static SVG, and the same figures as data for the script.

use minijinja::Value;
use serde::Serialize;
use serde_json::json;

use super::Series;

/// A dense chart on the page. The script replaces the static SVG, which is for print and for
/// readers without scripts.
#[derive(Debug, Serialize)]
pub(in crate::html) struct Plot {
    still: Value,
    data: Value,
}

impl Plot {
    /// A chart from markup (`still`) and data, which may hold any name.
    pub(super) fn new(still: String, data: &serde_json::Value) -> Self {
        Self { still: Value::from_safe_string(still), data: as_data(data) }
    }
}

/// JSON for a script element, without `<`, which could end the element.
pub(in crate::html) fn as_data(json: &serde_json::Value) -> Value {
    Value::from_safe_string(json.to_string().replace('<', "\\u003c"))
}

/// The value at each position of a chart, `None` for a gap.
pub(super) type Column = Vec<Option<f64>>;

/// One environment's line: `y`, and the extremes if several rounds share a column.
pub(super) struct Line<'d, 'r> {
    pub(super) of: &'d Series<'r>,
    pub(super) y: Column,
    pub(super) extremes: Option<(Column, Column)>,
}

impl Line<'_, '_> {
    pub(super) fn as_json(&self) -> serde_json::Value {
        let style = self.of.style;
        let mut line = json!({
            "e": self.of.e.to_string(),
            "name": crate::figures::clean(self.of.name()),
            "style": style.class,
            "shape": style.shape.name(),
            "swatch": style.name(),
            "y": digits(&self.y),
        });
        if let Some((low, high)) = &self.extremes {
            line["low"] = digits(low);
            line["high"] = digits(high);
        }
        line
    }
}

/// Rounds to four digits, which are more than a screen shows and a third of the bytes.
fn digits(values: &[Option<f64>]) -> serde_json::Value {
    values.iter().map(|value| value.map_or(serde_json::Value::Null, number)).collect()
}

/// A number of four digits, written as short as JSON allows.
pub(super) fn number(value: f64) -> serde_json::Value {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { json!(0) } else { serde_json::Value::Null };
    }
    let text = format!("{value:.3e}");
    let short: f64 = text.parse().unwrap_or(value);
    #[expect(clippy::cast_possible_truncation, reason = "whole and far below the limit")]
    let whole = short as i64;
    #[expect(clippy::cast_precision_loss, reason = "compared with what it was made of")]
    let same = (whole as f64).to_bits() == short.to_bits();
    if same && short.abs() < 1e15 { json!(whole) } else { json!(short) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (81_234.56, "81230"),
            (0.123_456, "0.1235"),
            (f64::NAN, "null"),
            (-12.0, "-12"),
        ] {
            assert_eq!(number(value).to_string(), text);
        }
    }

    #[test]
    fn no_name_ends_the_element() {
        let data = as_data(&json!({"name": "</script><script>alert(1)</script>"}));
        assert!(!data.to_string().contains('<'), "{data}");
    }
}
