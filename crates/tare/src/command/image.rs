//! `tare image`: an image with this program alone, without a registry.
//!
//! Method: an archive as `docker save` writes it, which is an OCI image layout with Docker's older
//! `manifest.json` beside, for the same blobs, so that every engine takes it. Nothing in it depends
//! on the time, the user or the machine, so the same program gives the same bytes.

use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::EntryType;
use tare_host::program::Program;

use crate::cli::MakeImage;
use crate::exit::{Exit, ExitWith};
use crate::studies;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The licence of the program, which goes with every copy of it.
const LICENSE: &[u8] = include_bytes!("../../../../LICENSE");
/// Where programs of a root file system are that is mounted over the image's.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(crate) fn run(options: &MakeImage, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if std::io::stdout().is_terminal() {
        let why = "an image is no text; write it to a file: tare image > tare.tar";
        return Err(anyhow!(why)).exit_with(Exit::Usage);
    }
    let program = crate::own_program()?;
    check_static(&program)?;
    let bytes = std::fs::read(&program);
    let bytes = bytes.with_context(|| format!("cannot read {}", program.display()))?;
    out.write_all(&archive(&bytes, options)?)?;
    Ok(Exit::Success)
}

/// Refuses a program that needs a loader and libraries, which the image does not have.
fn check_static(program: &Path) -> anyhow::Result<()> {
    let name = program.to_str().context("the path of this program is no text")?;
    let found = Program::find(name, &[], &[]).exit_with(Exit::Host)?;
    match found.files.len() {
        1 => Ok(()),
        _ => Err(anyhow!(
            "{name} needs the loader and libraries of this host, which an image without a distribution \
             lacks; take the program of a release, or one that cargo build --release has made"
        ))
        .exit_with(Exit::Host),
    }
}

/// Returns the archive of an image with a program.
fn archive(program: &[u8], options: &MakeImage) -> anyhow::Result<Vec<u8>> {
    let plain = layer(program)?;
    let packed = gzip(&plain)?;
    let config = serde_json::to_vec(&json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "Env": [PATH], "Entrypoint": ["/tare"], "Cmd": ["--help"], "WorkingDir": "/",
        },
        "rootfs": { "type": "layers", "diff_ids": [digest(&plain)] },
        "history": [{ "created_by": "tare image" }],
    }))?;
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(CONFIG, &config),
        "layers": [descriptor(LAYER, &packed)],
    }))?;
    let mut described = descriptor(MANIFEST, &manifest);
    // containerd and podman know the first one, and the layout's specification the second.
    described["annotations"] = json!({
        "io.containerd.image.name": options.full_name(),
        "org.opencontainers.image.ref.name": options.tag(),
    });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [described] });
    let docker = json!([{
        "Config": blob(&config), "RepoTags": [options.name], "Layers": [blob(&packed)],
    }]);
    let mut tar = tar::Builder::new(Vec::new());
    add(&mut tar, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    add(&mut tar, "index.json", 0o644, &serde_json::to_vec(&index)?)?;
    add(&mut tar, "manifest.json", 0o644, &serde_json::to_vec(&docker)?)?;
    add(&mut tar, "blobs/", 0o755, &[])?;
    add(&mut tar, "blobs/sha256/", 0o755, &[])?;
    for bytes in [&config, &manifest, &packed] {
        add(&mut tar, &blob(bytes), 0o644, bytes)?;
    }
    tar.into_inner().context("cannot end an archive")
}

/// Returns the only layer: the program, its licence, the shipped studies, and a folder for files.
fn layer(program: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    add(&mut tar, "tare", 0o755, program)?;
    add(&mut tar, "licenses/", 0o755, &[])?;
    add(&mut tar, "licenses/LICENSE", 0o644, LICENSE)?;
    add(&mut tar, "studies/", 0o755, &[])?;
    for (name, text) in studies::ALL {
        add(&mut tar, &format!("studies/{name}.toml"), 0o644, text.as_bytes())?;
    }
    add(&mut tar, "tmp/", 0o1777, &[])?;
    tar.into_inner().context("cannot end an archive")
}

/// Adds a file, or a folder by its slash, that belongs to root and has no time.
fn add(tar: &mut tar::Builder<Vec<u8>>, path: &str, mode: u32, bytes: &[u8]) -> anyhow::Result<()> {
    let is_folder = path.ends_with('/');
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(if is_folder { EntryType::Directory } else { EntryType::Regular });
    header.set_size(bytes.len() as u64);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    let added = tar.append_data(&mut header, path, bytes);
    added.with_context(|| format!("cannot add {path} to an archive"))
}

/// Returns compressed bytes; gzip's header has no time and no name.
fn gzip(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).context("cannot compress")?;
    encoder.finish().context("cannot compress")
}

/// Returns the architecture of this program in the words of images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hash(bytes))
}

/// Returns the path of a blob in the archive.
fn blob(bytes: &[u8]) -> String {
    format!("blobs/sha256/{}", hash(bytes))
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": kind, "digest": digest(bytes), "size": bytes.len() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    /// Returns the entries of an archive by their paths, after a look at their owners and times.
    fn entries(archive: impl Read) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            let path = entry.path().unwrap().display().to_string();
            assert_eq!((header.mtime().unwrap(), header.uid().unwrap()), (0, 0), "{path}");
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (path, (header.mode().unwrap(), bytes))
        });
        entries.collect()
    }

    fn options() -> MakeImage {
        MakeImage { name: "tools/tare:1".into() }
    }

    #[test]
    fn an_image_has_the_program_in_one_layer() {
        let bytes = archive(b"program", &options()).unwrap();
        assert_eq!(bytes, archive(b"program", &options()).unwrap(), "the same program");
        assert_ne!(bytes, archive(b"programs", &options()).unwrap());
        let files = entries(&bytes[..]);
        let json = |path: &str| serde_json::from_slice::<Value>(&files[path].1).unwrap();
        for (path, (_, bytes)) in &files {
            if let Some(name) = path.strip_prefix("blobs/sha256/").filter(|name| !name.is_empty()) {
                assert_eq!(name, hash(bytes));
            }
        }
        let of = |descriptor: &Value| {
            let path = descriptor["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
            assert_eq!(descriptor["size"], files[&path].1.len(), "{path}");
            path
        };
        let index = json("index.json");
        let name = &index["manifests"][0]["annotations"]["io.containerd.image.name"];
        assert_eq!(name, "docker.io/tools/tare:1");
        let manifest = json(&of(&index["manifests"][0]));
        let (config, layer) = (of(&manifest["config"]), of(&manifest["layers"][0]));
        assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
        let docker = &json("manifest.json")[0];
        assert_eq!((&docker["Config"], &docker["Layers"][0]), (&json!(config), &json!(layer)));
        assert_eq!(docker["RepoTags"], json!(["tools/tare:1"]));

        let mut plain = Vec::new();
        GzDecoder::new(&files[&layer].1[..]).read_to_end(&mut plain).unwrap();
        assert_eq!(json(&config)["rootfs"]["diff_ids"], json!([digest(&plain)]));
        let inside = entries(&plain[..]);
        assert_eq!(inside["tare"], (0o755, b"program".to_vec()));
        assert_eq!(inside["licenses/LICENSE"].1, LICENSE);
        assert!(inside.contains_key("studies/quick.toml"));
        assert_eq!(inside["tmp/"].0, 0o1777);
    }

    #[test]
    fn a_program_with_libraries_is_refused() {
        check_static(&std::env::current_exe().unwrap()).unwrap();
        let why = check_static(Path::new("/bin/sh")).unwrap_err().to_string();
        assert!(why.contains("/bin/sh needs the loader and libraries of this host"), "{why}");
    }
}
