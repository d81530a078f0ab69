//! What clients need to connect to a system, with the secrets. A study has only the places of those
//! (`study::AccessSpec`), so that no record holds them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::study::ClientConnection;

/// What clients need to connect to the systems of a study, apart from their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientAccess {
    /// How the first connection is made, which proves that a system answers.
    pub connection: ClientConnection,
    /// The certificates of the authorities that a client with TLS trusts, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorities: Option<String>,
    /// The name in the certificate of the system; `None`: its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<Login>,
}

/// A user and a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    pub username: String,
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("username", &self.username).finish_non_exhaustive()
    }
}

impl ClientAccess {
    /// Returns whether clients connect without TLS, login and options.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

const KEY_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const KEY_END: &str = "-----END PRIVATE KEY-----";

/// Returns a text without the private keys in it, such as the arguments of a system with TLS.
pub fn without_private_keys(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, key)) = rest.split_once(KEY_BEGIN) {
        kept.push_str(before);
        kept.push_str("(private key)");
        rest = key.split_once(KEY_END).map_or("", |(_, after)| after);
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_keys_are_removed() {
        let check =
            |text: &str, expect: &str| assert_eq!(without_private_keys(text), expect, "{text}");
        check("no key", "no key");
        check(&format!("a {KEY_BEGIN}\\nMIG\\n{KEY_END}\\n b"), "a (private key)\\n b");
        let two = format!("{KEY_BEGIN}x{KEY_END},{KEY_BEGIN}y{KEY_END}");
        check(&two, "(private key),(private key)");
        check(&format!("cut {KEY_BEGIN}MIG"), "cut (private key)");
    }

    #[test]
    fn debug_output_hides_passwords() {
        let login = Login { username: "ann".into(), password: "secret".into() };
        assert_eq!(format!("{login:?}"), r#"Login { username: "ann", .. }"#);
    }
}
