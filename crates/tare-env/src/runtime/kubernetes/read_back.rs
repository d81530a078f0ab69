//! The read-back of a pod: what the API says about it, and its process and cgroup on this node.

use std::path::Path;
use std::time::Duration;

use tare_host::cgroup::Cgroup;
use tare_host::{error_line, process};
use tare_kube::{Cpus, Overhead};
use tare_lab::PartError;
use tare_lab::environment::{CpuPlan, LayerState};
use tare_lab::layer::{Cpu, Request};
use tare_std::cpus::CpuSet;

use super::Pod;
use crate::layer::{Layers, limits, rootfs, security};
use crate::pod_sandbox::names_pod;
use crate::runtime::gvisor;
use crate::storage::{self, At, MountView};
use crate::system::{self, System, WEIGHT};

impl Pod {
    /// Reads every layer back.
    pub(super) fn read_layers(&mut self) -> Result<Vec<LayerState>, PartError> {
        let running = self.running()?;
        if let (Some(sandbox), None) = (&running.sandbox, &running.inside) {
            running.inside = Some(gvisor::view_in_pod(sandbox, &running.pod.container));
        }
        let overhead = match running.sandbox {
            // The pod's cgroup, which has all of them.
            Some(_) => running.pod.overhead,
            None => Overhead::default(),
        };
        let (pid, mounts_of) = (running.system.pid, running.mounts_of);
        let (layers, spec) = (with_overhead(&self.layers, overhead), self.spec.clone());
        let plan = self.context.cpus().clone();
        let (cpus, wanted_class) = (self.cpus, self.class());
        let (node, runtime_class) = (self.node.clone(), self.runtime_class.clone());
        let storage = self.storage_state(mounts_of);
        let disk = storage::disk_path(&*self.storage, &self.data);
        let running = self.running()?;
        let (system, pod) = (&running.system, &running.pod);

        let name = process::name(pid).unwrap_or_default();
        let class = pod.runtime_class.as_deref().unwrap_or("the default");
        let Overhead { cpu_milli, memory_bytes } = pod.overhead;
        let more = match (cpu_milli, memory_bytes >> 20) {
            (0, 0) => String::new(),
            (milli, mib) => format!(" with an overhead of {milli}m CPU and {mib} MiB"),
        };
        let found = format!(
            "kubelet {}, {}, runtime class {class}{more}, pod {}, {}, process {pid} ({name})",
            node.kubelet, node.runtime, pod.uid, pod.qos_class
        );
        let in_force = !name.is_empty()
            && pod.restarts == 0
            && pod.qos_class == wanted_class
            && pod.runtime_class == runtime_class;
        let mut states = vec![system::state("runtime", &spec.runtime, found, in_force)];
        let mut network = system.read_network(&layers);
        network.found += &format!("; the pod's address is {}", running.address);
        let network = self.read_port(network);
        states.push(network);
        states.extend(self.read_sidecar()?);
        let running = self.running()?;
        let (system, pod) = (&running.system, &running.pod);
        states.push(read_cpu(system, &layers, &plan));
        let seccomp = system.read_seccomp();
        let found = format!("Seccomp: {}", seccomp.map_or("unreadable".into(), |m| m.to_string()));
        // gVisor's sentry always has a filter of its own; what is inside is read below.
        let in_force =
            running.sandbox.is_some() || seccomp == Some(security::status_mode(spec.security));
        states.push(system::state("security", spec.security, found, in_force));
        states.extend(system.read_confinement(&layers));
        let group = system.group.as_ref();
        states.push(read_cgroup(&spec.cgroup.to_string(), group, wanted_class, &pod.uid));
        states.push(read_weight(group, cpus, overhead));
        states.extend(group.map(limits::read_memory_qos));
        let read_only = rootfs::root_is_read_only(&system.mount_table());
        let found = match read_only {
            Some(true) => "read-only",
            Some(false) => "writable",
            None => "unreadable",
        };
        let in_force = read_only == Some(true);
        states.push(system::state("rootfs", "read-only", found.into(), in_force));
        states.push(storage);
        states.extend(limits::read(group, &layers, &disk, None));
        if let Some(inside) = &running.inside {
            let options = gvisor::Options::parse(&spec, &layers)?;
            gvisor::read_inside(&mut states, inside, Some(seccomp.unwrap_or_default()));
            states.extend(gvisor::read_options(pid, options, |_| false));
        }
        Ok(states)
    }

    /// Returns the quality-of-service class that follows from the layers.
    fn class(&self) -> &'static str {
        match (self.cpus, self.layers.limits.memory_bytes) {
            (Cpus::None, None) => "BestEffort",
            (Cpus::Limit(_), Some(_)) => "Guaranteed",
            _ => "Burstable",
        }
    }

    fn storage_state(&self, pid: u32) -> LayerState {
        let at = At { context: &self.context, folder: &self.folder() };
        let seen = MountView::of(pid, Path::new(rootfs::DATA), &self.data);
        let uid = self.running.as_ref().map(|running| running.pod.uid.clone()).unwrap_or_default();
        match self.spec.storage.kind.as_str() {
            // The path of the kubelet's directory names the pod and the kind of volume.
            "volume" => {
                let in_force = seen.is_in(&uid) && seen.is_in("kubernetes.io~empty-dir");
                let found = format!("emptyDir: {}", seen.text());
                system::state("storage", &self.spec.storage, found, in_force)
            }
            _ => match self.running.as_ref().and_then(|running| running.volume.as_ref()) {
                Some(volume) => self.volume_state(volume, &seen),
                None => storage::state(&self.spec, self.storage.read_back(&at, &seen)),
            },
        }
    }
}

/// Returns the layers with what a runtime class adds to the limits of a pod.
fn with_overhead(layers: &Layers, overhead: Overhead) -> Layers {
    let mut all = layers.clone();
    let memory = all.limits.memory_bytes;
    all.limits.memory_bytes = memory.map(|bytes| bytes.saturating_add(overhead.memory_bytes));
    let cpus = Duration::from_millis(overhead.cpu_milli).as_secs_f64();
    match &mut all.cpu {
        Cpu::Quota(quota) => quota.cpus += cpus,
        Cpu::Request(Request { limit: Some(limit), .. }) => *limit += cpus,
        _ => {}
    }
    all
}

/// Reads the cpu layer. A pod without CPUs of its own runs on those that the kubelet shares, which
/// have to include all that other environments share.
fn read_cpu(system: &System, layers: &Layers, plan: &CpuPlan) -> LayerState {
    if layers.cpu.has_cpuset() {
        return system.read_cpu(layers, plan);
    }
    let set = layers.cpu.set(plan);
    let cpuset = match &system.group {
        Some(group) => group.cpuset_effective().map_err(|error| error_line(&error)),
        None => Err("no cgroup".into()),
    };
    let shared = cpuset.as_ref().ok().and_then(|list| CpuSet::parse_list(list).ok());
    let mut in_force = shared.is_some_and(|shared| set.is_subset(&shared));
    let mut found = format!("the kubelet's shared CPUs: {}", cpuset.unwrap_or_else(|why| why));
    if let (Some(quota), Some(group)) = (layers.cpu.quota(), &system.group) {
        let (text, matches) = system::read_quota(group, quota);
        in_force &= matches;
        found += &format!("; quota: {text}");
    }
    system::state("cpu", layers.cpu, found, in_force)
}

/// Reads the cgroup: its path names the class and the pod.
fn read_cgroup(wanted: &str, group: Option<&Cgroup>, class: &str, uid: &str) -> LayerState {
    let path = group.map(|group| format!("/{}", group.name()));
    let below = match class {
        "BestEffort" => "besteffort",
        "Burstable" => "burstable",
        _ => "",
    };
    let in_force = path.as_deref().is_some_and(|path| path.contains(below) && names_pod(path, uid));
    let found = path.unwrap_or_else(|| "no cgroup with the container's id".into());
    system::state("cgroup", wanted, found, in_force)
}

/// Reads the weight that the kubelet gives to the container: 1024 shares for each CPU of its
/// request, and 2 without one (`MilliCPUToShares` in pkg/kubelet/cm of Kubernetes).
fn read_weight(group: Option<&Cgroup>, cpus: Cpus, overhead: Overhead) -> LayerState {
    let milli = match cpus {
        Cpus::None => 0,
        Cpus::Request(milli) | Cpus::Limit(milli) | Cpus::RequestAndLimit(milli, _) => milli,
    };
    let shares = ((milli + overhead.cpu_milli) * 1024 / 1000).clamp(2, 262_144);
    let wanted = format!("{shares} shares, of its request");
    let Some(group) = group else {
        return system::state(WEIGHT, wanted, "no cgroup".into(), false);
    };
    let file = group.cpu_weight_file();
    let found = group.cpu_weight_found();
    let in_force = found.as_ref().is_ok_and(|found| match file {
        "cpu.shares" => *found == shares,
        _ => weights_of(shares).contains(found),
    });
    let found = found.map_or_else(|error| error_line(&error), |found| format!("{file} {found}"));
    system::state(WEIGHT, wanted, found, in_force)
}

/// Returns the weights of v2 that runtimes convert shares to: the linear one of older versions, and
/// that of runc 1.3.2 and later (`ConvertCPUSharesToCgroupV2Value` of opencontainers/cgroups).
fn weights_of(shares: u64) -> [u64; 2] {
    let linear = 1 + (shares.saturating_sub(2) * 9999) / 262_142;
    let log = (shares as f64).log2();
    let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 10,000"
    )]
    let curved = 10f64.powf(exponent).ceil() as u64;
    [linear, curved]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_the_runtimes_weights() {
        for (shares, expect) in [(2, [1, 1]), (1024, [39, 100]), (262_144, [10_000, 10_000])] {
            assert_eq!(weights_of(shares), expect, "{shares}");
        }
    }
}
