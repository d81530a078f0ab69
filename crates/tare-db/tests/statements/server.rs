//! A server process and a client that prints what it is answered, for the tests of statements.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tare_cql::frame::{Direction, decode};
use tare_cql::request::{self, BatchKind, BatchStatement, Settings};
use tare_cql::response::{ErrorKind, Response};
use tare_cql::wire::Value;
use tare_db::report::{self, Report};

/// A server that ends with the test.
pub(crate) struct Server {
    child: Child,
    report: Report,
}

/// The example is built beside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples/serve")
}

impl Server {
    pub(crate) fn start(data: &Path, shards: usize, durability: &str) -> Self {
        let file = data.join(report::FILE);
        let _ = std::fs::remove_file(&file);
        let mut command = Command::new(program());
        command.arg(data).args(["0", durability, "auto", &shards.to_string(), "yes"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        loop {
            if let Ok(report) = report::read(&file) {
                return Self { child, report };
            }
            if child.try_wait().unwrap().is_some() {
                let mut said = String::new();
                child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("the server does not start: {said}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn connect(&self) -> Client {
        let stream = TcpStream::connect((self.report.listen, self.report.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut client = Client { stream, input: Vec::new(), events: Vec::new() };
        let mut out = Vec::new();
        request::encode_startup(&mut out, 0, &[("CQL_VERSION", "3.0.0")]);
        client.ask(&out);
        client
    }

    /// Ends it as SIGTERM does.
    pub(crate) fn stop(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the server says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Each row's cells as CQL spells them.
    pub(crate) rows: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) state: Option<Vec<u8>>,
    /// Kind and message.
    pub(crate) error: Option<String>,
    pub(crate) id: Vec<u8>,
    /// Name and type of the markers of a prepared statement.
    pub(crate) markers: Vec<String>,
    pub(crate) key_markers: Vec<u16>,
    pub(crate) change: Option<String>,
}

pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    pub(crate) events: Vec<String>,
}

impl Client {
    pub(crate) fn query(&mut self, text: &str) -> Answer {
        self.query_with(text, &Settings::default(), &[])
    }

    pub(crate) fn query_with(
        &mut self,
        text: &str,
        settings: &Settings<'_>,
        values: &[Value<'_>],
    ) -> Answer {
        let mut out = Vec::new();
        request::encode_query(&mut out, 0, text, settings, values);
        self.ask(&out)
    }

    pub(crate) fn prepare(&mut self, text: &str) -> Answer {
        let mut out = Vec::new();
        request::encode_prepare(&mut out, 0, text);
        self.ask(&out)
    }

    pub(crate) fn execute(&mut self, id: &[u8], values: &[Value<'_>]) -> Answer {
        let mut out = Vec::new();
        request::encode_execute(&mut out, 0, id, &Settings::default(), values);
        self.ask(&out)
    }

    pub(crate) fn batch(&mut self, items: &[(BatchStatement<'_>, &[Value<'_>])]) -> Answer {
        let mut out = Vec::new();
        let kind = BatchKind::Logged;
        request::encode_batch(&mut out, 0, kind, items, &Settings::default());
        self.ask(&out)
    }

    pub(crate) fn register(&mut self) {
        let mut out = Vec::new();
        request::encode_register(&mut out, 0, &["SCHEMA_CHANGE"]);
        self.ask(&out);
    }

    /// All rows, page by page.
    pub(crate) fn pages(&mut self, text: &str, page_size: i32) -> Vec<String> {
        let mut rows = Vec::new();
        let mut state: Option<Vec<u8>> = None;
        loop {
            let (page_size, paging_state) = (Some(page_size), state.as_deref());
            let settings = Settings { page_size, paging_state, ..Settings::default() };
            let answer = self.query_with(text, &settings, &[]);
            assert_eq!(answer.error, None, "{text}");
            rows.extend(answer.rows);
            match answer.state {
                Some(next) => state = Some(next),
                None => return rows,
            }
        }
    }

    fn ask(&mut self, request: &[u8]) -> Answer {
        self.stream.write_all(request).unwrap();
        loop {
            let decoded = decode(&self.input, Direction::Response, 256 << 20).unwrap();
            if let Some((frame, length)) = decoded {
                let response = Response::decode(&frame).unwrap();
                let event = match &response {
                    Response::Event(event) => Some(format!("{event:?}")),
                    _ => None,
                };
                let answer = answer(&response);
                self.input.drain(..length);
                match event {
                    Some(event) => self.events.push(event),
                    None => return answer,
                }
                continue;
            }
            let mut bytes = [0; 65536];
            let length = self.stream.read(&mut bytes).unwrap();
            assert!(length > 0, "the server closed the connection");
            self.input.extend_from_slice(&bytes[..length]);
        }
    }
}

fn answer(response: &Response<'_>) -> Answer {
    let mut answer = Answer::default();
    match response {
        Response::Error(error) => {
            let kind = match &error.kind {
                ErrorKind::Invalid => "Invalid".to_owned(),
                ErrorKind::Syntax => "Syntax".to_owned(),
                ErrorKind::Config => "Config".to_owned(),
                other => format!("{other:?}"),
            };
            answer.error = Some(format!("{kind}: {}", error.message));
        }
        Response::Rows(rows) => {
            let columns: Vec<_> = rows.metadata.columns.unwrap().collect();
            answer.names = columns.iter().map(|column| column.name.to_owned()).collect();
            for row in rows {
                let cells = row.cells().zip(&columns).map(|(cell, column)| match cell {
                    Some(bytes) => column.kind.print(bytes).to_string(),
                    None => "null".to_owned(),
                });
                answer.rows.push(cells.collect::<Vec<_>>().join(" "));
            }
            answer.state = rows.metadata.paging_state.map(<[u8]>::to_vec);
        }
        Response::Prepared(prepared) => {
            answer.id = prepared.id.to_vec();
            answer.key_markers.clone_from(&prepared.partition_key);
            let markers = prepared.markers.columns.unwrap();
            answer.markers = markers.map(|m| format!("{} {}", m.name, m.kind)).collect();
        }
        Response::SchemaChange(change) => answer.change = Some(format!("{change:?}")),
        _ => {}
    }
    answer
}
