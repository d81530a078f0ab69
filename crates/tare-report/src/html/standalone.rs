//! Charts of the page in an SVG file of their own: fixed size, light colours, no script.
//!
//! Programs that draw SVG files know fewer features than browsers: no variables in style sheets, no
//! `light-dark()`. So the classes of the page get plain colours here.

use std::fmt::Write;

use super::svg::escape;

/// The light colours of `page.css`, and its rules for charts.
const STYLE: &str = "text{font-family:system-ui,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif;fill:#1b1d1f}\
.chart text{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}\
.tick,.soft{fill:#5a6068}.tick{font-size:.92em}.label,.group{font-weight:600}\
.chart line{stroke-width:1;stroke:#d9dcdf}\
.chart .zero{stroke:#1b1d1f;stroke-width:1.5}\
.band{fill:#ebebec;stroke:none}\
.mark,.chart svg{overflow:visible}.mark path{stroke:#fff;stroke-width:1;fill:#1b1d1f}\
.curve{fill:none;stroke-width:2;stroke:#1b1d1f}\
.chart .interval{stroke-width:3}.chart .end{stroke-width:2}";

/// Classes with their colours: marks, lines and intervals.
const COLOURS: [(&str, &str); 11] = [
    ("base", "#1b1d1f"),
    ("control", "#6d747c"),
    ("none", "#6d747c"),
    ("loss", "#b34700"),
    ("gain", "#007a58"),
    ("c1", "#0072b2"),
    ("c2", "#d55e00"),
    ("c3", "#009e73"),
    ("c4", "#b8578f"),
    ("c5", "#c88600"),
    ("c6", "#3d9bd1"),
];

/// An SVG file as an HTML page.
pub(crate) fn page(title: &str, svg: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{}</title>\
         <style>body {{ margin: 1rem; background: #fff }} svg {{ max-width: 100%; height: auto \
         }}</style>\n{svg}</html>\n",
        escape(title)
    )
}

/// A file under construction.
#[derive(Debug)]
pub(super) struct File {
    body: String,
}

impl File {
    /// An empty file with a white ground; sizes are in pixels. Its marks and lines have the width
    /// of the page's.
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        let mut body = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" font-size=\"13\">\n\
             <title>{}</title>\n<style>{STYLE}",
            escape(title)
        );
        for (class, colour) in COLOURS {
            let _ = write!(
                body,
                ".mark.{class} path{{fill:{colour}}}.mark.{class}.open path{{fill:#fff;stroke:{colour};\
                 stroke-width:1.75}}.curve.{class},.chart line.interval.{class},\
                 .chart line.end.{class}{{stroke:{colour}}}"
            );
        }
        body.push_str(
            ".curve.control{stroke-dasharray:2 4}.curve.c2{stroke-dasharray:8 3}\
             .curve.c4{stroke-dasharray:5 2 1 2}.mark.hollow path{fill:#fff;stroke:#5a6068;\
             stroke-width:2}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        );
        Self { body }
    }

    /// A line of text; `class` is `label` (bold), `soft` (grey) or empty.
    pub(super) fn text(&mut self, (x, y): (f64, f64), size: f64, class: &str, text: &str) {
        let _ = writeln!(
            self.body,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" class=\"{class}\">{}</text>",
            escape(text)
        );
    }

    /// A chart of the page in a box; `scale` enlarges its text and marks.
    pub(super) fn chart(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        scale: f64,
        chart: &str,
    ) {
        let _ = writeln!(
            self.body,
            "<g transform=\"translate({x} {y}) scale({scale})\"><svg width=\"{:.1}\" \
             height=\"{:.1}\" overflow=\"visible\">{chart}</svg></g>",
            width / scale,
            height / scale
        );
    }

    /// Any drawing made of escaped texts.
    pub(super) fn raw(&mut self, drawing: &str) {
        self.body.push_str(drawing);
        self.body.push('\n');
    }

    pub(super) fn finish(mut self) -> String {
        self.body.push_str("</svg>\n");
        self.body
    }
}
