//! A CQL connection for tests. It uses version 4 without compression and waits for every response.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use tare_cql::frame::{Direction, decode};
use tare_cql::request::{Settings, encode_query};
use tare_cql::response::Response;

/// A connection to a CQL server.
#[derive(Debug)]
pub struct Connection {
    pub stream: TcpStream,
    input: Vec<u8>,
    /// The warnings of the last frame.
    pub warnings: Vec<String>,
}

/// A response: rows of cells, or the message of an error.
pub type Answer = Result<Vec<Vec<Option<Vec<u8>>>>, String>;

impl Connection {
    /// Connects to a server.
    ///
    /// # Errors
    /// If no server accepts the connection.
    pub fn open(address: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, input: Vec::new(), warnings: Vec::new() })
    }

    /// Receives the next frame and passes its stream and response to `read`. `None` if the server
    /// has closed the connection.
    ///
    /// # Panics
    /// If the received bytes are not CQL.
    pub fn receive_with<T>(&mut self, read: impl FnOnce(i16, &Response<'_>) -> T) -> Option<T> {
        loop {
            let decoded = decode(&self.input, Direction::Response, 256 << 20).unwrap();
            if let Some((frame, length)) = decoded {
                self.warnings = frame.warnings().map(str::to_owned).collect();
                let read = read(frame.stream, &Response::decode(&frame).unwrap());
                self.input.drain(..length);
                return Some(read);
            }
            let mut bytes = [0; 65536];
            match self.stream.read(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(length) => self.input.extend_from_slice(&bytes[..length]),
            }
        }
    }

    /// Receives the next frame. Returns its stream, its response, and the id of a prepared
    /// statement.
    pub fn receive(&mut self) -> Option<(i16, Answer, Vec<u8>)> {
        self.receive_with(|stream, response| match response {
            Response::Error(error) => (stream, Err(error.message.to_string()), Vec::new()),
            Response::Rows(rows) => {
                let cells = rows
                    .iter()
                    .map(|row| row.cells().map(|cell| cell.map(<[u8]>::to_vec)).collect());
                (stream, Ok(cells.collect()), Vec::new())
            }
            Response::Prepared(prepared) => (stream, Ok(Vec::new()), prepared.id.to_vec()),
            _ => (stream, Ok(Vec::new()), Vec::new()),
        })
    }

    /// Sends the request that `encode` writes, and waits for its answer.
    ///
    /// # Panics
    /// If the server has closed the connection.
    pub fn ask(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Answer {
        let mut out = Vec::new();
        encode(&mut out);
        self.stream.write_all(&out).unwrap();
        self.receive().unwrap().1
    }

    /// Returns the sorted names of the server's keyspaces.
    ///
    /// # Panics
    /// If the server does not answer with them.
    pub fn keyspaces(&mut self) -> Vec<Vec<u8>> {
        let names = "SELECT keyspace_name FROM system_schema.keyspaces";
        let rows = self.ask(|out| encode_query(out, 0, names, &Settings::DEFAULT, &[])).unwrap();
        let mut names: Vec<Vec<u8>> = rows.into_iter().flatten().flatten().collect();
        names.sort();
        names
    }
}
