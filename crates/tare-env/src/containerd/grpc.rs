//! Calls of gRPC on a unix socket: one request, one answer, over HTTP/2.
//!
//! Method: the request is a POST to `/SERVICE/METHOD`, its body a message of protocol buffers after
//! a byte for compression and four for the length. The status of the call is in the trailers, or in
//! the headers of an answer without a body (doc/PROTOCOL-HTTP2.md of grpc/grpc).
//!
//! Limits: no streams, no compression. Every call has a connection of its own, because an engine
//! may restart between two calls, which are few.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper::header::HeaderMap;
use hyper::{Request, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixStream;
use tokio::runtime::Builder;

/// The bytes before a message.
const PREFIX_BYTES: usize = 5;

/// Status codes (doc/statuscodes.md of grpc/grpc).
pub(crate) const NOT_FOUND: u32 = 5;
pub(crate) const ALREADY_EXISTS: u32 = 6;
pub(crate) const FAILED_PRECONDITION: u32 = 9;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("cannot connect to {}", .socket.display())]
    Connect { socket: PathBuf, source: io::Error },
    #[error("the connection to {} broke", .socket.display())]
    Connection { socket: PathBuf, source: hyper::Error },
    #[error("cannot call {method}")]
    Request { method: String, source: hyper::http::Error },
    #[error("{} answers {method} with something other than gRPC: {found}", .socket.display())]
    Protocol { socket: PathBuf, method: String, found: String },
    /// The called program refused.
    #[error("{message}")]
    Status { code: u32, message: String },
    #[error("no answer within {} s", .limit.as_secs())]
    TimedOut { limit: Duration },
}

impl CallError {
    /// Returns the status code of a refusal.
    pub(crate) fn code(&self) -> Option<u32> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// Where calls go: a socket, and metadata that every call has.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) socket: PathBuf,
    /// The name and the value of a header.
    pub(crate) metadata: Option<(&'static str, String)>,
    pub(crate) limit: Duration,
}

impl Target {
    /// Calls `SERVICE/METHOD` and waits for its answer.
    ///
    /// # Errors
    /// Also when the called program refuses; then [`CallError::code`] is its reason.
    pub(crate) fn call<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<A, CallError> {
        let body = frame(request);
        let connect = |source| CallError::Connect { socket: self.socket.clone(), source };
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let limited = async {
            tokio::time::timeout(self.limit, exchange(&self.socket, self, method, body)).await
        };
        let (headers, body) = match runtime.map_err(connect)?.block_on(limited) {
            Ok(answer) => answer?,
            Err(_) => return Err(CallError::TimedOut { limit: self.limit }),
        };
        let protocol = |found: String| {
            let (socket, method) = (self.socket.clone(), method.to_string());
            CallError::Protocol { socket, method, found }
        };
        let status = headers.get("grpc-status").and_then(|value| value.to_str().ok());
        match status.and_then(|status| status.parse().ok()) {
            Some(0) => {}
            Some(code) => {
                let message = headers.get("grpc-message").map(|value| value.as_bytes());
                return Err(CallError::Status { code, message: decoded(message.unwrap_or(b"")) });
            }
            None => return Err(protocol("no status".into())),
        }
        let message = body.get(PREFIX_BYTES..).unwrap_or_default();
        A::decode(message).map_err(|error| protocol(error.to_string()))
    }
}

/// Sends a request, and returns the trailers or headers with the status, and the body.
async fn exchange(
    socket: &Path,
    target: &Target,
    method: &str,
    body: Bytes,
) -> Result<(HeaderMap, Bytes), CallError> {
    let broken = |source| CallError::Connection { socket: socket.into(), source };
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|source| CallError::Connect { socket: socket.into(), source })?;
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(connection);
    let mut request = Request::post(format!("http://localhost/{method}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers");
    if let Some((name, value)) = &target.metadata {
        request = request.header(*name, value);
    }
    let failed = |source| CallError::Request { method: method.into(), source };
    let request = request.body(Full::new(body)).map_err(failed)?;
    let response = sender.send_request(request).await.map_err(broken)?;
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(broken)?;
    let headers = body.trailers().cloned().unwrap_or(head.headers);
    Ok((headers, body.to_bytes()))
}

/// Returns the body of a request.
fn frame(message: &impl Message) -> Bytes {
    let encoded = message.encode_to_vec();
    let length = u32::try_from(encoded.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], &encoded].concat().into()
}

/// Decodes the percent signs of a status message.
fn decoded(message: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(message.len());
    let mut rest = message;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containerd::messages::Empty;

    #[test]
    fn status_messages_are_decoded() {
        for (sent, text) in [
            ("plain", "plain"),
            ("task %22a%22 100%25", "task \"a\" 100%"),
            ("50%, %zz", "50%, %zz"),
            ("caf%C3%A9%", "café%"),
        ] {
            assert_eq!(decoded(sent.as_bytes()), text);
        }
        assert_eq!(frame(&Empty {}).as_ref(), [0, 0, 0, 0, 0]);
    }

    #[test]
    fn missing_socket_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("none.sock");
        let target = Target { socket, metadata: None, limit: Duration::from_secs(5) };
        let error = target.call::<Empty>("a.B/C", &Empty {}).unwrap_err();
        assert!(error.to_string().ends_with("none.sock"), "{error}");
        assert_eq!(error.code(), None);
    }
}
