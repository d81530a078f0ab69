//! h2load as a driver: a closed loop of one HTTP request, for web servers and what has an interface
//! over HTTP. It is nghttp2's load tool (<https://nghttp2.org/documentation/h2load.1.html>).
//!
//! It logs start and duration of each request, so the window is cut exactly.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tare_lab::study::{OptionInfo, Study, WorkloadSpec};

use super::option_reader::{OptionError, OptionReader, option};
use super::scale;
use super::tool::{
    self, CommandLine, EdgeSource, Outcome, Progress, SliceRun, Tool, ToolCommand, ToolError,
    ToolInfo, ToolOptions, ToolReport, ToolTarget, closed_loop, unusable, written,
};
use super::{DriverInfo, Program, Saturation};

mod output;

const NAME: &str = "h2load";

const OPTIONS: &[OptionInfo] = &[
    option("path", &[], "path and query of the request (/)"),
    option("data", &[], "absolute path of a file that is sent as the body: POST in place of GET"),
    option("content_type", &[], "the type of that body (application/json)"),
    option("http2", &["yes", "no"], "HTTP/2 without TLS in place of HTTP/1.1 (no)"),
    option("streams", &[], "requests in flight on each connection, with http2 (1)"),
    option("clients", &[], "connections (16, or 8 per CPU of the system)"),
    option("threads", &[], "threads of the client (1 per CPU of it)"),
    option("program", &[], "its file, where it is not on PATH"),
];

pub(super) const INFO: DriverInfo = DriverInfo {
    name: NAME,
    help: "nghttp2's load tool for HTTP: closed loop, one request",
    speaks: &["http"],
    options: OPTIONS,
    load_options: &["path", "data", "content_type", "http2", "streams", "clients", "threads"],
    program: Some(Program { name: NAME, home: None, get: "apt-get install nghttp2-client" }),
    check: tool::check::<H2Load>,
    saturation: Saturation::Option("clients", CLIENTS),
    scale: |workload, cpus| {
        scale::sessions(workload, cpus, "clients", CLIENTS_PER_CPU, (CLIENTS, CLIENTS_MAX));
        scale::threads_of_clients(workload, cpus, "threads", CLIENTS);
    },
    make: tool::make::<H2Load>,
    sharing: tool::sharing::<H2Load>(),
};

/// Connections of a workload that does not name them.
const CLIENTS: u32 = 16;
const CLIENTS_PER_CPU: u32 = 8;
const CLIENTS_MAX: u32 = 1_000;
/// Extra time beyond lead-in and window.
const TAIL: Duration = Duration::from_millis(1_000);
/// The log of requests, in the directory of the run.
const LOG: &str = "requests";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    path: String,
    data: Option<String>,
    content_type: String,
    http2: bool,
    streams: u64,
    clients: u64,
    threads: u64,
    program: String,
}

impl ToolOptions for Options {
    fn read(workload: &WorkloadSpec) -> Result<Self, OptionError> {
        let words = OptionReader { tool: NAME, workload };
        let path = words.text("path", "/");
        if !path.starts_with('/') || path.contains(char::is_whitespace) {
            return Err(words.bad("path", "a path that begins with / and has no spaces"));
        }
        let data = words.get("data").map(String::from);
        if data.as_deref().is_some_and(|data| !Path::new(data).is_absolute()) {
            return Err(words.bad("data", FILE));
        }
        let http2 = words.text("http2", "no") == "yes";
        if !http2 && words.get("streams").is_some() {
            return Err(words.bad("streams", "left out without http2 = \"yes\""));
        }
        Ok(Self {
            path,
            data,
            content_type: words.text("content_type", "application/json"),
            http2,
            streams: words.whole("streams", 1, 1..=1_000)?,
            clients: words.whole("clients", CLIENTS.into(), 1..=10_000)?,
            threads: words.whole("threads", 1, 1..=256)?,
            program: words.text("program", NAME),
        })
    }

    fn program(&self) -> &str {
        &self.program
    }

    fn files(&self, words: OptionReader<'_>) -> Vec<(PathBuf, OptionError)> {
        self.data.iter().map(|path| (path.into(), words.bad("data", FILE))).collect()
    }
}

/// What `data` must be.
const FILE: &str = "the absolute path of a file";

#[derive(Clone, Debug, Default)]
struct H2Load;

impl Tool for H2Load {
    const INFO: ToolInfo = ToolInfo {
        name: NAME,
        edges: EdgeSource::ByTheClock,
        greeting: &[],
        cuts_latency: true,
        divided: &[tool::load("clients", CLIENTS), tool::each("threads", 1)],
    };

    type Options = Options;

    fn check(study: &Study) -> Result<(), ToolError> {
        closed_loop(NAME, &study.workloads)?;
        Ok(study.workloads.iter().try_for_each(|workload| Options::read(workload).map(drop))?)
    }

    fn command(&self, options: &Options, run: &SliceRun<'_>) -> ToolCommand {
        let Options { path, data, content_type, http2, streams, clients, threads, program } =
            options;
        // It takes whole seconds. The climb of `load = "saturate"` begins with few clients.
        let seconds = (run.order.lead_in + run.order.window + TAIL).as_secs_f64().ceil();
        let words = CommandLine::new(program.as_str())
            .args(&format!("-c {clients} -t {} -D {seconds}", threads.min(clients)))
            .arg(format!("--log-file={}", run.scratch.join(LOG).display()));
        let words = match http2 {
            true => words.args(&format!("--no-tls-proto=h2c -m {streams}")),
            false => words.arg("--h1"),
        };
        let words = match data {
            Some(data) => words
                .arg("-d")
                .arg(data.as_str())
                .arg("-H")
                .arg(format!("content-type: {content_type}")),
            None => words,
        };
        ToolCommand { words: words.arg(format!("http://{}{path}", run.address)), operations: None }
    }

    /// There is nothing to write: the server has its pages.
    fn populate(&self, _at: &mut ToolTarget<'_>, _options: &Options) -> Result<(), ToolError> {
        Ok(())
    }

    fn progress(&self, line: &str) -> Option<Progress> {
        output::progress(line)
    }

    fn is_last(&self, line: &str) -> bool {
        output::is_last(line)
    }

    fn read(&self, _options: &Options, report: &ToolReport<'_>) -> Result<Outcome, ToolError> {
        let ToolReport { printed, scratch, cut, .. } = *report;
        let log = written(NAME, &scratch.join(LOG))?;
        output::read(&printed.stdout, &log, Some(cut)).map_err(unusable(NAME, printed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::workload;

    #[test]
    fn options_are_checked() {
        let check = |options: &[(&str, &str)], expect: &str| {
            let mut workload = workload();
            let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
            workload.options = options.iter().map(owned).collect();
            let found = Options::read(&workload).map(|options| format!("{options:?}"));
            let found = found.unwrap_or_else(|error| error.to_string());
            assert!(found.contains(expect), "{found}");
        };
        check(&[], "path: \"/\", data: None");
        check(&[("http2", "yes"), ("streams", "8")], "streams: 8, clients: 16");
        check(&[("streams", "8")], "left out without http2");
        check(&[("path", "index.html")], "a path that begins with /");
        check(&[("path", "/a b")], "has no spaces");
        check(&[("data", "body.json")], "the absolute path of a file");
    }
}
