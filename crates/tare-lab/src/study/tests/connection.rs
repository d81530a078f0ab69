//! How clients connect, and `[access]`.

use super::*;
use crate::study::{AccessSpec, ClientConnection, Compression, LoginSpec, PasswordSource};

/// Returns `GOOD` with keys of its workload, and a table after it.
fn with(workload: &str, more: &str) -> Result<Study, StudyError> {
    let text = GOOD.replace("write_share = 1\n", workload) + more;
    parse(&text, "s.toml", &vocabulary())
}

/// The same with attached environments in place of those of `GOOD`.
fn attached(workload: &str, more: &str) -> Result<Study, StudyError> {
    let attach = "attach = { pid = 1, address = \"10.0.0.5:9042\" }";
    let text =
        GOOD.replace("runtime = \"process\"", attach).replace("extends = \"native\"", attach);
    let text = text.replace("write_share = 1\n", workload) + more;
    parse(&text, "s.toml", &vocabulary())
}

#[test]
fn workload_says_how_clients_connect() {
    let connection = |words: &str| with(words, "").unwrap().workloads.remove(0).connection;
    assert_eq!(connection(""), ClientConnection::default());
    let all = connection("tls = true\ncompression = \"lz4\"\nprotocol_version = 5\n");
    let lz4 = Some(Compression::Lz4);
    assert_eq!(all, ClientConnection { tls: true, compression: lz4, protocol_version: 5 });
    let refused = |words: &str, expect: &str| {
        let error = with(words, "").unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    };
    refused("compression = \"snappy\"\n", "unknown value \"snappy\"");
    refused("protocol_version = 3\n", "4");
    refused("tls = \"yes\"\n", "tls");
    let sweep = "[[sweep]]\nworkload = \"w\"\noption = \"tls\"\nvalues = [true]\n";
    let swept = with("", sweep).unwrap().workloads;
    assert_eq!((swept[1].name.as_str(), swept[1].connection.tls), ("w, tls true", true));
}

#[test]
fn connection_is_a_part_of_the_workload_in_json() {
    let study = with("tls = true\nprotocol_version = 5\n", "").unwrap();
    let json = serde_json::to_value(&study).unwrap();
    assert_eq!(json["workloads"][0]["tls"], true);
    assert_eq!(json["workloads"][0]["protocol_version"], 5);
    assert_eq!(serde_json::from_value::<Study>(json).unwrap(), study);
    let plain = serde_json::to_value(with("", "").unwrap()).unwrap();
    assert!(plain["workloads"][0].get("tls").is_none(), "{plain}");
}

#[test]
fn access_is_for_attached_systems_and_has_no_password() {
    let login = "[access]\nusername = \"ann\"\npassword_variable = \"DB\"\n";
    let found = attached("", login).unwrap().access.unwrap();
    let password = PasswordSource::Variable("DB".into());
    let expect = LoginSpec { username: "ann".into(), password };
    assert_eq!(found, AccessSpec { login: Some(expect), ..AccessSpec::default() });
    let tls = "[access]\ntls_ca = \"ca.pem\"\ntls_name = \"db\"\n";
    let found = attached("tls = true\n", tls).unwrap().access.unwrap();
    assert_eq!(found.tls_ca.unwrap().to_str(), Some("ca.pem"));
    let refused = |study: Result<Study, StudyError>, expect: &str| {
        let error = study.unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    };
    refused(with("", login), "login and certificates are for attached systems");
    refused(attached("", "[access]\nusername = \"ann\"\n"), "say where the password is");
    refused(attached("", "[access]\npassword_file = \"p\"\n"), "a password needs a username");
    let both = format!("{login}password_file = \"p\"\n");
    refused(attached("", &both), "the password is in one place");
    let secret = login.replace("\"DB\"", "\"open sesame\"");
    refused(attached("", &secret), "write the name of an environment variable");
    refused(attached("", &login.replace("password_variable", "password")), "password");
    refused(attached("tls = true\n", ""), "has tls = true; write tls_ca");
    refused(attached("tls = true\n", login), "has tls = true; write tls_ca");
    refused(attached("", tls), "no workload has tls = true");
}
