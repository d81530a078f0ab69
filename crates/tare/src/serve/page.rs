//! The page that is served, and the responses to requests. Pure except for the time of the last
//! request, and tested without a socket.
//!
//! Three paths exist, and none is a file. The `Host` header must be this server's own address, so
//! that a page on the Internet cannot read this one by pointing its own name here (DNS rebinding:
//! <https://developer.mozilla.org/en-US/docs/Web/Security/Attacks>).

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode};

/// The script that reloads a changed page. The page in a file does not have it.
const SCRIPT: &str = include_str!("refresh.js");
/// The page counts as watched this long after a request. The script sends one every 2 s.
const WATCHED_FOR: Duration = Duration::from_secs(15);
/// The policy of responses other than the page: nothing may run or load.
const POLICY: &str = "default-src 'none'; frame-ancestors 'none'";
/// Where a page holds its own policy, which lists its scripts by their hashes.
const POLICY_TAG: [&str; 2] = ["<meta http-equiv=\"Content-Security-Policy\" content=\"", "\">"];
const DIRECTIVE: &str = "script-src";

/// The latest page, shared by the thread that renders it and the thread that serves it.
pub(super) struct SharedPage(Mutex<PageState>);

struct PageState {
    /// The page without the script.
    page: String,
    /// The page with the script.
    served: Bytes,
    policy: HeaderValue,
    version: u64,
    ended: bool,
    requested: Option<Instant>,
    /// The version that was served last.
    version_served: u64,
}

impl SharedPage {
    /// Returns a page that says that nothing has been measured yet.
    pub(super) fn new(record: &Path) -> SharedPage {
        let name = record.file_name().unwrap_or_default().to_string_lossy();
        // A file name may hold any characters, also those of HTML.
        let name: String =
            name.chars().filter(|c| c.is_alphanumeric() || "-_. ".contains(*c)).collect();
        let first = format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{name}</title></head><body><p>{name}: nothing has been measured yet.</p></body></html>"
        );
        let (served, policy) = with_script(&first, 0);
        let (page, version) = (first, 0);
        let (ended, requested, version_served) = (false, None, 0);
        let state = PageState { page, served, policy, version, ended, requested, version_served };
        SharedPage(Mutex::new(state))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PageState> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Replaces the page, as a new version if it differs.
    pub(super) fn publish(&self, page: String, ended: bool) {
        let mut state = self.lock();
        state.ended = ended;
        if state.page != page {
            state.version += 1;
            (state.served, state.policy) = with_script(&page, state.version);
            state.page = page;
        }
    }

    /// Marks the page as the last one.
    pub(super) fn set_ended(&self) {
        self.lock().ended = true;
    }

    /// Returns whether a browser has requested something recently.
    pub(super) fn is_watched(&self) -> bool {
        self.lock().requested.is_some_and(|requested| requested.elapsed() < WATCHED_FOR)
    }

    /// Returns whether the latest version was served.
    pub(super) fn is_latest_served(&self) -> bool {
        let state = self.lock();
        state.version_served == state.version
    }

    /// Returns the response to a request to the server at `own`.
    pub(super) fn respond(
        &self,
        own: SocketAddr,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Response<Bytes> {
        if !is_own(headers, own) {
            return plain(
                StatusCode::MISDIRECTED_REQUEST,
                "the Host header is not the address of this server\n",
            );
        }
        if method != Method::GET && method != Method::HEAD {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only\n");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let mut state = self.lock();
        state.requested = Some(Instant::now());
        let mut policy = None;
        let (kind, body) = match path {
            "/" => {
                state.version_served = state.version;
                policy = Some(state.policy.clone());
                ("text/html; charset=utf-8", state.served.clone())
            }
            "/state" => {
                let json = serde_json::json!({ "version": state.version, "ended": state.ended });
                ("application/json", Bytes::from(json.to_string()))
            }
            "/refresh.js" => {
                ("text/javascript; charset=utf-8", Bytes::from_static(SCRIPT.as_bytes()))
            }
            _ => return plain(StatusCode::NOT_FOUND, "not found; the page is at /\n"),
        };
        let tag = format!("\"{}-{}\"", state.version, u8::from(state.ended));
        drop(state);
        let is_cached = headers
            .get(header::IF_NONE_MATCH)
            .is_some_and(|known| known.as_bytes() == tag.as_bytes());
        let mut response = if is_cached && path != "/refresh.js" {
            with_headers(StatusCode::NOT_MODIFIED, kind, Bytes::new())
        } else {
            with_headers(StatusCode::OK, kind, body)
        };
        if let Some(policy) = policy {
            response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
        }
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response
    }
}

/// Returns the page with the script at its end, and its policy. The server sends the policy in
/// place of the page's own, and extends it by the script and its requests.
fn with_script(page: &str, version: u64) -> (Bytes, HeaderValue) {
    let [open, close] = POLICY_TAG;
    let (head, own, rest) = page
        .split_once(open)
        .and_then(|(head, tail)| tail.split_once(close).map(|(own, rest)| (head, own, rest)))
        .unwrap_or(("", "default-src 'none'; style-src 'unsafe-inline'; script-src", page));
    let extended = own.replacen(DIRECTIVE, &format!("{DIRECTIVE} 'self'"), 1);
    let policy = format!("{extended}; connect-src 'self'; frame-ancestors 'none'");
    let policy = HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static(POLICY));
    let (body, end) = rest.split_at(rest.rfind("</body>").unwrap_or(rest.len()));
    let script = format!("<script src=\"/refresh.js?version={version}\"></script>\n");
    (Bytes::from([head, body, &script, end].concat()), policy)
}

/// Returns whether there is exactly one `Host` header, with the address of this server.
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
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let same = HeaderValue::from_static("same-origin");
    response.headers_mut().insert("cross-origin-resource-policy", same);
    response
}
