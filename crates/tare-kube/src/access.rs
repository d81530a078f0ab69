//! The user's access to a cluster: where it is, without a credential.

use std::path::PathBuf;
use std::time::Duration;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::{Deserialize, Serialize};

use crate::error::{KubeError, sources};

/// How long the API server may take to answer a call.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(20);

/// Files of access as kubectl reads them, and the context in them. A journal keeps it, so that what
/// a killed run left is removed from the same cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Absolute paths. Empty: the account of the pod that this process runs in.
    files: Vec<PathBuf>,
    context: Option<String>,
}

impl Access {
    /// Finds the access that kubectl would use: `KUBECONFIG`, `~/.kube/config`, the account of a
    /// pod.
    ///
    /// # Errors
    /// If there is none, or if a file cannot be read.
    pub fn find() -> Result<Self, KubeError> {
        let none = |why: String| KubeError::NoAccess { why };
        let variable = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
        let usual = || Some(std::env::home_dir()?.join(".kube/config"));
        let files: Vec<PathBuf> = match &variable {
            Some(value) => std::env::split_paths(value).collect(),
            None => usual().into_iter().filter(|path| path.exists()).collect(),
        };
        if files.is_empty() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
            return Err(none("KUBECONFIG is not set, and there is no ~/.kube/config".into()));
        }
        let absolute = |path: PathBuf| {
            let found = path.canonicalize();
            found.map_err(|error| none(format!("{}: {error}", path.display())))
        };
        let files = files.into_iter().map(absolute).collect::<Result<Vec<_>, _>>()?;
        let mut access = Self { files, context: None };
        access.context = access.read()?.and_then(|read| read.current_context);
        Ok(access)
    }

    /// Returns the access in a file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of_file(path: PathBuf) -> Result<Self, KubeError> {
        let mut access = Self { files: vec![path], context: None };
        access.context = access.read()?.and_then(|read| read.current_context);
        Ok(access)
    }

    /// Finds the same access in another of its contexts.
    ///
    /// # Errors
    /// As [`Self::find`], and if the files have no such context.
    pub fn find_in(context: &str) -> Result<Self, KubeError> {
        let mut access = Self::find()?;
        let read = access.read()?.unwrap_or_default();
        let known: Vec<String> = read.contexts.into_iter().map(|one| one.name).collect();
        if !known.iter().any(|name| name == context) {
            let why = format!("it has no context {context}, but {}", known.join(", "));
            return Err(KubeError::Access { why });
        }
        access.context = Some(context.into());
        Ok(access)
    }

    /// Reads and merges the files; `None` if there are none.
    fn read(&self) -> Result<Option<Kubeconfig>, KubeError> {
        let mut merged: Option<Kubeconfig> = None;
        for path in &self.files {
            let wrong = |error| {
                let why = format!("{}: {}", path.display(), sources(&error));
                KubeError::Access { why }
            };
            let read = Kubeconfig::read_from(path).map_err(wrong)?;
            merged = Some(match merged {
                None => read,
                Some(first) => first.merge(read).map_err(wrong)?,
            });
        }
        Ok(merged)
    }

    pub(crate) async fn config(&self) -> Result<Config, KubeError> {
        let Some(read) = self.read()? else {
            let found = Config::incluster();
            return found.map_err(|error| KubeError::NoAccess { why: sources(&error) });
        };
        let options =
            KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(read, &options).await;
        config.map_err(|error| KubeError::Access { why: sources(&error) })
    }
}
