//! A cluster, as far as the user's access reaches.

use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Event, Namespace, Node as ApiNode, Pod, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, LogParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use crate::access::{Access, CALL_LIMIT};
use crate::error::{KubeError, RUN_LABEL, one_line, sources};
use crate::events::why_not_started;
use crate::node::Node;
use crate::pod::{CONTAINER, NewPod, Progress, RunningPod, progress};
use crate::service::{self, NewService, ServiceAddress};
use crate::stays;
use crate::tare_image::TareImage;

/// How long a pod may take from its creation to its process.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long the kubelet and the controllers may take to remove what was deleted.
pub(crate) const DELETE_LIMIT: Duration = Duration::from_secs(60);

/// The pause between two questions while something starts or ends.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// A cluster that answers.
pub struct Cluster {
    pub(crate) client: Client,
    pub(crate) runtime: Runtime,
    server: String,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Connects with an access.
    ///
    /// # Errors
    /// If there is no access, or if it cannot be read. The API server is not asked yet.
    pub fn connect(access: &Access) -> Result<Self, KubeError> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| KubeError::Access { why: error.to_string() })?;
        let made = runtime.block_on(async {
            let config = access.config().await?;
            let server = config.cluster_url.to_string().trim_end_matches('/').to_string();
            let client = Client::try_from(config);
            let client = client.map_err(|error| KubeError::Access { why: sources(&error) })?;
            Ok((client, server))
        });
        let (client, server) = made?;
        Ok(Self { client, runtime, server })
    }

    /// Returns the URL of the API server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the version of the API server, such as `v1.34.1`.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub fn version(&self) -> Result<String, KubeError> {
        let info = self.call("read the version of the cluster", self.client.apiserver_version())?;
        Ok(info.git_version)
    }

    /// Returns the node that this host is: the one whose kubelet runs on this boot of the kernel,
    /// and whose address is one of this host where several do.
    ///
    /// # Errors
    /// If no node does, or if the user may not list nodes.
    pub fn node_here(&self) -> Result<Node, KubeError> {
        let nodes: Api<ApiNode> = Api::all(self.client.clone());
        let listed = self.call("list the nodes", nodes.list(&ListParams::default()))?;
        let all: Vec<Node> = listed.items.into_iter().map(Node::of).collect();
        let known: Vec<String> = all.iter().map(|node| node.name.clone()).collect();
        let mut here: Vec<Node> = all.into_iter().filter(Node::shares_kernel).collect();
        if here.len() > 1 {
            here.retain(Node::has_address_here);
        }
        here.into_iter().next().ok_or_else(|| KubeError::NotANode { known: known.join(", ") })
    }

    /// Returns a node.
    ///
    /// # Errors
    /// If there is none of this name, or if the user may not list nodes.
    pub fn node(&self, name: &str) -> Result<Node, KubeError> {
        let nodes: Api<ApiNode> = Api::all(self.client.clone());
        let listed = self.call("list the nodes", nodes.list(&ListParams::default()))?;
        let all: Vec<Node> = listed.items.into_iter().map(Node::of).collect();
        let known = all.iter().map(|node| node.name.clone()).collect::<Vec<_>>().join(", ");
        let found = all.into_iter().find(|node| node.name == name);
        found.ok_or_else(|| KubeError::NoNode { name: name.into(), known })
    }

    /// Returns the nodes whose labels a selector matches, as `kubectl get nodes --selector` does.
    ///
    /// # Errors
    /// If the API server cannot read the selector, no node matches, or the user may not list nodes.
    pub fn nodes_with_labels(&self, selector: &str) -> Result<Vec<Node>, KubeError> {
        let nodes: Api<ApiNode> = Api::all(self.client.clone());
        let matching = ListParams::default().labels(selector);
        let selector = selector.to_string();
        let listed = match self.call("list the nodes", nodes.list(&matching)) {
            Err(KubeError::Api { code: 400, message, .. }) => {
                return Err(KubeError::Selector { selector, why: message });
            }
            listed => listed?,
        };
        match listed.items.is_empty() {
            true => Err(KubeError::NoMatch { selector }),
            false => Ok(listed.items.into_iter().map(Node::of).collect()),
        }
    }

    /// Returns a node on which a pod of Tare can start.
    ///
    /// # Errors
    /// As [`Self::node`], and if it is not ready, or does not list the image of the pause program
    /// and there is no image of Tare.
    pub(crate) fn node_for_pod(
        &self,
        name: &str,
        image: Option<&TareImage>,
    ) -> Result<Node, KubeError> {
        let node = self.node(name)?;
        if let Some(why) = node.not_ready {
            return Err(KubeError::NodeNotReady { node: node.name, why });
        }
        match image.is_some() || node.pause_image().is_some() {
            true => Ok(node),
            false => Err(KubeError::NoImage { node: node.name }),
        }
    }

    /// Creates a namespace whose pods may use the node's files and network, by its
    /// label for Pod Security.
    ///
    /// # Errors
    /// If it exists, or if the user may not create it.
    pub fn create_namespace(&self, name: &str, run: &str) -> Result<(), KubeError> {
        let what = format!("create the namespace {name}");
        let namespace: Namespace = self.typed(&what, namespace_manifest(name, run))?;
        let all: Api<Namespace> = Api::all(self.client.clone());
        let call = async { all.create(&PostParams::default(), &namespace).await };
        self.call(&what, call).map(drop)
    }

    /// Returns the namespaces that runs of Tare created and that still exist.
    ///
    /// # Errors
    /// If the user may not list namespaces.
    pub fn namespaces_of_runs(&self) -> Result<Vec<String>, KubeError> {
        let all: Api<Namespace> = Api::all(self.client.clone());
        let ours = ListParams::default().labels(RUN_LABEL);
        let listed = self.call("list the namespaces", all.list(&ours))?;
        Ok(listed.items.into_iter().filter_map(|namespace| namespace.metadata.name).collect())
    }

    /// Returns the roles of accounts that runs of Tare created and that still exist.
    ///
    /// # Errors
    /// If the user may not list roles.
    pub fn roles_of_runs(&self) -> Result<Vec<String>, KubeError> {
        let all: Api<ClusterRole> = Api::all(self.client.clone());
        let ours = ListParams::default().labels(RUN_LABEL);
        let listed = self.call("list the roles", all.list(&ours))?;
        Ok(listed.items.into_iter().filter_map(|role| role.metadata.name).collect())
    }

    /// Deletes a namespace with everything in it, and waits until it is gone. A missing one is no
    /// error. `run` has to be the run in its label.
    ///
    /// # Errors
    /// If it is not the run's, or if it is still there after a while.
    pub fn delete_namespace(&self, name: &str, run: &str) -> Result<(), KubeError> {
        let all: Api<Namespace> = Api::all(self.client.clone());
        let what = format!("delete the namespace {name}");
        let Some(found) = self.call(&what, all.get_opt(name))? else { return Ok(()) };
        let label = found.metadata.labels.and_then(|mut labels| labels.remove(RUN_LABEL));
        if label.as_deref() != Some(run) {
            let message = format!("it lacks the label {RUN_LABEL}={run}, so it is not Tare's");
            return Err(KubeError::Api { what, code: 0, message });
        }
        // Those of an account have the namespace's name. Most namespaces have no account, and then
        // the user may not even be allowed to look.
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        self.delete_of_run(&bindings, name, run)?;
        self.delete_of_run(&roles, name, run)?;
        self.say_why(self.delete(&what, &all, name), &all, name, stays::of_namespace)
    }

    /// Says of an object that is not gone in time why it stays, if the API tells.
    fn say_why<K>(
        &self,
        deleted: Result<(), KubeError>,
        api: &Api<K>,
        name: &str,
        why: fn(&K) -> Option<String>,
    ) -> Result<(), KubeError>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let Err(KubeError::TimedOut { what, limit }) = deleted else { return deleted };
        match self.call(&what, api.get_opt(name))?.as_ref().and_then(why) {
            Some(why) => Err(KubeError::Stays { what, limit, why }),
            None => Err(KubeError::TimedOut { what, limit }),
        }
    }

    /// Deletes an object that has the label of a run, if the user may see it.
    fn delete_of_run<K>(&self, api: &Api<K>, name: &str, run: &str) -> Result<(), KubeError>
    where
        K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let what = format!("delete the role of the namespace {name}");
        let found = match self.call(&what, api.get_metadata_opt(name)) {
            Err(KubeError::Rights { .. }) => return Ok(()),
            found => found?,
        };
        let label = found.and_then(|mut found| found.metadata.labels.as_mut()?.remove(RUN_LABEL));
        if label.as_deref() == Some(run) { self.delete(&what, api, name) } else { Ok(()) }
    }

    /// Creates a pod and waits until its process runs.
    ///
    /// # Errors
    /// Says why it cannot start. The pod stays until it is deleted.
    pub fn create_pod(&self, new: &NewPod<'_>) -> Result<RunningPod, KubeError> {
        let (namespace, patience) = (new.namespace, new.volume_limit);
        let started = self.start_pod(namespace, new.name, new.node, new.manifest(), patience);
        started.map_err(|error| match new.claim() {
            Some(claim) => self.unbound(namespace, claim, error),
            None => error,
        })
    }

    /// Creates a pod from its manifest and waits until its process runs. `volume_limit` is how long
    /// the scheduler may find no volume for it.
    pub(crate) fn start_pod(
        &self,
        namespace: &str,
        name: &str,
        node: &str,
        manifest: serde_json::Value,
        volume_limit: Duration,
    ) -> Result<RunningPod, KubeError> {
        let what = format!("create the pod {name}");
        let pod: Pod = self.typed(&what, manifest)?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let begin = Instant::now();
        let deadline = begin + START_LIMIT + volume_limit;
        // The account of a new namespace is made a moment later; until then pods are refused.
        loop {
            let call = async { pods.create(&PostParams::default(), &pod).await };
            match self.call(&what, call) {
                Err(KubeError::Policy { message, .. })
                    if message.contains("serviceaccount") && Instant::now() < deadline =>
                {
                    thread::sleep(PAUSE);
                }
                created => break created.map(drop)?,
            }
        }
        let what = format!("start the pod {name}");
        loop {
            let found = self.call(&what, pods.get(name))?;
            match progress(&found, node)? {
                Progress::Running(running) => return Ok(running),
                Progress::NoVolume(error) if begin.elapsed() > volume_limit => return Err(error),
                Progress::NoVolume(_) | Progress::Waiting => {}
            }
            if Instant::now() > deadline {
                let why = why_not_started(&found, self.events(namespace, ("Pod", name)));
                let (name, node, limit) = (name.into(), node.into(), deadline - begin);
                return Err(KubeError::NotStarted { name, node, limit, why });
            }
            thread::sleep(PAUSE);
        }
    }

    /// Returns the events of the objects of a kind and a name.
    pub(crate) fn events(
        &self,
        namespace: &str,
        (kind, name): (&str, &str),
    ) -> Result<Vec<Event>, KubeError> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let of = format!("involvedObject.kind={kind},involvedObject.name={name}");
        let what = format!("list the events of {name}");
        Ok(self.call(&what, events.list(&ListParams::default().fields(&of)))?.items)
    }

    /// Returns what the API says about a pod now; `None` if it does not run.
    ///
    /// # Errors
    /// If it can never run again.
    pub fn pod(&self, namespace: &str, name: &str) -> Result<Option<RunningPod>, KubeError> {
        let Some(found) = self.read_pod(namespace, name)? else { return Ok(None) };
        let node = found.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        match progress(&found, &node)? {
            Progress::Running(running) => Ok(Some(running)),
            Progress::NoVolume(_) | Progress::Waiting => Ok(None),
        }
    }

    /// Returns a pod as the API has it, also one that Tare did not make; `None` if it is missing.
    pub(crate) fn read_pod(&self, namespace: &str, name: &str) -> Result<Option<Pod>, KubeError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        self.call(&format!("read the pod {namespace}/{name}"), pods.get_opt(name))
    }

    /// Deletes a pod and waits until the kubelet has ended it. A missing one is no error.
    ///
    /// # Errors
    /// If it is still there after a while.
    pub fn delete_pod(&self, namespace: &str, name: &str) -> Result<(), KubeError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let deleted = self.delete(&format!("delete the pod {name}"), &pods, name);
        self.say_why(deleted, &pods, name, stays::of_pod)
    }

    /// Creates a service and returns where it is reached. The cluster's proxy needs another moment.
    ///
    /// # Errors
    /// If it exists, or if the user may not create it.
    pub fn create_service(&self, new: &NewService<'_>) -> Result<ServiceAddress, KubeError> {
        let what = format!("create the service {}", new.name);
        let service: Service = self.typed(&what, new.manifest())?;
        let services: Api<Service> = Api::namespaced(self.client.clone(), new.namespace);
        let call = async { services.create(&PostParams::default(), &service).await };
        self.call(&what, call).map(service::address)
    }

    /// Deletes a service and waits until it is gone. A missing one is no error.
    ///
    /// # Errors
    /// If it is still there after a while.
    pub fn delete_service(&self, namespace: &str, name: &str) -> Result<(), KubeError> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        self.delete(&format!("delete the service {name}"), &services, name)
    }

    /// Returns the last lines that a pod printed.
    ///
    /// # Errors
    /// If the kubelet does not answer, or if the user may not read logs.
    pub fn log_tail(&self, namespace: &str, name: &str) -> Result<String, KubeError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let options = LogParams {
            container: Some(CONTAINER.into()),
            tail_lines: Some(20),
            ..LogParams::default()
        };
        self.call(&format!("read the log of the pod {name}"), pods.logs(name, &options))
    }

    /// Returns the configuration that the kubelet of a node runs with, as JSON.
    ///
    /// # Errors
    /// If the user may not ask the kubelet through the API (`nodes/proxy`).
    pub fn kubelet_configuration(&self, node: &str) -> Result<serde_json::Value, KubeError> {
        let what = format!("read the configuration of the kubelet of {node}");
        let path = format!("/api/v1/nodes/{node}/proxy/configz");
        let request = http_get(&path).map_err(|why| KubeError::Access { why })?;
        let mut found: serde_json::Value = self.call(&what, self.client.request(request))?;
        Ok(found["kubeletconfig"].take())
    }

    pub(crate) fn delete<K>(&self, what: &str, api: &Api<K>, name: &str) -> Result<(), KubeError>
    where
        K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let deadline = Instant::now() + DELETE_LIMIT;
        match self.call(what, api.delete(name, &DeleteParams::default())) {
            Ok(_) => {}
            Err(KubeError::Api { code: 404, .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
        while self.call(what, api.get_metadata_opt(name))?.is_some() {
            if Instant::now() > deadline {
                return Err(KubeError::TimedOut { what: what.into(), limit: DELETE_LIMIT });
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Reads a manifest as an object of the API.
    pub(crate) fn typed<K: DeserializeOwned>(
        &self,
        what: &str,
        manifest: serde_json::Value,
    ) -> Result<K, KubeError> {
        serde_json::from_value(manifest).map_err(|error| {
            let message = one_line(&error.to_string());
            KubeError::Api { what: what.into(), code: 0, message }
        })
    }

    pub(crate) fn call<T>(
        &self,
        what: &str,
        future: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, KubeError> {
        let limited = async { tokio::time::timeout(CALL_LIMIT, future).await };
        match self.runtime.block_on(limited) {
            Ok(answer) => answer.map_err(|error| KubeError::of(what, &self.server, error)),
            Err(_) => Err(KubeError::silent(what, &self.server, CALL_LIMIT)),
        }
    }
}

/// Returns a namespace as it is written in a manifest.
pub(crate) fn namespace_manifest(name: &str, run: &str) -> serde_json::Value {
    let labels = json!({ RUN_LABEL: run, "pod-security.kubernetes.io/enforce": "privileged" });
    let metadata = json!({ "name": name, "labels": labels });
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata })
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>, String> {
    http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())
}
