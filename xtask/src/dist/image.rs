//! The image: a tar of an OCI image layout with one layer (`FROM scratch`). It has Docker's older
//! `manifest.json` beside, which points at the same blobs, so that every `docker load` takes it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;

use super::Release;
use super::archive::{FILE, PROGRAM, Tar, gzip, sha256};
use super::files::Files;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The image's name without its version.
pub(super) const NAME: &str = "tare";

pub(super) fn write(files: &Files, release: &Release, out: &Path) -> anyhow::Result<PathBuf> {
    let mut layer = Tar::new();
    layer.add("tare", PROGRAM, &files.program)?;
    layer.add("licenses/LICENSE", FILE, &files.license)?;
    for (name, text) in &files.studies {
        layer.add(&format!("studies/{name}"), FILE, text)?;
    }
    // A place for temporary files, and the mount points that a runtime would make.
    layer.add("tmp/.keep", FILE, b"")?;
    let plain = layer.finish()?;
    let packed = gzip(&plain)?;
    let config = serde_json::to_vec(&json!({
        "architecture": release.machine.architecture(),
        "os": "linux",
        "config": { "Entrypoint": ["/tare"], "Cmd": ["--help"], "WorkingDir": "/" },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(&plain))] },
        "history": [{ "created_by": "cargo xtask dist" }],
    }))?;
    let descriptor = |kind: &str, bytes: &[u8]| json!({ "mediaType": kind, "digest": format!("sha256:{}", sha256(bytes)), "size": bytes.len() });
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(CONFIG, &config),
        "layers": [descriptor(LAYER, &packed)],
    }))?;
    let mut described = descriptor(MANIFEST, &manifest);
    described["annotations"] = json!({ "org.opencontainers.image.ref.name": release.version });
    let index = serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": [described] }))?;
    let blob = |bytes: &[u8]| format!("blobs/sha256/{}", sha256(bytes));
    let docker = serde_json::to_vec(&json!([{
        "Config": blob(&config),
        "RepoTags": [format!("{NAME}:{}", release.version)],
        "Layers": [blob(&packed)],
    }]))?;
    let mut tar = Tar::new();
    tar.add("oci-layout", FILE, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    tar.add("index.json", FILE, &index)?;
    tar.add("manifest.json", FILE, &docker)?;
    for bytes in [&config, &manifest, &packed] {
        tar.add(&blob(bytes), FILE, bytes)?;
    }
    let path = out.join(format!("{}.oci.tar", release.name()));
    fs::write(&path, tar.finish()?).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
