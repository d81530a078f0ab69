//! Writes every key that redis-benchmark may draw, which the tool itself cannot do: `key:` and
//! twelve digits. In Redis's protocol (RESP) a request is an array of bulk strings, and the answer
//! to SET is a line. <https://redis.io/docs/latest/develop/reference/protocol-spec/>

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::tool::{ToolError, ToolTarget};

/// How many keys are sent together.
const BATCH: u64 = 1_000;
/// Time limit for a connection, and for the answer to a batch.
const LIMIT: Duration = Duration::from_secs(30);

/// Sets the keys 0 to `keys` - 1 to values of `bytes` bytes.
pub(super) fn fill(at: &mut ToolTarget<'_>, keys: u64, bytes: u64) -> Result<(), ToolError> {
    let address = at.address;
    let stream = at
        .within(|| TcpStream::connect_timeout(&address, LIMIT))?
        .map_err(|source| ToolError::Connect { address, source })?;
    let rows = |source| ToolError::Rows { source };
    stream.set_nodelay(true).map_err(rows)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(rows)?;
    stream.set_write_timeout(Some(LIMIT)).map_err(rows)?;
    let mut answers = BufReader::new(stream.try_clone().map_err(rows)?);
    let mut stream = stream;
    let value = "x".repeat(usize::try_from(bytes).unwrap_or(usize::MAX));
    let (mut batch, mut answer) = (Vec::new(), String::new());
    let mut done = 0;
    while done < keys {
        let end = (done + BATCH).min(keys);
        batch.clear();
        for key in done..end {
            let request =
                write!(batch, "*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n${bytes}\r\n{value}\r\n");
            request.map_err(rows)?;
        }
        stream.write_all(&batch).map_err(rows)?;
        for _ in done..end {
            answer.clear();
            match answers.read_line(&mut answer).map_err(rows)? {
                0 => return Err(ToolError::Closed),
                _ if answer == "+OK\r\n" => {}
                _ => return Err(ToolError::Refused { answer: answer.trim().into() }),
            }
        }
        done = end;
        (at.progress)(done, keys);
    }
    Ok(())
}
