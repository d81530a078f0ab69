//! The map of `tare disk --map`: read latency over read and write rates as a self-contained SVG.
//!
//! Colours are Cividis (Nuñez, Anderton, Renslow, "Optimizing colormaps with consideration for
//! color vision deficiency", PLOS ONE 2018), whose lightness grows steadily and looks the same
//! with red-green blindness; the scale is logarithmic. A dot marks a disk that fell behind.

use std::fmt::Write;

use tare_std::units::{nanoseconds, significant};

use crate::html::standalone::page;
use crate::html::svg::escape;

/// One cell of the map.
#[derive(Clone, Copy, Debug)]
pub struct DiskCell {
    pub read_percent: u32,
    pub write_percent: u32,
    /// In ns; `None` after too few reads.
    pub p95_ns: Option<f64>,
    /// Whether operations were due and not started.
    pub overloaded: bool,
}

/// The map and its scale.
#[derive(Clone, Debug)]
pub struct DiskMap {
    pub title: String,
    pub read_per_s: f64,
    pub write_bytes_per_s: f64,
    /// The share at which reads probe the disk where the map has 0 %.
    pub probe_percent: f64,
    pub write_block_bytes: u32,
    pub cell_s: f64,
    pub cells: Vec<DiskCell>,
}

const LEFT: f64 = 70.0;
const TOP: f64 = 62.0;
const SIDE: f64 = 24.0;
const STEP_PERCENT: f64 = 5.0;
const FIELDS: f64 = 21.0;
const BARS: u32 = 48;

/// Cividis at equal steps.
const CIVIDIS: [[f64; 3]; 9] = [
    [0.0, 34.0, 78.0],
    [18.0, 53.0, 112.0],
    [59.0, 73.0, 108.0],
    [87.0, 93.0, 109.0],
    [112.0, 113.0, 115.0],
    [138.0, 134.0, 120.0],
    [166.0, 157.0, 117.0],
    [195.0, 180.0, 105.0],
    [254.0, 232.0, 56.0],
];

impl DiskMap {
    /// The map as an SVG file.
    pub fn svg(&self) -> String {
        let (low, high) = self.range();
        let size = SIDE * FIELDS;
        let (width, height) = (LEFT + size + 150.0, TOP + size + 96.0);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#1b1d1f\">\n\
             <title>Read latency over read and write rates</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
        text(&mut svg, LEFT, 24.0, "font-size=\"16\" font-weight=\"600\"", &self.title);
        let below = "p95 latency of random 4 KiB reads, from the intended start";
        text(&mut svg, LEFT, 44.0, "fill=\"#5a6068\"", below);
        for cell in &self.cells {
            let x = LEFT + f64::from(cell.read_percent) / STEP_PERCENT * SIDE;
            let y = TOP + (FIELDS - 1.0 - f64::from(cell.write_percent) / STEP_PERCENT) * SIDE;
            let (fill, latency) = match cell.p95_ns {
                Some(ns) => (colour(scale(ns, low, high)), nanoseconds(ns)),
                None => ("#ffffff".to_string(), "too few reads".to_string()),
            };
            let behind = if cell.overloaded { ", the disk fell behind" } else { "" };
            // Writing to a string cannot fail.
            let _ = writeln!(
                svg,
                "<g><title>reads {} %, writes {} %: {latency}{behind}</title><rect x=\"{x:.1}\" \
                 y=\"{y:.1}\" width=\"{SIDE}\" height=\"{SIDE}\" fill=\"{fill}\" \
                 stroke=\"#ffffff\" stroke-width=\"0.5\"/>",
                cell.read_percent, cell.write_percent
            );
            if cell.overloaded {
                let (x, y) = (x + SIDE / 2.0, y + SIDE / 2.0);
                let _ = write!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"#1b1d1f\" \
                     stroke=\"#ffffff\"/>"
                );
            }
            svg.push_str("</g>\n");
        }
        self.axes(&mut svg, size);
        legend(&mut svg, LEFT + size + 24.0, size, low, high);
        svg.push_str("</svg>\n");
        svg
    }

    /// The map as an HTML page.
    pub fn html(&self) -> String {
        page(&self.title, &self.svg())
    }

    /// The smallest and largest latency, or a decade around a single one.
    fn range(&self) -> (f64, f64) {
        let known = || self.cells.iter().filter_map(|cell| cell.p95_ns);
        let low = known().fold(f64::INFINITY, f64::min);
        let high = known().fold(0.0, f64::max);
        match low.is_finite() && low > 0.0 {
            true if high > low => (low, high),
            true => (low / 3.0, low * 3.0),
            false => (1e3, 1e9),
        }
    }

    fn axes(&self, svg: &mut String, size: f64) {
        for percent in (0..=100).step_by(20) {
            let at = f64::from(percent) / STEP_PERCENT * SIDE + SIDE / 2.0;
            let label = format!("{percent} %");
            text(svg, LEFT + at, TOP + size + 16.0, "text-anchor=\"middle\"", &label);
            let y = TOP + size - at + 4.0;
            text(svg, LEFT - 6.0, y, "text-anchor=\"end\"", &label);
        }
        let reads = format!("reads: 100 % = {} /s of 4 KiB", significant(self.read_per_s, 3));
        let middle = LEFT + size / 2.0;
        text(svg, middle, TOP + size + 36.0, "text-anchor=\"middle\"", &reads);
        let writes = format!(
            "writes: 100 % = {} MB/s in {} KiB",
            significant(self.write_bytes_per_s / 1e6, 3),
            self.write_block_bytes >> 10
        );
        let (x, y) = (18.0, TOP + size / 2.0);
        let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 {x} {y})\"");
        text(svg, x, y, &turned, &writes);
        let notes = format!(
            "Each field was measured for {}. At 0 % the reads are a probe at {} %.",
            nanoseconds(self.cell_s * 1e9),
            self.probe_percent
        );
        text(svg, LEFT, TOP + size + 60.0, "fill=\"#5a6068\" font-size=\"11\"", &notes);
        let dots =
            "A dot: more than 1 % of what was due was not begun. White: fewer than 20 reads.";
        text(svg, LEFT, TOP + size + 76.0, "fill=\"#5a6068\" font-size=\"11\"", dots);
    }
}

fn legend(svg: &mut String, x: f64, size: f64, low: f64, high: f64) {
    let bar = size / f64::from(BARS);
    for index in 0..BARS {
        let share = (f64::from(index) + 0.5) / f64::from(BARS);
        let y = TOP + size - f64::from(index + 1) * bar;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.2}\" width=\"18\" height=\"{:.2}\" fill=\"{}\"/>",
            bar + 0.5,
            colour(share)
        );
    }
    for index in 0..=4u32 {
        let share = f64::from(index) / 4.0;
        let ns = low * (high / low).powf(share);
        text(svg, x + 24.0, TOP + size - share * (size - 10.0), "", &nanoseconds(ns));
    }
}

fn text(svg: &mut String, x: f64, y: f64, attributes: &str, text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{}</text>", escape(text));
}

fn scale(ns: f64, low: f64, high: f64) -> f64 {
    ((ns / low).ln() / (high / low).ln()).clamp(0.0, 1.0)
}

fn colour(share: f64) -> String {
    let position = share * (CIVIDIS.len() - 1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 8")]
    let below = (position.floor() as usize).min(CIVIDIS.len() - 2);
    let part = position - below as f64;
    let channel =
        |index: usize| CIVIDIS[below][index] * (1.0 - part) + CIVIDIS[below + 1][index] * part;
    format!("rgb({:.0},{:.0},{:.0})", channel(0), channel(1), channel(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_drawn_and_names_are_escaped() {
        let cells = (0..=20u32).flat_map(|read| {
            (0..=20u32).map(move |write| DiskCell {
                read_percent: read * 5,
                write_percent: write * 5,
                p95_ns: (read + write > 0).then(|| 1e5 * f64::from(1 + read * write)),
                overloaded: read + write > 35,
            })
        });
        let map = DiskMap {
            title: "<script>".into(),
            read_per_s: 95e3,
            write_bytes_per_s: 5e8,
            probe_percent: 1.0,
            write_block_bytes: 128 << 10,
            cell_s: 0.05,
            cells: cells.collect(),
        };
        let svg = map.svg();
        assert_eq!(svg.matches("<title>reads ").count(), 441);
        assert_eq!(svg.matches("too few reads").count(), 1);
        assert!(!svg.contains("<script>") && svg.contains("&lt;script&gt;"));
        assert!(map.html().starts_with("<!DOCTYPE html>"));
    }

    #[test]
    fn the_scale_is_logarithmic_and_bounded() {
        for (ns, expect) in [(1e3, 0.0), (1e4, 0.5), (1e5, 1.0), (1e9, 1.0), (1.0, 0.0)] {
            assert!((scale(ns, 1e3, 1e5) - expect).abs() < 1e-9, "{ns}");
        }
        assert_eq!(colour(0.0), "rgb(0,34,78)");
        assert_eq!(colour(1.0), "rgb(254,232,56)");
    }
}
