//! The image with Tare's program alone, which `tare image` makes, for pods on nodes without a
//! shell.

use serde_json::{Value, json};

use crate::error::KubeError;

/// Where the image has the program.
pub(crate) const PROGRAM: &str = "/tare";

/// An image with Tare's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TareImage {
    /// The name by which the node knows it, or pulls it.
    pub name: String,
    pub pull: PullPolicy,
}

/// When a node pulls an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    Never,
    IfNotPresent,
    Always,
}

impl PullPolicy {
    /// Returns it as it is written in a manifest.
    fn name(self) -> &'static str {
        match self {
            Self::Never => "Never",
            Self::IfNotPresent => "IfNotPresent",
            Self::Always => "Always",
        }
    }
}

impl TareImage {
    /// Gives a container this image. Its program waits for the end of the pod.
    pub(crate) fn fill(&self, container: &mut Value) {
        container["image"] = json!(self.name);
        container["imagePullPolicy"] = json!(self.pull.name());
        container["command"] = json!([PROGRAM, "pod", "wait"]);
    }
}

/// Says of a pod that cannot start what to do about its image, or about the programs of the node
/// that it has without one.
pub(crate) fn explain(error: KubeError, image: Option<&TareImage>) -> KubeError {
    let KubeError::Pod { name, node, why, remedy } = error else { return error };
    let begins = |words: &[&str]| words.iter().any(|word| why.starts_with(word));
    let remedy = match image {
        None if begins(&["its process ended"]) => {
            "a node without sleep, sh and nsenter below /usr needs --tare-image".into()
        }
        // The reasons of the kubelet (`pkg/kubelet/images/types.go` of Kubernetes).
        Some(_) if begins(&["ErrImageNeverPull"]) => {
            "load it on the node (tare image > tare.tar), or let the node pull it with \
             --tare-image-pull if-not-present"
                .into()
        }
        Some(_) if begins(&["ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"]) => {
            "push it where the node pulls it from, or load it on the node (tare image > tare.tar) \
             and give --tare-image-pull never"
                .into()
        }
        Some(_) if begins(&["InvalidImageName"]) => "write NAME:TAG or REGISTRY/NAME:TAG".into(),
        Some(image) if begins(&["its process ended"]) => format!(
            "check that {} is what tare image of this version makes on a machine like the node",
            image.name
        ),
        _ => remedy,
    };
    KubeError::Pod { name, node, why, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_without_its_image_says_what_to_do() {
        let image = TareImage { name: "tare:1".into(), pull: PullPolicy::Never };
        let line = |why: &str, image| {
            let (name, node) = ("node".into(), "n1".into());
            let (why, remedy) = (why.into(), "as before".into());
            explain(KubeError::Pod { name, node, why, remedy }, image).to_string()
        };
        for (why, expect) in [
            ("ErrImageNeverPull: not present", "n1: ErrImageNeverPull: not present; load it"),
            ("ImagePullBackOff: refused", "; push it where the node pulls it from"),
            ("ErrImagePull: refused", "give --tare-image-pull never"),
            ("InvalidImageName: x", "write NAME:TAG"),
            ("its process ended with exit code 128", "check that tare:1 is what tare image of"),
            ("CreateContainerError: x", "; as before"),
        ] {
            let line = line(why, Some(&image));
            assert!(line.contains(expect), "{line}");
        }
        let without = line("its process ended with exit code 128", None);
        assert!(
            without
                .ends_with("; a node without sleep, sh and nsenter below /usr needs --tare-image")
        );
        assert!(line("ErrImageNeverPull: x", None).ends_with("; as before"));
    }
}
