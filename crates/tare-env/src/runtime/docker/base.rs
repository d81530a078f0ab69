//! The source of a container's image: Tare's program alone, an imported root file system, or an
//! image of the engine.

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

/// The source of a container's image.
#[derive(Debug)]
pub(super) enum Base {
    /// Tare's program alone.
    Program,
    Root(Root),
    /// An image of the engine.
    Named {
        name: String,
        id: String,
        config: Config,
    },
}

impl Base {
    /// Returns the source that the study names. A root file system is unpacked unless it is cached.
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

    /// Returns the name of the image in a run.
    pub(super) fn image(&self, context: &RunContext) -> String {
        match self {
            Self::Program => context.prefix(),
            Self::Root(root) => format!("{}-{}", context.prefix(), root.name()),
            Self::Named { name, .. } => name.clone(),
        }
    }

    /// Returns whether the run imports the image and removes it at its end.
    pub(super) fn is_ours(&self) -> bool {
        !matches!(self, Self::Named { .. })
    }

    /// Returns the image's configuration of its program.
    pub(super) fn config(&self) -> Option<&Config> {
        match self {
            Self::Program => None,
            Self::Root(root) => root.config.as_ref(),
            Self::Named { config, .. } => Some(config),
        }
    }

    /// Returns the program that a launch needs. Tare cannot read an image of the engine, so there
    /// the program is found by its name when it starts.
    pub(super) fn program(&self, launch: &Launch) -> Result<Program, PartError> {
        match (self, &launch.program) {
            (Self::Program, _) => system::program(launch),
            (Self::Root(root), _) => system::program_in(launch, Some(root)),
            (Self::Named { .. }, None) => Ok(Program::default()),
            (Self::Named { .. }, Some(requested)) => {
                let name = Path::new(&requested.name).file_name().unwrap_or_default();
                Ok(Program { path: name.into(), files: requested.named.clone() })
            }
        }
    }

    /// Imports the image, unless it is the engine's.
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

    /// Returns the description of the image for the read-back.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Program => None,
            Self::Root(root) => Some(root.text.clone()),
            Self::Named { name, .. } => Some(format!("the engine's image {name}")),
        }
    }
}

/// Writes an archive of a root file system, with the directory of the data in it.
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
