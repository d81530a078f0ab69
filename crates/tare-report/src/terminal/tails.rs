//! Percentiles of response time with their intervals: as times if the width allows, and over the
//! baseline's.

use tare_lab::analysis::{Analysis, Finding};

use crate::layout::{Paint, columns, grid, paragraph};
use crate::tails::{READING, percentile_text, ratio, table};

/// Columns between two cells of [`grid`].
const GAP: usize = 3;

/// Both tables of one workload, or nothing if the record has no such intervals.
pub(super) fn lines(analysis: &Analysis, findings: &[&Finding], paint: Paint) -> Vec<String> {
    let mut out = Vec::new();
    let mut add = |caption: &str, head: &[String], rows: &[Vec<String>]| {
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        out.push(String::new());
        out.extend(paragraph(&paint.plain(caption), "", paint.0.width));
        out.extend(grid(&head, rows, paint.0).lines().map(str::to_string));
    };
    let (head, rows) = table(findings, |_, one| percentile_text(one));
    if !rows.is_empty() && width(&rows) <= usize::from(paint.0.width) {
        add("Response time at the fixed rate, with its 95 % interval:", &head, &rows);
    }
    let compared: Vec<&Finding> = findings.iter().copied().filter(|f| !f.baseline).collect();
    let (head, rows) = table(&compared, |finding, one| ratio(analysis, finding, one.percent));
    if !rows.is_empty() {
        let caption =
            format!("Response time over the baseline's, with its 95 % interval ({READING}):");
        add(&caption, &head, &rows);
    }
    out
}

/// The width of a table without wrapped cells.
fn width(rows: &[Vec<String>]) -> usize {
    let cells = rows.first().map_or(0, Vec::len);
    let widest =
        |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|text| columns(text)).max();
    (0..cells).map(|at| widest(at).unwrap_or(0) + GAP).sum()
}
