//! Data that a system keeps in files: saved once it is loaded, and restored into later starts.
//!
//! Method: the system shuts down cleanly. Its files are then linked, or copied to another file
//! system; nothing writes to the originals any more, because their environment is not started
//! again. A restore links the files of which the system says that they never change, and makes
//! reflinks or copies of the others. Beside them it puts a stamp: the system, its version, and the
//! options that a data directory keeps from its first start. The starter compares the stamp with
//! what it is about to start, because only inside the environment the program is known, and starts
//! nothing else than that. So no server repairs, converts or ignores the data of another.
//!
//! Limits: data of a system whose process the host does not see (a virtual machine, a sandbox) is
//! not saved.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tare_host::data_cache::file_digest;
use tare_host::process::{self, ProcessHandle};
use tare_host::tree_copy::{FileUse, TreeCopyError, copy_tree};
use tare_lab::PartError;
use tare_lab::environment::{DataSnapshot, Endpoint, RestoreStats};

/// The file of the stamp, in the data directory.
const STAMP: &str = "saved-data.json";
/// Time limit for a system to shut down cleanly: it writes its memory to disk.
const END_LIMIT: Duration = Duration::from_secs(300);

/// Why data cannot be saved or restored.
#[derive(Debug, thiserror::Error)]
pub enum SavedDataError {
    #[error("cannot end {system} (process {pid})")]
    End { system: String, pid: u32, source: io::Error },
    #[error("{system} (process {pid}) has not ended {limit_s} s after the signal to shut down")]
    StillThere { system: String, pid: u32, limit_s: u64 },
    #[error("{system} did not shut down cleanly: {} is left", .path.display())]
    NotClean { system: String, path: PathBuf },
    #[error("cannot save data in {}", .path.display())]
    Save { path: PathBuf, source: io::Error },
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not the stamp of saved data", .path.display())]
    Stamp { path: PathBuf, source: serde_json::Error },
    #[error(transparent)]
    Copy(#[from] TreeCopyError),
    #[error(
        "the restored data is of {system} {saved}, and the program here is {found}; set data = \"loaded\" in [schedule], or use one version"
    )]
    OtherVersion { system: String, saved: String, found: String },
    #[error(
        "the restored data was made with {saved:?}, and this environment has {found:?}, which only new data can have; set data = \"loaded\" in [schedule]"
    )]
    OtherShape { saved: String, found: String },
}

/// How a system keeps its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataFiles {
    /// The file or directory by which the host recognises the data.
    pub(crate) mark: &'static str,
    /// The file that a clean shutdown removes, if there is one.
    pub(crate) while_running: Option<&'static str>,
    /// What becomes of a file in a restore, by its path below the data directory.
    pub(crate) use_of: fn(&Path) -> FileUse,
    /// The signal that shuts it down cleanly, although clients are connected.
    pub(crate) stop: Signal,
}

/// The system that data is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DataStamp {
    pub(crate) system: String,
    /// The part of its version that decides whether it can use the files.
    pub(crate) version: String,
    /// The options that only the first start of a data directory sets, as `NAME=VALUE`.
    pub(crate) shape: String,
}

/// What restored data has to agree with, in the plan of a start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DataCheck {
    pub(crate) version: ProgramVersion,
    /// As in the stamp.
    pub(crate) shape: String,
}

/// How a start learns the version of its program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ProgramVersion {
    /// The program prints it with this argument.
    Printed(String),
    Known(String),
}

/// The data of a running system.
#[derive(Debug)]
pub(crate) struct RunningData<'a> {
    files: &'static DataFiles,
    folder: &'a Path,
    process: ProcessHandle,
}

impl DataFiles {
    /// Returns data that another run has saved, with its stamp as a text.
    pub(crate) fn open(
        &'static self,
        folder: &Path,
        stamp: &str,
    ) -> Result<Option<Rc<dyn DataSnapshot>>, PartError> {
        let stamp = serde_json::from_str(stamp);
        let stamp =
            stamp.map_err(|source| SavedDataError::Stamp { path: folder.into(), source })?;
        Ok(Some(Rc::new(Snapshot { folder: folder.into(), use_of: self.use_of, stamp })))
    }

    /// Returns the data of a running system, of which `processes` are the host's ids, the first one
    /// at the front. `None` if the host does not see the data, or the process is not `program`.
    pub(crate) fn of<'a>(
        &'static self,
        at: &'a Endpoint,
        processes: &[u32],
        program: &Path,
    ) -> Option<RunningData<'a>> {
        let folder = at.data.as_deref()?;
        // What is seen only through the process goes away with it.
        if folder.starts_with("/proc") || !folder.join(self.mark).exists() {
            return None;
        }
        let pid = *processes.first()?;
        let process = ProcessHandle::open(pid)?;
        is_program(&process::name(pid)?, program).then_some(RunningData {
            files: self,
            folder,
            process,
        })
    }
}

/// Returns whether a process has the name of a program, or of what it is a link to.
fn is_program(process: &str, program: &Path) -> bool {
    let named = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !name.is_empty() && process == process::cut_name(&name)
    };
    let found = tare_host::exec::find(&program.to_string_lossy());
    let target = found.and_then(|path| path.canonicalize().ok());
    named(program) || target.is_some_and(|path| named(&path))
}

impl RunningData<'_> {
    pub(crate) fn folder(&self) -> &Path {
        self.folder
    }

    /// Shuts the system down and saves its data in the new directory `to`.
    pub(crate) fn save(
        self,
        stamp: DataStamp,
        to: &Path,
    ) -> Result<Option<Rc<dyn DataSnapshot>>, PartError> {
        let (system, pid) = (|| stamp.system.clone(), self.process.pid);
        let end = |source| SavedDataError::End { system: system(), pid, source };
        self.process.signal(self.files.stop).map_err(end)?;
        if !self.process.wait_end(Instant::now() + END_LIMIT).map_err(end)? {
            let limit_s = END_LIMIT.as_secs();
            return Err(SavedDataError::StillThere { system: system(), pid, limit_s }.into());
        }
        let left = self.files.while_running.map(|file| self.folder.join(file));
        if let Some(path) = left.filter(|path| path.exists()) {
            return Err(SavedDataError::NotClean { system: system(), path }.into());
        }
        keep(self.folder, to, self.files.use_of)?;
        Ok(Some(Rc::new(Snapshot { folder: to.into(), use_of: self.files.use_of, stamp })))
    }
}

/// Saves the files of a directory that nothing writes to any more: all of them or none.
fn keep(from: &Path, to: &Path, use_of: fn(&Path) -> FileUse) -> Result<(), SavedDataError> {
    let mut name = to.file_name().unwrap_or_default().to_os_string();
    name.push(".partial");
    let draft = to.with_file_name(name);
    let fail = |source| SavedDataError::Save { path: to.into(), source };
    fs::create_dir_all(&draft).map_err(fail)?;
    let as_it_is = |path: &Path| match use_of(path) {
        FileUse::LeftOut => FileUse::LeftOut,
        FileUse::Constant | FileUse::Changing => FileUse::Constant,
    };
    let copied = copy_tree(from, &draft, &as_it_is);
    if copied.is_err() {
        // The run's directory is removed in any case.
        let _ = fs::remove_dir_all(&draft);
    }
    copied?;
    fs::rename(&draft, to).map_err(fail)
}

/// Saved data.
#[derive(Debug)]
struct Snapshot {
    folder: PathBuf,
    use_of: fn(&Path) -> FileUse,
    stamp: DataStamp,
}

impl DataSnapshot for Snapshot {
    fn folder(&self) -> &Path {
        &self.folder
    }

    fn description(&self) -> String {
        self.stamp.text()
    }

    fn restore(&self, to: &Path) -> Result<RestoreStats, PartError> {
        let began = Instant::now();
        let copied = copy_tree(&self.folder, to, &self.use_of).map_err(SavedDataError::from)?;
        self.stamp.write(to)?;
        Ok(RestoreStats {
            linked_bytes: copied.linked_bytes,
            cloned_bytes: copied.cloned_bytes,
            copied_bytes: copied.copied_bytes,
            took: began.elapsed(),
        })
    }
}

impl DataStamp {
    fn text(&self) -> String {
        // Texts are always JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    fn write(&self, folder: &Path) -> Result<(), SavedDataError> {
        let path = folder.join(STAMP);
        fs::write(&path, self.text()).map_err(|source| SavedDataError::Save { path, source })
    }

    /// Returns the stamp of the data in a directory; `None` if nothing was restored into it.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, SavedDataError> {
        let path = folder.join(STAMP);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(SavedDataError::Read { path, source }),
        };
        let stamp = serde_json::from_str(&text);
        stamp.map(Some).map_err(|source| SavedDataError::Stamp { path, source })
    }

    /// Checks that the program of this version, with this shape, may be started on the data.
    pub(crate) fn check(&self, version: &str, shape: &str) -> Result<(), SavedDataError> {
        let Self { system, version: saved, shape: saved_shape } = self;
        let is_same = version.strip_prefix(saved.as_str()).is_some_and(|rest| {
            !saved.is_empty() && !rest.starts_with(|next: char| next.is_ascii_digit())
        });
        if !is_same {
            let (system, saved, found) = (system.clone(), saved.clone(), version.to_string());
            return Err(SavedDataError::OtherVersion { system, saved, found });
        }
        if saved_shape != shape {
            let (saved, found) = (saved_shape.clone(), shape.to_string());
            return Err(SavedDataError::OtherShape { saved, found });
        }
        Ok(())
    }
}

/// Returns what data depends on: the content of a program of the host, and words that the study
/// adds to its configuration. `None` if the program cannot be read.
pub(crate) fn identity(program: &Path, words: &[String]) -> Option<Vec<(String, String)>> {
    let path = tare_host::exec::find(&program.to_string_lossy())?;
    let name = program.file_name()?.to_string_lossy().into_owned();
    let mut identity = vec![(name, file_digest(&path).ok()?)];
    if !words.is_empty() {
        identity.push(("with".into(), words.join(" ")));
    }
    Some(identity)
}

/// Returns the version in what a program prints about it: the first word that begins with a digit.
/// `all` if there is none.
pub(crate) fn printed_version(all: &str) -> &str {
    let words = all.split(|one: char| one.is_whitespace() || "()=,".contains(one));
    let mut versions = words.filter(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    versions.next().unwrap_or(all.trim())
}

/// Returns the first two numbers of a version, such as `7.0` of `7.0.15`.
pub(crate) fn series(version: &str) -> String {
    let is_part = |one: char| one.is_ascii_digit() || one == '.';
    let number = version.split(|one: char| !is_part(one)).next().unwrap_or_default();
    number.splitn(3, '.').take(2).collect::<Vec<_>>().join(".")
}

/// Returns those of the settings `NAME=VALUE` that only new data takes, by their names, in order.
pub(crate) fn shape_of(settings: &[String], names: &[&str]) -> String {
    let bare = |setting: &str| {
        let name = setting.split('=').next().unwrap_or_default();
        name.trim_start_matches('-').replace('-', "_")
    };
    let mut kept: Vec<String> =
        settings.iter().filter(|one| names.contains(&bare(one).as_str())).cloned().collect();
    kept.sort();
    kept.join(" ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    static FILES: DataFiles = DataFiles {
        mark: "rows",
        while_running: Some("lock"),
        use_of: |path| match path.to_str() {
            Some("rows") => FileUse::Constant,
            Some("cache") => FileUse::LeftOut,
            _ => FileUse::Changing,
        },
        stop: Signal::TERM,
    };

    fn stamp() -> DataStamp {
        DataStamp { system: "sleep".into(), version: "9.1".into(), shape: "pages=4".into() }
    }

    /// A process that represents a system.
    struct Sleep(Child);

    impl Sleep {
        fn start() -> Self {
            let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
            // Its name is that of the program once it has become it.
            while process::name(child.id()).as_deref() != Some("sleep") {
                std::thread::sleep(Duration::from_millis(1));
            }
            Self(child)
        }
    }

    impl Drop for Sleep {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn data() -> (tempfile::TempDir, Endpoint) {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        fs::create_dir_all(data.join("logs")).unwrap();
        for (name, bytes) in [("rows", 900), ("logs/last", 30), ("cache", 7)] {
            fs::write(data.join(name), vec![b'x'; bytes]).unwrap();
        }
        let at = crate::tests::at(&data);
        (place, at)
    }

    #[test]
    fn saved_data_is_restored_with_its_stamp() {
        let (place, at) = data();
        let mut system = Sleep::start();
        let running = FILES.of(&at, &[system.0.id()], Path::new("sleep")).unwrap();
        let to = place.path().join("kept");
        let snapshot = running.save(stamp(), &to).unwrap().unwrap();
        assert!(system.0.try_wait().unwrap().is_some(), "it was shut down");
        // Only the links of the saved data are left.
        fs::remove_dir_all(place.path().join("data")).unwrap();
        for name in ["first", "second"] {
            let start = place.path().join(name);
            fs::create_dir(&start).unwrap();
            let stats = snapshot.restore(&start).unwrap();
            assert_eq!(stats.linked_bytes, 900);
            assert_eq!(stats.cloned_bytes + stats.copied_bytes, 30);
            assert!(!start.join("cache").exists());
            assert_eq!(DataStamp::read(&start).unwrap(), Some(stamp()));
            // A start that writes changes no other.
            fs::write(start.join("logs/last"), "own").unwrap();
        }
        assert_eq!(fs::read(to.join("logs/last")).unwrap().len(), 30);
        assert_eq!(DataStamp::read(&to).unwrap(), None, "the stamp is part of a restore");
        // Another run has the files and the description.
        let other = FILES.open(snapshot.folder(), &snapshot.description()).unwrap().unwrap();
        let start = place.path().join("third");
        fs::create_dir(&start).unwrap();
        assert_eq!(other.restore(&start).unwrap().linked_bytes, 900);
        assert_eq!(DataStamp::read(&start).unwrap(), Some(stamp()));
        assert!(FILES.open(&to, "{").is_err());
    }

    #[test]
    fn data_that_the_host_does_not_see_is_not_saved() {
        let (_place, at) = data();
        let system = Sleep::start();
        let pid = [system.0.id()];
        let sleep = Path::new("sleep");
        assert!(FILES.of(&at, &pid, Path::new("/usr/sbin/mariadbd")).is_none(), "a monitor");
        assert!(FILES.of(&at, &[], sleep).is_none());
        let hidden = Endpoint { data: None, ..at.clone() };
        assert!(FILES.of(&hidden, &pid, sleep).is_none());
        let through = format!("/proc/{}/root{}", pid[0], at.data.as_ref().unwrap().display());
        assert!(
            FILES.of(&Endpoint { data: Some(through.into()), ..at.clone() }, &pid, sleep).is_none()
        );
        fs::remove_file(at.data.as_ref().unwrap().join("rows")).unwrap();
        assert!(FILES.of(&at, &pid, sleep).is_none());
    }

    #[test]
    fn data_of_an_unclean_end_is_refused() {
        let (place, at) = data();
        fs::write(at.data.as_ref().unwrap().join("lock"), "").unwrap();
        let system = Sleep::start();
        let running = FILES.of(&at, &[system.0.id()], Path::new("sleep")).unwrap();
        let to = place.path().join("kept");
        let error = running.save(stamp(), &to).unwrap_err().to_string();
        assert!(error.starts_with("sleep did not shut down cleanly: "), "{error}");
        assert!(!to.exists());
    }

    #[test]
    fn other_versions_and_shapes_are_one_line() {
        let check = |version: &str, shape: &str| stamp().check(version, shape);
        for version in ["9.1", "9.1.7", "9.1-rc1"] {
            check(version, "pages=4").unwrap();
        }
        for version in ["9.10", "9", "10.9.1", ""] {
            let error = check(version, "pages=4").unwrap_err().to_string();
            let expect =
                format!("the restored data is of sleep 9.1, and the program here is {version};");
            assert!(error.starts_with(&expect), "{error}");
        }
        let error = check("9.1", "pages=16").unwrap_err().to_string();
        assert!(error.contains("\"pages=4\"") && error.contains("\"pages=16\""), "{error}");
        let unknown = DataStamp { version: String::new(), ..stamp() };
        assert!(unknown.check("9.1", "pages=4").is_err());
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join(STAMP), "{").unwrap();
        let error = DataStamp::read(place.path()).unwrap_err().to_string();
        assert!(error.ends_with("is not the stamp of saved data"), "{error}");
    }

    #[test]
    fn identity_is_the_program_with_its_words() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("server");
        fs::write(&program, "one").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let of = |words: &[&str]| {
            identity(&program, &words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
        };
        let first = of(&[]).unwrap();
        assert_eq!((first.len(), first[0].0.as_str()), (1, "server"));
        assert_ne!(of(&["a=b"]).unwrap(), first);
        fs::write(&program, "two").unwrap();
        assert_ne!(of(&[]).unwrap(), first);
        fs::remove_file(&program).unwrap();
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn versions_are_found_in_what_programs_print() {
        let check = |printed: &str, version: &str, of_series: &str| {
            assert_eq!(printed_version(printed), version);
            assert_eq!(series(version), of_series);
        };
        check("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n", "15.14", "15.14");
        check(
            "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64",
            "7.0.15",
            "7.0",
        );
        let maria = "/usr/sbin/mariadbd  Ver 10.11.14-MariaDB-0+deb12u2 for debian-linux-gnu";
        check(maria, "10.11.14-MariaDB-0+deb12u2", "10.11");
        check("nothing\n", "nothing", "");
        check("18", "18", "18");
    }

    #[test]
    fn shape_has_the_named_settings_in_order() {
        let settings = ["innodb-page-size=8K", "a=b", "--lower_case_table_names=1"];
        let settings = settings.map(String::from);
        let names = ["innodb_page_size", "lower_case_table_names"];
        assert_eq!(shape_of(&settings, &names), "--lower_case_table_names=1 innodb-page-size=8K");
        assert_eq!(shape_of(&settings[1..2], &names), "");
    }
}
