//! The part of the client/server protocol of MySQL and MariaDB that asks a server a few questions:
//! a session without a password, statements, and answers in text.
//! <https://mariadb.com/docs/server/reference/clientserver-protocol>
//!
//! Limits: no TLS, no compression, and an answer of at most 16 MB.

use std::time::Duration;

use super::client_route::{ClientRouteError, SystemConnection};

/// What this client can do (`Capabilities`): version 4.1 of the protocol, transactions, the
/// authentication of 4.1, and its name in the answer.
const CAPABILITIES: u32 = 1 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 19;
/// utf8mb4 with its oldest collation, which every version knows.
const COLLATION: u8 = 45;
const AUTHENTICATION: &str = "mysql_native_password";
/// The command that runs a statement.
const QUERY: u8 = 3;

/// First bytes of packets.
const OK: u8 = 0;
const NULL: u8 = 0xfb;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;

/// A session of a user without a password.
pub(super) struct Session {
    line: SystemConnection,
}

impl Session {
    /// Opens a session. `limit` is the time limit of each answer.
    pub(super) fn open(
        mut line: SystemConnection,
        user: &str,
        limit: Duration,
    ) -> Result<Self, ClientRouteError> {
        line.limit(limit);
        // The server speaks first.
        line.send("a session", &[])?;
        let mut session = Self { line };
        let (number, greeting) = session.packet()?;
        if greeting.first() == Some(&ERROR) {
            return Err(session.line.unexpected_answer(complaint(&greeting)));
        }
        session.send("a session", number, &login(user))?;
        loop {
            let (number, answer) = session.packet()?;
            match answer.first() {
                Some(&OK) => return Ok(session),
                // Another way of authentication: without a password its answer is empty.
                Some(&END) => session.send("a session", number, &[])?,
                _ => return Err(session.line.unexpected_answer(complaint(&answer))),
            }
        }
    }

    /// Runs a statement and returns its rows, NULL as an empty text.
    pub(super) fn query(&mut self, statement: &str) -> Result<Vec<Vec<String>>, ClientRouteError> {
        let body = [&[QUERY], statement.as_bytes()].concat();
        self.line.send(statement, &framed(0, &body))?;
        let (_, head) = self.packet()?;
        match head.first() {
            Some(&OK) => return Ok(Vec::new()),
            Some(&ERROR) | None => return Err(self.line.unexpected_answer(complaint(&head))),
            // The number of columns; their descriptions follow.
            Some(_) => while !is_end(&self.answer()?) {},
        }
        let mut rows = Vec::new();
        loop {
            let row = self.answer()?;
            if is_end(&row) {
                return Ok(rows);
            }
            let cells = cells(&row);
            rows.push(cells.ok_or_else(|| self.line.unexpected_answer("a row cut off".into()))?);
        }
    }

    fn send(&mut self, question: &str, after: u8, body: &[u8]) -> Result<(), ClientRouteError> {
        self.line.send(question, &framed(after.wrapping_add(1), body))
    }

    /// Reads a packet that may be an error.
    fn answer(&mut self) -> Result<Vec<u8>, ClientRouteError> {
        let (_, body) = self.packet()?;
        match body.first() {
            Some(&ERROR) => Err(self.line.unexpected_answer(complaint(&body))),
            _ => Ok(body),
        }
    }

    /// Reads a packet: the length in three bytes, its number, its body.
    fn packet(&mut self) -> Result<(u8, Vec<u8>), ClientRouteError> {
        let head = self.line.bytes(4)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let body = self.line.bytes(usize::try_from(length).unwrap_or(usize::MAX))?;
        Ok((head[3], body))
    }
}

/// Returns the answer to the server's greeting.
fn login(user: &str) -> Vec<u8> {
    let most: u32 = 1 << 24;
    let mut body = [CAPABILITIES.to_le_bytes(), most.to_le_bytes()].concat();
    body.push(COLLATION);
    body.extend_from_slice(&[0; 23]);
    body.extend_from_slice(user.as_bytes());
    // The end of the name, and the length of the answer that a password would need.
    body.extend_from_slice(&[0, 0]);
    body.extend_from_slice(AUTHENTICATION.as_bytes());
    body.push(0);
    body
}

fn framed(number: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    [&length[..3], &[number], body].concat()
}

/// Returns whether a packet ends a list: a row that begins with the same byte is longer.
fn is_end(body: &[u8]) -> bool {
    body.first() == Some(&END) && body.len() < 9
}

/// Reads the cells of a row, each with its length before it; `None` if it is cut off.
fn cells(mut rest: &[u8]) -> Option<Vec<String>> {
    let mut cells = Vec::new();
    while let Some((first, after)) = rest.split_first() {
        let bytes = match first {
            &NULL => {
                cells.push(String::new());
                rest = after;
                continue;
            }
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            _ => 0,
        };
        let (number, after) = after.split_at_checked(bytes)?;
        let long = number.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let length = if bytes == 0 { u64::from(*first) } else { long };
        let (cell, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
        cells.push(String::from_utf8_lossy(cell).into_owned());
        rest = after;
    }
    Some(cells)
}

/// Returns number and text of an error, without the state (`#28000`) between them.
fn complaint(body: &[u8]) -> String {
    let Some(([ERROR, low, high], text)) = body.split_first_chunk::<3>() else {
        return "a packet that is not part of the protocol".into();
    };
    let text = String::from_utf8_lossy(text);
    let text = match text.strip_prefix('#') {
        Some(rest) => rest.get(5..).unwrap_or_default(),
        None => &text,
    };
    format!("error {}: {text}", u16::from_le_bytes([*low, *high]))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::ClientRoute;

    #[test]
    fn packets_encode_and_decode() {
        assert_eq!(framed(7, b"ab"), b"\x02\0\0\x07ab");
        let login = login("root");
        assert_eq!(&login[32..], b"root\0\0mysql_native_password\0");
        let long = [&b"\x02ab\xfb\xfc\x2c\x01"[..], &[b'x'; 300], b"\0"].concat();
        assert_eq!(cells(&long).unwrap(), ["ab", "", &"x".repeat(300), ""]);
        for end in 1..long.len() - 1 {
            let _ = cells(&long[..end]);
        }
        assert_eq!(cells(b"\x09ab"), None, "cut off");
        assert_eq!(cells(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff"), None);
        assert_eq!(complaint(b"\xff\x15\x04#28000Access denied"), "error 1045: Access denied");
        assert_eq!(
            complaint(b"\xff\x10\x04Too many connections"),
            "error 1040: Too many connections"
        );
        assert!(complaint(b"\xff").contains("not part of the protocol"));
        assert!(is_end(b"\xfe\0\0\x02\0") && !is_end(&[0xfe; 9]));
    }

    /// Answers each message of a client with the next packets.
    fn serve(answers: &'static [&'static [u8]]) -> Result<Vec<Vec<String>>, ClientRouteError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                stream.write_all(answer).unwrap();
                let _ = stream.read(&mut [0; 512]);
            }
        });
        let line = ClientRoute::default().connect(address).unwrap();
        let rows = Session::open(line, "root", Duration::from_secs(5))
            .and_then(|mut session| session.query("SELECT 1"));
        server.join().unwrap();
        rows
    }

    const GREETING: &[u8] = b"\x03\0\0\0\x0a8\0";

    #[test]
    fn session_switches_authentication_and_reads_rows() {
        let rows: &[u8] = b"\x01\0\0\x01\x01\x02\0\0\x02de\x05\0\0\x03\xfe\0\0\x02\0\
            \x02\0\0\x04\x011\x05\0\0\x05\xfe\0\0\x02\0";
        let switch: &[u8] = b"\x06\0\0\x02\xfeother";
        let answers: &[&[u8]] = &[GREETING, switch, b"\x03\0\0\x04\0\0\0", rows];
        assert_eq!(serve(Vec::leak(answers.to_vec())).unwrap(), [["1"]]);
    }

    #[test]
    fn refusals_are_one_line() {
        let full: &[u8] = b"\x07\0\0\0\xff\x10\x04full";
        let error = serve(Vec::leak(vec![full])).unwrap_err().to_string();
        assert!(error.contains("error 1040: full") && !error.contains('\n'), "{error}");
        let denied: &[u8] = b"\x0b\0\0\x02\xff\x15\x04#28000no";
        let error = serve(Vec::leak(vec![GREETING, denied])).unwrap_err().to_string();
        assert!(error.contains("error 1045: no"), "{error}");
        let error = serve(Vec::leak(vec![GREETING, b"\xff\xff\xff\x02"])).unwrap_err();
        assert!(error.to_string().contains("16777215 bytes"), "{error}");
    }
}
