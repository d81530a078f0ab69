//! The `scylla` crate against a CQL server: `tare-driver-rust-scylla HOST PORT`. Prints one line per
//! check; exits with 1 if one failed, with 2 if the checks could not be run to their end.

use std::error::Error;
use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::Arc;

use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::value::CqlTimestamp;

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
    let [host, port] = arguments.as_slice() else {
        eprintln!("usage: tare-driver-rust-scylla HOST PORT");
        return ExitCode::from(2);
    };
    let mut checks = Checks::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(run(&format!("{host}:{port}"), &mut checks)));
    if let Err(error) = done {
        println!("FAILED   the checks stopped: {error}");
        return ExitCode::from(2);
    }
    if checks.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(node: &str, checks: &mut Checks) -> Outcome<()> {
    let session = Arc::new(SessionBuilder::new().known_node(node).build().await?);
    checks.check("connect", true, true);
    system_tables(&session, checks).await?;
    schema(&session, checks).await?;
    values(&session, checks).await?;
    many(&session, checks).await?;
    errors(&session, checks).await?;
    session.query_unpaged(format!("DROP KEYSPACE {KEYSPACE}"), ()).await?;
    session.refresh_metadata().await?;
    let gone = session.get_cluster_state().get_keyspace(KEYSPACE).is_none();
    checks.check("the driver sees the drop", gone, true);
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
    session
        .query_unpaged(
            "CREATE TABLE values_of (id int PRIMARY KEY, t text, big bigint, b blob, f boolean, \
             d double, moment timestamp)",
            (),
        )
        .await?;
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
        Some(vec!["pairs".into(), "values_of".into()]),
    );
    let key = state
        .get_keyspace(KEYSPACE)
        .and_then(|keyspace| keyspace.tables.get("pairs"))
        .map(|table| table.partition_key.clone());
    checks.check("the driver sees the partition key", key, Some(vec!["a".into(), "b".into()]));
    Ok(())
}

type Row = (
    i32,
    Option<String>,
    Option<i64>,
    Option<Vec<u8>>,
    Option<bool>,
    Option<f64>,
    Option<CqlTimestamp>,
);

async fn values(session: &Session, checks: &mut Checks) -> Outcome<()> {
    let insert = session
        .prepare("INSERT INTO values_of (id, t, big, b, f, d, moment) VALUES (?, ?, ?, ?, ?, ?, ?)")
        .await?;
    let select =
        session.prepare("SELECT id, t, big, b, f, d, moment FROM values_of WHERE id = ?").await?;
    let rows: [Row; 2] = [
        (
            -1,
            Some("ünï'cødé".into()),
            Some(i64::MIN),
            Some((0..=255).collect()),
            Some(true),
            Some(-1.5),
            Some(CqlTimestamp(951_868_798_123)),
        ),
        (1, Some(String::new()), None, Some(Vec::new()), Some(false), Some(0.0), None),
    ];
    for row in rows {
        session.execute_unpaged(&insert, &row).await?;
        let got = session.execute_unpaged(&select, (row.0,)).await?.into_rows_result()?;
        checks.check(&format!("row {} comes back", row.0), got.single_row::<Row>()?, row);
    }
    let got = session.execute_unpaged(&select, (2,)).await?.into_rows_result()?;
    checks.check("no row for another key", got.rows_num(), 0);
    session.query_unpaged("INSERT INTO values_of (id, t) VALUES (3, 'it''s')", ()).await?;
    let got = session
        .query_unpaged("SELECT t FROM values_of WHERE id = 3", ())
        .await?
        .into_rows_result()?;
    checks.check("literals", got.single_row::<(String,)>()?.0.as_str(), "it's");
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
    let mut batch = scylla::statement::batch::Batch::default();
    batch.append_statement("INSERT INTO values_of (id) VALUES (1)");
    let refused = session.batch(&batch, ((),)).await.map(|_| ());
    let is_refused = matches!(database_error(&refused), Some(DbError::Invalid));
    checks.check("a batch is refused", is_refused, true);
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
