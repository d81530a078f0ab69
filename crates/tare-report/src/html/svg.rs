//! A small SVG writer that escapes every text and fits any width.
//!
//! Horizontal positions are in percent of the chart's width and vertical ones in pixels, so a chart
//! fits a desktop and a phone while its text keeps its size. Charts carry a title
//! and a description for screen readers; colours are classes of the page's style sheet.

use std::fmt::Write;

/// Escapes text for element content and for attributes in double quotes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in crate::figures::clean(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The part of a text that is at its x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextAnchor {
    Start,
    Middle,
    End,
}

/// Shape of a mark, so that colour is never the only difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
}

impl Shape {
    pub(super) fn nth(index: usize) -> Shape {
        [Shape::Circle, Shape::Square, Shape::Triangle, Shape::Diamond][index % 4]
    }

    /// Its name in the page's script.
    pub(super) fn name(self) -> &'static str {
        match self {
            Shape::Circle => "circle",
            Shape::Square => "square",
            Shape::Triangle => "triangle",
            Shape::Diamond => "diamond",
            Shape::Cross => "cross",
        }
    }

    fn path(self, r: f64) -> String {
        match self {
            Shape::Circle => {
                format!("M{0} 0a{1} {1} 0 1 0 {2} 0a{1} {1} 0 1 0 -{2} 0Z", -r, r, 2.0 * r)
            }
            Shape::Square => format!("M{0} {0}H{1}V{1}H{0}Z", -0.9 * r, 0.9 * r),
            Shape::Triangle => format!("M0 {}L{} {}H{}Z", -1.15 * r, 1.1 * r, 0.85 * r, -1.1 * r),
            Shape::Diamond => format!("M0 {0}L{1} 0L0 {1}L{0} 0Z", -1.25 * r, 1.25 * r),
            Shape::Cross => format!("M{0} {0}L{1} {1}M{0} {1}L{1} {0}", -0.9 * r, 0.9 * r),
        }
    }
}

/// A chart under construction.
#[derive(Debug)]
pub(super) struct Svg {
    body: String,
    id: String,
    height: f64,
    title: String,
    description: String,
    /// Width in pixels, for a file of a fixed size.
    width: Option<f64>,
}

impl Svg {
    /// `id` must be unique on the page and made of letters, digits and dashes.
    pub(super) fn new(id: &str, height: f64, title: &str, description: &str) -> Svg {
        Svg {
            body: String::new(),
            id: id.to_string(),
            height,
            title: title.to_string(),
            description: description.to_string(),
            width: None,
        }
    }

    /// Draws lines in pixels of a chart of this width. Renderers of files do not know
    /// `vector-effect`, without which a stretched line has another width.
    pub(super) fn with_width(self, width: f64) -> Svg {
        Svg { width: Some(width), ..self }
    }

    pub(super) fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, class: &str) {
        self.write(format_args!(
            r#"<line x1="{x1:.2}%" y1="{y1:.1}" x2="{x2:.2}%" y2="{y2:.1}" class="{class}"/>"#
        ));
    }

    /// A vertical bar with a tooltip, 2 pixels wide and so easier to hit than a line.
    pub(super) fn bar(&mut self, x: f64, y1: f64, y2: f64, class: &str, title: &str) {
        self.write(format_args!(
            r#"<line x1="{x:.2}%" y1="{y1:.1}" x2="{x:.2}%" y2="{y2:.1}" class="{class}">{}</line>"#,
            tooltip(title)
        ));
    }

    pub(super) fn rect(
        &mut self,
        x: f64,
        y: f64,
        width: f64,
        height: f64,
        class: &str,
        title: &str,
    ) {
        self.write(format_args!(
            r#"<rect x="{x:.2}%" y="{y:.1}" width="{width:.2}%" height="{height:.1}" class="{class}">{}</rect>"#,
            tooltip(title)
        ));
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: TextAnchor, class: &str, text: &str) {
        let anchor = match anchor {
            TextAnchor::Start => "start",
            TextAnchor::Middle => "middle",
            TextAnchor::End => "end",
        };
        self.write(format_args!(
            r#"<text x="{x:.2}%" y="{y:.1}" text-anchor="{anchor}" class="{class}">{}</text>"#,
            escape(text)
        ));
    }

    /// A dot of radius `r` pixels. It takes a third of a mark's bytes, for charts of thousands.
    pub(super) fn dot(&mut self, x: f64, y: f64, r: f64, class: &str, title: &str) {
        self.write(format_args!(
            r#"<circle cx="{x:.2}%" cy="{y:.1}" r="{r}" class="{class}">{}</circle>"#,
            tooltip(title)
        ));
    }

    /// Rectangles of one height and class (x and width in percent) in one path, in few bytes.
    pub(super) fn rects(&mut self, rects: &[(f64, f64)], y: f64, height: f64, class: &str) {
        if rects.is_empty() {
            return;
        }
        let mut path = String::with_capacity(rects.len() * 22);
        for (x, width) in rects {
            let _ = write!(path, "M{x:.2} {y}h{width:.2}v{height}h-{width:.2}z");
        }
        let tall = self.height;
        self.write(format_args!(
            r#"<svg width="100%" height="{tall}" viewBox="0 0 100 {tall}" preserveAspectRatio="none"><path d="{path}" class="{class}"/></svg>"#
        ));
    }

    /// Bars of one class on a floor (x and width in percent, height in pixels) in one path.
    pub(super) fn bars(&mut self, bars: &[(f64, f64, f64)], floor: f64, class: &str) {
        let mut path = String::with_capacity(bars.len() * 22);
        for (x, width, height) in bars {
            let _ = write!(path, "M{x:.2} {floor:.1}v-{height:.1}h{width:.2}v{height:.1}z");
        }
        let tall = self.height;
        self.write(format_args!(
            r#"<svg width="100%" height="{tall}" viewBox="0 0 100 {tall}" preserveAspectRatio="none"><path d="{path}" class="{class}"/></svg>"#
        ));
    }

    /// A mark of radius `r` pixels.
    pub(super) fn mark(&mut self, x: f64, y: f64, shape: Shape, r: f64, class: &str, title: &str) {
        self.write(format_args!(
            r#"<svg x="{x:.2}%" y="{y:.1}" class="mark {class}"><path d="{}">{}</path></svg>"#,
            shape.path(r),
            tooltip(title)
        ));
    }

    /// Starts the marks of one environment, up to [`Self::end_group`]. The page's script hides them
    /// with the legend entry and puts `name` before their tooltips.
    pub(super) fn begin_group(&mut self, environment: usize, style: &str, name: &str) {
        self.write(format_args!(
            r#"<g data-e="{environment}" data-style="{style}" data-name="{}">"#,
            escape(name)
        ));
    }

    pub(super) fn end_group(&mut self) {
        self.write(format_args!("</g>"));
    }

    /// A line through points (x in percent, y in pixels).
    pub(super) fn polyline(&mut self, points: &[(f64, f64)], class: &str, title: &str) {
        let mut path = String::with_capacity(points.len() * 14);
        let unit = self.width.map_or(1.0, |width| width / 100.0);
        for (x, y) in points {
            let _ = write!(path, "{:.2},{y:.1} ", x * unit);
        }
        if self.width.is_some() {
            return self.write(format_args!(
                r#"<polyline points="{}" class="{class}">{}</polyline>"#,
                path.trim_end(),
                tooltip(title)
            ));
        }
        // Point lists take no percentages, so an inner SVG is stretched over the width.
        let height = self.height;
        self.write(format_args!(
            r#"<svg width="100%" height="{height}" viewBox="0 0 100 {height}" preserveAspectRatio="none"><polyline points="{}" class="{class}">{}</polyline></svg>"#,
            path.trim_end(),
            tooltip(title)
        ));
    }

    pub(super) fn finish(self) -> String {
        format!(
            r#"<svg role="img" aria-labelledby="{id}-t {id}-d" class="chart" width="100%" height="{:.0}"><title id="{id}-t">{}</title><desc id="{id}-d">{}</desc>{}</svg>"#,
            self.height,
            escape(&self.title),
            escape(&self.description),
            self.body,
            id = self.id,
        )
    }

    fn write(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = self.body.write_fmt(arguments);
        self.body.push('\n');
    }
}

/// The mark of a legend entry.
pub(super) fn swatch(shape: Shape, class: &str) -> String {
    format!(
        r#"<svg width="14" height="14" aria-hidden="true"><svg x="7" y="7" class="mark {class}"><path d="{}"/></svg></svg>"#,
        shape.path(5.0)
    )
}

fn tooltip(title: &str) -> String {
    if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) }
}

/// Maps figures to percent of the chart's width, with a margin at both ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    /// Start of the scale, in percent of the chart's width.
    left: f64,
}

const EDGE: f64 = 3.0;

impl Scale {
    pub(super) fn linear(low: f64, high: f64) -> Scale {
        Scale { low, high: if high > low { high } else { low + 1.0 }, log: false, left: EDGE }
    }

    /// A logarithmic scale; both ends must be above 0.
    pub(super) fn log(low: f64, high: f64) -> Scale {
        let (low, high) = (low.max(1.0).log10(), high.max(1.0).log10());
        Scale { low, high: if high > low { high } else { low + 1.0 }, log: true, left: EDGE }
    }

    /// Leaves room on the left for the labels of a vertical axis.
    pub(super) fn after(self, left: f64) -> Scale {
        Scale { left, ..self }
    }

    /// The position of a figure from 0 to 1, clamped.
    pub(super) fn share(&self, value: f64) -> f64 {
        let value = if self.log { value.max(1e-9).log10() } else { value };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The position of a figure in percent of the chart's width.
    pub(super) fn x(&self, value: f64) -> f64 {
        self.left + self.share(value) * (100.0 - EDGE - self.left)
    }

    /// Round figures on the scale: about `count` of them on a linear one; 1, (2, 5,) 10 ... on a
    /// logarithmic one.
    pub(super) fn ticks(&self, count: u32) -> Vec<f64> {
        if self.log {
            return self.log_ticks();
        }
        let rough = (self.high - self.low) / f64::from(count.max(1));
        let magnitude = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|x| x * magnitude)
            .find(|step| *step >= rough)
            .unwrap_or(magnitude * 10.0);
        let first = (self.low / step).ceil();
        (0..64)
            .map(|i| (first + f64::from(i)) * step)
            .take_while(|tick| *tick <= self.high + step * 1e-6)
            .collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let within = |tick: &f64| {
            let log = tick.log10();
            log >= self.low - 1e-9 && log <= self.high + 1e-9
        };
        let factors: &[f64] = if self.high - self.low < 2.2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        (0..13)
            .flat_map(|decade| factors.iter().map(move |factor| factor * 10f64.powi(decade)))
            .filter(within)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_on_the_scale() {
        assert_eq!(Scale::linear(-3.0, 71.0).ticks(5), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(Scale::log(200_000.0, 7e6).ticks(5), [2e5, 5e5, 1e6, 2e6, 5e6]);
        assert_eq!(Scale::log(1.0, 1e6).ticks(5).len(), 7);
        assert!(Scale::linear(0.0, 0.0).ticks(5).len() < 20);
    }

    #[test]
    fn text_and_attributes_are_escaped() {
        let mut svg = Svg::new("a", 10.0, "<t>", "\"d\"");
        svg.text(1.0, 2.0, TextAnchor::End, "label", "</text><script>");
        svg.mark(1.0, 2.0, Shape::Circle, 3.0, "c1", "a & b");
        let text = svg.finish();
        assert!(!text.contains("<script>") && !text.contains("<t>"), "{text}");
        assert!(text.contains("a &amp; b") && text.contains("&quot;d&quot;"));
    }
}
