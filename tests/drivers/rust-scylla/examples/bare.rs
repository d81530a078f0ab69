//! The bare driver as a load: `bare HOST:PORT write|read OPERATIONS`, 64 in flight on one thread,
//! rows of `tare load`'s table of 5 columns of 60 bytes, which must be there. What else a load tool
//! does is left out; `cargo bench -p tare --bench load` measures its CPU time. Build it with `cargo
//! build --release --example bare --manifest-path tests/drivers/rust-scylla/Cargo.toml`.

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;

use scylla::client::session_builder::SessionBuilder;
use tokio::runtime::Builder;
use tokio::task::{JoinSet, LocalSet};

const IN_FLIGHT: usize = 64;
const ROWS: u64 = 100_000;
const WRITE: &str = "INSERT INTO tare.row5x60 (key, c0, c1, c2, c3, c4) VALUES (?, ?, ?, ?, ?, ?)";
const READ: &str = "SELECT c0, c1, c2, c3, c4 FROM tare.row5x60 WHERE key = ?";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [node, operation, operations] = arguments.as_slice() else {
        return Err("usage: bare HOST:PORT write|read OPERATIONS".into());
    };
    let is_write = match operation.as_str() {
        "write" => true,
        "read" => false,
        other => return Err(format!("no operation {other:?}").into()),
    };
    let operations: u64 = operations.parse()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, run(node, is_write, operations))
}

async fn run(node: &str, is_write: bool, operations: u64) -> Result<(), Box<dyn Error>> {
    let session = Rc::new(SessionBuilder::new().known_node(node).build().await?);
    let statement = session.prepare(if is_write { WRITE } else { READ }).await?;
    let next = Rc::new(Cell::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let (session, statement, next) = (Rc::clone(&session), statement.clone(), Rc::clone(&next));
        tasks.spawn_local(async move {
            while next.get() < operations {
                let number = next.get();
                next.set(number + 1);
                let key = (scrambled(number) % ROWS).cast_signed();
                if is_write {
                    let c = [0, 1, 2, 3, 4].map(|column| cell(number, column));
                    let values = (key, &c[0][..], &c[1][..], &c[2][..], &c[3][..], &c[4][..]);
                    session.execute_unpaged(&statement, values).await?;
                } else {
                    session.execute_unpaged(&statement, (key,)).await?;
                }
            }
            Ok::<(), scylla::errors::ExecutionError>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    println!("{operations}");
    Ok(())
}

/// 60 bytes that no compression makes less of.
fn cell(number: u64, column: u64) -> [u8; 60] {
    let mut bytes = [0; 60];
    let mut state = scrambled(number ^ column << 56);
    for part in bytes.chunks_mut(8) {
        state = scrambled(state);
        part.copy_from_slice(&state.to_le_bytes()[..part.len()]);
    }
    bytes
}

/// The finalizer of SplitMix64.
fn scrambled(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
