//! Compares two environments layer by layer, and builds environments between them.

use serde::{Deserialize, Serialize};

use crate::environment::EnvironmentSpec;
use crate::layer::Layer;

/// A layer in which two environments differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub layer: Layer,
    pub from: String,
    pub to: String,
}

/// Returns the layers in which `to` differs from `from`.
pub fn changes(from: &EnvironmentSpec, to: &EnvironmentSpec) -> Vec<Change> {
    let one = |layer: Layer| {
        let (a, b) = (layer.text(from), layer.text(to));
        (a != b).then_some(Change { layer, from: a, to: b })
    };
    Layer::ALL.into_iter().filter_map(one).collect()
}

/// Returns `from` with the given layers of `to`.
pub(super) fn with(
    from: &EnvironmentSpec,
    to: &EnvironmentSpec,
    layers: impl Iterator<Item = Layer>,
) -> EnvironmentSpec {
    let mut spec = EnvironmentSpec { optional: false, ..from.clone() };
    for layer in layers {
        layer.copy(to, &mut spec);
    }
    spec
}

/// Returns whether two environments have the same layers. Ignores their names.
pub(super) fn same_layers(a: &EnvironmentSpec, b: &EnvironmentSpec) -> bool {
    !Layer::ALL.into_iter().any(|layer| layer.differs(a, b))
}
