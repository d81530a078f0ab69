//! The machine that is built for: this one, or another one with a cross compiler and an emulator.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

/// Debian's packages for another machine.
const PACKAGES: &str = "gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user-static";

/// A machine by its name in Rust and in the kernel, `x86_64` or `aarch64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine(&'static str);

impl Machine {
    pub(super) const OWN: Self = Self(std::env::consts::ARCH);

    /// Returns a machine that can be built for here.
    pub(super) fn parse(name: &str) -> anyhow::Result<Self> {
        match name {
            _ if name == Self::OWN.0 => Ok(Self::OWN),
            "aarch64" => Ok(Self("aarch64")),
            _ => bail!("cannot build for {name}: only for {} and aarch64", Self::OWN.0),
        }
    }

    pub(super) fn name(self) -> &'static str {
        self.0
    }

    /// Its name in Debian and in images.
    pub(super) fn architecture(self) -> &'static str {
        match self.0 {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    }

    /// Returns what runs its programs on this machine; `None` for this machine.
    pub(super) fn emulator(self) -> anyhow::Result<Option<PathBuf>> {
        if self == Self::OWN {
            return Ok(None);
        }
        let name = format!("qemu-{}-static", self.0);
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let found =
            std::env::split_paths(&folders).map(|at| at.join(&name)).find(|at| at.is_file());
        found.map(Some).with_context(|| format!("needs {name} (Debian: {PACKAGES})"))
    }

    /// Builds the program with the profile `dist`; returns its path.
    pub(super) fn build(self, root: &Path) -> anyhow::Result<PathBuf> {
        let mut command = crate::cargo::cargo(root);
        command.args(["build", "--profile", "dist", "--locked", "--package", "tare"]);
        let folder = match self == Self::OWN {
            true => {
                let release = crate::built::program(root)?;
                release.parent().and_then(Path::parent).map(Path::to_path_buf)
            }
            false => {
                let triple = format!("{}-unknown-linux-gnu", self.0);
                self.cross(&mut command, &triple)?;
                Some(crate::built::target(root).join(triple))
            }
        };
        let status = command.status().context("cannot start cargo")?;
        ensure!(status.success(), "the program could not be built: {status}");
        Ok(folder.context("the target has no folder")?.join("dist/tare"))
    }

    /// Adds the target and its tools to a build.
    fn cross(self, command: &mut Command, triple: &str) -> anyhow::Result<()> {
        let printed = Command::new("rustc")
            .args(["--print", "target-libdir", "--target", triple])
            .output()
            .context("cannot start rustc")?;
        let folder = String::from_utf8_lossy(&printed.stdout).trim().to_string();
        ensure!(Path::new(&folder).is_dir(), "run rustup target add {triple} first");
        let tool = |name: &str| format!("{}-linux-gnu-{name}", self.0);
        let compiles = Command::new(tool("gcc")).arg("--version").output().is_ok();
        ensure!(compiles, "needs {} (Debian: {PACKAGES})", tool("gcc"));
        let (lower, upper) = (triple.replace('-', "_"), triple.replace('-', "_").to_uppercase());
        command
            .args(["--target", triple])
            .env(format!("CC_{lower}"), tool("gcc"))
            .env(format!("AR_{lower}"), tool("ar"))
            .env(format!("CARGO_TARGET_{upper}_LINKER"), tool("gcc"));
        Ok(())
    }
}
