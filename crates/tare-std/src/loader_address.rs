//! Where load comes from, as studies and options name it: a host, a pod on a node, or a pod on each
//! node that a selector of labels matches.

use std::fmt;
use std::str::FromStr;

use crate::host_address::{HostAddress, HostAddressError, NodeAddress};

/// What begins the address of pods on all nodes of a selector.
const PODS: &str = "pods:";

/// Where load comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoaderAddress {
    /// This host, another host, or a pod on a node.
    Host(HostAddress),
    /// A pod on each of these nodes.
    Nodes(NodeSelector),
}

/// Nodes of a Kubernetes cluster, by their labels: `SELECTOR`, or `CONTEXT:SELECTOR` in another
/// context of the user's access than the current one. A selector has no colon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSelector {
    context: Option<String>,
    labels: String,
}

/// Text is not the address of a loader.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoaderAddressError {
    #[error("{text:?} is not a host: {}", self.reason())]
    Host { text: String, source: HostAddressError },
    #[error("{text:?} selects no nodes: {}", self.reason())]
    Selector { text: String, why: &'static str },
}

impl LoaderAddressError {
    /// Returns why, and what to write, without the text.
    pub fn reason(&self) -> String {
        match self {
            Self::Host { source, .. } => source.reason_for_loader(),
            Self::Selector { why, .. } => {
                format!("{why}; write pods:LABEL=VALUE, or another selector that kubectl takes")
            }
        }
    }
}

impl NodeSelector {
    /// Returns the context of the user's access; `None` for the current one.
    pub fn context(&self) -> Option<&str> {
        self.context.as_deref()
    }

    /// Returns the selector, which only the API server reads whole.
    pub fn labels(&self) -> &str {
        &self.labels
    }

    /// Returns the address of a node that it matches.
    pub fn node(&self, name: &str) -> NodeAddress {
        NodeAddress::new(self.context.clone(), name)
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let (context, labels) = match text.rsplit_once(':') {
            Some((context, labels)) => (Some(context), labels),
            None => (None, text),
        };
        let labels = labels.trim();
        if labels.is_empty() || context == Some("") {
            return Err("a label is missing");
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        if !labels.chars().all(|c| is_plain(c) || " =!(),<>".contains(c)) {
            return Err("it has a character that no selector has");
        }
        let is_context = |name: &str| name.chars().all(|c| is_plain(c) || "%:".contains(c));
        if !context.is_none_or(|name| is_context(name) && !name.starts_with('-')) {
            return Err("its context has a character that no name has");
        }
        Ok(Self { context: context.map(Into::into), labels: labels.into() })
    }
}

impl LoaderAddress {
    /// Reads a list with commas. Those of a selector belong to it, so a selector is the last of its
    /// list.
    ///
    /// # Errors
    /// If one of them is no address.
    pub fn list(text: &str) -> Result<Vec<Self>, LoaderAddressError> {
        let mut all = Vec::new();
        let mut rest = text;
        while !rest.starts_with(PODS)
            && let Some((one, more)) = rest.split_once(',')
        {
            all.push(one.parse()?);
            rest = more;
        }
        all.push(rest.parse()?);
        Ok(all)
    }
}

impl FromStr for LoaderAddress {
    type Err = LoaderAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix(PODS) {
            Some(rest) => {
                let selector = |why| LoaderAddressError::Selector { text: text.into(), why };
                Ok(Self::Nodes(NodeSelector::parse(rest).map_err(selector)?))
            }
            None => {
                let host = |source| LoaderAddressError::Host { text: text.into(), source };
                Ok(Self::Host(text.parse().map_err(host)?))
            }
        }
    }
}

impl fmt::Display for NodeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PODS)?;
        if let Some(context) = &self.context {
            write!(f, "{context}:")?;
        }
        f.write_str(&self.labels)
    }
}

impl fmt::Display for LoaderAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => host.fmt(f),
            Self::Nodes(selector) => selector.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_round_trip() {
        for (text, context, labels) in [
            ("pods:role=load", None, "role=load"),
            ("pods:tare.run/load", None, "tare.run/load"),
            ("pods:prod:role in (load, spare),!gpu", Some("prod"), "role in (load, spare),!gpu"),
            (
                "pods:arn:aws:eks:eu-1:12:cluster/prod:a!=b",
                Some("arn:aws:eks:eu-1:12:cluster/prod"),
                "a!=b",
            ),
        ] {
            let read = text.parse::<LoaderAddress>().unwrap();
            assert_eq!(read.to_string(), text);
            let LoaderAddress::Nodes(selector) = read else { panic!("{text}") };
            assert_eq!((selector.context(), selector.labels()), (context, labels));
        }
        let host = "pod:n1".parse::<LoaderAddress>().unwrap();
        assert_eq!(host, LoaderAddress::Host("pod:n1".parse().unwrap()));
    }

    #[test]
    fn refuses_what_is_no_selector() {
        for (text, why) in [
            ("pods:", "a label is missing"),
            ("pods::a=b", "a label is missing"),
            ("pods:a=$(id)", "a character that no selector has"),
            ("pods:-n:a=b", "its context has a character"),
            (
                "db1",
                "write local, ssh:HOST, ssh:USER@HOST, ssh:HOST:PORT, kubernetes:NODE, pod:NODE or pods:LABEL=VALUE",
            ),
        ] {
            let error = text.parse::<LoaderAddress>().unwrap_err();
            assert!(error.to_string().contains(why) && error.reason().contains(why), "{error}");
        }
    }

    #[test]
    fn commas_of_a_selector_belong_to_it() {
        let names = |text: &str| -> Vec<String> {
            LoaderAddress::list(text).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(names("ssh:a,pod:n1"), ["ssh:a", "pod:n1"]);
        assert_eq!(names("ssh:a,pods:a in (b,c),d=e"), ["ssh:a", "pods:a in (b,c),d=e"]);
        assert!(LoaderAddress::list("ssh:a,").is_err());
    }
}
