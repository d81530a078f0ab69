//! An account of a cluster for a program that runs on one of its nodes: what its study takes, and
//! no more.
//!
//! Role and binding belong to the cluster, so they go with `Cluster::delete_namespace`, which has
//! their name. They also name the namespace as their owner, so that the cluster collects them if
//! only that is deleted.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Config;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::access::Access;
use crate::cluster::Cluster;
use crate::error::{KubeError, RUN_LABEL};

/// The name of the account in its namespace.
const NAME: &str = "node";
/// How long its token is valid, in seconds: longer than any study.
const TOKEN_S: u32 = 48 * 60 * 60;
/// Characters in a line of a certificate (RFC 7468).
const LINE: usize = 64;

/// Returns a rule of a role.
pub(crate) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
}

/// What an account is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountUse {
    /// Environments that are pods.
    MakePods,
    /// Pods of the user that are only read.
    ReadPods,
    /// Loaders that are pods, hosts that are nodes, and pods of the user that are read.
    ReachNodes,
    /// The same, and environments that are pods.
    MakePodsAndReachNodes,
}

/// Returns the rules of the account's role.
pub(crate) fn rules(account_use: AccountUse) -> Vec<Value> {
    let exec = rule("", &["pods/exec"], &["create", "get"]);
    match account_use {
        AccountUse::ReadPods => vec![rule("", &["pods"], &["get"])],
        AccountUse::ReachNodes => vec![
            rule("", &["nodes"], &["list"]),
            rule("", &["namespaces", "pods"], &["create", "get", "delete"]),
            rule("", &["events"], &["list"]),
            exec,
        ],
        AccountUse::MakePods => rules_of_pods(),
        AccountUse::MakePodsAndReachNodes => rules_of_pods().into_iter().chain([exec]).collect(),
    }
}

/// Returns what environments that are pods take. Volumes and their classes are for storage of a
/// class; events say why a pod or a claim waits.
fn rules_of_pods() -> Vec<Value> {
    let made = ["namespaces", "pods", "services", "persistentvolumeclaims"];
    vec![
        rule("", &["nodes"], &["list"]),
        rule("", &["nodes/proxy", "pods/log"], &["get"]),
        rule("", &made, &["create", "get", "delete"]),
        rule("", &["persistentvolumes"], &["get", "patch"]),
        rule("", &["events"], &["list"]),
        rule("storage.k8s.io", &["storageclasses"], &["list"]),
    ]
}

/// Returns role and binding as they are written in manifests. Their name is that of the namespace.
pub(crate) fn manifests(
    namespace: &str,
    run: &str,
    uid: &str,
    account_use: AccountUse,
) -> [Value; 3] {
    let labels = json!({ RUN_LABEL: run });
    let owner = json!({ "apiVersion": "v1", "kind": "Namespace", "name": namespace, "uid": uid });
    let metadata = json!({ "name": namespace, "labels": labels, "ownerReferences": [owner] });
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace });
    let subject = json!({ "kind": "ServiceAccount", "name": NAME, "namespace": namespace });
    [
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": NAME, "namespace": namespace, "labels": labels },
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": metadata,
            "rules": rules(account_use),
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [subject],
        }),
    ]
}

impl Cluster {
    /// Creates an account in a namespace of the run, and returns a kubeconfig for it. `access` is
    /// that of this cluster.
    ///
    /// # Errors
    /// If the user may not create it: a cluster lets a user give only the rights that he has.
    pub fn create_account(
        &self,
        access: &Access,
        namespace: &str,
        run: &str,
        account_use: AccountUse,
    ) -> Result<String, KubeError> {
        let what = format!("create an account in the namespace {namespace}");
        let all: Api<Namespace> = Api::all(self.client.clone());
        let uid = self.call(&what, all.get(namespace))?.metadata.uid.unwrap_or_default();
        let [account, role, binding] = manifests(namespace, run, &uid, account_use);
        let account: ServiceAccount = self.typed(&what, account)?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        self.call(&what, async { accounts.create(&PostParams::default(), &account).await })?;
        let role: ClusterRole = self.typed(&what, role)?;
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        self.call(&what, async { roles.create(&PostParams::default(), &role).await })?;
        let binding: ClusterRoleBinding = self.typed(&what, binding)?;
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        self.call(&what, async { bindings.create(&PostParams::default(), &binding).await })?;
        let token = self.token(namespace)?;
        let config = self.runtime.block_on(access.config())?;
        self.kubeconfig(&config, &token)
    }

    fn token(&self, namespace: &str) -> Result<String, KubeError> {
        let what = format!("get a token of the account in the namespace {namespace}");
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{NAME}/token");
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": TOKEN_S },
        });
        let request = http::Request::post(&path)
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())
            .map_err(|error| KubeError::Access { why: error.to_string() })?;
        let made: Value = self.call(&what, self.client.request(request))?;
        let token = made["status"]["token"].as_str().map(String::from);
        let message = "it gave none".to_string();
        token.ok_or(KubeError::Api { what, code: 0, message })
    }

    /// Returns a kubeconfig. A loopback address of the API server is that of the user's own host,
    /// so the node gets the service of the API in its place.
    fn kubeconfig(&self, config: &Config, token: &str) -> Result<String, KubeError> {
        let host = config.cluster_url.host().unwrap_or_default().to_string();
        let mut server = config.cluster_url.to_string();
        let mut name = config.tls_server_name.clone();
        if is_loopback(&host) {
            let services: Api<Service> = Api::namespaced(self.client.clone(), "default");
            let what = "read the service of the API";
            let found = self.call(what, services.get("kubernetes"))?;
            let address = found.spec.and_then(|spec| spec.cluster_ip).unwrap_or_default();
            server = format!("https://{address}");
            name.get_or_insert(host);
        }
        let certificates: Vec<String> =
            config.root_cert.iter().flatten().map(|der| certificate(der)).collect();
        let mut cluster = json!({ "server": server });
        match certificates.is_empty() {
            true => cluster["insecure-skip-tls-verify"] = json!(config.accept_invalid_certs),
            false => {
                cluster["certificate-authority-data"] =
                    json!(STANDARD.encode(certificates.concat()));
            }
        }
        if let Some(name) = name {
            cluster["tls-server-name"] = json!(name);
        }
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "c", "cluster": cluster }],
            "users": [{ "name": "u", "user": { "token": token } }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "x",
        });
        Ok(kubeconfig.to_string())
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// Returns a certificate in PEM.
fn certificate(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(LINE).map(String::from_utf8_lossy);
    let body: String = lines.map(|line| format!("{line}\n")).collect();
    format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_pem() {
        let pem = certificate(&[7; 60]);
        let lines: Vec<&str> = pem.lines().collect();
        assert_eq!(lines.iter().map(|line| line.len()).collect::<Vec<_>>(), [27, 64, 16, 25]);
    }

    #[test]
    fn loopback_addresses_are_the_users_own() {
        for (host, expect) in
            [("127.0.0.1", true), ("[::1]", true), ("localhost", true), ("10.0.0.1", false)]
        {
            assert_eq!(is_loopback(host), expect, "{host}");
        }
    }
}
