//! `--serve`: the record's page over HTTP on the loopback interface, updated as the record grows.
//!
//! Method: a thread serves a page that is in memory; it never reads the record. While a study runs,
//! the measuring thread renders the page: between two rounds (between two whole runs in a study by
//! trials), so never while a slice is measured; only while a browser polls; and for at most a
//! twentieth of the time. The serving thread has nice 19 and runs on the client's CPUs. Its CPU
//! time counts as the harness's, not as that of strangers.
//!
//! Limits: every user of this machine can open the page. It is served on the loopback interface
//! only; to open it from another host, forward the port (`ssh -L`).

mod page;
mod render;
mod server;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use tare_lab::campaign::{Event, Observer};
use tare_lab::record::Record;
use tare_lab::study::ScheduleKind;
use tare_std::cpus::CpuSet;

use crate::exit::{Exit, ExitWith};
use crate::stream::say;
use page::SharedPage;
use render::PageRenderer;
use server::Server;

/// How long the last page is served after a study has ended.
const LAST_PAGE_WAIT: Duration = Duration::from_secs(6);
/// How often `tare report --serve` checks whether the record has changed.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Parses `PORT`, `ADDRESS` or `ADDRESS:PORT`; port 0 is a free one.
///
/// # Errors
/// If the text is none of these, or the address is not on the loopback interface.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let address = match (text.parse::<u16>(), text.parse::<IpAddr>()) {
        (Ok(port), _) => Some(SocketAddr::new(localhost, port)),
        (_, Ok(ip)) => Some(SocketAddr::new(ip, 0)),
        _ => text.replacen("localhost", "127.0.0.1", 1).parse().ok(),
    };
    let address = address.ok_or_else(|| "write it like 8080 or 127.0.0.1:8080".to_string())?;
    let loopback = address.ip().is_loopback();
    loopback.then_some(address).ok_or_else(|| {
        format!(
            "{} is not on the loopback interface; to open it from another host, forward the port with ssh -L",
            address.ip()
        )
    })
}

/// Listens on the port, so that a port in use is reported before anything is measured.
pub(crate) fn listen(address: Option<SocketAddr>) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = address else { return Ok(None) };
    let listener = TcpListener::bind(address)
        .with_context(|| format!("cannot serve the page at {address}; pass another port"))
        .exit_with(Exit::Host)?;
    Ok(Some(listener))
}

/// The page of a running study.
pub(crate) struct LivePage {
    server: Server,
    renderer: PageRenderer,
    record: PathBuf,
}

impl LivePage {
    /// Starts to serve the page. `cpus` are the client's.
    pub(crate) fn start(
        listener: &TcpListener,
        record: &Path,
        cpus: &CpuSet,
    ) -> anyhow::Result<LivePage> {
        let server = Server::start(listener, SharedPage::new(record), cpus)?;
        say(&format!("page: {} (as long as the study runs)", server.url()));
        Ok(LivePage { server, renderer: PageRenderer::default(), record: record.to_path_buf() })
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// Returns an observer that passes events to `view` and renders the page between rounds.
    pub(crate) fn observe_with<'o>(
        &'o mut self,
        view: Box<dyn Observer + 'o>,
        schedule: ScheduleKind,
    ) -> Box<dyn Observer + 'o> {
        Box::new(PageObserver { live: self, view, schedule })
    }

    /// Renders the last page after the end of a study, serves it to a browser that polls, and
    /// stops.
    pub(crate) fn finish(mut self) {
        let page = self.server.page();
        if !page.is_watched() {
            return;
        }
        self.renderer.render(&self.record, page);
        page.set_ended();
        let until = Instant::now() + LAST_PAGE_WAIT;
        while !page.is_latest_served() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        say("the study has ended, and its page is no longer served");
    }
}

struct PageObserver<'o> {
    live: &'o mut LivePage,
    view: Box<dyn Observer + 'o>,
    schedule: ScheduleKind,
}

impl Observer for PageObserver<'_> {
    fn event(&mut self, event: &Event<'_>) {
        self.view.event(event);
        let by_trials = self.schedule == ScheduleKind::Trials;
        let is_between = match event {
            Event::RoundDone { .. } | Event::Stage(_) | Event::EnvironmentStarted { .. } => true,
            Event::SliceDone { .. } => by_trials,
            _ => false,
        };
        let page = self.live.server.page();
        if is_between && page.is_watched() && self.live.renderer.is_due() {
            self.live.renderer.render(&self.live.record, page);
        }
    }
}

/// Serves the page of `tare report --serve` until `stop`, and updates it when the file changes.
pub(crate) fn report(listener: &TcpListener, path: &Path, stop: &AtomicBool) -> anyhow::Result<()> {
    let record = Record::read(path).exit_with(Exit::Input)?;
    // Another process may be measuring into it: keep off the system's CPUs.
    let running = record.header.ended_unix_ms.is_none();
    let cpus = if running { record.cpu_plan.client.clone() } else { CpuSet::new() };
    server::lower_priority(&cpus);
    let server = Server::start(listener, SharedPage::new(path), &cpus)?;
    say(&format!("page: {} (until Ctrl-C)", server.url()));
    let mut renderer = PageRenderer::default();
    let mut rendered = None;
    while !stop.load(Ordering::Relaxed) {
        let found = render::stamp(path);
        if found != rendered && renderer.is_due() {
            renderer.render(path, server.page());
            rendered = found;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
