//! Finds the object of a manifest whose pods run the database, its pod's specification, and the
//! container.

use super::ManifestError;
use crate::flags::Engine;
use crate::flags::yaml::Node;

/// Kinds with pods, and where their pod's specification is.
const KINDS: &[(&str, &[&str])] = &[
    ("Pod", &["spec"]),
    ("StatefulSet", &["spec", "template", "spec"]),
    ("Deployment", &["spec", "template", "spec"]),
    ("DaemonSet", &["spec", "template", "spec"]),
    ("ReplicaSet", &["spec", "template", "spec"]),
    ("Job", &["spec", "template", "spec"]),
    ("CronJob", &["spec", "jobTemplate", "spec", "template", "spec"]),
];

/// An object whose pods can be changed.
#[derive(Debug)]
pub(super) struct Workload<'a> {
    /// `StatefulSet/scylla`.
    pub(super) name: String,
    /// Where its pod's specification is: `spec.template.spec`.
    pub(super) place: String,
    pub(super) spec: &'a Node,
}

/// Returns the object with this name (`KIND/NAME`), or the only one with pods.
pub(super) fn workload<'a>(
    documents: &'a [Node],
    file: &str,
    wanted: Option<&str>,
) -> Result<Workload<'a>, ManifestError> {
    let file = || file.to_string();
    let mut found = Vec::new();
    let mut others = Vec::new();
    for document in documents.iter().filter(|document| !document.is_null()) {
        let kind = document.at(&["kind"]).and_then(Node::text).unwrap_or("no kind");
        let own = document.at(&["metadata", "name"]).and_then(Node::text);
        let name = format!("{kind}/{}", own.unwrap_or("unnamed"));
        match KINDS.iter().find(|(known, _)| *known == kind) {
            Some((_, path)) => found.push((name, document, *path)),
            None => others.push(name),
        }
    }
    if let Some(wanted) = wanted {
        let names: Vec<String> = found.iter().map(|(name, ..)| name.clone()).collect();
        found.retain(|(name, ..)| name.eq_ignore_ascii_case(wanted));
        if found.is_empty() {
            let object = wanted.to_string();
            return Err(ManifestError::NoObject { file: file(), object, found: list(&names) });
        }
    }
    match found.as_slice() {
        [] => Err(ManifestError::NoPods { file: file(), found: list(&others) }),
        [(name, document, path)] => match document.at(path) {
            Some(spec) => Ok(Workload { name: name.clone(), place: path.join("."), spec }),
            None => Err(ManifestError::NoSpec {
                file: file(),
                object: name.clone(),
                place: path.join("."),
            }),
        },
        several => {
            let names: Vec<String> = several.iter().map(|(name, ..)| name.clone()).collect();
            Err(ManifestError::SeveralObjects { file: file(), found: list(&names) })
        }
    }
}

/// Returns the container with this name; else the only one, or the only one with the image of a
/// known database. The number is its place in `containers`.
pub(super) fn container<'a>(
    workload: &Workload<'a>,
    file: &str,
    wanted: Option<&str>,
) -> Result<(usize, &'a Node), ManifestError> {
    let object = || workload.name.clone();
    let containers = workload.spec.at(&["containers"]).map(Node::items).unwrap_or_default();
    if containers.is_empty() {
        let place = format!("{}.containers", workload.place);
        return Err(ManifestError::NoSpec { file: file.into(), object: object(), place });
    }
    let names: Vec<String> = containers.iter().map(|c| name(c).to_string()).collect();
    let all = containers.iter().enumerate();
    let chosen: Vec<(usize, &Node)> = match (wanted, containers.len()) {
        (Some(wanted), _) => all.filter(|(_, c)| name(c) == wanted).collect(),
        (None, 1) => all.collect(),
        (None, _) => all.filter(|(_, c)| engine(c) != Engine::Other).collect(),
    };
    match (chosen.as_slice(), wanted) {
        ([one], _) => Ok(*one),
        ([], Some(wanted)) => Err(ManifestError::NoContainer {
            object: object(),
            container: wanted.to_string(),
            found: list(&names),
        }),
        _ => Err(ManifestError::SeveralContainers { object: object(), found: list(&names) }),
    }
}

/// Returns the name of a container.
pub(super) fn name(container: &Node) -> &str {
    container.at(&["name"]).and_then(Node::text).unwrap_or("unnamed")
}

/// Returns the database of the image of a container, or of a service of Compose.
pub(in crate::flags) fn engine(container: &Node) -> Engine {
    container.at(&["image"]).and_then(Node::text).map_or(Engine::Other, Engine::of_image)
}

fn list(names: &[String]) -> String {
    match names.is_empty() {
        true => "nothing".into(),
        false => names.join(", "),
    }
}
