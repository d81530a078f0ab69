use std::path::Path;

use hyper::Method;
use hyper::header::{self, HeaderMap, HeaderValue};

use super::*;

const OWN: &str = "127.0.0.1:8080";

fn request(page: &SharedPage, method: &str, host: Option<&str>, path: &str) -> (u16, String) {
    let mut headers = HeaderMap::new();
    if let Some(host) = host {
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
    }
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let response = page.respond(OWN.parse().unwrap(), &method, path, &headers);
    let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'"));
    (response.status().as_u16(), String::from_utf8(response.body().to_vec()).unwrap())
}

#[test]
fn requests_for_other_paths_methods_and_hosts_are_refused() {
    let page = SharedPage::new(Path::new("/tmp/<b>x</b>.tare"));
    for (method, host, path, status) in [
        ("GET", Some(OWN), "/", 200),
        ("HEAD", Some(OWN), "/", 200),
        ("GET", Some("localhost:8080"), "/state", 200),
        ("GET", Some(OWN), "/refresh.js", 200),
        ("GET", Some(OWN), "/../../etc/passwd", 404),
        ("GET", Some(OWN), "/favicon.ico", 404),
        ("GET", Some(OWN), "//", 404),
        ("POST", Some(OWN), "/", 405),
        ("DELETE", Some(OWN), "/state", 405),
        ("GET", Some("evil.example:8080"), "/", 421),
        ("GET", Some("127.0.0.1:8081"), "/", 421),
        ("GET", Some("127.0.0.1"), "/", 421),
        ("GET", Some("localhost.evil.example:8080"), "/", 421),
        ("GET", None, "/", 421),
    ] {
        assert_eq!(request(&page, method, host, path).0, status, "{method} {host:?} {path}");
    }
    assert!(!request(&page, "GET", Some(OWN), "/").1.contains("<b>"));
}

#[test]
fn only_a_changed_page_is_a_new_version() {
    let page = SharedPage::new(Path::new("x.tare"));
    assert!(!page.is_watched());
    let state = || request(&page, "GET", Some(OWN), "/state").1;
    assert_eq!(state(), r#"{"ended":false,"version":0}"#);
    assert!(page.is_watched());
    page.publish("<body>one</body></html>".into(), false);
    page.publish("<body>one</body></html>".into(), false);
    assert_eq!(state(), r#"{"ended":false,"version":1}"#);
    assert!(!page.is_latest_served());
    let body = request(&page, "GET", Some(OWN), "/").1;
    assert_eq!(body, "<body>one<script src=\"/refresh.js?version=1\"></script>\n</body></html>");
    assert!(page.is_latest_served());
    page.set_ended();
    assert_eq!(state(), r#"{"ended":true,"version":1}"#);
}

#[test]
fn policy_allows_only_the_script_in_addition() {
    let page = SharedPage::new(Path::new("x.tare"));
    let own = "<head><meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-x'\"><title>";
    page.publish(format!("{own}</title></head><body></body>"), false);
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, HeaderValue::from_static(OWN));
    let response = page.respond(OWN.parse().unwrap(), &Method::GET, "/", &headers);
    let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert_eq!(
        policy,
        "default-src 'none'; script-src 'self' 'sha256-x'; connect-src 'self'; frame-ancestors 'none'"
    );
    assert!(response.body().starts_with(b"<head><title></title>"), "{response:?}");
}

#[test]
fn cached_page_is_not_sent_again() {
    let page = SharedPage::new(Path::new("x.tare"));
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, HeaderValue::from_static(OWN));
    let own = OWN.parse().unwrap();
    let first = page.respond(own, &Method::GET, "/", &headers);
    headers.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
    assert_eq!(page.respond(own, &Method::GET, "/", &headers).status(), 304);
    page.publish("<body>one</body>".into(), false);
    assert_eq!(page.respond(own, &Method::GET, "/", &headers).status(), 200);
}

#[test]
fn only_loopback_addresses_are_accepted() {
    for (text, expected) in [
        ("8080", "127.0.0.1:8080"),
        ("127.0.0.1", "127.0.0.1:0"),
        ("localhost:80", "127.0.0.1:80"),
        ("127.0.0.2:9", "127.0.0.2:9"),
        ("::1", "[::1]:0"),
        ("[::1]:7", "[::1]:7"),
    ] {
        assert_eq!(parse_address(text).map(|a| a.to_string()), Ok(expected.to_string()), "{text}");
    }
    for (text, part) in [
        ("0.0.0.0:80", "not on the loopback"),
        ("192.168.1.4", "not on the loopback"),
        ("[::]:80", "not on the loopback"),
        ("example.org:80", "write it like"),
        ("99999", "write it like"),
    ] {
        assert!(parse_address(text).unwrap_err().contains(part), "{text}");
    }
}
