//! The HTML document around every page: head, styles, scripts and templates.
//!
//! A page is a template that extends `document.html` and a view with a [`Document`] in its field
//! `document`. Templates are part of the program and contain no code from a record.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value};
use serde::Serialize;
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("page.css");
/// The switch of themes, tooltips and legends.
const PAGE: &str = include_str!("script/page.js");
/// uPlot 1.6.32 (MIT), see `vendor/uplot` and ARCHITECTURE.md.
const UPLOT: [&str; 2] = [
    include_str!("../../vendor/uplot/uPlot.min.css"),
    include_str!("../../vendor/uplot/uPlot.iife.min.js"),
];
/// The dense charts.
const PLOTS: &str = include_str!("script/plots.js");
/// The flame graphs.
const FLAME: [&str; 2] = [include_str!("flame.css"), include_str!("script/flame.js")];

/// Styles and scripts that only some pages need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asset {
    /// Dense charts.
    Plots,
    FlameGraph,
}

macro_rules! templates {
    ($($name:literal),* $(,)?) => { [$(($name, include_str!($name))),*] };
}

/// Every template with the name under which others include it.
const TEMPLATES: [(&str, &str); 28] = templates![
    "document.html",
    "macros.html",
    "page.html",
    "compare.html",
    "history.html",
    "sections/header.html",
    "sections/summary.html",
    "sections/contents.html",
    "sections/conditions.html",
    "sections/findings.html",
    "sections/workload.html",
    "sections/groups.html",
    "sections/sweeps.html",
    "sections/instances.html",
    "sections/published.html",
    "sections/explanation.html",
    "sections/tuning.html",
    "sections/arithmetic.html",
    "sections/counters.html",
    "sections/doubts.html",
    "sections/layers.html",
    "sections/config.html",
    "sections/host.html",
    "sections/order.html",
    "sections/stacks.html",
    "flame_graph.html",
    "flame_page.html",
    "sections/again.html",
];

/// The values of the document template.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    title: String,
    version: String,
    styles: Vec<Value>,
    scripts: Vec<Value>,
    /// Sources of the content security policy that allow these scripts and no others.
    script_sources: Value,
}

impl Document {
    /// `title` and `version` are text without control characters.
    pub(super) fn new(title: String, version: String, parts: &[Asset]) -> Self {
        let mut styles = vec![STYLE];
        let mut scripts = vec![PAGE];
        if parts.contains(&Asset::Plots) {
            styles.push(UPLOT[0]);
            scripts.extend([UPLOT[1], PLOTS]);
        }
        if parts.contains(&Asset::FlameGraph) {
            styles.push(FLAME[0]);
            scripts.push(FLAME[1]);
        }
        let sources: Vec<String> = scripts.iter().map(|script| source(script)).collect();
        let text = |text: &&str| Value::from_safe_string((*text).to_string());
        Self {
            title,
            version,
            styles: styles.iter().map(text).collect(),
            scripts: scripts.iter().map(text).collect(),
            script_sources: Value::from_safe_string(sources.join(" ")),
        }
    }
}

/// A script as a source of a content security policy: the hash of its text
/// (<https://www.w3.org/TR/CSP3/#grammardef-hash-source>). Injected markup cannot run.
fn source(script: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(script)))
}

/// Renders a template with a view.
pub(super) fn render(template: &str, view: impl Serialize) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    // All templates are added for every page, so a broken one fails every test.
    for (name, text) in TEMPLATES {
        environment
            .add_template(name, text)
            .unwrap_or_else(|error| panic!("the program's own template is broken: {error:#}"));
    }
    environment
        .get_template(template)
        .and_then(|found| found.render(Value::from(Serde(view))))
        .unwrap_or_else(|error| panic!("the program's own template is broken: {error:#}"))
}
