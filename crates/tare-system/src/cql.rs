//! A CQL connection to a system for a few queries outside of the measured windows. It uses version
//! 4, one query at a time, and answers of one page.

use std::time::Duration;

use tare_cql::frame::{self, Direction, HEADER_BYTES};
use tare_cql::request::{self, Settings};
use tare_cql::response::{Response, Row};
use tare_lab::access::Login;
use tare_lab::environment::Endpoint;

use super::client_route::{ClientRoute, ClientRouteError, SystemConnection};

/// Time limit for an answer: a virtual table is computed while it is read.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// The cells of a row; null is empty.
pub(crate) type Cells = Vec<Vec<u8>>;

/// A session.
pub(crate) struct Session {
    line: SystemConnection,
}

impl Session {
    /// Connects, sends `STARTUP`, and logs in where the system asks for it.
    pub(crate) fn open(
        client_route: &ClientRoute,
        at: &Endpoint,
    ) -> Result<Self, ClientRouteError> {
        let mut session = Self { line: client_route.connect(at.address)? };
        session.line.limit(ANSWER_LIMIT);
        let mut out = Vec::new();
        request::encode_startup(&mut out, 0, &[("CQL_VERSION", tare_cql::CQL_VERSION)]);
        let asks_for_login = session.ask("STARTUP", &out, |response| match response {
            Response::Ready => Some(false),
            Response::Authenticate { .. } => Some(true),
            _ => None,
        })?;
        if asks_for_login {
            let login = client_route.login().ok_or_else(|| session.line.no_login())?;
            session.log_in(login)?;
        }
        Ok(session)
    }

    /// Logs in by user and password (SASL PLAIN).
    fn log_in(&mut self, login: &Login) -> Result<(), ClientRouteError> {
        let token = format!("\0{}\0{}", login.username, login.password);
        let mut out = Vec::new();
        request::encode_auth_response(&mut out, 0, Some(token.as_bytes()));
        let refused = self.ask("the login", &out, |response| match response {
            Response::AuthSuccess { .. } => Some(None),
            Response::Error(error) => Some(Some(error.message.to_string())),
            _ => None,
        })?;
        refused.map_or(Ok(()), |said| Err(self.line.refused_login(login, &said)))
    }

    /// Runs a statement and returns its rows.
    pub(crate) fn query(&mut self, statement: &str) -> Result<Vec<Cells>, ClientRouteError> {
        self.query_at(statement, &Settings::DEFAULT)
    }

    /// Runs a statement with settings of its own.
    pub(crate) fn query_at(
        &mut self,
        statement: &str,
        settings: &Settings<'_>,
    ) -> Result<Vec<Cells>, ClientRouteError> {
        let mut out = Vec::new();
        request::encode_query(&mut out, 0, statement, settings, &[]);
        self.ask(statement, &out, |response| match response {
            Response::Rows(rows) => {
                let cells = |row: Row<'_>| -> Cells {
                    row.cells().map(|cell| cell.unwrap_or_default().to_vec()).collect()
                };
                Some(rows.iter().map(cells).collect())
            }
            _ => None,
        })
    }

    /// Runs a statement that returns no rows.
    pub(crate) fn change(&mut self, statement: &str) -> Result<(), ClientRouteError> {
        let mut out = Vec::new();
        request::encode_query(&mut out, 0, statement, &Settings::DEFAULT, &[]);
        let is_done = |response: &Response<'_>| {
            matches!(response, Response::Void | Response::SchemaChange(_))
        };
        self.ask(statement, &out, |response| is_done(response).then_some(()))
    }

    fn ask<T>(
        &mut self,
        question: &str,
        bytes: &[u8],
        answer: impl FnOnce(&Response<'_>) -> Option<T>,
    ) -> Result<T, ClientRouteError> {
        self.line.send(question, bytes)?;
        let mut frame = self.line.bytes(HEADER_BYTES)?;
        let length = [frame[5], frame[6], frame[7], frame[8]];
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        frame.extend(self.line.bytes(length)?);
        let frame = match frame::decode(&frame, Direction::Response, length) {
            Ok(Some((frame, _))) => frame,
            Ok(None) => return Err(self.line.unexpected_answer("half a frame".into())),
            Err(error) => return Err(self.line.unexpected_answer(error.to_string())),
        };
        let response = match Response::decode(&frame) {
            Ok(response) => response,
            Err(error) => return Err(self.line.unexpected_answer(error.to_string())),
        };
        answer(&response).ok_or_else(|| self.line.unexpected_answer(format!("{response:?}")))
    }
}

/// Returns a cell as text.
pub(crate) fn text(cell: &[u8]) -> String {
    String::from_utf8_lossy(cell).into_owned()
}
