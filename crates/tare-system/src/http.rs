//! A GET of HTTP/1.1 to a running system, on a connection of its own.

use std::fmt::Write;

use super::client_route::{ClientRouteError, SystemConnection};

/// The most lines in the head of an answer, and the most bytes of its body.
const HEAD_LINES_MAX: usize = 64;
const BODY_BYTES_MAX: usize = 16 << 20;

/// Asks for a path, and returns the body of the answer.
///
/// # Errors
/// If there is no answer, or one other than `200 OK`.
pub(crate) fn get(mut line: SystemConnection, path: &str) -> Result<String, ClientRouteError> {
    let question = format!("GET {path}");
    let mut request = format!("{question} HTTP/1.1\r\n");
    // Writing to a string cannot fail.
    let _ = write!(request, "Host: {}\r\nConnection: close\r\n\r\n", line.address());
    line.send(&question, request.as_bytes())?;
    let status = line.line()?;
    if status.split(' ').nth(1) != Some("200") {
        return Err(line.unexpected_answer(status));
    }
    let (mut length, mut is_chunked) = (None, false);
    for _ in 0..HEAD_LINES_MAX {
        let field = line.line()?;
        let Some((name, value)) = field.split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok(),
            "transfer-encoding" => is_chunked = value.trim().eq_ignore_ascii_case("chunked"),
            _ => {}
        }
    }
    let body = match (is_chunked, length) {
        (true, _) => chunks(&mut line)?,
        (false, Some(length)) => line.bytes(length)?,
        (false, None) => return Err(line.unexpected_answer(status)),
    };
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// Reads the chunks of a body: each after a line with its size in hexadecimal digits, the last one
/// empty.
fn chunks(line: &mut SystemConnection) -> Result<Vec<u8>, ClientRouteError> {
    let mut body = Vec::new();
    loop {
        let head = line.line()?;
        let size = head.split(';').next().unwrap_or_default().trim();
        let Ok(size) = usize::from_str_radix(size, 16) else {
            return Err(line.unexpected_answer(head));
        };
        if body.len().saturating_add(size) > BODY_BYTES_MAX {
            return Err(line.unexpected_answer(format!("more than {BODY_BYTES_MAX} bytes")));
        }
        if size == 0 {
            return Ok(body);
        }
        body.extend(line.bytes(size)?);
        line.line()?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Answers one request with these bytes, and returns what the client made of it.
    fn answered(bytes: &'static str) -> Result<String, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let count = socket.read(&mut request).unwrap();
            socket.write_all(bytes.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        let body = get(SystemConnection::plain(None, address).unwrap(), "/metrics?__name__=a*");
        let expect = format!(
            "GET /metrics?__name__=a* HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(server.join().unwrap(), expect);
        body.map_err(|error| error.to_string())
    }

    #[test]
    fn bodies_have_a_length_or_chunks() {
        let sized =
            answered("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: Seastar httpd\r\n\r\n[]");
        assert_eq!(sized.unwrap(), "[]");
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na{} \r\n2;x\r\n7\n\r\n0\r\n\r\n";
        assert_eq!(answered(chunked).unwrap(), "a{} 7\n");
    }

    #[test]
    fn other_answers_are_errors() {
        let missing = answered("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap_err();
        assert!(missing.contains("GET /metrics") && missing.contains("404"), "{missing}");
        for text in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        ] {
            answered(text).unwrap_err();
        }
    }
}
