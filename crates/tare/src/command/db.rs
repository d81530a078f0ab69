//! `tare db`: runs the reference database in the foreground.

use std::sync::Arc;

use tare_db::inject::Inject;
use tare_db::{Choice, Config, DbError, IoChoice, serve};

use crate::cli::{self, Db, Io, Overprovisioned};
use crate::exit::{Exit, ExitWith};
use crate::signals;

pub(crate) fn run(options: &Db) -> anyhow::Result<Exit> {
    // The database wants its flag for as long as the program lives.
    let stop = Box::leak(Box::new(signals::stop_flag()?));
    let config = Config {
        data: options.data.clone(),
        listen: options.listen,
        port: options.port,
        smp: options.smp.map(usize::from),
        cpus: options.cpus.clone(),
        overprovisioned: match options.overprovisioned {
            Overprovisioned::Auto => Choice::Auto,
            Overprovisioned::Yes => Choice::Yes,
            Overprovisioned::No => Choice::No,
        },
        durability: match options.durability {
            cli::Durability::Sync => tare_db::Durability::Sync,
            cli::Durability::Periodic(period) => {
                tare_db::Durability::Periodic(period.unwrap_or(tare_db::config::PERIOD_DEFAULT))
            }
        },
        io: match options.io {
            Io::Auto => IoChoice::Auto,
            Io::Uring => IoChoice::Uring,
            Io::Epoll => IoChoice::Epoll,
        },
        memory: options.memory,
        metrics: options.metrics,
        stall_threshold: options.stall_threshold,
        inject: Inject { busy_ns: options.inject_busy_ns, filter: options.inject_filter },
    };
    let served = serve(&config, Arc::as_ref(stop), &mut std::io::stderr()).map_err(|error| {
        let exit = match &error {
            DbError::Listen { .. }
            | DbError::ServeMetrics { .. }
            | DbError::MetricsExposed { .. }
            | DbError::Placement(_)
            | DbError::Memory(_) => Exit::Host,
            _ => Exit::Failure,
        };
        (error, exit)
    });
    match served {
        Ok(()) => Ok(Exit::Success),
        Err((error, exit)) => Err(error).exit_with(exit),
    }
}
