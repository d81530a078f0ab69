//! Starting somebody else's program as a system, from inside its environment (`tare start-system`):
//! what it finds on its data has to be made where the data is, which may be a container's root or a
//! guest's disk that the host cannot write.
//!
//! Method: the harness hands over a recipe as one argument. Its files are written, its commands run
//! to their end, and then the program takes this process's place, so that the system is the first
//! process of its environment and nothing of Tare runs beside it.
//!
//! Limits: the environment replaces `{data}` inside the recipe, so that a state directory whose path
//! has quotes or backslashes breaks its JSON; the error says so.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use super::image_start::{ImageProgram, ImageStartError, User};

/// The subcommand of the program that does it.
pub(crate) const COMMAND: &str = "start-system";

/// User and group of a system that must not be root: nobody, on every distribution.
const NOBODY: User = User { uid: 65534, gid: 65534 };

/// How a program is started. In its words and files stand words such as `{listen}`, which the
/// environment replaces (`tare_lab::environment::Launch` lists them).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StartPlan {
    /// Files in the data directory, by their names, with their contents.
    pub(crate) files: Vec<(String, String)>,
    /// Commands that run to their end before, each after the last.
    pub(crate) before: Vec<Vec<String>>,
    /// The program and its arguments. With an image these words take the place of the image's own
    /// command, behind its entry point; none leave it as it is.
    pub(crate) command: Vec<String>,
    /// What it has in its environment besides.
    pub(crate) variables: Vec<(String, String)>,
    /// Run as nobody where Tare is root: some refuse to be root.
    pub(crate) unprivileged: bool,
    /// A System V IPC namespace of its own where it would have the host's, so that nothing that it
    /// makes there outlives it.
    pub(crate) own_ipc: bool,
    /// The program is that of the environment's image, with its environment, directory and user.
    pub(crate) from_image: bool,
}

/// Why a system could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartSystemError {
    #[error(
        "the recipe of the system cannot be read; is there a quote or a backslash in the path of the state directory?"
    )]
    StartPlan(#[source] serde_json::Error),
    #[error("cannot write {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot give {} to user {uid}", .path.display())]
    Own { path: PathBuf, uid: u32, source: io::Error },
    #[error(transparent)]
    Image(#[from] ImageStartError),
    #[error("cannot run {program}")]
    Run { program: String, source: io::Error },
    #[error("{program} failed with {status} before the system was started: {said}")]
    Failed { program: String, status: ExitStatus, said: String },
    #[error("the recipe has an empty command")]
    NoCommand,
}

impl StartPlan {
    /// Returns the arguments of Tare's program.
    pub(crate) fn arguments(&self) -> Vec<String> {
        // Strings and flags are always JSON.
        let recipe = serde_json::to_string(self).unwrap_or_default();
        let image = if self.from_image { &["--image", "{image}"][..] } else { &[] };
        [COMMAND, "--data", "{data}"]
            .iter()
            .chain(image)
            .map(|word| (*word).to_string())
            .chain([recipe])
            .collect()
    }
}

/// Makes ready what a recipe says and becomes its program. `image` is what the environment's image
/// says of its program, where it is that.
///
/// # Errors
/// When it cannot; otherwise it does not return.
pub fn start(recipe: &str, data: &Path, image: Option<&str>) -> StartSystemError {
    let prepared = serde_json::from_str(recipe).map_err(StartSystemError::StartPlan);
    match prepared.and_then(|recipe| prepare(&recipe, data, image)) {
        Ok((program, mut command)) => StartSystemError::Run { program, source: command.exec() },
        Err(error) => error,
    }
}

fn prepare(
    recipe: &StartPlan,
    data: &Path,
    image: Option<&str>,
) -> Result<(String, Command), StartSystemError> {
    // On a container's own root nobody has made it.
    fs::create_dir_all(data)
        .map_err(|source| StartSystemError::Write { path: data.into(), source })?;
    for (name, content) in &recipe.files {
        let path = data.join(name);
        let fail = |source| StartSystemError::Write { path: path.clone(), source };
        path.parent().map_or(Ok(()), fs::create_dir_all).map_err(fail)?;
        fs::write(&path, content).map_err(fail)?;
    }
    let image = match (recipe.from_image, image) {
        (true, image) => Some(ImageProgram::read(image.unwrap_or_default(), Path::new("/"))?),
        (false, _) => None,
    };
    let user = match &image {
        Some(image) => image.user,
        None => recipe.unprivileged.then_some(NOBODY),
    };
    let user = user.filter(|_| rustix::process::geteuid().is_root());
    if let Some(user) = user {
        give_away(data, user)?;
    }
    if recipe.own_ipc {
        // A container has one already, and may not make another.
        #[expect(deprecated, reason = "unsafe only for the descriptor table, which stays shared")]
        let _ = rustix::thread::unshare(UnshareFlags::NEWIPC);
    }
    for words in &recipe.before {
        let (program, mut command) = command(words, recipe, data, user)?;
        let run = |source| StartSystemError::Run { program: program.clone(), source };
        let output = command.output().map_err(run)?;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).trim().replace('\n', " | ");
            return Err(StartSystemError::Failed { program, status: output.status, said });
        }
    }
    match image {
        None => command(&recipe.command, recipe, data, user),
        Some(image) => {
            let words = image.words(&recipe.command);
            let (program, mut command) = command(&words, recipe, &image.folder, user)?;
            // What the study says goes before what the image says.
            let own = |name: &str| recipe.variables.iter().any(|(known, _)| known == name);
            command.envs(image.variables.into_iter().filter(|(name, _)| !own(name)));
            Ok((program, command))
        }
    }
}

fn command(
    words: &[String],
    recipe: &StartPlan,
    folder: &Path,
    user: Option<User>,
) -> Result<(String, Command), StartSystemError> {
    let (program, arguments) = words.split_first().ok_or(StartSystemError::NoCommand)?;
    let mut command = Command::new(program);
    command.args(arguments).envs(recipe.variables.iter().cloned()).current_dir(folder);
    if let Some(User { uid, gid }) = user {
        command.uid(uid).gid(gid);
    }
    Ok((program.clone(), command))
}

/// Gives a directory and what is in it to the user that the system runs as.
fn give_away(path: &Path, user: User) -> Result<(), StartSystemError> {
    let fail = |source| StartSystemError::Own { path: path.into(), uid: user.uid, source };
    std::os::unix::fs::lchown(path, Some(user.uid), Some(user.gid)).map_err(fail)?;
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).map_err(fail)? {
            give_away(&entry.map_err(fail)?.path(), user)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_string()).collect()
    }

    #[test]
    fn a_recipe_survives_its_way_through_an_argument() {
        let recipe = StartPlan {
            files: vec![("conf/a.yaml".into(), "cluster: 'x \"y\"'\n".into())],
            before: vec![words(&["init", "{data}"])],
            command: words(&["{program}", "--save", ""]),
            variables: vec![("LC_ALL".into(), "C".into())],
            unprivileged: true,
            own_ipc: true,
            from_image: false,
        };
        let arguments = recipe.arguments();
        assert_eq!(arguments[..3], words(&[COMMAND, "--data", "{data}"]));
        assert_eq!(serde_json::from_str::<StartPlan>(&arguments[3]).unwrap(), recipe);
    }

    #[test]
    fn files_are_written_and_what_fails_before_is_told() {
        let data = tempfile::tempdir().unwrap();
        let recipe = StartPlan {
            files: vec![("conf/a".into(), "text".into())],
            before: vec![words(&["sh", "-c", "cat conf/a; echo; echo wrong >&2; exit 3"])],
            ..StartPlan::default()
        };
        let error = prepare(&recipe, data.path(), None).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("text | wrong"), "{error}");
        let gone = StartPlan { command: words(&["/nowhere/program"]), ..StartPlan::default() };
        let text = serde_json::to_string(&gone).unwrap();
        let error = start(&text, data.path(), None).to_string();
        assert_eq!(error, "cannot run /nowhere/program");
        let error = start("{", data.path(), None).to_string();
        assert!(error.contains("quote or a backslash"), "{error}");
    }
}
