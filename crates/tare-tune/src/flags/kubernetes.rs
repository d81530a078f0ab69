//! Kubernetes: a Guaranteed pod for each instance and the kubelet's configuration.
//!
//! The kubelet chooses the CPUs of a pod. So each pod requests a number of CPUs, and the kubelet's
//! configuration reserves the interrupt cores. Limits: the CPU set of a pod is known only once it
//! runs (`Cpus_allowed_list` in /proc/PID/status).

use tare_std::cpus::CpuSet;

use super::container::{self, Kind, Setting};
use super::{Consumer, Context, Engine, Flag, Flags, FlagsError, Instance, InstanceFlags, Layer};
use super::{InstancesError, ProfileForm, Text, comment, instances, quote, wrap};

#[derive(Debug)]
pub(super) struct Kubernetes;

impl Consumer for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn help(&self) -> &'static str {
        "a Guaranteed pod for each instance, and the kubelet's configuration"
    }

    fn profile_form(&self) -> ProfileForm {
        ProfileForm::Oci
    }

    fn write(&self, context: &Context<'_>) -> Result<Flags, FlagsError> {
        let reserved = context.cpus.reserved_cores(context.topology);
        let exclusive = context.cpus.universe.difference(&reserved);
        if exclusive.is_empty() {
            return Err(InstancesError::NoCpus.into());
        }
        let instances = instances::divide(context.topology, &exclusive, context.request.instances)?;
        let memory = context.request.memory_bytes.or_else(|| context.memory_share());
        let memory = memory.ok_or(FlagsError::Memory)?;
        let each = instances.iter().map(|instance| pod(context, instance, memory));
        Ok(Flags {
            consumer: self.name(),
            instances: each.collect::<Result<_, _>>()?,
            shared: vec![kubelet(context, &reserved, &instances)],
            capabilities: container::capabilities(context),
            notes: notes(context, &instances),
        })
    }
}

fn kubelet(context: &Context<'_>, reserved: &CpuSet, instances: &[Instance]) -> Text {
    let one_node = instances.iter().all(|instance| instance.nodes.len() == 1);
    let (policy, why) = match one_node {
        true => ("single-numa-node", "Every instance fits in one NUMA node and gets one."),
        false => (
            "best-effort",
            "An instance is larger than a NUMA node, so single-numa-node would refuse it.",
        ),
    };
    let threads = context.topology.nodes.iter().flat_map(|node| &node.cores);
    let smt = threads.clone().any(|core| core.cpus.len() > 1);
    let mut body =
        String::from("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n");
    let mut add = |why: &str, source: &str, text: &str, layer: Option<Layer>| {
        let flag = context.flag(text, why, source, layer);
        body += &format!("{}{text}\n", comment(&flag, ""));
    };
    const CPU_DOCS: &str = "kubernetes.io: control CPU management policies on the node";
    add(
        "Exclusive CPUs for every Guaranteed pod that requests whole CPUs.",
        CPU_DOCS,
        "cpuManagerPolicy: static",
        Some(Layer::Cpu),
    );
    add(
        "The interrupt cores, where the system and other pods run, are never exclusive to a pod. The \
         static policy needs a reservation.",
        CPU_DOCS,
        &format!("reservedSystemCPUs: \"{reserved}\""),
        None,
    );
    if smt {
        add(
            "Whole cores only, so that no other pod runs on the sibling thread (stable since 1.33). \
             strict-cpu-reservation would leave no CPU for other pods if the database takes the rest.",
            CPU_DOCS,
            "cpuManagerPolicyOptions:\n  full-pcpus-only: \"true\"",
            None,
        );
    }
    add(why, "kubernetes.io: topology manager", &format!("topologyManagerPolicy: {policy}"), None);
    if context.topology.nodes.len() > 1 && one_node {
        body += &wrap(
            "memoryManagerPolicy: Static also binds memory. It needs reservedMemory for each node; the \
             sum must be kube-reserved plus system-reserved plus the hard eviction threshold \
             [kubernetes.io: memory manager].",
            "# ",
        );
    }
    Text {
        title:
            "Kubelet: merge into the node's /var/lib/kubelet/config.yaml; it is not an object for \
                kubectl. To change a policy, drain the node, stop the kubelet and remove \
                /var/lib/kubelet/cpu_manager_state."
                .into(),
        language: "yaml",
        body,
    }
}

/// The sections of a pod's manifest.
#[derive(Default)]
struct PodParts {
    spec: String,
    container: String,
    security: String,
    volumes: String,
}

impl PodParts {
    /// Writes a setting into its section and returns its flag; `None` when the setting is not part
    /// of a pod's manifest.
    fn add(
        &mut self,
        context: &Context<'_>,
        (setting, mut flag): (Setting, Flag),
        cpus: usize,
        memory: u64,
    ) -> Option<Flag> {
        match &setting {
            Setting::Cpus(_) => {
                flag.text = format!("cpu: \"{cpus}\"");
                flag.buys =
                    "Requests equal to limits, and whole CPUs: the pod is Guaranteed and gets \
                             exclusive CPUs. A single container without limits (a sidecar) removes \
                             that for all."
                        .into();
                flag.source = "kubernetes.io: control CPU management policies on the node".into();
                let amounts = format!("cpu: \"{cpus}\"\n          memory: \"{memory}\"");
                self.container += &comment(&flag, "      ");
                self.container += &format!(
                    "      resources:\n        requests:\n          {amounts}\n        limits:\n          \
                     {amounts}\n"
                );
            }
            Setting::HostNetwork => {
                flag.text = "hostNetwork: true".into();
                self.spec += &comment(&flag, "  ");
                self.spec += "  hostNetwork: true\n  dnsPolicy: ClusterFirstWithHostNet\n";
            }
            Setting::Capability(name) => {
                flag.text = format!("capabilities: add {name}");
                self.security += &comment(&flag, "        ");
                self.security += &format!("        capabilities:\n          add: [\"{name}\"]\n");
            }
            Setting::Seccomp(path) => {
                let file = path.rsplit('/').next().unwrap_or(path);
                flag.text = format!("localhostProfile: profiles/{file}");
                flag.buys += &format!(
                    " Copy {path} to /var/lib/kubelet/seccomp/profiles/{file} on every node."
                );
                self.security += &comment(&flag, "        ");
                self.security += "        seccompProfile:\n          type: Localhost\n";
                let profile = quote::yaml(&format!("profiles/{file}"));
                self.security += &format!("          localhostProfile: {profile}\n");
            }
            Setting::Volume { host, inside } => {
                flag.text = format!("hostPath {host}");
                flag.buys += " A local PersistentVolume also works.";
                self.container += &format!(
                    "      volumeMounts:\n        - name: data\n          mountPath: {inside}\n"
                );
                if context.engine.wants_shared_memory() {
                    self.container += "        - name: shm\n          mountPath: /dev/shm\n";
                }
                let own = comment(&flag, "    ");
                self.volumes = format!(
                    "{own}    - name: data\n      hostPath:\n        path: {host}\n        \
                     type: Directory\n{}",
                    self.volumes
                );
            }
            Setting::SharedMemory(bytes) => {
                flag.text = format!("emptyDir of {bytes} bytes at /dev/shm");
                self.volumes += &comment(&flag, "    ");
                self.volumes += &format!(
                    "    - name: shm\n      emptyDir:\n        medium: Memory\n        sizeLimit: \
                     \"{bytes}\"\n"
                );
            }
            // The kubelet or the runtime sets these, or the resources above include them.
            Setting::Nodes(_)
            | Setting::Files(_)
            | Setting::Processes(_)
            | Setting::LockedMemory(_)
            | Setting::Pids(_)
            | Setting::Memory(_)
            | Setting::Log
            | Setting::Restart => return None,
        }
        Some(flag)
    }
}

fn pod(
    context: &Context<'_>,
    instance: &Instance,
    memory: u64,
) -> Result<InstanceFlags, FlagsError> {
    let name = context.name(instance.number);
    let cpus = instance.cpus.len();
    let mut sized = context.request.clone();
    sized.memory_bytes = Some(memory);
    let context = &Context { request: &sized, ..*context };
    let mut flags: Vec<Flag> = Vec::new();
    let mut parts = PodParts::default();
    for wanted in container::settings(context, instance, Kind::Nerdctl)? {
        flags.extend(parts.add(context, wanted, cpus, memory));
    }
    let options = context.engine_options(instance, false)?;
    let mut body = format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n{}  containers:\n    - name: \
         {}\n      image: {}\n",
        parts.spec,
        context.engine.name(),
        context.image()
    );
    body += &parts.container;
    if !parts.security.is_empty() {
        body += &format!("      securityContext:\n{}", parts.security);
    }
    body += &arguments(context, &options);
    body += &format!("  volumes:\n{}", parts.volumes);
    flags.extend(options);
    let which = match context.request.instances {
        1 => String::new(),
        all => format!("instance {} of {all}: ", instance.number),
    };
    let title = format!("Pod {name}: {which}{cpus} CPUs, which the kubelet chooses");
    let text = Text { title, language: "yaml", body };
    Ok(InstanceFlags::new(instance, name, flags, vec![text]))
}

/// Returns the command and arguments of the container.
fn arguments(context: &Context<'_>, options: &[Flag]) -> String {
    let mut arguments = String::new();
    if context.engine == Engine::TareDb {
        arguments += "      command: [\"/tare\", \"db\"]\n";
    }
    if !options.is_empty() {
        arguments += "      args:\n";
        for option in options {
            arguments += &comment(option, "        ");
            arguments += &format!("        - {}\n", quote::yaml(&option.text));
        }
    }
    arguments
}

fn notes(context: &Context<'_>, instances: &[Instance]) -> Vec<String> {
    let mut notes = context.common_notes(instances);
    notes.push(
        "Before Kubernetes 1.33 the CFS quota also throttles pods with exclusive CPUs (kubernetes \
         #70585); there, run the kubelet with cpuCFSQuota: false, which lifts the quota from all pods."
            .into(),
    );
    notes.push(
        "Exclusive CPUs are separate from other pods only: daemons of the node and interrupts still \
         use them. tare tune apply moves the interrupts; on a managed node an operator may own them."
            .into(),
    );
    notes.push(format!(
        "The container runtime limits open files and locked memory (LimitNOFILE={} and \
         LimitMEMLOCK=infinity in its unit), the kubelet the number of processes (podPidsLimit).",
        context.host.files()
    ));
    if context.request.memory_bytes.is_none() {
        notes.push(
            "The memory is this host's minus a reserve. If a pod stays pending, the kubelet reserves \
             more: give --memory."
                .into(),
        );
    }
    if context.request.instances > 1 {
        notes.push(
            "Pods on the host's network share its ports: run one per node, or give each its own \
             address."
                .into(),
        );
    }
    notes.push(
        "Without hostNetwork: remove it, reach the pods by their own addresses (a headless service), \
         and add net.core.somaxconn=4096 to securityContext.sysctls if the kubelet allows it \
         (allowedUnsafeSysctls)."
            .into(),
    );
    notes
}
