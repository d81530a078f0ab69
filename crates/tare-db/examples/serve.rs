//! A server for the tests of this crate: `serve DATA PORT sync|MILLISECONDS auto|uring|epoll SMP
//! [auto|yes|no] [memory=BYTES] [metrics=ADDRESS:PORT] [stall=NS] [listen=ADDRESS] [users=FILE]
//! [cert=FILE] [key=FILE]`. It ends when its standard input does. The program `tare db` is the real
//! one.

use std::io::Read;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tare_db::{Choice, Config, Durability, IoChoice, TlsFiles, serve};

static STOP: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(config) = config(&arguments) else {
        eprintln_line("usage: serve DATA PORT sync|MS auto|uring|epoll SMP [auto|yes|no] ...");
        return ExitCode::from(2);
    };
    let watcher = std::thread::Builder::new().spawn(|| {
        // An error and the end of the input both mean stop.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        STOP.store(true, Ordering::Relaxed);
    });
    let served = watcher.map_err(|error| error.to_string()).and_then(|_| {
        serve(&config, &STOP, &mut std::io::stderr()).map_err(|e| tare_std::error_line(&e))
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln_line(&error);
            ExitCode::FAILURE
        }
    }
}

fn config(arguments: &[String]) -> Option<Config> {
    let [data, port, durability, io, smp, rest @ ..] = arguments else { return None };
    let mut config = Config::new(data);
    config.port = port.parse().ok()?;
    config.durability = match durability.as_str() {
        "sync" => Durability::Sync,
        period => Durability::Periodic(Duration::from_millis(period.parse().ok()?)),
    };
    config.io = match io.as_str() {
        "auto" => IoChoice::Auto,
        "uring" => IoChoice::Uring,
        "epoll" => IoChoice::Epoll,
        _ => return None,
    };
    config.smp = Some(smp.parse().ok()?);
    let mut tls = TlsFiles { certificate: "".into(), key: "".into() };
    for option in rest {
        match option.split_once('=') {
            None if option == "yes" => config.overprovisioned = Choice::Yes,
            None if option == "no" => config.overprovisioned = Choice::No,
            None if option == "auto" => config.overprovisioned = Choice::Auto,
            Some(("memory", bytes)) => config.memory = Some(bytes.parse().ok()?),
            Some(("stall", ns)) => config.stall_threshold = Duration::from_nanos(ns.parse().ok()?),
            Some(("metrics", address)) => config.metrics = Some(address.parse().ok()?),
            Some(("listen", address)) => config.listen = address.parse().ok()?,
            Some(("users", file)) => config.users = Some(file.into()),
            Some(("tls", "optional")) => config.tls_optional = true,
            Some(("cert", file)) => tls.certificate = file.into(),
            Some(("key", file)) => tls.key = file.into(),
            _ => return None,
        }
    }
    if !tls.certificate.as_os_str().is_empty() {
        config.tls = Some(tls);
    }
    Some(config)
}

#[expect(clippy::print_stderr, reason = "an example speaks to its user")]
fn eprintln_line(line: &str) {
    eprintln!("{line}");
}
