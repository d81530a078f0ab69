//! A server process and a client that prints its answers, for the tests of statements.

use std::io::Write;
use std::path::Path;

use tare_cql::request::{self, BatchKind, BatchStatement, Settings};
use tare_cql::response::{ErrorKind, Response};
use tare_cql::wire::Value;

use crate::common;
use tare_testkit::cql::Connection;

/// A server that ends with the test.
pub(crate) struct Server(common::Server);

impl Server {
    pub(crate) fn start(data: &Path, shards: usize, durability: &str) -> Self {
        Self::start_with(data, shards, durability, &[])
    }

    /// Starts a server with more options of the example.
    pub(crate) fn start_with(
        data: &Path,
        shards: usize,
        durability: &str,
        options: &[&str],
    ) -> Self {
        let shards = shards.to_string();
        let arguments = ["0", durability, "auto", &shards, "yes"];
        let server = common::serve(data, &[&arguments, options].concat());
        Self(server.unwrap_or_else(|said| panic!("the server does not start: {said}")))
    }

    pub(crate) fn connect(&self) -> Client {
        let connection = Connection::open((self.0.report.listen, self.0.report.port)).unwrap();
        let mut client = Client { connection, events: Vec::new() };
        let mut out = Vec::new();
        request::encode_startup(&mut out, 0, &[("CQL_VERSION", "3.0.0")]);
        client.ask(&out);
        client
    }

    /// Ends the server as SIGKILL does.
    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }

    /// Ends the server as SIGTERM does.
    pub(crate) fn stop(self) {
        self.0.stop();
    }
}

/// The answer of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The cells of each row, as CQL literals.
    pub(crate) rows: Vec<String>,
    pub(crate) names: Vec<String>,
    pub(crate) state: Option<Vec<u8>>,
    /// Kind and message of the error.
    pub(crate) error: Option<String>,
    pub(crate) id: Vec<u8>,
    /// Name and type of the markers of a prepared statement.
    pub(crate) markers: Vec<String>,
    pub(crate) key_markers: Vec<u16>,
    pub(crate) change: Option<String>,
    pub(crate) warnings: Vec<String>,
}

pub(crate) struct Client {
    connection: Connection,
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
        self.batch_of(BatchKind::Logged, items)
    }

    pub(crate) fn batch_of(
        &mut self,
        kind: BatchKind,
        items: &[(BatchStatement<'_>, &[Value<'_>])],
    ) -> Answer {
        let mut out = Vec::new();
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
        self.connection.stream.write_all(request).unwrap();
        self.receive().expect("the server closed the connection")
    }

    /// Returns nothing if the connection is lost.
    pub(crate) fn try_query(&mut self, text: &str) -> Option<Answer> {
        let mut out = Vec::new();
        request::encode_query(&mut out, 0, text, &Settings::default(), &[]);
        self.connection.stream.write_all(&out).ok()?;
        self.receive()
    }

    fn receive(&mut self) -> Option<Answer> {
        loop {
            let received = self.connection.receive_with(|_, response| match response {
                Response::Event(event) => Err(format!("{event:?}")),
                response => Ok(answer(response)),
            });
            match received? {
                Ok(answer) => {
                    return Some(Answer { warnings: self.connection.warnings.clone(), ..answer });
                }
                Err(event) => self.events.push(event),
            }
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
