//! What is answered to a request. Pure but for the time of the last look, and tested without a
//! socket.
//!
//! Three paths exist; nothing is looked up in a file system. The `Host` header must be this
//! server's own address, so that a page of the net cannot read this one by making its name point
//! here (DNS rebinding: <https://developer.mozilla.org/en-US/docs/Web/Security/Attacks>).

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode};

/// The script that loads a changed page. The page's file has none.
const SCRIPT: &str = include_str!("refresh.js");
/// Somebody who asked this long ago has gone. The script asks every 2 s.
const GONE: Duration = Duration::from_secs(15);
/// Of what is no page: nothing may run or load.
const POLICY: &str = "default-src 'none'; frame-ancestors 'none'";
/// A page says its own policy, which names its scripts by their hashes.
const POLICY_TAG: [&str; 2] = ["<meta http-equiv=\"Content-Security-Policy\" content=\"", "\">"];
const DIRECTIVE: &str = "script-src";

/// Where the page lies ready for whoever asks.
pub(super) struct Desk(Mutex<Lying>);

struct Lying {
    /// Without the script.
    page: String,
    /// With it.
    served: Bytes,
    policy: HeaderValue,
    version: u64,
    ended: bool,
    asked: Option<Instant>,
    /// The version that was last given out.
    seen: u64,
}

impl Desk {
    pub(super) fn new(record: &Path) -> Desk {
        let name = record.file_name().unwrap_or_default().to_string_lossy();
        // A file's name may hold anything.
        let name: String =
            name.chars().filter(|c| c.is_alphanumeric() || "-_. ".contains(*c)).collect();
        let first = format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{name}</title></head><body><p>{name}: nothing has been measured yet.</p></body></html>"
        );
        let (served, policy) = with_script(&first, 0);
        let (page, version) = (first, 0);
        let (ended, asked, seen) = (false, None, 0);
        Desk(Mutex::new(Lying { page, served, policy, version, ended, asked, seen }))
    }

    fn lying(&self) -> std::sync::MutexGuard<'_, Lying> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn lay(&self, page: String, ended: bool) {
        let mut lying = self.lying();
        lying.ended = ended;
        if lying.page != page {
            lying.version += 1;
            (lying.served, lying.policy) = with_script(&page, lying.version);
            lying.page = page;
        }
    }

    /// No other page will come.
    pub(super) fn end(&self) {
        self.lying().ended = true;
    }

    /// Whether somebody has asked lately.
    pub(super) fn is_watched(&self) -> bool {
        self.lying().asked.is_some_and(|asked| asked.elapsed() < GONE)
    }

    pub(super) fn last_was_seen(&self) -> bool {
        let lying = self.lying();
        lying.seen == lying.version
    }

    /// The answer to a request to the server at `own`.
    pub(super) fn answer(
        &self,
        own: SocketAddr,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Response<Bytes> {
        if !is_own(headers, own) {
            return plain(StatusCode::MISDIRECTED_REQUEST, "this server has another name\n");
        }
        if method != Method::GET && method != Method::HEAD {
            let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only\n");
            answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        let mut lying = self.lying();
        lying.asked = Some(Instant::now());
        let mut policy = None;
        let (kind, body) = match path {
            "/" => {
                lying.seen = lying.version;
                policy = Some(lying.policy.clone());
                ("text/html; charset=utf-8", lying.served.clone())
            }
            "/state" => {
                let state = serde_json::json!({ "version": lying.version, "ended": lying.ended });
                ("application/json", Bytes::from(state.to_string()))
            }
            "/refresh.js" => {
                ("text/javascript; charset=utf-8", Bytes::from_static(SCRIPT.as_bytes()))
            }
            _ => return plain(StatusCode::NOT_FOUND, "there is nothing here but the page\n"),
        };
        let tag = format!("\"{}-{}\"", lying.version, u8::from(lying.ended));
        drop(lying);
        let known = headers
            .get(header::IF_NONE_MATCH)
            .is_some_and(|known| known.as_bytes() == tag.as_bytes());
        let mut answer = if known && path != "/refresh.js" {
            with_headers(StatusCode::NOT_MODIFIED, kind, Bytes::new())
        } else {
            with_headers(StatusCode::OK, kind, body)
        };
        if let Some(policy) = policy {
            answer.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
        }
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            answer.headers_mut().insert(header::ETAG, tag);
        }
        answer
    }
}

/// The page with the script at its end, which is told the page's version; and its policy, which the
/// server says instead of the page, widened by that script and what it asks.
fn with_script(page: &str, version: u64) -> (Bytes, HeaderValue) {
    let [open, close] = POLICY_TAG;
    let (head, own, rest) = page
        .split_once(open)
        .and_then(|(head, tail)| tail.split_once(close).map(|(own, rest)| (head, own, rest)))
        .unwrap_or(("", "default-src 'none'; style-src 'unsafe-inline'; script-src", page));
    let widened = own.replacen(DIRECTIVE, &format!("{DIRECTIVE} 'self'"), 1);
    let policy = format!("{widened}; connect-src 'self'; frame-ancestors 'none'");
    let policy = HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static(POLICY));
    let (body, end) = rest.split_at(rest.rfind("</body>").unwrap_or(rest.len()));
    let script = format!("<script src=\"/refresh.js?version={version}\"></script>\n");
    (Bytes::from([head, body, &script, end].concat()), policy)
}

/// Exactly one `Host`, and it names this server.
fn is_own(headers: &HeaderMap, own: SocketAddr) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Ok(host) = host.to_str() else { return false };
    host == own.to_string() || host.eq_ignore_ascii_case(&format!("localhost:{}", own.port()))
}

fn plain(status: StatusCode, text: &'static str) -> Response<Bytes> {
    with_headers(status, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

fn with_headers(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Bytes> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let same = HeaderValue::from_static("same-origin");
    answer.headers_mut().insert("cross-origin-resource-policy", same);
    answer
}
