//! `tare db`: runs the reference database in the foreground. `tare db password` creates its users,
//! `check` and `dump` inspect its data, `snapshot` and `restore` copy it.

use std::io::Write;
use std::sync::Arc;

use anyhow::Context;

use tare_db::inject::Inject;
use tare_db::{AccessError, Choice, Config, DbError, IoChoice, TlsFiles, serve};

use crate::cli::{self, Db, DbTask, Io, Overprovisioned};
use crate::command::db_data;
use crate::exit::{Exit, ExitWith};
use crate::signals;
use crate::stream::Errors;
use crate::terminal::read_secret;

/// The shard-aware port that Scylla's drivers and users expect with port 9042.
const SHARD_AWARE_PORT: u16 = 19_042;

pub(crate) fn run(options: &Db, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &options.task {
        Some(DbTask::Password { user }) => {
            let password = read_secret("password: ").context("cannot read the password")?;
            let entry = tare_db::auth::entry(user, &password).exit_with(Exit::Usage)?;
            writeln!(out, "{entry}")?;
            Ok(Exit::Success)
        }
        Some(DbTask::Check(options)) => db_data::check(options, out),
        Some(DbTask::Dump(options)) => db_data::dump(options, out),
        Some(DbTask::Snapshot(options) | DbTask::Restore(options)) => db_data::copy(options, out),
        None => serve_data(options),
    }
}

fn serve_data(options: &Db) -> anyhow::Result<Exit> {
    let data = options.data.clone().context("--data is missing").exit_with(Exit::Usage)?;
    // The database needs the flag until the program ends.
    let stop = Box::leak(Box::new(signals::stop_flag()?));
    let config = Config {
        data,
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
        shard_aware_port: Some(options.shard_aware_port.unwrap_or(match options.port {
            tare_db::config::PORT_DEFAULT => SHARD_AWARE_PORT,
            _ => 0,
        })),
        users: options.auth_file.clone(),
        tls: match (&options.tls_cert, &options.tls_key) {
            (Some(certificate), Some(key)) => {
                Some(TlsFiles { certificate: certificate.clone(), key: key.clone() })
            }
            _ => None,
        },
        tls_optional: options.tls_optional,
        insecure: options.insecure,
        inject: Inject { busy_ns: options.inject_busy_ns, filter: options.inject_filter },
    };
    let served = serve(&config, Arc::as_ref(stop), &mut Errors).map_err(|error| {
        let exit = match &error {
            DbError::Listen { .. }
            | DbError::ServeMetrics { .. }
            | DbError::Placement(_)
            | DbError::Memory(_) => Exit::Host,
            DbError::Access(AccessError::Insecure { .. }) | DbError::MetricsExposed { .. } => {
                Exit::Usage
            }
            DbError::Access(AccessError::Auth(_) | AccessError::Tls(_)) => Exit::Input,
            _ => Exit::Failure,
        };
        (error, exit)
    });
    match served {
        Ok(()) => Ok(Exit::Success),
        Err((error, exit)) => Err(error).exit_with(exit),
    }
}
