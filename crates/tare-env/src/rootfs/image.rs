//! Unpacks images without an engine: an OCI image layout (a directory or an archive of one) or the
//! archive that `docker save` and `podman save` write.
//!
//! Formats: <https://github.com/opencontainers/image-spec> (image-layout.md, manifest.md,
//! config.md, layer.md) and docker's `manifest.json`, which names the same files. Each layer is
//! compared with its `diff_id`, the digest of its archive before compression.
//!
//! Limits: layers are plain or gzip, not zstd. Devices and pipes in layers are left out.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek};
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;
use oci_spec::image::{
    Arch, Config, Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType, Os,
};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{RootError, fail, tree};

/// Why an image cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(
        "it has neither a manifest.json nor an index.json; use an OCI image layout or an archive written by docker save"
    )]
    NoManifest,
    #[error("{file} does not follow the image formats")]
    Form { file: String, source: serde_json::Error },
    #[error("{file} names {text:?}, which is no file of the image")]
    Name { file: String, text: String },
    #[error("it is for {found}, not for this machine ({wanted})")]
    Platform { found: String, wanted: Arch },
    #[error("{what} does not match its digest: found {found}, expected {wanted}")]
    Digest { what: String, wanted: String, found: String },
    #[error(
        "a layer is compressed by zstd; write the image with gzip (skopeo copy --dest-compress-format gzip)"
    )]
    Zstd,
    #[error("cannot unpack layer {layer}")]
    Layer { layer: usize, source: io::Error },
    #[error("cannot read its {what}")]
    Read { what: &'static str, source: io::Error },
}

/// An entry of docker's `manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerManifest {
    config: String,
    layers: Vec<String>,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
}

/// The files of an image.
#[derive(Debug)]
struct Parts {
    names: Vec<String>,
    config: PathBuf,
    layers: Vec<PathBuf>,
}

/// How many indexes may be nested.
const DEPTH_MAX: u32 = 4;
/// Docker's media type of an index.
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// The first bytes of compressed files (RFC 1952, RFC 8878).
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Names by which a layer removes files of lower layers (layer.md).
const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// Returns a text that changes when another image is put at the same path.
pub(super) fn identity(path: &Path) -> io::Result<String> {
    let about = path.metadata()?;
    if about.is_dir() {
        let index = ["index.json", "manifest.json"].map(|name| fs::read(path.join(name)));
        let index = index.into_iter().find_map(Result::ok).unwrap_or_default();
        return Ok(tree::sha256(&index));
    }
    let changed = about.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{} bytes of {} ns", about.len(), changed.as_nanos()))
}

/// Unpacks an image below `root`, with temporary files in `folder`. Returns the names and the
/// digest of the image, and how its program is started.
pub(super) fn unpack(
    path: &Path,
    folder: &Path,
    root: &Path,
) -> Result<(Vec<String>, Config), RootError> {
    let image = |source| RootError::Image { path: path.into(), source };
    if path.is_dir() {
        return unpack_layers(path, root).map_err(image);
    }
    let inside = folder.join("image");
    let unpack = || {
        fs::create_dir_all(&inside)?;
        tar::Archive::new(BufReader::new(File::open(path)?)).unpack(&inside)
    };
    unpack().map_err(|source| fail(path, source))?;
    let done = unpack_layers(&inside, root).map_err(image)?;
    fs::remove_dir_all(&inside).map_err(|source| fail(&inside, source))?;
    Ok(done)
}

fn unpack_layers(image: &Path, root: &Path) -> Result<(Vec<String>, Config), ImageError> {
    let parts = parts(image)?;
    let read = |source| ImageError::Read { what: "configuration", source };
    let text = fs::read(&parts.config).map_err(read)?;
    let file: ImageConfiguration = json("the configuration", &text)?;
    let (found, wanted) = (file.architecture(), Arch::default());
    if *found != wanted {
        return Err(ImageError::Platform { found: found.to_string(), wanted });
    }
    for (number, layer) in parts.layers.iter().enumerate() {
        let wanted = file.rootfs().diff_ids().get(number).cloned().unwrap_or_default();
        let failed = |source| ImageError::Layer { layer: number + 1, source };
        let found = apply(open(layer, failed)?, root).map_err(failed)?;
        check_digest(&format!("layer {}", number + 1), &wanted, &found)?;
    }
    let id = format!("image sha256 {}", tree::sha256(&text));
    let mut made_of = parts.names;
    made_of.push(id);
    Ok((made_of, start_config(file.config().as_ref())))
}

/// Keeps the fields that say how the program is started. The others are maps without an order and
/// would make the record differ between runs.
fn start_config(image: Option<&Config>) -> Config {
    let mut kept = Config::default();
    if let Some(image) = image {
        kept.set_entrypoint(image.entrypoint().clone())
            .set_cmd(image.cmd().clone())
            .set_env(image.env().clone())
            .set_working_dir(image.working_dir().clone())
            .set_user(image.user().clone());
    }
    kept
}

fn check_digest(what: &str, wanted: &str, found: &str) -> Result<(), ImageError> {
    let found = format!("sha256:{found}");
    match wanted == found {
        true => Ok(()),
        false => Err(ImageError::Digest { what: what.into(), wanted: wanted.into(), found }),
    }
}

fn json<T: serde::de::DeserializeOwned>(file: &str, text: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(text).map_err(|source| ImageError::Form { file: file.into(), source })
}

/// Finds the files of an image. Newer archives have both lists; docker's also has the names.
fn parts(image: &Path) -> Result<Parts, ImageError> {
    if let Ok(text) = fs::read(image.join("manifest.json")) {
        let file = "manifest.json";
        let saved: Vec<DockerManifest> = json(file, &text)?;
        let Some(first) = saved.into_iter().next() else { return Err(ImageError::NoManifest) };
        let layers = first.layers.iter().map(|layer| inside(image, file, layer));
        return Ok(Parts {
            names: first.repo_tags.unwrap_or_default(),
            config: inside(image, file, &first.config)?,
            layers: layers.collect::<Result<_, _>>()?,
        });
    }
    let text = fs::read(image.join("index.json")).map_err(|_| ImageError::NoManifest)?;
    let mut index: ImageIndex = json("index.json", &text)?;
    for _ in 0..DEPTH_MAX {
        let next = for_this_machine(index.manifests())?;
        let (path, text) = read_blob(image, next)?;
        let file = path.display().to_string();
        if is_index(next.media_type()) {
            index = json(&file, &text)?;
            continue;
        }
        let manifest: ImageManifest = json(&file, &text)?;
        let layers = manifest.layers().iter().map(|layer| blob(image, layer));
        return Ok(Parts {
            names: Vec::new(),
            config: read_blob(image, manifest.config())?.0,
            layers: layers.collect::<Result<_, _>>()?,
        });
    }
    Err(ImageError::NoManifest)
}

fn is_index(media_type: &MediaType) -> bool {
    *media_type == MediaType::ImageIndex || media_type.as_ref() == DOCKER_INDEX
}

/// Finds the first manifest or index that is for Linux on this architecture, or names no platform.
fn for_this_machine(manifests: &[Descriptor]) -> Result<&Descriptor, ImageError> {
    let wanted = Arch::default();
    let fits = |one: &&Descriptor| {
        let platform = one.platform().as_ref();
        platform.is_none_or(|p| *p.architecture() == wanted && *p.os() == Os::Linux)
    };
    manifests.iter().find(fits).ok_or_else(|| {
        let platforms = manifests.iter().flat_map(|one| one.platform().as_ref());
        let found: Vec<String> =
            platforms.map(|one| format!("{}/{}", one.os(), one.architecture())).collect();
        ImageError::Platform { found: found.join(", "), wanted: wanted.clone() }
    })
}

/// Returns the path of a file that another one names. The path must not lead out of the image.
fn inside(image: &Path, file: &str, text: &str) -> Result<PathBuf, ImageError> {
    let name = || ImageError::Name { file: file.into(), text: text.into() };
    let path = Path::new(text);
    let plain =
        !text.is_empty() && path.components().all(|part| matches!(part, Component::Normal(_)));
    let path = image.join(path);
    (plain && path.is_file()).then_some(path).ok_or_else(name)
}

fn blob(image: &Path, descriptor: &Descriptor) -> Result<PathBuf, ImageError> {
    let digest = descriptor.digest();
    let path = format!("blobs/{}/{}", digest.algorithm(), digest.digest());
    inside(image, "a manifest", &path)
}

/// Reads a small file of the image and compares it with its digest.
fn read_blob(image: &Path, descriptor: &Descriptor) -> Result<(PathBuf, Vec<u8>), ImageError> {
    let path = blob(image, descriptor)?;
    let text = fs::read(&path).map_err(|source| ImageError::Read { what: "blobs", source })?;
    check_digest(&path.display().to_string(), descriptor.digest().as_ref(), &tree::sha256(&text))?;
    Ok((path, text))
}

/// Opens a layer's archive and decompresses it while it is read.
fn open(
    path: &Path,
    failed: impl Fn(io::Error) -> ImageError,
) -> Result<Box<dyn Read>, ImageError> {
    let read = || -> io::Result<(File, Vec<u8>)> {
        let mut file = File::open(path)?;
        let mut head = Vec::new();
        file.by_ref().take(4).read_to_end(&mut head)?;
        file.rewind()?;
        Ok((file, head))
    };
    let (file, head) = read().map_err(failed)?;
    if head.starts_with(ZSTD) {
        return Err(ImageError::Zstd);
    }
    let file = BufReader::with_capacity(1 << 16, file);
    Ok(match head.starts_with(GZIP) {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    })
}

/// A reader that computes the digest of the bytes read through it.
struct HashingReader<R> {
    inner: R,
    digest: Sha256,
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(bytes)?;
        self.digest.update(&bytes[..count]);
        Ok(count)
    }
}

/// Unpacks a layer over the lower ones and returns the digest of its archive.
fn apply(layer: impl Read, root: &Path) -> io::Result<String> {
    let mut archive = tar::Archive::new(HashingReader { inner: layer, digest: Sha256::new() });
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(true);
    let mut unpacked = BTreeSet::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let kind = entry.header().entry_type();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let folder = path.parent().unwrap_or(Path::new(""));
        if name == OPAQUE {
            empty(root, folder, &unpacked)?;
        } else if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            remove(root, &folder.join(hidden))?;
        } else if !(kind.is_character_special() || kind.is_block_special() || kind.is_fifo()) {
            if !(kind.is_dir() && root.join(&path).symlink_metadata().is_ok_and(|m| m.is_dir())) {
                remove(root, &path)?;
            }
            entry.unpack_in(root)?;
            unpacked.insert(path);
        }
    }
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink())?;
    Ok(tree::hex(&rest.digest.finalize()))
}

/// Removes a path of lower layers if it exists. A path that leads through a link is left to `tar`,
/// which never unpacks outside the root.
fn remove(root: &Path, path: &Path) -> io::Result<()> {
    let Some(path) = place(root, path) else { return Ok(()) };
    match path.symlink_metadata() {
        Ok(about) if about.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

/// Removes everything that lower layers have in a directory.
fn empty(root: &Path, folder: &Path, unpacked: &BTreeSet<PathBuf>) -> io::Result<()> {
    let Some(place) = place(root, folder).filter(|place| place.is_dir()) else { return Ok(()) };
    for entry in fs::read_dir(place)? {
        let path = folder.join(entry?.file_name());
        if !unpacked.iter().any(|new| new.starts_with(&path)) {
            remove(root, &path)?;
        }
    }
    Ok(())
}

/// Returns the location of a layer's path, or `None` if it leads through a link or out of the root.
fn place(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut at = root.to_path_buf();
    let mut parts = path.components().filter(|part| *part != Component::CurDir).peekable();
    parts.peek()?;
    while let Some(part) = parts.next() {
        let Component::Normal(part) = part else { return None };
        at.push(part);
        let is_last = parts.peek().is_none();
        if !is_last && at.symlink_metadata().is_ok_and(|about| about.is_symlink()) {
            return None;
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_uid(rustix::process::geteuid().as_raw().into());
            header.set_gid(rustix::process::getegid().as_raw().into());
            header.set_mtime(1);
            match text.strip_prefix("-> ") {
                Some(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_size(0);
                    builder.append_link(&mut header, path, target).unwrap();
                }
                None => {
                    header.set_size(text.len() as u64);
                    builder.append_data(&mut header, path, text.as_bytes()).unwrap();
                }
            }
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn whiteouts_remove_lower_files_and_stay_inside_root() {
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        let out = format!("-> {}", outside.display());
        let lower =
            archive(&[("a/one", "1"), ("a/two", "2"), ("b/old", ""), ("c", ""), ("out", &out)]);
        assert_eq!(apply(lower.as_slice(), &root).unwrap(), tree::sha256(&lower));
        let upper =
            archive(&[("a/.wh.one", ""), ("b/new", ""), ("b/.wh..wh..opq", ""), (".wh.c", "")]);
        apply(upper.as_slice(), &root).unwrap();
        let there = |name: &str| root.join(name).exists();
        assert!(!there("a/one") && there("a/two") && !there("b/old") && there("b/new"));
        assert!(!there("c"));
        for bad in [("out/new", ""), ("out/.wh.kept", "")] {
            let _ = apply(archive(&[bad]).as_slice(), &root);
        }
        assert!(outside.join("kept").exists() && !outside.join("new").exists());
    }

    /// Writes an image layout with one layer.
    fn layout(folder: &Path, diff_id: Option<&str>) {
        let layer = archive(&[("usr/bin/server", "program")]);
        let diff_id = diff_id.map_or_else(|| tree::sha256(&layer), String::from);
        let put = |text: Vec<u8>| {
            let digest = tree::sha256(&text);
            fs::create_dir_all(folder.join("blobs/sha256")).unwrap();
            fs::write(folder.join("blobs/sha256").join(&digest), text).unwrap();
            format!("sha256:{digest}")
        };
        let config = format!(
            r#"{{"architecture":"{}","os":"linux","docker_version":"28",
              "config":{{"Entrypoint":["/usr/bin/server"],"Env":["A=b"],"Cmd":null,"OnBuild":null,
                "ExposedPorts":{{"1/tcp":{{}}}},"Volumes":null,"Labels":{{"a":"b"}}}},
              "rootfs":{{"type":"layers","diff_ids":["sha256:{diff_id}"]}}}}"#,
            Arch::default()
        );
        let (layer, config) = (put(layer), put(config.into_bytes()));
        let descriptor = |kind: &str, digest: &str| {
            format!(
                r#"{{"mediaType":"application/vnd.oci.image.{kind}","size":1,"digest":"{digest}"}}"#
            )
        };
        // Engines write fields that the format does not have.
        let manifest = format!(
            r#"{{"schemaVersion":2,"unknown":[1],"config":{},"layers":[{}]}}"#,
            descriptor("config.v1+json", &config),
            descriptor("layer.v1.tar", &layer)
        );
        let manifest = descriptor("manifest.v1+json", &put(manifest.into_bytes()));
        let index = |name: &str| format!(r#"{{"schemaVersion":2,"manifests":[{name}]}}"#);
        // Multi-platform images have an index in the index.
        let inner = descriptor("index.v1+json", &put(index(&manifest).into_bytes()));
        fs::write(folder.join("index.json"), index(&inner)).unwrap();
    }

    #[test]
    fn unpacks_layout_and_refuses_changed_layer() {
        let folder = tempfile::tempdir().unwrap();
        let (image, root) = (folder.path().join("image"), folder.path().join("root"));
        fs::create_dir_all(&image).unwrap();
        fs::create_dir_all(&root).unwrap();
        let run = || unpack(&image, folder.path(), &root);
        let nothing = crate::rootfs::tests::chain(&run().unwrap_err());
        assert!(nothing.contains("neither a manifest.json nor an index.json"), "{nothing}");
        layout(&image, None);
        let (made_of, config) = run().unwrap();
        assert_eq!(config.entrypoint(), &Some(vec!["/usr/bin/server".to_string()]));
        let text = r#"{"Env":["A=b"],"Entrypoint":["/usr/bin/server"]}"#;
        assert_eq!(serde_json::to_string(&config).unwrap(), text);
        assert!(made_of[0].starts_with("image sha256 "), "{made_of:?}");
        assert_eq!(fs::read_to_string(root.join("usr/bin/server")).unwrap(), "program");
        layout(&image, Some("0"));
        let error = crate::rootfs::tests::chain(&run().unwrap_err());
        assert!(error.contains("layer 1 does not match its digest"), "{error}");
        let index = |digest: &str| {
            let manifest = r#""mediaType":"application/vnd.oci.image.manifest.v1+json","size":1"#;
            format!(r#"{{"schemaVersion":2,"manifests":[{{{manifest},"digest":"{digest}"}}]}}"#)
        };
        for (digest, expect) in [
            ("sha256:../../x", "index.json does not follow the image formats"),
            ("other:x", "a manifest names \"blobs/other/x\", which is no file of the image"),
        ] {
            fs::write(image.join("index.json"), index(digest)).unwrap();
            let error = crate::rootfs::tests::chain(&run().unwrap_err());
            assert!(error.contains(expect), "{error}");
        }
    }
}
