//! `--serve`: the record's page over HTTP on the loopback interface, drawn anew from the record.
//!
//! Method: a thread answers requests with bytes that lie ready; it never reads the record. While a
//! study runs the page is drawn by the thread that measures, between two rounds (between two whole
//! runs in a study by trials), so that nothing is drawn while a slice is measured; only while
//! somebody looks; and for at most a twentieth of the time. The answering thread is nice 19 and
//! keeps to the client's CPUs. Its CPU time is that of the harness, which is no stranger's.
//!
//! Limits: every user of this machine can open the page. Loopback only: to look from elsewhere,
//! forward the port (`ssh -L`).

mod answer;
mod draw;
mod server;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use tare_lab::campaign::{Event, Observer};
use tare_lab::record::Record;
use tare_lab::study::ScheduleKind;
use tare_std::cpus::CpuSet;

use crate::exit::{Exit, ExitWith};
use crate::stream::say;
use answer::Desk;
use draw::Easel;
use server::Server;

/// After the end of a study the last page waits so long for somebody who looks.
const LAST_LOOK: Duration = Duration::from_secs(6);
/// `tare report --serve` looks so often whether the record has changed.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// `PORT`, `ADDRESS` or `ADDRESS:PORT`; port 0 is a free one.
///
/// # Errors
/// What is no such thing, or not on the loopback interface.
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
            "{} is not on the loopback interface; to look from elsewhere, forward the port with ssh -L",
            address.ip()
        )
    })
}

/// Takes the port, so that one that is taken is said before anything is measured.
pub(crate) fn listen(address: Option<SocketAddr>) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = address else { return Ok(None) };
    let listener = TcpListener::bind(address)
        .with_context(|| format!("cannot serve the page at {address}; give another port"))
        .exit_with(Exit::Host)?;
    Ok(Some(listener))
}

/// The page of a running study.
pub(crate) struct Live {
    server: Server,
    easel: Easel,
    record: std::path::PathBuf,
}

impl Live {
    /// Begins to answer. `cpus` are the client's.
    pub(crate) fn start(
        listener: &TcpListener,
        record: &Path,
        cpus: &CpuSet,
    ) -> anyhow::Result<Live> {
        let server = Server::start(listener, Desk::new(record), cpus)?;
        say(&format!("page: {} (as long as the study runs)", server.url()));
        Ok(Live { server, easel: Easel::default(), record: record.to_path_buf() })
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// Lets a view be told as well.
    pub(crate) fn beside<'o>(
        &'o mut self,
        view: Box<dyn Observer + 'o>,
        schedule: ScheduleKind,
    ) -> Box<dyn Observer + 'o> {
        Box::new(Beside { live: self, view, schedule })
    }

    /// The study has ended: whoever looks gets the last page, then nobody answers.
    pub(crate) fn finish(mut self) {
        let desk = self.server.desk();
        if !desk.is_watched() {
            return;
        }
        self.easel.draw(&self.record, desk);
        desk.end();
        let until = Instant::now() + LAST_LOOK;
        while !desk.last_was_seen() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        say("the study has ended, and with it the page that was served");
    }
}

struct Beside<'o> {
    live: &'o mut Live,
    view: Box<dyn Observer + 'o>,
    schedule: ScheduleKind,
}

impl Observer for Beside<'_> {
    fn event(&mut self, event: &Event<'_>) {
        self.view.event(event);
        let whole_run = self.schedule == ScheduleKind::Trials;
        let now = match event {
            Event::RoundDone { .. } | Event::Stage(_) | Event::EnvironmentStarted { .. } => true,
            Event::SliceDone { .. } => whole_run,
            _ => false,
        };
        let desk = self.live.server.desk();
        if now && desk.is_watched() && self.live.easel.may_draw() {
            self.live.easel.draw(&self.live.record, desk);
        }
    }
}

/// `tare report --serve`: until `stop`, drawn anew when the file has changed.
pub(crate) fn report(listener: &TcpListener, path: &Path, stop: &AtomicBool) -> anyhow::Result<()> {
    let record = Record::read(path).exit_with(Exit::Input)?;
    // Another process may be measuring into it: out of the system's way.
    let running = record.header.ended_unix_ms.is_none();
    let cpus = if running { record.cpu_plan.client.clone() } else { CpuSet::new() };
    server::step_back(&cpus);
    let server = Server::start(listener, Desk::new(path), &cpus)?;
    say(&format!("page: {} (until Ctrl-C)", server.url()));
    let mut easel = Easel::default();
    let mut drawn = None;
    while !stop.load(Ordering::Relaxed) {
        let found = draw::stamp(path);
        if found != drawn && easel.may_draw() {
            easel.draw(path, server.desk());
            drawn = found;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}
