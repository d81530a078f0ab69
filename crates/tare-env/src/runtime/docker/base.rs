//! The source of a container's image: Tare's program alone, an imported root file system, or an
//! image of the engine.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use tare_host::program::Program;
use tare_lab::PartError;
use tare_lab::environment::{EnvironmentSpec, Launch};

use super::engine::Engine;
use crate::layer::rootfs::{DATA, PROGRAM};
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
        let archive = context.work().join(format!("{name}.tar"));
        let fail = |source| RootError::File { path: archive.clone(), source };
        match self {
            Self::Program => write_program(context.program(), &archive),
            Self::Root(root) => write_root(root, &archive),
            Self::Named { .. } => return Ok(()),
        }
        .map_err(fail)?;
        let imported = engine.import(&name, &archive);
        std::fs::remove_file(&archive).map_err(fail)?;
        Ok(imported?)
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
fn write_root(root: &Root, archive: &Path) -> io::Result<()> {
    let mut builder = builder(archive)?;
    builder.follow_symlinks(false);
    builder.append_dir_all("", &root.path)?;
    if !root.path.join(DATA.trim_start_matches('/')).exists() {
        append_folder(&mut builder, DATA)?;
    }
    builder.into_inner()?.flush()
}

/// Writes an archive of Tare's program and the mount points. The same program gives the same image.
fn write_program(program: &Path, archive: &Path) -> io::Result<()> {
    let file = File::open(program)?;
    let mut builder = builder(archive)?;
    for folder in [DATA, "/proc", "/sys", "/dev", "/tmp", "/etc"] {
        append_folder(&mut builder, folder)?;
    }
    let mut header = header(tar::EntryType::Regular, file.metadata()?.len());
    builder.append_data(&mut header, PROGRAM.trim_start_matches('/'), file)?;
    builder.into_inner()?.flush()
}

fn builder(archive: &Path) -> io::Result<tar::Builder<BufWriter<File>>> {
    Ok(tar::Builder::new(BufWriter::with_capacity(1 << 20, File::create(archive)?)))
}

fn append_folder(builder: &mut tar::Builder<impl Write>, folder: &str) -> io::Result<()> {
    let mut header = header(tar::EntryType::Directory, 0);
    builder.append_data(&mut header, folder.trim_start_matches('/'), io::empty())
}

/// Returns a header of something that root owns and all may read and execute, dated 1970.
fn header(kind: tar::EntryType, bytes: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o755);
    header.set_size(bytes);
    header
}
