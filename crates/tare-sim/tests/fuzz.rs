//! Runs the body of every fuzz target over its corpus and over mutations of it. The canary must be
//! found, or the other targets prove nothing.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use tare_sim::fuzz::{self, Target, mutate, seeds};
use tare_std::rng::Rng;

/// Mutations of each target's corpus.
const MUTATIONS: u64 = if cfg!(debug_assertions) { 3_000 } else { 30_000 };

fn corpus(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target.name)
}

fn read_corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(corpus(target)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        inputs.push((name, std::fs::read(&path).unwrap()));
    }
    inputs.sort();
    inputs
}

/// Runs a target over its corpus and its mutations. Returns the input that made it panic.
fn run(target: &Target) -> Option<(String, Vec<u8>)> {
    let inputs = read_corpus(target);
    assert!(!inputs.is_empty(), "{} has no corpus", target.name);
    let fails = |bytes: &[u8]| catch_unwind(|| (target.body)(bytes)).is_err();
    if let Some((name, bytes)) = inputs.iter().find(|(_, bytes)| fails(bytes)) {
        return Some((name.clone(), bytes.clone()));
    }
    let mut rng = Rng::new(1);
    let pick = |rng: &mut Rng| {
        let at = rng.below(inputs.len() as u64);
        &inputs[usize::try_from(at).unwrap()]
    };
    for mutation in 0..MUTATIONS {
        let (name, seed) = pick(&mut rng);
        let (_, other) = pick(&mut rng);
        let bytes = mutate::mutate(seed, other, &mut rng);
        if fails(&bytes) {
            return Some((format!("mutation {mutation}, of {name}"), bytes));
        }
    }
    None
}

#[test]
fn only_the_canary_fails() {
    for target in &fuzz::ALL {
        let found = run(target);
        match (target.is_canary, &found) {
            (true, None) => panic!("{}: the fault that is built in was not found", target.name),
            (false, Some((input, bytes))) => {
                panic!("{}: {input} fails: {:02x?}", target.name, &bytes[..bytes.len().min(400)])
            }
            _ => {}
        }
    }
}

/// The current encoders make the seeds of the corpora, so this test fails when a format has
/// changed.
#[test]
fn corpora_match_the_current_encoders() {
    for target in &fuzz::ALL {
        let folder = corpus(target);
        for (name, bytes) in seeds::of(target.name) {
            let path = folder.join(name);
            if std::env::var("SNAPSHOTS").is_ok_and(|action| action == "overwrite") {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&path, &bytes).unwrap();
            }
            let stored = std::fs::read(&path).unwrap_or_default();
            assert!(stored == bytes, "{} differs; SNAPSHOTS=overwrite writes it", path.display());
        }
    }
}

#[test]
fn every_target_has_its_file_for_cargo_fuzz() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for target in &fuzz::ALL {
        let file = folder.join(format!("fuzz_targets/{}.rs", target.name));
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(&format!("run(\"{}\"", target.name)), "{}", file.display());
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
    }
}
