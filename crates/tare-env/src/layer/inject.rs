//! The inject layer: a known cost, added so that the instrument itself can be tried
//! (`cargo xtask calibrate`). No study of a real layer uses it.

use tare_lab::environment::NOTHING_INJECTED;

use super::Layer;

pub const LAYER: Layer = Layer {
    name: "inject",
    help: "a known cost that is added, so that Tare itself can be tried",
    values: &[(NOTHING_INJECTED, "nothing is added")],
    needs: "nothing",
    cleanup: "nothing to clean",
    read_back: "the arguments of the running system",
};

/// A value of the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectLayer {
    None,
}

impl InjectLayer {
    pub fn parse(text: &str) -> Option<Self> {
        (text == NOTHING_INJECTED).then_some(Self::None)
    }
}
