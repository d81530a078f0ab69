//! The `scylla` crate against a CQL server: `tare-driver-rust-scylla HOST PORT WAY`. Prints one
//! line per check; exits with 1 if one failed, with 2 if the checks could not be run to their end.

mod rows;
mod scalars;

use std::error::Error;
use std::fmt::Debug;
use std::io::stdin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openssl::ssl::{SslConnector, SslMethod};
use scylla::client::Compression;
use scylla::client::session::{OpenSsl010Config, Session};
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};

type Outcome<T> = Result<T, Box<dyn Error>>;

const KEYSPACE: &str = "tare_rust";
const ROWS: i32 = 1000;
const IN_FLIGHT: usize = 64;

/// What failed so far.
#[derive(Default)]
struct Checks {
    failures: usize,
}

impl Checks {
    /// A part of the checks may have ended early by an error, which is then a failed check.
    fn part(&mut self, name: &str, done: Outcome<()>) {
        if let Err(error) = done {
            self.check(name, error.to_string().as_str(), "no error");
        }
    }

    fn check<T: PartialEq + Debug>(&mut self, name: &str, got: T, expected: T) {
        if got == expected {
            println!("ok       {name}");
        } else {
            self.failures += 1;
            println!("FAILED   {name}: expected {expected:?}, got {got:?}");
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, port, way] = arguments.as_slice() else {
        eprintln!("usage: tare-driver-rust-scylla HOST PORT WAY");
        return ExitCode::from(2);
    };
    let mut checks = Checks::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(Into::into).and_then(|runtime| {
        let node = format!("{host}:{port}");
        runtime.block_on(async {
            match way.as_str() {
                "secure" => secure(&node, &mut checks).await,
                _ => run(&node, &mut checks).await,
            }
        })
    });
    if let Err(error) = done {
        println!("FAILED   the checks stopped: {error}");
        return ExitCode::from(2);
    }
    if checks.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(node: &str, checks: &mut Checks) -> Outcome<()> {
    let session = connect(node, Some(Compression::Lz4)).await?;
    checks.check("connect", true, true);
    system_tables(&session, checks).await?;
    shards(&session, checks);
    schema(&session, checks).await?;
    let done = scalars::round_trip(&session, checks).await;
    checks.part("scalars", done);
    let done = many(&session, checks).await;
    checks.part("many", done);
    let done = rows::clustering(&session, checks).await;
    checks.part("clustering", done);
    let done = rows::batches(&session, checks).await;
    checks.part("batches", done);
    let done = rows::time_to_live(&session, checks).await;
    checks.part("time to live", done);
    let done = errors(&session, checks).await;
    checks.part("errors", done);
    let done = uncompressed(node, checks).await;
    checks.part("no compression", done);
    let done = restart(&session, checks).await;
    checks.part("restart", done);
    session.query_unpaged(format!("DROP KEYSPACE {KEYSPACE}"), ()).await?;
    session.refresh_metadata().await?;
    let gone = session.get_cluster_state().get_keyspace(KEYSPACE).is_none();
    checks.check("the driver sees the drop", gone, true);
    Ok(())
}

async fn connect(node: &str, compression: Option<Compression>) -> Outcome<Arc<Session>> {
    let builder = SessionBuilder::new().known_node(node).compression(compression);
    Ok(Arc::new(builder.build().await?))
}

/// With TLS and a password; without one of them, or with a wrong one, the server refuses.
async fn secure(node: &str, checks: &mut Checks) -> Outcome<()> {
    let (user, password) = (std::env::var("TARE_USER")?, std::env::var("TARE_PASSWORD")?);
    let mut trust = SslConnector::builder(SslMethod::tls_client())?;
    trust.set_ca_file(std::env::var("TARE_CA")?)?;
    let trust = OpenSsl010Config::new(trust);
    let strangers = OpenSsl010Config::new(SslConnector::builder(SslMethod::tls_client())?);
    let builder = |tls: Option<&OpenSsl010Config>, password: &str| {
        SessionBuilder::new().known_node(node).tls_context(tls.cloned()).user(&user, password)
    };
    for (what, tls, password) in [
        ("a wrong password", Some(&trust), "wrong"),
        ("no TLS", None, password.as_str()),
        // It is the driver that refuses here.
        ("a certificate that nobody vouches for", Some(&strangers), password.as_str()),
    ] {
        let session = builder(tls, password).build().await;
        checks.check(&format!("{what} is refused"), session.is_err(), true);
    }
    let session = Arc::new(builder(Some(&trust), &password).build().await?);
    system_tables(&session, checks).await?;
    // Records of many packets, and answers of many records.
    schema(&session, checks).await?;
    many(&session, checks).await?;
    session.query_unpaged(format!("DROP KEYSPACE {KEYSPACE}"), ()).await?;
    Ok(())
}

async fn system_tables(session: &Session, checks: &mut Checks) -> Outcome<()> {
    let rows = session
        .query_unpaged("SELECT key, tokens FROM system.local WHERE key = 'local'", ())
        .await?
        .into_rows_result()?;
    let (key, tokens) = rows.single_row::<(String, Vec<String>)>()?;
    checks.check("system.local has this host", key.as_str(), "local");
    checks.check("system.local has tokens", tokens.is_empty(), false);
    let rows =
        session.query_unpaged("SELECT peer FROM system.peers", ()).await?.into_rows_result()?;
    checks.check("system.peers is empty", rows.rows_num(), 0);
    checks.check("one node is known", session.get_cluster_state().get_nodes_info().len(), 1);
    Ok(())
}

async fn schema(session: &Session, checks: &mut Checks) -> Outcome<()> {
    session.query_unpaged(format!("DROP KEYSPACE IF EXISTS {KEYSPACE}"), ()).await?;
    let create = format!(
        "CREATE KEYSPACE {KEYSPACE} WITH replication = \
         {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
    );
    session.query_unpaged(create.as_str(), ()).await?;
    let again = session.query_unpaged(create.as_str(), ()).await.map(|_| ());
    let is_known = matches!(database_error(&again), Some(DbError::AlreadyExists { keyspace, table })
            if keyspace == KEYSPACE && table.is_empty());
    checks.check("a keyspace that exists", is_known, true);
    session.use_keyspace(KEYSPACE, false).await?;
    session.query_unpaged(scalars::create_table(), ()).await?;
    session.query_unpaged(rows::CREATE_TABLE, ()).await?;
    session
        .query_unpaged("CREATE TABLE pairs (a text, b int, v blob, PRIMARY KEY ((a, b)))", ())
        .await?;
    session.await_schema_agreement().await?;
    session.refresh_metadata().await?;
    let state = session.get_cluster_state();
    let tables = state.get_keyspace(KEYSPACE).map(|keyspace| {
        let mut names: Vec<_> = keyspace.tables.keys().cloned().collect();
        names.sort();
        names
    });
    checks.check(
        "the driver sees the tables",
        tables,
        Some(vec!["pairs".into(), "scalars".into(), "series".into()]),
    );
    let key = state
        .get_keyspace(KEYSPACE)
        .and_then(|keyspace| keyspace.tables.get("pairs"))
        .map(|table| table.partition_key.clone());
    checks.check("the driver sees the partition key", key, Some(vec!["a".into(), "b".into()]));
    Ok(())
}

/// Writes and reads rows with many requests in flight.
async fn many(session: &Arc<Session>, checks: &mut Checks) -> Outcome<()> {
    let insert = session.prepare("INSERT INTO pairs (a, b, v) VALUES (?, ?, ?)").await?;
    let select = session.prepare("SELECT v FROM pairs WHERE a = ? AND b = ?").await?;
    checks.check("writes are routed by token", insert.is_token_aware(), true);
    let key = |n: i32| format!("key{}", n % 7);
    let value = |n: i32| n.to_be_bytes().repeat(75);
    let numbers: Vec<i32> = (0..ROWS).collect();
    for chunk in numbers.chunks(IN_FLIGHT) {
        let mut tasks = Vec::new();
        for &n in chunk {
            let (session, insert) = (Arc::clone(session), insert.clone());
            let row = (key(n), n, value(n));
            tasks.push(async move { session.execute_unpaged(&insert, &row).await });
        }
        for task in together(tasks).await? {
            task?;
        }
    }
    checks.check("writes in flight", true, true);
    let mut same = 0;
    for chunk in numbers.chunks(IN_FLIGHT) {
        let mut tasks = Vec::new();
        for &n in chunk {
            let (session, select) = (Arc::clone(session), select.clone());
            let row = (key(n), n);
            tasks.push(async move { session.execute_unpaged(&select, &row).await });
        }
        for (&n, read) in chunk.iter().zip(together(tasks).await?) {
            let rows = read?.into_rows_result()?;
            same += i32::from(rows.single_row::<(Vec<u8>,)>()?.0 == value(n));
        }
    }
    checks.check("reads in flight", same, ROWS);
    let count =
        session.query_unpaged("SELECT count(*) FROM pairs", ()).await?.into_rows_result()?;
    checks.check("count", count.single_row::<(i64,)>()?.0, i64::from(ROWS));
    Ok(())
}

/// Runs all tasks at once and returns what came of them, in their order.
async fn together<F>(tasks: Vec<F>) -> Outcome<Vec<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let handles: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
    let mut outputs = Vec::new();
    for handle in handles {
        outputs.push(handle.await?);
    }
    Ok(outputs)
}

async fn errors(session: &Session, checks: &mut Checks) -> Outcome<()> {
    let syntax = session.query_unpaged("SELEC 1", ()).await.map(|_| ());
    let is_syntax = matches!(database_error(&syntax), Some(DbError::SyntaxError));
    checks.check("a syntax error", is_syntax, true);
    let unknown = session.query_unpaged("SELECT * FROM no", ()).await.map(|_| ());
    let is_invalid = matches!(database_error(&unknown), Some(DbError::Invalid));
    checks.check("an unknown table", is_invalid, true);
    let index = session.query_unpaged("CREATE INDEX ON pairs (v)", ()).await.map(|_| ());
    let is_refused = matches!(database_error(&index), Some(DbError::Invalid));
    checks.check("an index is refused", is_refused, true);
    Ok(())
}

/// The driver knows the shards, and so sends each request to the one that owns its row.
fn shards(session: &Session, checks: &mut Checks) {
    let state = session.get_cluster_state();
    let sharder = state.get_nodes_info().first().and_then(|node| node.sharder());
    let shards = sharder.map(|sharder| usize::from(sharder.nr_shards.get()));
    checks.check("the driver sees two shards", shards, Some(2));
}

async fn uncompressed(node: &str, checks: &mut Checks) -> Outcome<()> {
    let session = connect(node, None).await?;
    let count = session
        .query_unpaged(format!("SELECT count(*) FROM {KEYSPACE}.pairs"), ())
        .await?
        .into_rows_result()?;
    checks.check("without compression", count.single_row::<(i64,)>()?.0, i64::from(ROWS));
    Ok(())
}

/// What was acknowledged is there after a crash, and the driver goes on by itself.
async fn restart(session: &Session, checks: &mut Checks) -> Outcome<()> {
    let insert = session.prepare("INSERT INTO pairs (a, b, v) VALUES ('durable', ?, ?)").await?;
    let select = session.prepare("SELECT v FROM pairs WHERE a = 'durable' AND b = ?").await?;
    for b in 0..100 {
        session.execute_unpaged(&insert, (b, &b"before"[..])).await?;
    }
    println!("restart");
    stdin().read_line(&mut String::new())?;
    let begun = Instant::now();
    while let Err(error) = session.execute_unpaged(&select, (0,)).await {
        if begun.elapsed() > Duration::from_secs(30) {
            return Err(error.into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    checks.check("a statement prepared before kill -9 runs after it", true, true);
    let mut found = 0;
    for b in 0..100 {
        let rows = session.execute_unpaged(&select, (b,)).await?.into_rows_result()?;
        found += rows.rows_num();
    }
    checks.check("all acknowledged writes are there after kill -9", found, 100);
    session.execute_unpaged(&insert, (100, &b"after"[..])).await?;
    let rows = session.execute_unpaged(&select, (100,)).await?.into_rows_result()?;
    let value = rows.single_row::<(Vec<u8>,)>()?.0;
    checks.check("writes go on after kill -9", value.as_slice(), b"after".as_slice());
    Ok(())
}

/// What the server said, if it was the server that refused.
fn database_error(outcome: &Result<(), ExecutionError>) -> Option<&DbError> {
    match outcome {
        Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _))) => {
            Some(error)
        }
        _ => None,
    }
}
