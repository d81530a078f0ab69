//! The guest's kernel and its modules: where they are, and the order in which modules are loaded.
//!
//! Method: a kernel image contains its release (Documentation/arch/x86/boot.rst, `kernel_version`),
//! and its modules are in `lib/modules/RELEASE` next to `boot`. Each module lists its dependencies
//! (`depends=` of its `.modinfo` section), so a kernel that is unpacked but not installed needs no
//! depmod.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use tare_host::exec::{self, Command, ExecError};

use crate::guest::protocol::Module;

/// Where kernels for guests are unpacked: `CACHE/NAME/boot/vmlinuz-RELEASE` and
/// `CACHE/NAME/lib/modules/RELEASE`, as in a package.
pub(crate) const CACHE: &str = "/var/cache/tare/kernels";

/// The commands that install a kernel with the drivers of all the devices that a guest can have.
pub(crate) const REMEDY: &str = "mkdir -p /var/cache/tare/kernels/debian && cd /var/cache/tare/kernels && \
     apt-get download $(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: //p') && \
     dpkg-deb -x linux-image-*.deb debian";

/// The name of a user-mode kernel, which is a program.
pub(crate) const USER_MODE_PROGRAM: &str = "linux.uml";

/// The command that installs a user-mode kernel.
pub(crate) const USER_MODE_REMEDY: &str = "apt-get install --no-install-recommends user-mode-linux";

/// Why a kernel or its modules are not usable.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    #[error(
        "there is no kernel for guests: neither the host's own in /boot nor one in {CACHE}; {REMEDY}"
    )]
    None,
    #[error("there is no user-mode Linux kernel; {}", USER_MODE_REMEDY)]
    NoUserMode,
    #[error("{} does not run as a user-mode Linux kernel", .path.display())]
    UserMode { path: PathBuf, source: ExecError },
    #[error("cannot read the kernel {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the kernel {} does not contain its release; name it vmlinuz-RELEASE", .path.display())]
    NoRelease { path: PathBuf },
    #[error("the kernel {release} has no module {name}, which it needs for {what}")]
    NoModule { release: String, name: String, what: &'static str },
    #[error("cannot read the module {}", .path.display())]
    Module { path: PathBuf, source: io::Error },
    #[error("cannot unpack the module {}", .path.display())]
    Unpack { path: PathBuf, source: ExecError },
}

/// A kernel image and its modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    pub(crate) release: String,
    /// `lib/modules/RELEASE`, unless everything is built into the kernel.
    pub(crate) modules: Option<PathBuf>,
}

impl Kernel {
    /// Returns the kernel at `requested`, else the host's own, else one that was downloaded for
    /// guests.
    pub(crate) fn find(requested: Option<&Path>) -> Result<Self, KernelError> {
        if let Some(image) = requested {
            return Self::at(image);
        }
        let host = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let own = Self::at(&Path::new("/boot").join(format!("vmlinuz-{}", host.trim())));
        if let Ok(own) = own
            && own.modules.is_some()
        {
            return Ok(own);
        }
        // A kernel without modules is of no use here.
        let mut found: Vec<Self> = images()
            .iter()
            .filter_map(|image| Self::at(image).ok())
            .filter(|kernel| kernel.modules.is_some())
            .collect();
        found.sort_by(|a, b| a.image.cmp(&b.image));
        found.pop().ok_or(KernelError::None)
    }

    /// Returns the user-mode kernel at `requested`, else the installed one. The program reports its
    /// release; its modules are in `lib/uml/modules` next to the directory of programs.
    pub(crate) fn user_mode(requested: Option<&Path>) -> Result<Self, KernelError> {
        let image = match requested {
            Some(image) => image.to_path_buf(),
            None => exec::find(USER_MODE_PROGRAM).ok_or(KernelError::NoUserMode)?,
        };
        let output = Command::new(&image).arg("--version").run();
        let output =
            output.map_err(|source| KernelError::UserMode { path: image.clone(), source })?.stdout;
        let release = output.trim().to_string();
        let real = fs::canonicalize(&image).unwrap_or_else(|_| image.clone());
        let root = real.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let folder = Path::new("lib/uml/modules").join(&release);
        let places = [root.join(&folder), Path::new("/usr").join(&folder)];
        let modules = places.into_iter().find(|path| path.join("kernel").is_dir());
        Ok(Self { image, release, modules })
    }

    fn at(image: &Path) -> Result<Self, KernelError> {
        let read = |source| KernelError::Read { path: image.into(), source };
        let release = release(image).map_err(read)?;
        let release = release.ok_or_else(|| KernelError::NoRelease { path: image.into() })?;
        let root = image.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let folder = Path::new("lib/modules").join(&release);
        let places =
            [root.join(&folder), root.join("usr").join(&folder), Path::new("/").join(&folder)];
        let modules = places.into_iter().find(|path| path.join("kernel").is_dir());
        Ok(Self { image: image.into(), release, modules })
    }
}

/// Returns the kernel images in the cache and in /boot.
fn images() -> Vec<PathBuf> {
    let list = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let caches = list(Path::new(CACHE)).into_iter().map(|folder| folder.join("boot"));
    let mut folders = vec![PathBuf::from("/boot")];
    folders.extend(caches);
    let image = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
    };
    folders.iter().flat_map(|folder| list(folder)).filter(image).collect()
}

/// Returns the release that an image contains, else the one in its name.
fn release(image: &Path) -> io::Result<Option<String>> {
    let mut file = File::open(image)?;
    let mut header = [0; 0x210];
    if file.read_exact(&mut header).is_ok() && &header[0x202..0x206] == b"HdrS" {
        let offset = u16::from_le_bytes([header[0x20e], header[0x20f]]);
        file.seek(SeekFrom::Start(u64::from(offset) + 0x200))?;
        let mut text = Vec::new();
        file.take(256).read_to_end(&mut text)?;
        let end = text.iter().position(|byte| *byte <= b' ').unwrap_or(0);
        if end > 0 {
            return Ok(Some(String::from_utf8_lossy(&text[..end]).into_owned()));
        }
    }
    let name = image.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(name.and_then(|name| Some(name.split_once('-')?.1.to_string())))
}

/// A module that the guest needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) name: &'static str,
    /// The purpose, for errors.
    pub(crate) what: &'static str,
    /// Whether it must exist and load.
    pub(crate) needed: bool,
}

/// The modules of a kernel by name, and the chosen ones in loading order.
#[derive(Debug)]
pub(crate) struct Modules {
    release: String,
    files: BTreeMap<String, PathBuf>,
    built_in: BTreeSet<String>,
    /// Names and contents of the chosen ones.
    chosen: Vec<(String, Vec<u8>)>,
}

impl Modules {
    pub(crate) fn index(kernel: &Kernel) -> Self {
        let mut files = BTreeMap::new();
        let mut folders: Vec<PathBuf> = kernel.modules.iter().map(|m| m.join("kernel")).collect();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(path);
                } else if let Some(name) = module_name(&path) {
                    files.insert(name, path);
                }
            }
        }
        let list = kernel.modules.as_ref().map(|modules| modules.join("modules.builtin"));
        let list = list.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let built_in = list.lines().filter_map(|line| module_name(Path::new(line))).collect();
        Self { release: kernel.release.clone(), files, built_in, chosen: Vec::new() }
    }

    /// Chooses modules with their dependencies, which come first. Returns those that were not
    /// chosen before.
    pub(crate) fn choose(&mut self, needs: &[Need]) -> Result<Vec<Module>, KernelError> {
        let mut order = Vec::new();
        for need in needs {
            self.add(need.name, need, &mut order)?;
        }
        Ok(order)
    }

    fn add(&mut self, name: &str, need: &Need, order: &mut Vec<Module>) -> Result<(), KernelError> {
        let name = name.replace('-', "_");
        if self.chosen.iter().any(|(chosen, _)| *chosen == name) || self.built_in.contains(&name) {
            return Ok(());
        }
        let Some(path) = self.files.get(&name).cloned() else {
            // A kernel without any modules must have it built in; the guest reports it if not.
            return match need.needed && !self.files.is_empty() {
                true => {
                    let release = self.release.clone();
                    Err(KernelError::NoModule { release, name, what: need.what })
                }
                false => Ok(()),
            };
        };
        let content = read_module(&path)?;
        for dependency in dependencies(&content) {
            self.add(&dependency, need, order)?;
        }
        self.chosen.push((name.clone(), content));
        order.push(Module { name, needed: need.needed });
        Ok(())
    }

    /// Returns the names and contents of the chosen modules.
    pub(crate) fn chosen(&self) -> &[(String, Vec<u8>)] {
        &self.chosen
    }
}

/// Returns the name of a module: `kernel/net/9p/9pnet_virtio.ko.xz` is `9pnet_virtio`. Dashes
/// become underscores.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let name = name.split_once(".ko")?.0;
    Some(name.replace('-', "_"))
}

/// Reads a module. A compressed one is unpacked by the host's `xz`, `zstd` or `gzip`.
fn read_module(path: &Path) -> Result<Vec<u8>, KernelError> {
    let read = |source| KernelError::Module { path: path.into(), source };
    let program = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).map_err(read),
    };
    let memory = || -> io::Result<File> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        Ok(File::from(rustix::fs::memfd_create("tare-module", flags)?))
    };
    let mut content = memory().map_err(read)?;
    let (out, err) = (content.try_clone().map_err(read)?, memory().map_err(read)?);
    let command = Command::new(program).args(["-d", "-c"]).arg(path).output_to(out, err);
    command.run().map_err(|source| KernelError::Unpack { path: path.into(), source })?;
    let mut bytes = Vec::new();
    content.rewind().map_err(read)?;
    content.read_to_end(&mut bytes).map_err(read)?;
    Ok(bytes)
}

/// Returns the dependencies of a module: the string `depends=a,b` of its `.modinfo` section, which
/// is a list of zero-terminated strings.
fn dependencies(content: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = content.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = &content[start + KEY.len()..];
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&value[..end]).into_owned();
    text.split(',').filter(|name| !name.is_empty()).map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tare-test-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn need(name: &'static str, needed: bool) -> Need {
        Need { name, what: "the test", needed }
    }

    #[test]
    fn release_is_read_and_modules_follow_their_dependencies() {
        let root = scratch("kernel");
        let modules = root.join("lib/modules/9.9-test");
        fs::create_dir_all(root.join("boot")).unwrap();
        fs::create_dir_all(modules.join("kernel/fs")).unwrap();
        let mut image = vec![0; 0x300];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e] = 0x20;
        image[0x220..0x230].copy_from_slice(b"9.9-test (tare) ");
        fs::write(root.join("boot/vmlinuz"), &image).unwrap();
        let module = |name: &str, depends: &str| {
            let content = format!("ELF\0license=GPL\0depends={depends}\0name={name}\0");
            fs::write(modules.join(format!("kernel/fs/{name}.ko")), content).unwrap();
        };
        module("top-fs", "middle,low");
        module("middle", "low");
        module("low", "");
        fs::write(modules.join("modules.builtin"), "kernel/lib/inside.ko\n").unwrap();

        let kernel = Kernel::find(Some(&root.join("boot/vmlinuz"))).unwrap();
        assert_eq!(kernel.release, "9.9-test");
        let mut index = Modules::index(&kernel);
        let order = index.choose(&[need("top_fs", true), need("inside", true)]).unwrap();
        let names: Vec<&str> = order.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["low", "middle", "top_fs"]);
        assert!(index.choose(&[need("low", true)]).unwrap().is_empty(), "chosen before");
        assert!(index.choose(&[need("missing", false)]).unwrap().is_empty());
        let error = index.choose(&[need("missing", true)]).unwrap_err().to_string();
        assert!(error.contains("no module missing"), "{error}");
        fs::remove_dir_all(&root).unwrap();
    }
}
