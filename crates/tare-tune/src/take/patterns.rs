//! The files that are read from a host: one table of patterns. A knob that needs another file adds
//! a line here.
//!
//! A pattern is an absolute path whose parts may contain `*` (any characters of one name), `#` (a
//! decimal number) and `{a,b}` (one of several). The node that the last part matches is kept: a
//! file with its content, a link with its target, a folder by its name. Links on the way are kept
//! and followed. Files with an address, a serial number or a person's name must not be added.

/// Files that describe the CPUs of a host: `machine::Topology` reads them.
pub(super) const TOPOLOGY: &[&str] = &[
    "/sys/devices/system/cpu/{online,offline,present,possible,isolated,nohz_full}",
    "/sys/devices/system/cpu/cpu#/{online,cpu_capacity}",
    "/sys/devices/system/cpu/cpu#/topology/{core_id,physical_package_id,die_id,cluster_id}",
    "/sys/devices/system/cpu/cpu#/topology/{thread_siblings_list,core_cpus_list}",
    "/sys/devices/system/cpu/cpu#/topology/{package_cpus_list,core_siblings_list,die_cpus_list}",
    "/sys/devices/system/cpu/cpu#/cache/index#/{level,type,size,shared_cpu_list}",
    "/sys/devices/{cpu_atom,cpu_core}/cpus",
    "/sys/devices/system/node/{online,has_cpu,has_memory,possible}",
    "/sys/devices/system/node/node#/{cpulist,distance,meminfo}",
    "/sys/fs/cgroup/cpuset.cpus.isolated",
    "/sys/fs/cgroup/unified/cpuset.cpus.isolated",
];

/// Other files of every host.
pub(super) const HOST: &[&str] = &[
    // CPUs.
    "/sys/devices/system/cpu/smt/{active,control}",
    "/sys/devices/system/cpu/cpuidle/*",
    "/sys/devices/system/cpu/intel_pstate/{status,no_turbo,min_perf_pct,max_perf_pct}",
    "/sys/devices/system/cpu/amd_pstate/status",
    "/sys/devices/system/cpu/cpufreq/boost",
    // The frequency files are shared by the CPUs of a policy: cpuN/cpufreq is a link to it.
    "/sys/devices/system/cpu/cpu#/cpufreq",
    "/sys/devices/system/cpu/cpufreq/policy#/{scaling_governor,scaling_available_governors}",
    "/sys/devices/system/cpu/cpufreq/policy#/{scaling_driver,affected_cpus,related_cpus}",
    "/sys/devices/system/cpu/cpufreq/policy#/{scaling_min_freq,scaling_max_freq}",
    "/sys/devices/system/cpu/cpufreq/policy#/{cpuinfo_min_freq,cpuinfo_max_freq,base_frequency}",
    "/sys/devices/system/cpu/cpufreq/policy#/energy_performance_preference",
    "/sys/devices/system/cpu/cpufreq/policy#/energy_performance_available_preferences",
    "/sys/devices/system/cpu/cpu#/cpuidle/state#/{name,disable,latency,residency}",
    "/sys/devices/system/cpu/cpu#/power/pm_qos_resume_latency_us",
    "/sys/devices/system/cpu/vulnerabilities/*",
    "/sys/devices/system/clocksource/clocksource0/*_clocksource",
    // Interrupts. The folders below /proc/irq/N are named after the drivers' handlers.
    "/proc/interrupts",
    "/proc/irq/default_smp_affinity",
    "/proc/irq/#/{smp_affinity,smp_affinity_list,effective_affinity,effective_affinity_list}",
    "/proc/irq/#/{node,affinity_hint}",
    "/proc/irq/#/*/",
    "/sys/kernel/debug/irq/irqs/#",
    // Network devices.
    "/sys/class/net/*",
    "/sys/class/net/*/{type,operstate,flags,mtu,speed,ifindex,iflink,carrier,tx_queue_len}",
    "/sys/class/net/*/{gro_flush_timeout,napi_defer_hard_irqs,threaded,dev_id,dev_port}",
    "/sys/class/net/*/{device,master}",
    "/sys/class/net/*/{lower_*,upper_*}",
    "/sys/class/net/*/bonding/{slaves,mode,active_slave}",
    "/sys/class/net/*/bridge/",
    "/sys/class/net/*/queues/*/{rps_cpus,rps_flow_cnt,xps_cpus,xps_rxqs}",
    "/sys/class/net/*/device/{driver,modalias,vendor,device,class,irq,numa_node}",
    "/sys/class/net/*/device/msi_irqs/#",
    "/sys/class/net/bonding_masters",
    // Disks. The same files serve all but device mapper, md and loop.
    "/sys/class/block/*",
    "/sys/block/*",
    "/sys/class/block/*/{dev,size,removable,ro,partition,hidden,device}",
    "/sys/class/block/*/queue/{scheduler,nomerges,write_cache,rotational,nr_requests}",
    "/sys/class/block/*/queue/{read_ahead_kb,rq_affinity,wbt_lat_usec,io_poll,io_poll_delay}",
    "/sys/class/block/*/queue/{max_sectors_kb,max_hw_sectors_kb,add_random,iostats,fua,dax}",
    "/sys/class/block/*/queue/{logical_block_size,physical_block_size,discard_max_bytes}",
    "/sys/class/block/*/{slaves,holders}/*",
    "/sys/class/block/*/dm/{name,uuid}",
    "/sys/class/block/*/md/{level,raid_disks}",
    "/sys/class/block/*/loop/{backing_file,dio}",
    "/sys/class/block/*/device/{driver,modalias,vendor,model,transport,numa_node,irq}",
    "/sys/class/block/*/device/{state,queue_depth,device,class}",
    "/sys/class/nvme/*",
    "/sys/class/nvme/*/{transport,model,queue_count,sqsize,numa_node,device,cntlid}",
    "/sys/class/nvme/*/nvme*",
    // With several paths to a disk, each path is a hidden device with its own queue.
    "/sys/class/nvme/*/nvme*/queue/{scheduler,nomerges,write_cache,rotational,nr_requests}",
    "/sys/class/nvme-subsystem/*",
    "/sys/class/nvme-subsystem/*/{nvme*,iopolicy}",
    "/sys/fs/btrfs/*/devices/*",
    // Memory.
    "/proc/meminfo",
    "/proc/swaps",
    "/sys/kernel/mm/transparent_hugepage/{enabled,defrag,shmem_enabled,hpage_pmd_size}",
    "/sys/kernel/mm/transparent_hugepage/khugepaged/{defrag,scan_sleep_millisecs,pages_to_scan}",
    "/sys/kernel/mm/hugepages/*/{nr_hugepages,free_hugepages,nr_overcommit_hugepages}",
    "/sys/kernel/mm/ksm/run",
    "/sys/module/zswap/parameters/enabled",
    // Kernel and scheduler.
    "/proc/cmdline",
    "/proc/1/{limits,status}",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/{numa_balancing,io_uring_disabled,timer_migration,nmi_watchdog,watchdog}",
    "/proc/sys/kernel/{sched_*,perf_event_paranoid,pid_max,threads-max,watchdog_cpumask}",
    "/proc/sys/net/core/{somaxconn,netdev_max_backlog,netdev_budget,netdev_budget_usecs}",
    "/proc/sys/net/core/{rps_sock_flow_entries,busy_poll,busy_read,default_qdisc,dev_weight}",
    "/proc/sys/net/core/{rmem_max,wmem_max,rmem_default,wmem_default,optmem_max,flow_limit_*}",
    "/proc/sys/net/ipv4/{tcp_max_syn_backlog,tcp_mem,tcp_rmem,tcp_wmem,tcp_syncookies}",
    "/proc/sys/net/ipv4/{tcp_congestion_control,tcp_available_congestion_control}",
    "/proc/sys/net/ipv4/{tcp_fin_timeout,tcp_tw_reuse,tcp_max_tw_buckets,tcp_keepalive_*}",
    "/proc/sys/net/ipv4/{tcp_slow_start_after_idle,tcp_mtu_probing,tcp_notsent_lowat,tcp_autocorking}",
    "/proc/sys/net/ipv4/{tcp_sack,tcp_timestamps,tcp_window_scaling,tcp_fastopen,tcp_low_latency}",
    "/proc/sys/net/ipv4/{udp_mem,ip_local_port_range,tcp_abort_on_overflow,tcp_max_orphans}",
    "/proc/sys/vm/{swappiness,vfs_cache_pressure,dirty_*,max_map_count,zone_reclaim_mode}",
    "/proc/sys/vm/{overcommit_memory,overcommit_ratio,min_free_kbytes,watermark_scale_factor}",
    "/proc/sys/vm/{nr_hugepages,nr_overcommit_hugepages,compaction_proactiveness,stat_interval}",
    "/proc/sys/fs/{aio-max-nr,aio-nr,file-max,file-nr,nr_open,pipe-max-size}",
    "/proc/sys/fs/inotify/*",
    "/sys/kernel/debug/sched/*_ns",
    "/sys/kernel/debug/sched/{features,tunable_scaling,migration_cost_ns,nr_migrate}",
    // Control groups, mounted either way.
    "/sys/fs/cgroup/cgroup.controllers",
    "/sys/fs/cgroup/*/{cpuset.cpus.partition,cpuset.cpus.effective,cpuset.cpus.exclusive}",
    "/sys/fs/cgroup/*/*/cpuset.cpus.partition",
    "/sys/fs/cgroup/unified/cgroup.controllers",
    // The machine, and other programs that tune it.
    "/sys/class/dmi/id/{sys_vendor,product_name}",
    "/sys/hypervisor/type",
    "/etc/{default,sysconfig,conf.d}/irqbalance",
    "/etc/tuned/{active_profile,profile_mode}",
    "/etc/scylla.d/{perftune.yaml,cpuset.conf}",
    "/run/{tuned,irqbalance}",
    "/run/systemd/system",
];

/// Files behind links that differ from process to process. They are kept under these paths.
pub(super) const FIXED: &[&str] =
    &["/proc/self/mountinfo", "/proc/self/limits", "/proc/self/status", "/proc/net/vlan/config"];

/// Files below the folder of a PCI device. They are read for every PCI device above a network
/// device or a disk.
pub(super) const PCI: &[&str] = &[
    "{irq,modalias,vendor,device,subsystem_vendor,subsystem_device,class,numa_node,driver}",
    "{local_cpulist,current_link_speed,current_link_width,sriov_numvfs,physfn}",
    "msi_irqs/#",
    "virtio*",
    "virtio*/{modalias,vendor,device,driver}",
];

/// Processes whose presence matters. /proc truncates their names to 15 characters. They are kept as
/// `/tare/owners/process/NAME`.
pub(super) const PROCESSES: &[&str] = &[
    "irqbalance",
    "tuned",
    "tuned-ppd",
    "power-profiles-daemon",
    "kubelet",
    "k3s-server",
    "k3s-agent",
    "crio",
    "containerd",
    "dockerd",
    "podman",
    "google_guest_agent",
    "GCEGuestAgent",
    "google_osconfig_agent",
    "google_set_multiqueue",
    "waagent",
    "walinuxagent",
    "amazon-ssm-agent",
    "cloud-init",
    "oracle-cloud-agent",
    "numad",
    "thermald",
    "ksmtuned",
    "scylla",
    "scylla-manager-agent",
    "scylla-operator",
    "scylla-node-exporter",
    "redpanda",
    "java",
    "postgres",
    "mysqld",
    "mongod",
    "redis-server",
];

/// The kernel parameters that are kept; a `*` at the end matches anything.
pub(super) const BOOT_PARAMETERS: &[&str] = &[
    "isolcpus",
    "nohz",
    "nohz_full",
    "rcu_nocbs",
    "rcu_nocb_poll",
    "irqaffinity",
    "managed_irq",
    "intel_pstate",
    "amd_pstate",
    "processor.max_cstate",
    "intel_idle.max_cstate",
    "idle",
    "cpuidle.*",
    "cpufreq.*",
    "mitigations",
    "transparent_hugepage*",
    "hugepages*",
    "hugepagesz",
    "default_hugepagesz",
    "clocksource",
    "tsc",
    "nosmt",
    "maxcpus",
    "nr_cpus",
    "numa",
    "numa_balancing",
    "nosoftlockup",
    "skew_tick",
    "preempt",
    "elevator",
    "nvme_core.*",
    "nvme.*",
    "iommu",
    "iommu.*",
    "intel_iommu",
    "amd_iommu",
    "pcie_aspm*",
    "systemd.unified_cgroup_hierarchy",
    "cgroup_no_v1",
    "cgroup_disable",
    "tuned.*",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_well_formed() {
        for pattern in TOPOLOGY.iter().chain(HOST).chain(FIXED) {
            assert!(pattern.starts_with('/'), "{pattern}");
            assert!(!pattern.contains("//") && !pattern.contains(".."), "{pattern}");
        }
        for pattern in PCI {
            assert!(!pattern.starts_with('/'), "{pattern}");
        }
        for pattern in TOPOLOGY.iter().chain(HOST).chain(FIXED).chain(PCI) {
            for part in pattern.split('/') {
                let (open, close) = (part.matches('{').count(), part.matches('}').count());
                assert_eq!(open, close, "{pattern}");
                assert!(open <= 1, "{pattern}");
            }
        }
    }

    #[test]
    fn reads_no_files_with_addresses() {
        let hidden = ["serial", "wwid", "nguid", "eui", "address", "hostname", "uuid", "broadcast"];
        let parts = TOPOLOGY.iter().chain(HOST).chain(PCI).flat_map(|pattern| {
            pattern.split(['/', '{', '}', ',']).filter(|part| !part.is_empty())
        });
        for part in parts.filter(|part| *part != "uuid") {
            assert!(!hidden.contains(&part), "{part}");
        }
        // The uuid of device mapper is cut to its first word, which shows LVM.
        assert_eq!(HOST.iter().filter(|pattern| pattern.contains("uuid")).count(), 1);
    }
}
