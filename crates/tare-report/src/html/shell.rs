//! What every page of Tare is made in: the document around it, its style and its templates.
//!
//! A page is a template that extends `shell.html` and a view that holds a [`Shell`] under the name
//! `shell`. Templates are part of the program and take no code from a record.

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value};
use serde::Serialize;

const STYLE: &str = include_str!("page.css");

macro_rules! templates {
    ($($name:literal),* $(,)?) => { [$(($name, include_str!($name))),*] };
}

/// Every template, by the name that others include it by.
const TEMPLATES: [(&str, &str); 16] = templates![
    "shell.html",
    "macros.html",
    "page.html",
    "sections/header.html",
    "sections/findings.html",
    "sections/workload.html",
    "sections/explanation.html",
    "sections/tuning.html",
    "sections/arithmetic.html",
    "sections/counters.html",
    "sections/doubts.html",
    "sections/layers.html",
    "sections/config.html",
    "sections/host.html",
    "sections/order.html",
    "sections/again.html",
];

/// What the document around a page needs.
#[derive(Serialize)]
pub(super) struct Shell {
    title: String,
    version: String,
    style: Value,
}

impl Shell {
    /// `title` and `version` are text without control characters.
    pub(super) fn new(title: String, version: String) -> Self {
        Self { title, version, style: Value::from_safe_string(STYLE.to_string()) }
    }
}

/// The page `template` of a view.
pub(super) fn render(template: &str, view: impl Serialize) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    // A broken template fails for every record, so that it cannot pass the tests, which render each.
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
