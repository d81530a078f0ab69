//! Loaders of which only the labels of their nodes are named: a pod on each of these nodes but the
//! one that is weighed.

use tare_testkit::kubernetes::{Label, Right, Role, second_node};

use super::*;

/// The label of the nodes for loaders.
const LABEL: &str = "tare.test/load";

/// Returns the study with a loader on the nodes of a selector.
fn study(selector: &str, more: &str) -> String {
    let loader =
        format!("[[loader]]\nhost = \"{selector}\"\n{more}\n[[environment]]\nname = \"native\"");
    let text = STUDY.replace("[[environment]]\nname = \"native\"", &loader);
    text.replace("ROUNDS", "2").replace("100ms", "400ms")
}

fn write_study(case: &Case, selector: &str, more: &str) {
    fs::write(case.here.path().join("small.toml"), study(selector, more)).unwrap();
}

/// Dry run and manifests name the nodes that the study then loads from.
#[test]
fn nodes_with_the_label_load_the_system() {
    let test = "selected::nodes_with_the_label_load_the_system";
    let Some(case) = Case::start(test) else { return };
    let Some(second) = second_node(test) else { return };
    if skipped(test, &[Need::Program("curl")]) {
        return;
    }
    let _labels = [&case.node, &second].map(|node| Label::set(node, LABEL, "yes"));
    write_study(&case, "pods:tare.test/load in (yes, spare),!tare.test/other", "count = 2");
    let chosen = format!(": {second}; without {} (it is weighed)", case.node);
    let planned = case.run_here(&["weigh", "small.toml", "--dry-run"]);
    assert!(stdout(&planned).contains(&format!("pod:{second}")), "{}", stdout(&planned));
    assert!(stderr(&planned).contains(&chosen), "{}", stderr(&planned));
    let printed = case.run(&["weigh", "small.toml", "--print-manifests"]);
    let text = stdout(&printed);
    let pods: Vec<Value> = text
        .split("---\n")
        .filter(|one| !one.is_empty())
        .map(|one| serde_json::from_str::<Value>(one).unwrap())
        .filter(|one| one["kind"] == "Pod")
        .collect();
    let names: Vec<&Value> = pods.iter().map(|pod| &pod["metadata"]["name"]).collect();
    assert_eq!(names, ["node", "loader"], "{text}");
    let affinity = pods[1]["spec"]["affinity"].to_string();
    assert!(affinity.contains(&second) && !affinity.contains(&case.node), "{affinity}");
    // Here, and by the account of the run on the node.
    for weighed in [
        case.run_here(&["weigh", "small.toml", "-o", "small.tare"]),
        case.run(&["weigh", "small.toml", "-o", "there.tare"]),
    ] {
        let said = stderr(&weighed);
        assert!(weighed.status.success() && said.contains(&chosen), "{said}");
    }
    for record in ["small.tare", "there.tare"] {
        let record = case.record(record);
        let hosts: Vec<&Value> =
            record["loaders"].as_array().unwrap().iter().map(|one| &one["host"]).collect();
        assert_eq!(hosts, [&format!("pod:{second}")]);
        assert_eq!(record["study"]["loaders"][0]["host"], format!("pod:{second}"));
        let slices = record["slices"].as_array().unwrap();
        assert!(slices.iter().any(|slice| slice["void"].is_null()), "{slices:?}");
    }
    let asked = case.run_here(&["doctor", "--loader", "pods:tare.test/load=yes"]);
    for node in [&case.node, &second] {
        assert!(stdout(&asked).contains(&format!("pod:{node}")), "{}", stdout(&asked));
    }
    case.assert_clean();
    case.run(&["clean", "--programs"]);
}

#[test]
fn selector_without_a_loader_is_one_line() {
    let test = "selected::selector_without_a_loader_is_one_line";
    let Some(case) = Case::start(test) else { return };
    if skipped(test, &[Need::Program("curl")]) {
        return;
    }
    let weigh = |access: Option<&std::path::Path>| {
        let (code, said) = case.refused_weigh(access);
        let lines: Vec<&str> = said.lines().collect();
        let [line] = lines[..] else { panic!("{said}") };
        (code, line.to_string())
    };
    let _label = Label::set(&case.node, LABEL, "yes");
    let _unready = loaders::Named::create("tare-unready", false);
    let _also = Label::set("tare-unready", LABEL, "broken");
    for (selector, expect) in [
        ("pods:no.such/label", "no node with the labels \"no.such/label\""),
        ("pods:a in (b", "cannot select nodes by \"a in (b\": "),
        ("pods:other:a=b", "it has no context other, but "),
        ("pods:tare.test/load=yes", "(it is weighed); give another node this label"),
        ("pods:tare.test/load=broken", "tare-unready (it is not ready: "),
    ] {
        write_study(&case, selector, "");
        let (code, line) = weigh(None);
        assert!(code == Some(4) && line.contains(expect), "{selector}: {code:?} {line}");
    }
    write_study(&case, "pods:a=b", "count = 0");
    let refused = case.run_here(&["weigh", "small.toml"]);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    let role = Role::create("tare-test-selected");
    let list: [Right<'_>; 1] = [("", "nodes", "list")];
    role.give(&list, Some(list[0]));
    write_study(&case, "pods:tare.test/load=yes", "");
    let (_, line) = weigh(Some(&Role::access()));
    assert!(line.contains("cannot list resource \"nodes\""), "{line}");
    case.assert_clean();
}
