//! Tests that compare docs/reference/layers.md and the glossary with the list of layers.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use tare_lab::layer::{Layer, NeighbourKind, Placement};

use super::LayerInfo;

fn docs(file: &str) -> PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file)
}

/// Returns the values of a layer, from its type or its implementations.
fn values(layer: Layer) -> Vec<(String, String)> {
    let pairs = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, help)| ((*name).to_string(), (*help).to_string())).collect()
    };
    match layer {
        Layer::Runtime => {
            crate::runtime::ALL.iter().map(|one| (one.name.into(), one.help.into())).collect()
        }
        Layer::Storage => {
            crate::storage::ALL.iter().map(|one| (one.name.into(), one.help.into())).collect()
        }
        Layer::Vm => pairs(crate::runtime::vm::OPTIONS),
        Layer::Sandbox => {
            let option = |(name, help, _): &(&str, &str, &[&str])| {
                ((*name).to_string(), (*help).to_string())
            };
            crate::runtime::gvisor::OPTIONS.iter().map(option).collect()
        }
        _ => pairs(layer.values()),
    }
}

fn page() -> String {
    let mut page = String::from(
        "# Layers\n\nEach layer is a key of `[[environment]]` in a study and can be switched alone. \
         `tare list layers` prints the same list. Two environments differ in a layer when its value \
         differs; `tare explain` adds layers in the order of this page, and `tare compare` warns of each \
         layer in which environments of one name differ.\n",
    );
    for layer in Layer::ALL {
        let LayerInfo { needs, cleanup, read_back, .. } = LayerInfo::of(layer);
        let _ = write!(page, "\n## {layer}\n\n{}.\n\n| value | what |\n|---|---|\n", layer.help());
        for (name, help) in values(layer) {
            let _ = writeln!(page, "| `{name}` | {help} |");
        }
        let _ =
            write!(page, "\n- Needs: {needs}.\n- Read back: {read_back}.\n- Cleanup: {cleanup}.\n");
    }
    page
}

#[test]
fn layers_page_matches_list() {
    let (path, page) = (docs("reference/layers.md"), page());
    tare_testkit::golden(&path, page);
}

#[test]
fn guide_has_every_kind_and_place_of_neighbours() {
    let guide = fs::read_to_string(docs("guides/neighbours.md")).unwrap();
    for (_, name, help) in NeighbourKind::ALL {
        assert!(guide.contains(&format!("\n| `{name}` | {help} |")), "the guide lacks {name}");
    }
    for (_, name, help) in Placement::ALL {
        assert!(guide.contains(&format!("\n| `{name}` | {help} |")), "the guide lacks {name}");
    }
}

#[test]
fn glossary_has_every_layer() {
    let glossary = fs::read_to_string(docs("concepts/glossary.md")).unwrap();
    for layer in Layer::ALL {
        assert!(glossary.contains(&format!("\n| `{layer}` |")), "the glossary lacks {layer}");
    }
}
