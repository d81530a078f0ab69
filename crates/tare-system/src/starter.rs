//! Starts a program of another project as a system, from inside its environment (`tare
//! start-system`). Its files must be created where its data is, which may be a container's root or
//! a guest's disk that the host cannot write.
//!
//! Method: the harness passes a start plan as one argument. This process writes the plan's files,
//! runs its commands to their end, and then becomes the program, so that the system is the first
//! process of its environment and nothing of Tare runs besides it.
//!
//! Limits: the environment replaces `{data}` inside the plan, so a state directory whose path has
//! quotes or backslashes breaks the plan's JSON; the error explains that.

use std::fs::{self, File};
use std::io::{self, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use super::image_start::{ImageProgram, ImageStartError, User};
use super::saved_data::{self, DataCheck, DataStamp, ProgramVersion, SavedDataError};

/// The subcommand that starts a system.
pub(crate) const COMMAND: &str = "start-system";

/// A program of a plan: this one.
pub(crate) const TARE: &str = "/proc/self/exe";

/// The user and group of a system that must not be root: nobody, on every distribution.
const NOBODY: User = User { uid: 65534, gid: 65534 };

/// The name of the input of the commands before the program, for as long as it has one.
const INPUT: &str = "input";

/// How to start a program. Its words and files may have placeholders such as `{listen}`, which the
/// environment replaces (`tare_lab::environment::Launch` lists them).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StartPlan {
    /// Files in the data directory: name and content.
    pub(crate) files: Vec<(String, String)>,
    /// Commands that make new data: they run to their end before the program, one after the other,
    /// unless data was restored.
    pub(crate) before: Vec<Vec<String>>,
    /// Files whose contents those commands read as their standard input, one after the other.
    pub(crate) input: Vec<String>,
    /// The program and its arguments. With an image they replace the image's own command behind its
    /// entry point; empty: the image's own.
    pub(crate) command: Vec<String>,
    /// Additional environment variables.
    pub(crate) variables: Vec<(String, String)>,
    /// What restored data has to agree with. `None`: none can be restored.
    pub(crate) restored: Option<DataCheck>,
    /// Files of restored data that get other names.
    pub(crate) renamed: Vec<(String, String)>,
    /// Run as nobody if Tare is root, because some programs refuse to be root.
    pub(crate) unprivileged: bool,
    /// Run in an own System V IPC namespace instead of the host's, so that nothing it creates there
    /// outlives it.
    pub(crate) own_ipc: bool,
    /// Run the program of the environment's image, with the image's variables, directory and user.
    pub(crate) from_image: bool,
}

/// Why a system could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartSystemError {
    #[error(
        "the start plan of the system cannot be read; is there a quote or a backslash in the path of the state directory?"
    )]
    StartPlan(#[source] serde_json::Error),
    #[error("cannot write {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot give {} to user {uid}", .path.display())]
    Own { path: PathBuf, uid: u32, source: io::Error },
    #[error(transparent)]
    Image(#[from] ImageStartError),
    #[error("cannot run {program}")]
    Run { program: String, source: io::Error },
    #[error("{program} failed with {status} before the system was started: {said}")]
    Failed { program: String, status: ExitStatus, said: String },
    #[error("the start plan has an empty command")]
    NoCommand,
    #[error(transparent)]
    SavedData(#[from] SavedDataError),
}

impl StartPlan {
    /// Returns the arguments for Tare's program.
    pub(crate) fn arguments(&self) -> Vec<String> {
        // Strings and flags are always JSON.
        let plan = serde_json::to_string(self).unwrap_or_default();
        let image = if self.from_image { &["--image", "{image}"][..] } else { &[] };
        [COMMAND, "--data", "{data}"]
            .iter()
            .chain(image)
            .map(|word| (*word).to_string())
            .chain([plan])
            .collect()
    }
}

/// Prepares what a plan requires and becomes its program. `image` is the image's configuration, if
/// the program is the image's.
///
/// # Errors
/// Returns only if it fails.
pub fn start(plan: &str, data: &Path, image: Option<&str>) -> StartSystemError {
    let prepared = serde_json::from_str(plan).map_err(StartSystemError::StartPlan);
    match prepared.and_then(|plan| prepare(&plan, data, image)) {
        Ok((program, mut command)) => StartSystemError::Run { program, source: command.exec() },
        Err(error) => error,
    }
}

fn prepare(
    plan: &StartPlan,
    data: &Path,
    image: Option<&str>,
) -> Result<(String, Command), StartSystemError> {
    // On a container's own root the directory does not exist yet.
    fs::create_dir_all(data)
        .map_err(|source| StartSystemError::Write { path: data.into(), source })?;
    let stamp = DataStamp::read(data)?.zip(plan.restored.as_ref());
    for (name, content) in &plan.files {
        let path = data.join(name);
        let fail = |source| StartSystemError::Write { path: path.clone(), source };
        path.parent().map_or(Ok(()), fs::create_dir_all).map_err(fail)?;
        fs::write(&path, content).map_err(fail)?;
    }
    let image = match (plan.from_image, image) {
        (true, image) => Some(ImageProgram::read(image.unwrap_or_default(), Path::new("/"))?),
        (false, _) => None,
    };
    let user = match &image {
        Some(image) => image.user,
        None => plan.unprivileged.then_some(NOBODY),
    };
    let user = user.filter(|_| rustix::process::geteuid().is_root());
    if let Some(user) = user {
        give_away(data, user)?;
    }
    if plan.own_ipc {
        // A container already has its own namespace and may not create another.
        #[expect(deprecated, reason = "unsafe only for the descriptor table, which stays shared")]
        let _ = rustix::thread::unshare(UnshareFlags::NEWIPC);
    }
    match stamp {
        Some((stamp, wanted)) => accept(&stamp, wanted, plan, data, user)?,
        None => {
            for words in &plan.before {
                run(words, plan, data, user)?;
            }
        }
    }
    match image {
        None => command(&plan.command, plan, data, user),
        Some(image) => {
            let words = image.words(&plan.command);
            let (program, mut command) = command(&words, plan, &image.folder, user)?;
            // The study's variables override the image's.
            let own = |name: &str| plan.variables.iter().any(|(known, _)| known == name);
            command.envs(image.variables.into_iter().filter(|(name, _)| !own(name)));
            Ok((program, command))
        }
    }
}

/// Runs a command of a plan to its end. Returns what it printed.
fn run(
    words: &[String],
    plan: &StartPlan,
    data: &Path,
    user: Option<User>,
) -> Result<String, StartSystemError> {
    let (program, mut command) = command(words, plan, data, user)?;
    command.stdin(input(&plan.input, data)?);
    let run = |source| StartSystemError::Run { program: program.clone(), source };
    let output = command.output().map_err(run)?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => {
            let said = said.trim().replace('\n', " | ");
            Err(StartSystemError::Failed { program, status: output.status, said })
        }
    }
}

/// Checks that the program of a plan may be started on restored data, and gives the data's files
/// the names that the plan has for them.
fn accept(
    stamp: &DataStamp,
    wanted: &DataCheck,
    plan: &StartPlan,
    data: &Path,
    user: Option<User>,
) -> Result<(), StartSystemError> {
    let version = match &wanted.version {
        ProgramVersion::Known(version) => version.clone(),
        ProgramVersion::Printed(argument) => {
            let program = plan.command.first().ok_or(StartSystemError::NoCommand)?;
            let asked = StartPlan { input: Vec::new(), ..plan.clone() };
            let said = run(&[program.clone(), argument.clone()], &asked, data, user)?;
            saved_data::printed_version(&said).to_string()
        }
    };
    stamp.check(&version, &wanted.shape)?;
    for (from, to) in &plan.renamed {
        let path = data.join(to);
        fs::rename(data.join(from), &path)
            .map_err(|source| StartSystemError::Write { path, source })?;
    }
    Ok(())
}

/// Returns the contents of several files as the standard input of a command: a file without a name,
/// since a command that ends early would break a pipe.
fn input(files: &[String], data: &Path) -> Result<Stdio, StartSystemError> {
    if files.is_empty() {
        return Ok(Stdio::null());
    }
    let path = data.join(INPUT);
    let fail = |source| StartSystemError::Write { path: path.clone(), source };
    let mut all = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .map_err(fail)?;
    fs::remove_file(&path).map_err(fail)?;
    for file in files {
        let read = |source| StartSystemError::Read { path: file.into(), source };
        io::copy(&mut File::open(file).map_err(read)?, &mut all).map_err(fail)?;
    }
    all.rewind().map_err(fail)?;
    Ok(all.into())
}

fn command(
    words: &[String],
    plan: &StartPlan,
    folder: &Path,
    user: Option<User>,
) -> Result<(String, Command), StartSystemError> {
    let (program, arguments) = words.split_first().ok_or(StartSystemError::NoCommand)?;
    // By its path, so that its threads have its name.
    let own = std::env::current_exe().ok().filter(|_| program == TARE);
    let mut command = Command::new(own.as_deref().unwrap_or(Path::new(program)));
    command.args(arguments).envs(plan.variables.iter().cloned()).current_dir(folder);
    if let Some(User { uid, gid }) = user {
        command.uid(uid).gid(gid);
    }
    Ok((program.clone(), command))
}

/// Gives a directory and its contents to the user of the system.
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
    fn plan_round_trips_through_an_argument() {
        let plan = StartPlan {
            files: vec![("conf/a.yaml".into(), "cluster: 'x \"y\"'\n".into())],
            before: vec![words(&["init", "{data}"])],
            input: words(&["{data}/conf/a.yaml"]),
            command: words(&["{program}", "--save", ""]),
            variables: vec![("LC_ALL".into(), "C".into())],
            unprivileged: true,
            own_ipc: true,
            from_image: false,
            restored: Some(DataCheck {
                version: ProgramVersion::Printed("--version".into()),
                shape: "pages=4".into(),
            }),
            renamed: vec![("dump".into(), "log".into())],
        };
        let arguments = plan.arguments();
        assert_eq!(arguments[..3], words(&[COMMAND, "--data", "{data}"]));
        assert_eq!(serde_json::from_str::<StartPlan>(&arguments[3]).unwrap(), plan);
    }

    #[test]
    fn restored_data_is_checked_and_not_made_anew() {
        let data = tempfile::tempdir().unwrap();
        let program = data.path().join("program");
        fs::write(&program, "#!/bin/sh\necho program version 9.1.3 of today\n").unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, executable).unwrap();
        let check = |version| DataCheck { version, shape: "pages=4".into() };
        let plan = StartPlan {
            before: vec![words(&["/nowhere/init"])],
            command: vec![program.to_string_lossy().into_owned()],
            restored: Some(check(ProgramVersion::Printed("--version".into()))),
            renamed: vec![("dump".into(), "log".into())],
            ..StartPlan::default()
        };
        let fails = |plan: &StartPlan| prepare(plan, data.path(), None).unwrap_err().to_string();
        assert_eq!(fails(&plan), "cannot run /nowhere/init", "without a stamp the data is new");
        let stamp = |version: &str| {
            let stamp = format!(r#"{{"system":"x","version":"{version}","shape":"pages=4"}}"#);
            fs::write(data.path().join("saved-data.json"), stamp).unwrap();
        };
        stamp("9.2");
        let expect = "the restored data is of x 9.2, and the program here is 9.1.3;";
        assert!(fails(&plan).starts_with(expect), "{}", fails(&plan));
        stamp("9.1");
        let other = StartPlan {
            restored: Some(DataCheck {
                shape: "pages=16".into(),
                ..check(plan.restored.clone().unwrap().version)
            }),
            ..plan.clone()
        };
        assert!(fails(&other).contains("made with \"pages=4\""), "{}", fails(&other));
        assert!(fails(&plan).ends_with("/log"), "nothing to rename: {}", fails(&plan));
        fs::write(data.path().join("dump"), "rows").unwrap();
        prepare(&plan, data.path(), None).unwrap();
        assert_eq!(fs::read_to_string(data.path().join("log")).unwrap(), "rows");
        let known = StartPlan {
            restored: Some(check(ProgramVersion::Known("9.1.0".into()))),
            renamed: Vec::new(),
            ..plan
        };
        prepare(&known, data.path(), None).unwrap();
    }

    #[test]
    fn files_are_written_and_failures_reported() {
        let data = tempfile::tempdir().unwrap();
        let plan = StartPlan {
            files: vec![("conf/a".into(), "text".into())],
            before: vec![words(&["sh", "-c", "cat conf/a; echo; echo wrong >&2; exit 3"])],
            ..StartPlan::default()
        };
        let error = prepare(&plan, data.path(), None).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("text | wrong"), "{error}");
        let data_file = data.path().join("conf/a").to_string_lossy().into_owned();
        let reads = StartPlan {
            before: vec![words(&["sh", "-c", "cat; exit 3"])],
            input: vec![data_file.clone(), data_file],
            ..StartPlan::default()
        };
        let error = prepare(&reads, data.path(), None).unwrap_err().to_string();
        assert!(error.ends_with("was started: texttext"), "{error}");
        assert!(!data.path().join(INPUT).exists());
        let missing = StartPlan { input: words(&["/nowhere/file"]), ..reads };
        let error = prepare(&missing, data.path(), None).unwrap_err().to_string();
        assert_eq!(error, "cannot read /nowhere/file");
        let gone = StartPlan { command: words(&["/nowhere/program"]), ..StartPlan::default() };
        let text = serde_json::to_string(&gone).unwrap();
        let error = start(&text, data.path(), None).to_string();
        assert_eq!(error, "cannot run /nowhere/program");
        let error = start("{", data.path(), None).to_string();
        assert!(error.contains("quote or a backslash"), "{error}");
    }
}
