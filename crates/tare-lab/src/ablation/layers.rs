//! In which layers two environments differ, and what lies between them.

use serde::{Deserialize, Serialize};

use crate::environment::{EnvironmentSpec, options_text};

/// A layer of an environment: how it is read, and how it is taken over from another.
struct Layer {
    name: &'static str,
    read: fn(&EnvironmentSpec) -> String,
    take: fn(&mut EnvironmentSpec, &EnvironmentSpec),
}

macro_rules! word {
    ($name:ident) => {
        Layer {
            name: stringify!($name),
            read: |spec| spec.$name.clone(),
            take: |spec, other| spec.$name.clone_from(&other.$name),
        }
    };
}

/// Every layer of [`EnvironmentSpec`], in the order in which they are named.
const LAYERS: [Layer; 12] = [
    word!(runtime),
    word!(network),
    word!(cpu),
    word!(security),
    word!(cgroup),
    word!(host),
    Layer {
        name: "storage",
        read: |spec| spec.storage.to_string(),
        take: |spec, other| spec.storage.clone_from(&other.storage),
    },
    Layer {
        name: "vm",
        read: |spec| options_text(&spec.vm),
        take: |spec, other| spec.vm.clone_from(&other.vm),
    },
    Layer {
        name: "sandbox",
        read: |spec| options_text(&spec.sandbox),
        take: |spec, other| spec.sandbox.clone_from(&other.sandbox),
    },
    Layer {
        name: "rootfs",
        read: |spec| match spec.rootfs.is_empty() {
            true => "none".to_string(),
            false => options_text(&spec.rootfs),
        },
        take: |spec, other| spec.rootfs.clone_from(&other.rootfs),
    },
    word!(inject),
    Layer {
        name: "limits",
        read: |spec| {
            let bytes = spec.limits.memory_bytes;
            bytes.map_or("none".to_string(), |bytes| format!("memory {bytes} bytes"))
        },
        take: |spec, other| spec.limits.clone_from(&other.limits),
    },
];

/// A layer in which two environments differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Key of a study: `runtime`, `network` ...
    pub layer: String,
    pub from: String,
    pub to: String,
}

/// The layers in which `to` differs from `from`.
pub fn changes(from: &EnvironmentSpec, to: &EnvironmentSpec) -> Vec<Change> {
    let one = |layer: &Layer| {
        let (a, b) = ((layer.read)(from), (layer.read)(to));
        (a != b).then(|| Change { layer: layer.name.to_string(), from: a, to: b })
    };
    LAYERS.iter().filter_map(one).collect()
}

/// `from` with the named layers as `to` has them.
pub(super) fn with<'a>(
    from: &EnvironmentSpec,
    to: &EnvironmentSpec,
    layers: impl Iterator<Item = &'a str>,
) -> EnvironmentSpec {
    let mut spec = EnvironmentSpec { optional: false, ..from.clone() };
    for name in layers {
        if let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) {
            (layer.take)(&mut spec, to);
        }
    }
    spec
}

/// Whether two environments have the same layers, whatever they are called.
pub(super) fn same(a: &EnvironmentSpec, b: &EnvironmentSpec) -> bool {
    LAYERS.iter().all(|layer| (layer.read)(a) == (layer.read)(b))
}
