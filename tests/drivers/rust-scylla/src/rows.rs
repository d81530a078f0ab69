//! Rows below one another: order, pages, batches, time to live.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use scylla::client::session::Session;
use scylla::response::PagingState;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::unprepared::Statement;

use crate::{Checks, Outcome};

pub(crate) const CREATE_TABLE: &str = "CREATE TABLE series (k int, t int, v text, \
     PRIMARY KEY (k, t)) WITH CLUSTERING ORDER BY (t DESC)";
const ROWS: i32 = 500;

pub(crate) async fn clustering(session: &Session, checks: &mut Checks) -> Outcome<()> {
    let insert = session.prepare("INSERT INTO series (k, t, v) VALUES (?, ?, ?)").await?;
    for t in 0..ROWS {
        session.execute_unpaged(&insert, (t % 2, t, t.to_string())).await?;
    }
    let odd: Vec<i32> = (0..ROWS).filter(|t| t % 2 == 1).collect();
    let backwards: Vec<i32> = odd.iter().rev().copied().collect();
    let select = "SELECT t FROM series WHERE k = 1";
    checks.check("a partition in pages", pages(session, select, 7).await?, backwards);
    let ascending = format!("{select} ORDER BY t ASC");
    checks.check("a partition backwards in pages", pages(session, &ascending, 7).await?, odd);
    let range = format!("{select} AND t >= 100 AND t < 104");
    checks.check("a range", pages(session, &range, 100).await?, vec![103, 101]);
    let scanned = pages(session, "SELECT t FROM series", 64).await?;
    checks.check("a scan in pages", scanned.len(), usize::try_from(ROWS)?);
    let tokens = "SELECT t FROM series WHERE token(k) > -9223372036854775808 AND token(k) <= \
                  9223372036854775807";
    let scanned = pages(session, tokens, 64).await?;
    checks.check("a range of tokens", scanned.len(), usize::try_from(ROWS)?);
    Ok(())
}

/// The first column of all rows, fetched page by page.
async fn pages(session: &Session, text: &str, page: i32) -> Outcome<Vec<i32>> {
    let statement = Statement::new(text).with_page_size(page);
    let (mut found, mut state) = (Vec::new(), PagingState::start());
    loop {
        let (result, next) = session.query_single_page(statement.clone(), (), state).await?;
        for row in result.into_rows_result()?.rows::<(i32,)>()? {
            found.push(row?.0);
        }
        match next.into_paging_control_flow() {
            ControlFlow::Break(()) => return Ok(found),
            ControlFlow::Continue(next) => state = next,
        }
    }
}

pub(crate) async fn batches(session: &Session, checks: &mut Checks) -> Outcome<()> {
    let insert = session.prepare("INSERT INTO series (k, t, v) VALUES (?, ?, ?)").await?;
    for (key, kind) in [(-1, BatchType::Logged), (-2, BatchType::Unlogged)] {
        let mut batch = Batch::new(kind);
        batch.append_statement(insert.clone());
        batch.append_statement("UPDATE series SET v = ? WHERE k = ? AND t = ?");
        batch.append_statement("DELETE FROM series WHERE k = -9");
        batch.set_timestamp(Some(77));
        session.batch(&batch, ((key, 1, "inserted"), ("updated", key, 2), ())).await?;
        let select = "SELECT v, writetime(v) FROM series WHERE k = ?";
        let rows = session.query_unpaged(select, (key,)).await?.into_rows_result()?;
        let got: Vec<(String, i64)> = rows.rows()?.collect::<Result<_, _>>()?;
        let expected = vec![("updated".into(), 77), ("inserted".into(), 77)];
        checks.check(&format!("a batch, {kind:?}"), got, expected);
    }
    Ok(())
}

pub(crate) async fn time_to_live(session: &Session, checks: &mut Checks) -> Outcome<()> {
    let insert = session.prepare("INSERT INTO series (k, t, v) VALUES (-3, ?, 'x') USING TTL ?");
    let insert = insert.await?;
    session.execute_unpaged(&insert, (1, 1)).await?;
    session.execute_unpaged(&insert, (2, 1000)).await?;
    let left = "SELECT ttl(v) FROM series WHERE k = -3 AND t = 2";
    let rows = session.query_unpaged(left, ()).await?.into_rows_result()?;
    let left = rows.single_row::<(i32,)>()?.0;
    checks.check("ttl() says what is left", (991..=1000).contains(&left), true);
    let begun = Instant::now();
    let mut rows = 2;
    while rows > 1 && begun.elapsed() < Duration::from_secs(20) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        rows = pages(session, "SELECT t FROM series WHERE k = -3", 10).await?.len();
    }
    checks.check("a row is gone after its time", rows, 1);
    Ok(())
}
