//! The rights that `--print-manifests` prints are those that it takes: with them a study with pods
//! is weighed, and without any one of them a line names it.

use tare_testkit::kubernetes::{Right, Role};

use super::*;

/// Tries all rights, not only those to create something: some minutes.
const ALL: &str = "TARE_RIGHTS";
/// Rights that are not missed. The owner of roles and bindings removes them, if they cannot be
/// looked at; the API server of 1.35 asks for both verbs of `pods/exec`, those before for `get`.
const NOT_MISSED: [(&str, &str); 3] =
    [("clusterroles", "get"), ("clusterrolebindings", "get"), ("pods/exec", "create")];

fn weigh(case: &Case) -> Output {
    let mut command = case.command(&["weigh", "small.toml", "--rounds", "1"]);
    command.env("KUBECONFIG", Role::access()).output().unwrap()
}

#[test]
fn every_missing_right_is_named() {
    let test = "rights::every_missing_right_is_named";
    let Some(case) = Case::start(test) else { return };
    if skipped(test, &[Need::Program("curl")]) {
        return;
    }
    let pod = "name = \"box\"\nruntime = \"kubernetes\"\nnetwork = \"host\"\n";
    let text =
        STUDY.replace("ROUNDS", "1").replace("name = \"box\"\nruntime = \"oci:runc\"\n", pod);
    fs::write(case.here.path().join("small.toml"), text).unwrap();
    let printed = case.run(&["weigh", "small.toml", "--print-manifests"]);
    let printed = stdout(&printed);
    let role = printed.split("---\n").find(|one| one.contains("\"tare-on-nodes\"")).unwrap();
    let role: Value = serde_json::from_str(role).unwrap();
    let words = |rule: &Value, key: &str| -> Vec<String> {
        let all = rule[key].as_array().unwrap().iter();
        all.map(|word| word.as_str().unwrap().to_string()).collect()
    };
    let mut owned = Vec::new();
    for rule in role["rules"].as_array().unwrap() {
        let group = words(rule, "apiGroups").remove(0);
        for resource in words(rule, "resources") {
            let verbs = words(rule, "verbs").into_iter();
            owned.extend(verbs.map(|verb| (group.clone(), resource.clone(), verb)));
        }
    }
    let all: Vec<Right<'_>> =
        owned.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
    let role = Role::create("tare-test-on-nodes");
    role.give(&all, None);
    let weighed = weigh(&case);
    assert!(weighed.status.success(), "{}", stderr(&weighed));
    let is_tried = |(_, resource, verb): &&Right<'_>| {
        !NOT_MISSED.contains(&(resource, verb))
            && (std::env::var_os(ALL).is_some() || *verb == "create" || *verb == "patch")
    };
    for missing in all.iter().filter(is_tried) {
        role.give(&all, Some(*missing));
        let text = stderr(&weigh(&case));
        let (_, resource, verb) = missing;
        let (name, below) = resource.split_once('/').unwrap_or((resource, ""));
        let named = [
            format!("cannot {verb} resource \"{resource}\""),
            format!("Resources:[\"{resource}\"], Verbs:[\"{verb}\"]"),
        ];
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("tare: ")).collect();
        let line = lines.iter().find(|line| named.iter().any(|words| line.contains(words)));
        let line = line.unwrap_or_else(|| panic!("{verb} {name} {below}: {text}"));
        assert!(line.contains("ask the administrator for a role that allows it"), "{line}");
        eprintln!("{verb} {resource}: {line}");
        role.give(&all, None);
        let mut clean = tare();
        clean.arg("--state").arg(case.here.path().join("state")).arg("clean").output().unwrap();
        let cleaned = case.run(&["clean"]);
        assert!(cleaned.status.success(), "{}{}", stdout(&cleaned), stderr(&cleaned));
        case.assert_clean();
    }
    case.run(&["clean", "--programs"]);
}
