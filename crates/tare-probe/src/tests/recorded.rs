//! Each probe reads recorded text before and after a change.

use super::*;
use tare_testkit::Machine;

fn scope(system: &[u32], client: &[u32]) -> Scope {
    Scope { system: system.to_vec(), client: client.to_vec(), ..Scope::default() }
}

fn value(seen: &[(String, f64)], name: &str) -> Option<f64> {
    seen.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
}

#[test]
fn softirqs_by_kind_and_cpu() {
    let host = Host::new();
    host.put("proc/softirqs", SOFTIRQS);
    let later = SOFTIRQS.replace("100 ", "105 ").replace("200 ", "230 ");
    let seen = host.observe("softirq_counts", "0-1", |host| host.put("proc/softirqs", &later));
    assert_eq!(
        seen,
        [
            ("softirqs_net_rx".into(), 35.0),
            ("softirqs_net_rx_cpu1".into(), 30.0),
            ("softirqs_net_rx_cpu0".into(), 5.0),
        ]
    );
    host.put("proc/softirqs", SOFTIRQS);
    let seen = host.observe("softirq_counts", "0", |host| host.put("proc/softirqs", &later));
    assert_eq!(seen, [("softirqs_net_rx".into(), 5.0), ("softirqs_net_rx_cpu0".into(), 5.0)]);
}

#[test]
fn interrupts_by_source_and_cpu() {
    let host = Host::new();
    host.put("proc/interrupts", INTERRUPTS);
    // Both lines of one name change.
    let later = INTERRUPTS.replace("1000 ", "1100 ").replace("         1  IO", "         4  IO");
    let later = later.replace("500 ", "507 ").replace(" 1          0  IO", " 3          0  IO");
    let seen = host.observe("interrupts", "0-1", |host| host.put("proc/interrupts", &later));
    let check = |name: &str, expect: f64| assert_eq!(value(&seen, name), Some(expect), "{seen:?}");
    check("interrupts", 112.0);
    check("interrupts_cpu0", 9.0);
    check("interrupts_cpu1", 103.0);
    check("interrupts_virtio1_req_0_cpu1", 100.0);
    check("interrupts_loc_cpu0", 7.0);
    check("interrupts_acpi_ged_cpu0", 2.0);
    check("interrupts_acpi_ged_cpu1", 3.0);
    assert_eq!(value(&seen, "interrupts_loc_cpu1"), None);
}

#[test]
fn cpu_shares_divide_by_own_time() {
    let host = Host::new();
    let line = |user: u64, idle: u64, softirq: u64, steal: u64| {
        format!("cpu  1 1\ncpu0 {user} 0 0 {idle} 0 0 {softirq} {steal} 0 0\nintr 5\n")
    };
    host.put("proc/stat", &line(100, 100, 0, 0));
    let seen =
        host.observe("cpu_shares", "0-1", |host| host.put("proc/stat", &line(150, 120, 20, 10)));
    assert_eq!(
        seen,
        [
            ("cpu0_busy_share".into(), 0.7),
            ("cpu0_interrupt_share".into(), 0.2),
            ("cpu0_steal_share".into(), 0.1),
        ]
    );
}

#[test]
fn interrupt_cpus_have_shares_of_their_own() {
    let host = Host::new();
    let text = |softirq: u64, idle: u64| {
        format!(
            "cpu  1 1\ncpu0 1 0 0 1 0 0 0 0\ncpu2 0 0 5 {idle} 0 1 {softirq} 0\n\
             cpu3 0 0 0 {idle} 0 0 0 0\nintr 5\n"
        )
    };
    host.put("proc/stat", &text(0, 0));
    let later = |host: &Host| host.put("proc/stat", &text(50, 75));
    let seen = host.observe("cpu_shares", "0+2-3", later);
    let check = |name: &str, expect: f64| assert_eq!(value(&seen, name), Some(expect), "{seen:?}");
    check("cpu2_interrupt_share", 0.4);
    check("interrupt_cpus_busy_ns", ticks(50.0));
    check("interrupt_cpus_busy_share", 0.25);
    check("interrupt_cpus_interrupt_share", 0.25);
    check("interrupt_cpus_softirq_share", 0.25);
    host.put("proc/stat", &text(0, 0));
    let seen = host.observe("cpu_shares", "0,2-3", later);
    assert_eq!(value(&seen, "interrupt_cpus_busy_ns"), None, "no CPU is kept for interrupts");
    // Softirqs that moved to other CPUs still count.
    host.put("proc/stat", &text(0, 0));
    assert_eq!(host.observe("softirq", "0+2-3", later)[0].1, ticks(50.0));
    host.put("proc/stat", &text(0, 0));
    assert_eq!(host.observe("softirq", "0", later)[0].1, 0.0);
}

#[test]
fn switches_read_sched_or_status() {
    let host = Host::new();
    let sched = |voluntary: u64, involuntary: u64, migrations: u64| {
        format!(
            "tare (7, #threads: 1)\n-----\n\
             se.nr_migrations                             :       {migrations}\n\
             nr_switches                                  :            99\n\
             nr_voluntary_switches                        :       {voluntary}\n\
             nr_involuntary_switches                      :       {involuntary}\n"
        )
    };
    host.put("proc/7/sched", &sched(0, 0, 0));
    host.put("proc/7/task/7/sched", &sched(10, 20, 30));
    host.put(
        "proc/8/task/8/status",
        "voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t6\n",
    );
    let seen = host.observe_scope("switches", "0", &scope(&[7], &[8]), |host| {
        host.put("proc/7/task/7/sched", &sched(11, 22, 33));
        // A new thread counts from zero.
        host.put("proc/7/task/9/sched", &sched(100, 200, 300));
        let later = "voluntary_ctxt_switches:\t15\nnonvoluntary_ctxt_switches:\t7\n";
        host.put("proc/8/task/8/status", later);
    });
    assert_eq!(
        seen,
        [
            ("system_switches_voluntary".into(), 101.0),
            ("system_switches_involuntary".into(), 202.0),
            ("system_migrations".into(), 303.0),
            ("client_switches_voluntary".into(), 10.0),
            ("client_switches_involuntary".into(), 1.0),
        ]
    );
}

#[test]
fn faults_and_memory_of_system_processes() {
    let host = Host::new();
    let stat = |minor: u64, major: u64| {
        format!("7 (a) b) S 1 7 7 0 -1 4194304 {minor} 99 {major} 99 0 0\n")
    };
    host.put("proc/7/stat", &stat(100, 2));
    let seen = host.observe_scope("page_faults", "0", &scope(&[7], &[]), |host| {
        host.put("proc/7/stat", &stat(150, 3));
    });
    let expect =
        [("system_page_faults_minor".into(), 50.0), ("system_page_faults_major".into(), 1.0)];
    assert_eq!(seen, expect);

    let status = "Name:\tx\nRssAnon:\t     100 kB\nRssFile:\t      20 kB\nRssShmem:\t       0 kB\n";
    for pid in [7, 8] {
        host.put(&format!("proc/{pid}/status"), status);
    }
    let seen = host.observe_scope("memory", "0", &scope(&[7, 8], &[]), |_| {});
    assert_eq!(value(&seen, "system_rss_anon_bytes_at_end"), Some(204_800.0));
    assert_eq!(value(&seen, "system_rss_file_bytes_at_end"), Some(40_960.0));
}

#[test]
fn processes_forked_since_are_of_the_system() {
    let host = Host::new();
    let put = |pid: u32, cpu_ns: u64| {
        host.put(&format!("proc/{pid}/task/{pid}/schedstat"), &format!("{cpu_ns} 0 1\n"));
    };
    put(7, 100);
    put(9, 100);
    // The client's child is the driver's own business.
    host.put("proc/9/task/9/children", "10 \n");
    put(10, 0);
    host.put("proc/7/task/7/children", "\n");
    let seen = host.observe_scope("run_queue", "0", &scope(&[7], &[9]), |host| {
        host.put("proc/7/task/7/children", "8 \n");
        // More than any slice takes.
        host.put("proc/8/task/8/schedstat", "3600000000000 50 1\n");
        host.put("proc/10/task/10/schedstat", "3600000000000 50 1\n");
    });
    assert_eq!(value(&seen, "system_busiest_thread_share"), Some(1.0));
    assert_eq!(value(&seen, "system_run_queue_wait_ns"), Some(50.0));
    assert_eq!(value(&seen, "client_busiest_thread_share"), Some(0.0));
}

#[test]
fn finds_tcp_columns_by_name() {
    let host = Host::new();
    let put = |host: &Host, pid: u32, retransmits: u64, delayed: u64| {
        let snmp = format!(
            "Ip: Forwarding\nIp: 1\nTcp: MaxConn InSegs RetransSegs\nTcp: -1 50 {retransmits}\n\
             Udp: InDatagrams\nUdp: 3\n"
        );
        host.put(&format!("proc/{pid}/net/snmp"), &snmp);
        let netstat = format!("TcpExt: New DelayedACKs\nTcpExt: 1 {delayed}\nIpExt: A\nIpExt: 1\n");
        host.put(&format!("proc/{pid}/net/netstat"), &netstat);
    };
    put(&host, 7, 10, 20);
    put(&host, 8, 0, 0);
    let seen = host.observe_scope("tcp", "0", &scope(&[7], &[8]), |host| put(host, 7, 13, 21));
    assert_eq!(
        seen,
        [
            ("system_tcp_segments_in".into(), 0.0),
            ("system_tcp_retransmits".into(), 3.0),
            ("system_tcp_delayed_acks".into(), 1.0),
            ("client_tcp_segments_in".into(), 0.0),
            ("client_tcp_retransmits".into(), 0.0),
            ("client_tcp_delayed_acks".into(), 0.0),
        ]
    );
}

#[test]
fn device_names_lose_run_and_number() {
    let host = Host::new();
    let put = |host: &Host, bytes: u64| {
        let text = format!(
            "Inter-|   Receive\n face |bytes\n\
                 lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n\
             tare-660f-h3: {bytes}      10    0    1    0     0          0         0      500       5    0    0    0     0       0          0\n"
        );
        host.put("proc/7/net/dev", &text);
    };
    put(&host, 1000);
    let seen = host.observe_scope("net_devices", "0", &scope(&[7], &[]), |host| put(host, 1700));
    assert_eq!(value(&seen, "system_net_in_bytes"), Some(700.0));
    assert_eq!(value(&seen, "system_net_in_drops"), Some(0.0));
    assert_eq!(value(&seen, "system_net_tare_h_in_bytes"), Some(700.0));
    assert_eq!(value(&seen, "system_net_lo_in_bytes"), None);
}

/// Two instances have a network namespace each; the second process of one of them counts once.
#[test]
fn namespaces_of_instances_are_summed() {
    use std::os::unix::fs::symlink;
    let host = Host::new();
    let put = |host: &Host, pid: u32, bytes: u64| {
        let line = format!("eth0: {bytes} 1 0 0 0 0 0 0 {bytes} 1 0 0 0 0 0 0\n");
        host.put(&format!("proc/{pid}/net/dev"), &format!("Inter-|\n face |bytes\n{line}"));
        host.put(&format!("proc/{pid}/net/snmp"), &format!("Tcp: OutSegs\nTcp: {bytes}\n"));
        host.put(&format!("proc/{pid}/net/netstat"), "TcpExt: DelayedACKs\nTcpExt: 0\n");
    };
    for (pid, namespace) in [(7, 1), (8, 1), (9, 2), (10, 3)] {
        put(&host, pid, 1_000);
        let folder = host.0.path().join(format!("proc/{pid}/ns"));
        fs::create_dir_all(&folder).unwrap();
        symlink(format!("net:[{namespace}]"), folder.join("net")).unwrap();
    }
    let scope = scope(&[7, 8, 9], &[9, 10]);
    let grow = |host: &Host| {
        for (pid, bytes) in [(7, 1_300), (8, 1_300), (9, 1_050), (10, 1_007)] {
            put(host, pid, bytes);
        }
    };
    let seen = host.observe_scope("net_devices", "0", &scope, grow);
    assert_eq!(value(&seen, "system_net_out_bytes"), Some(350.0));
    assert_eq!(value(&seen, "system_net_eth0_out_bytes"), Some(350.0));
    [7, 8, 9, 10].iter().for_each(|pid| put(&host, *pid, 1_000));
    let seen = host.observe_scope("tcp", "0", &scope, grow);
    assert_eq!(value(&seen, "system_tcp_segments_out"), Some(350.0));
    assert_eq!(value(&seen, "client_tcp_segments_out"), Some(7.0));
}

#[test]
fn reads_disk_below_data() {
    use std::os::unix::fs::MetadataExt;
    let host = Host::new();
    let data = tempfile::tempdir().unwrap();
    let device = fs::metadata(data.path()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let put = |host: &Host, writes: u64, sectors: u64, ms: u64| {
        let line = format!(
            "   7       0 loop0 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9\n {major}  {minor} vda \
             1 2 3 4 {writes} 6 {sectors} {ms} 0 10 11 12 13 14 15 16 17\n"
        );
        host.put("proc/diskstats", &line);
    };
    put(&host, 100, 1000, 50);
    let scope = Scope { data: vec![data.path().to_path_buf()], ..Scope::default() };
    let seen = host.observe_scope("disk", "0", &scope, |host| put(host, 110, 1020, 54));
    if major == 0 {
        assert_eq!(seen, [], "the temporary directory is in memory");
        return;
    }
    assert_eq!(value(&seen, "disk_writes"), Some(10.0));
    assert_eq!(value(&seen, "disk_written_bytes"), Some(10_240.0));
    assert_eq!(value(&seen, "disk_write_latency_ns_mean"), Some(400_000.0));
    assert_eq!(value(&seen, "disk_read_latency_ns_mean"), None);
}

/// A RAID of four disks is below the first of two data directories and the second one is on one of
/// these disks.
#[test]
fn disk_sums_what_is_below_raid() {
    use std::os::unix::fs::MetadataExt;
    let host = Host::new();
    let data = tempfile::tempdir().unwrap();
    let number = fs::metadata(data.path()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    if major == 0 {
        return tare_testkit::skip("disk_sums_what_is_below_raid", Machine::NoBlockDevice);
    }
    // The file system of this machine's temporary directory is on a RAID.
    for disk in 0..4 {
        host.put(&format!("sys/devices/nvme{disk}n1/dev"), &format!("259:{disk}\n"));
        let slave = format!("sys/dev/block/{major}:{minor}/slaves/nvme{disk}n1/dev");
        host.put(&slave, &format!("259:{disk}\n"));
    }
    let put = |host: &Host, times: u64| {
        let line = |(major, minor): (u32, u32), name: &str, n: u64| {
            format!("{major} {minor} {name} 0 0 0 0 {n} 0 {n} {n} 0 {n} {n} 0 0 0 0 0 0\n")
        };
        let mut text = line((major, minor), "md0", 1000 * times);
        (0..4).for_each(|disk| {
            let n = times * u64::from(disk + 1) * 10;
            text += &line((259, disk), &format!("nvme{disk}n1"), n);
        });
        host.put("proc/diskstats", &text);
    };
    put(&host, 1);
    let places = vec![data.path().to_path_buf(), data.path().to_path_buf()];
    let scope = Scope { data: places, ..Scope::default() };
    let seen = host.observe_scope("disk", "0", &scope, |host| put(host, 2));
    assert_eq!(value(&seen, "disk_writes"), Some(100.0));
    assert_eq!(value(&seen, "disk_written_bytes"), Some(51_200.0));
    assert_eq!(value(&seen, "disk_write_latency_ns_mean"), Some(1e6));
    assert_eq!(value(&seen, "disk_devices_at_end"), Some(4.0));
    let (mean, most) = (value(&seen, "disk_busy_share"), value(&seen, "disk_busiest_share"));
    assert!(mean.unwrap() > 0.0 && most.unwrap() >= mean.unwrap(), "{seen:?}");
}

#[test]
fn empty_scope_names_the_part() {
    let host = Host::new();
    for name in ["switches", "run_queue", "page_faults", "memory", "tcp", "net_devices"] {
        let mut probe = kind(name).open(&host.roots(), &cpus_of("0")).unwrap();
        let error = probe.prepare(&Scope::default()).unwrap_err().to_string();
        assert_eq!(error, "the host can see no process of the system", "{name}");
        probe.begin().unwrap_err();
    }
}

#[test]
fn counts_kvm_exits() {
    let host = Host::new();
    host.put("sys/kernel/debug/kvm/exits", "100\n");
    let seen = host.observe("kvm", "0", |host| host.put("sys/kernel/debug/kvm/exits", "103\n"));
    assert_eq!(seen, [("kvm_exits".into(), 3.0)]);
}
