//! What a container's image is: the one with Tare's program alone, a root file system of ours that
//! is imported, or one that the engine has.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tare_host::program::Program;
use tare_lab::PartError;
use tare_lab::environment::{EnvironmentSpec, Launch};

use super::engine::Engine;
use crate::layer::rootfs::DATA;
use crate::rootfs::{Config, Root, RootError, Source};
use crate::run_context::RunContext;
use crate::system;

/// What a container is made from.
#[derive(Debug)]
pub(super) enum Base {
    /// Tare's program, and nothing else.
    Program,
    Root(Root),
    /// An image of the engine's, by its name.
    Named {
        name: String,
        id: String,
        config: Config,
    },
}

impl Base {
    /// As a study says. A root file system is unpacked if it is not there yet.
    pub(super) fn of(
        spec: &EnvironmentSpec,
        context: &RunContext,
        engine: &Engine,
    ) -> Result<Self, PartError> {
        Ok(match Source::parse(spec)? {
            None => Self::Program,
            Some(Source::Named(name)) => {
                let (id, config) = engine.image(&name)?;
                Self::Named { name, id, config }
            }
            Some(source) => Self::Root(context.roots().provide(&source)?),
        })
    }

    /// The name of the image in a run.
    pub(super) fn image(&self, context: &RunContext) -> String {
        match self {
            Self::Program => context.prefix(),
            Self::Root(root) => format!("{}-{}", context.prefix(), root.name()),
            Self::Named { name, .. } => name.clone(),
        }
    }

    /// Whether the image is made for the run, and goes with it.
    pub(super) fn is_ours(&self) -> bool {
        !matches!(self, Self::Named { .. })
    }

    /// What it says of its program.
    pub(super) fn config(&self) -> Option<&Config> {
        match self {
            Self::Program => None,
            Self::Root(root) => root.config.as_ref(),
            Self::Named { config, .. } => Some(config),
        }
    }

    /// The program that a launch needs. Nobody can look into an image of the engine's: there the
    /// program is found by its name when it is started.
    pub(super) fn program(&self, launch: &Launch) -> Result<Program, PartError> {
        match (self, &launch.program) {
            (Self::Program, _) => system::program(launch),
            (Self::Root(root), _) => system::program_in(launch, Some(root)),
            (Self::Named { .. }, None) => Ok(Program::default()),
            (Self::Named { .. }, Some(asked)) => {
                let name = Path::new(&asked.name).file_name().unwrap_or_default();
                Ok(Program { path: name.into(), files: asked.named.clone() })
            }
        }
    }

    /// Makes the image.
    pub(super) fn import(&self, context: &RunContext, engine: &Engine) -> Result<(), PartError> {
        let name = self.image(context);
        match self {
            Self::Program => engine.import(&name, context.program())?,
            Self::Root(root) => {
                let archive = context.work().join(format!("{name}.tar"));
                let fail = |source| RootError::File { path: archive.clone(), source };
                write(root, &archive).map_err(fail)?;
                let imported = engine.import_archive(&name, &archive);
                std::fs::remove_file(&archive).map_err(fail)?;
                imported?;
            }
            Self::Named { .. } => {}
        }
        Ok(())
    }

    /// What is read back: what it is made of.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Program => None,
            Self::Root(root) => Some(root.text.clone()),
            Self::Named { name, .. } => Some(format!("the engine's image {name}")),
        }
    }
}

/// An archive of a root file system, with the directory of the data in it.
fn write(root: &Root, archive: &PathBuf) -> io::Result<()> {
    let file = BufWriter::with_capacity(1 << 20, File::create(archive)?);
    let mut builder = tar::Builder::new(file);
    builder.follow_symlinks(false);
    builder.append_dir_all("", &root.path)?;
    let data = DATA.trim_start_matches('/');
    if !root.path.join(data).exists() {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(0o755);
        header.set_size(0);
        builder.append_data(&mut header, data, io::empty())?;
    }
    builder.into_inner()?.flush()
}
