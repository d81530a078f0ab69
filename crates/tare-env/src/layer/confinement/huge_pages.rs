//! The host's setting of transparent huge pages while an environment runs that needs another one.
//!
//! Method: like a tuned host (`layer::host`). All environments of a study are up at once and all
//! but one are frozen, so the setting is written when the environment starts or thaws, and put back
//! when it is frozen or ends. The old value is in the journal before the first write.
//!
//! Limits: the setting is of the whole host, so programs outside of the study get huge pages too
//! while the environment runs. A page that the system has got stays as it is.

use std::fs;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tare_host::UndoError;
use tare_host::journal::{Entry, EntryId};
use tare_host::undo::UndoKinds;
use tare_lab::PartError;
use tare_lab::environment::{
    DataSnapshot, Endpoint, Environment, EnvironmentSpec, Launch, LayerState, Processes,
    RestoreStats, SystemSettings, Usage,
};
use tare_lab::layer::{Layer, Pages};

use crate::run_context::RunContext;

/// The kind of the journal's entries.
const KIND: &str = "huge_pages";

/// The kernel's setting.
const PATH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The first kernel in which a process can have huge pages only where it asks for them
/// (PR_THP_DISABLE_EXCEPT_ADVISED).
const KERNEL_WITH_ADVISED: (u32, u32) = (6, 18);

/// Why the host's setting could not be changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HugePagesError {
    #[error("cannot read or write {PATH}, the host's setting of transparent huge pages")]
    Setting(#[source] io::Error),
}

/// The host's setting, as found and as an environment needs it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "huge_pages")]
struct Setting {
    was: String,
    wanted: String,
}

/// Returns the value that the host has: the word in brackets.
pub(super) fn on_host() -> io::Result<String> {
    let text = fs::read_to_string(PATH)?;
    Ok(chosen(&text).unwrap_or_default().to_string())
}

fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split(']').next()
}

/// Returns whether the kernel has the process flag for `madvise`.
fn has_advised() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= KERNEL_WITH_ADVISED
}

/// Returns the flag of the process, as Tare's program reads it in its environment.
pub(crate) fn variable(pages: Pages) -> Option<&'static str> {
    match pages {
        Pages::Never => Some("never"),
        Pages::Madvise => has_advised().then_some("madvise"),
        Pages::Host | Pages::Always => None,
    }
}

/// Returns the value that the host must have while such an environment runs, if it must have one.
fn of_host(pages: Pages) -> io::Result<Option<&'static str>> {
    Ok(match pages {
        Pages::Always => Some("always"),
        Pages::Madvise if !has_advised() || on_host()? == "never" => Some("madvise"),
        _ => None,
    })
}

/// Undoes the entries of this file.
#[derive(Debug)]
pub(crate) struct HugePagesKinds;

impl UndoKinds for HugePagesKinds {
    fn kinds(&self) -> &'static [&'static str] {
        &[KIND]
    }

    fn undo(&self, _run: &str, entry: &Entry) -> Result<(), UndoError> {
        let setting: Setting = entry.read()?;
        setting.put_back().map_err(|error| UndoError::OfKind(Box::new(error)))
    }
}

impl Setting {
    fn write(value: &str) -> Result<(), HugePagesError> {
        fs::write(PATH, value).map_err(HugePagesError::Setting)
    }

    /// Puts the old value back, unless another program has changed it since.
    fn put_back(&self) -> Result<(), HugePagesError> {
        let known = ["always", "madvise", "never"].contains(&self.was.as_str());
        match on_host() {
            Ok(now) if known && now == self.wanted && now != self.was => Self::write(&self.was),
            _ => Ok(()),
        }
    }
}

/// An environment that sets the host's huge pages for itself.
pub(crate) struct WithHugePages {
    inner: Box<dyn Environment>,
    context: Arc<RunContext>,
    wanted: &'static str,
    /// The setting and its entry, while the environment is up.
    setting: Option<(Setting, Vec<EntryId>)>,
}

impl WithHugePages {
    /// Returns the environment as it is, or around it what sets the host's huge pages.
    ///
    /// # Errors
    /// When the kernel has no transparent huge pages.
    pub(crate) fn around(
        inner: Box<dyn Environment>,
        context: &Arc<RunContext>,
    ) -> Result<Box<dyn Environment>, PartError> {
        let wanted = of_host(inner.spec().confinement.pages).map_err(HugePagesError::Setting)?;
        let context = Arc::clone(context);
        Ok(match wanted {
            Some(wanted) => Box::new(Self { inner, context, wanted, setting: None }),
            None => inner,
        })
    }

    /// Sets the host's value, after a journal entry with the old one.
    fn set(&mut self) -> Result<(), PartError> {
        if self.setting.is_none() {
            let was = on_host().map_err(HugePagesError::Setting)?;
            let setting = Setting { was, wanted: self.wanted.into() };
            let ids = self.context.journal().write(vec![Entry::new(&setting)])?;
            self.setting = Some((setting, ids));
        }
        Ok(Setting::write(self.wanted)?)
    }

    fn put_back(&self) -> Result<(), PartError> {
        Ok(self.setting.as_ref().map_or(Ok(()), |(setting, _)| setting.put_back())?)
    }

    /// Sets the host's value for `act`. If that fails, the old one is put back.
    fn on_host<T>(
        &mut self,
        act: impl FnOnce(&mut dyn Environment) -> Result<T, PartError>,
    ) -> Result<T, PartError> {
        self.set()?;
        let done = act(&mut *self.inner);
        if done.is_err() {
            // The first error names the cause; the journal keeps what could not be put back.
            let _ = self.put_back();
        }
        done
    }
}

impl Environment for WithHugePages {
    fn spec(&self) -> &EnvironmentSpec {
        self.inner.spec()
    }

    fn start_from(&mut self, data: &Rc<dyn DataSnapshot>) {
        self.inner.start_from(data);
    }

    fn restored(&self) -> Option<RestoreStats> {
        self.inner.restored()
    }

    fn start(&mut self, launch: &Launch) -> Result<Endpoint, PartError> {
        self.on_host(|inner| inner.start(launch))
    }

    fn start_all(&mut self, launches: &[Launch]) -> Result<Vec<Endpoint>, PartError> {
        self.on_host(|inner| inner.start_all(launches))
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        let mut layers = self.inner.read_back()?;
        let found = on_host().unwrap_or_else(|error| error.to_string());
        for one in layers.iter_mut().filter(|one| one.layer == Layer::Pages.name()) {
            one.in_force &= found == self.wanted;
            one.found += &format!("; the host's setting while it runs: {found}");
        }
        Ok(layers)
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        let frozen = self.inner.freeze();
        let put_back = self.put_back();
        frozen.and(put_back)
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.on_host(|inner| inner.thaw())
    }

    fn withdraw(&mut self) -> Result<(), PartError> {
        self.inner.withdraw()
    }

    fn publish(&mut self) -> Result<(), PartError> {
        self.inner.publish()
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        self.inner.usage()
    }

    fn processes(&mut self) -> Processes {
        self.inner.processes()
    }

    fn settings(&mut self) -> Result<Option<Vec<SystemSettings>>, PartError> {
        self.inner.settings()
    }

    fn config(&self) -> Option<String> {
        self.inner.config()
    }

    fn log_tail(&self) -> String {
        self.inner.log_tail()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        let stopped = self.inner.stop();
        let put_back = self.put_back();
        if let (Ok(()), Some((_, ids))) = (&put_back, self.setting.take()) {
            self.context.journal().undo(&ids);
        }
        stopped.and(put_back)
    }
}

impl Drop for WithHugePages {
    fn drop(&mut self) {
        // Callers that need the error call `stop`; the journal keeps what is left.
        let _ = self.stop();
    }
}

/// Returns whether the kernel has transparent huge pages.
pub(super) fn are_there() -> bool {
    Path::new(PATH).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_word_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("always madvise"), None);
    }

    #[test]
    fn entry_keeps_its_form_and_leaves_changes_of_others() {
        let entry = |was: &str, wanted: &str| {
            Entry::new(&Setting { was: was.into(), wanted: wanted.into() })
        };
        let json = serde_json::json!({ "kind": "huge_pages", "was": "never", "wanted": "always" });
        assert_eq!(serde_json::to_value(entry("never", "always")).unwrap(), json);
        let before = on_host().unwrap_or_default();
        // The host does not have the value that the entry says Tare has written.
        let other = if before == "always" { "never" } else { "always" };
        HugePagesKinds.undo("ab12", &entry("madvise", other)).unwrap();
        // A word that the kernel does not know is never written.
        HugePagesKinds.undo("ab12", &entry("x", &before)).unwrap();
        assert_eq!(on_host().unwrap_or_default(), before);
    }
}
