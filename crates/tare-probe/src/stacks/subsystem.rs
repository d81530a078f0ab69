//! Assigns each stack to exactly one subsystem, by a table.
//!
//! The kernel frames are searched from the leaf to the root, and the first frame that a rule
//! matches decides. A helper (copying, locking, allocating) therefore counts for its caller. Code
//! that runs deep inside another subsystem counts for its own: the TCP receive path below a bridge
//! is the network stack, and only the bridge's own functions are the bridge. A stack without a
//! known frame is "other kernel", so that the parts add up to the whole.
//! `docs/reference/subsystems.md` is generated from this table.

use tare_lab::stacks::{CLIENT, INTERRUPT_CPUS, LAYER};

use super::rule::{Rule, first_match};
use super::script::Frame;
use super::waits;

/// All code of the processes that a layer adds, in the kernel too.
pub const PROXY: &str = "userland proxy";
/// The system's own code.
pub const DATABASE: &str = "database";
/// The client's own code.
pub const CLIENT_CODE: &str = "client";
/// The code of any program on the CPUs kept for interrupts.
pub const PROGRAMS: &str = "programs";
/// Kernel code that no rule matches.
pub const OTHER: &str = "other kernel";

/// The rules. If two match a function, the earlier one counts.
pub const ALL: &[Rule] = &[
    Rule::new(
        "netfilter and conntrack",
        "packet filter, NAT, connection tracking",
        "nf_ nft_ nfnetlink ipt_ ip6t_ xt_ br_nf_ iptable_ ebt_ ip_vs_ arpt_ nat_ \
         resolve_normal_ct hash_conntrack early_drop",
    ),
    Rule::new(
        "bridge and veth",
        "virtual links between namespaces: veth, bridge, macvlan, ipvlan, tun and tap",
        "br_ veth_ macvlan_ ipvlan_ ipvl_ tun_ tap_ fdb_find vlan_",
    ),
    Rule::new(
        "tunnels",
        "encapsulation of overlay networks: VXLAN, Geneve, UDP tunnels",
        "vxlan_ encap_bypass_if_local geneve_ udp_tunnel_ udp_tunnel6_ setup_udp_tunnel iptunnel_ \
         ip_tunnel_ ip_md_tunnel gre_",
    ),
    Rule::new(
        "seccomp",
        "the system call filter",
        "seccomp_ secure_computing populate_seccomp_data get_seccomp",
    ),
    Rule::new(
        "cgroup accounting",
        "accounting and limits of memory, CPU and I/O by cgroup",
        "mem_cgroup_ memcg_ obj_cgroup_ cgroup_ cpuacct_ charge_memcg try_charge page_counter_ \
         refill_obj_stock consume_obj_stock refill_stock consume_stock drain_obj_stock \
         mod_memcg mod_lruvec count_memcg blkcg_ blk_cgroup throttle_cfs_rq unthrottle_cfs_rq \
         account_cfs_rq tg_ propagate_entity update_cfs_group css_ ioc_ psi_",
    ),
    Rule::new(
        "scheduler",
        "switching, waking and placing threads; waiting on futexes",
        "schedule try_to_wake_up ttwu_ wake_up wake_q wakeup_preempt pick_next_ pick_task \
         pick_eevdf put_prev_ set_next_ enqueue_task dequeue_task enqueue_entity dequeue_entit \
         activate_task deactivate_task update_load_avg update_curr update_rq_clock update_se \
         select_task_rq select_idle available_idle_cpu check_preempt finish_task_switch \
         prepare_task_switch context_switch switch_to switch_mm switch_fpu sched_ resched_ \
         reweight_ place_entity task_tick load_balance newidle_balance rebalance balance_fair \
         autoremove_wake prepare_to_wait finish_wait futex do_futex hrtimer_start_range \
         io_schedule ret_from_fork native_smp_send_reschedule avg_vruntime entity_eligible \
         dl_server rseq_ mm_cid task_mm_cid ctx_sched perf_event_task_sched",
    ),
    Rule::new(
        "epoll",
        "waiting for many files: epoll, eventfd, poll, select",
        "ep_ epoll_ eventpoll_ do_epoll do_sys_epoll x64_sys_epoll eventfd_ do_poll do_sys_poll \
         do_select core_sys_select pollwake",
    ),
    Rule::new(
        "network stack",
        "sockets, TCP, IP, loopback, the receive softirq",
        "tcp_ tcp4_ tcp6_ udp_ ip_ ip6_ ipv4_ ipv6_ inet_ inet6_ sock_ sk_ lock_sock \
         release_sock sys_send sys_recv x64_sys_send x64_sys_recv do_sock_ unix_ skb_ alloc_skb \
         pskb_ kfree_skb consume_skb napi_ net_ netif_ netdev_ dev_queue_xmit dev_hard_ dev_gro \
         dev_ enqueue_to_backlog process_backlog loopback_ qdisc_ sch_ fq_ pfifo_ validate_xmit \
         gro_ fib_ dst_ neigh_ arp_ eth_ csum_ xps_ rps_ get_rps bictcp_ cubictcp_ bbr_ raw_v4_ \
         raw_local_ raw_rcv move_addr import_ubuf copy_msghdr virtnet_ start_xmit icmp_ rt_dst \
         flow_ sysctl_max_skb simple_copy_to_iter reqsk_ security_sock siphash",
    ),
    Rule::new(
        "overlay and FUSE",
        "file systems of containers and guests: overlay, FUSE, virtiofs, 9p",
        "ovl_ fuse_ virtio_fs_ v9fs_ p9_",
    ),
    Rule::new(
        "block layer",
        "requests to disks, their queues and drivers",
        "blk_ bio_ submit_bio blkdev_ virtio_queue_rq virtio_queue_rqs virtblk_ nvme_ scsi_ sd_ \
         ata_ dm_ loop_ lo_ md_ elv_ dd_ bfq_ kyber_ wbt_ rq_qos_ sbitmap_ iocg_",
    ),
    Rule::new(
        "file system",
        "files, the page cache and writing back",
        "vfs_ ksys_ ext4_ jbd2_ xfs_ btrfs_ iomap_ filemap_ generic_file generic_perform_write \
         generic_write generic_update_time file_ path_ do_filp_open do_sys_open lookup_ \
         link_path walk_component d_ dput dget inode_ page_cache_ pagecache_ folio_ fdatawrite \
         writeback_ wb_ balance_dirty do_writepages sync_file do_fsync new_sync_ do_iter_ \
         mark_inode shmem_ simple_write fsnotify rw_verify kiocb_",
    ),
    Rule::new(
        "io_uring",
        "the I/O ring",
        "io_ do_sys_io_uring x64_sys_io_uring tctx_task_work ctx_flush_and_put",
    ),
    Rule::new(
        "page faults and memory",
        "memory mapped on first touch, mapping and unmapping",
        "asm_exc_page_fault exc_page_fault do_user_addr_fault handle_mm_fault do_anonymous_page \
         do_fault do_wp_page lock_vma do_mmap mmap_region vm_mmap do_munmap do_vmi_ unmap_ zap_ \
         tlb_ flush_tlb madvise_ do_madvise mprotect_ change_prot x64_sys_brk khugepaged kswapd \
         shrink_ try_to_free",
    ),
    Rule::new(
        "hypervisor",
        "calls to and interrupts from the hypervisor; notifications of virtual devices",
        "kvm_ pv_ pvclock_ xen_ hv_ hyperv_ vmx_ svm_ vp_notify vhost_ kvm_guest",
    ),
    Rule::new(
        "interrupts and timers",
        "interrupts, softirqs that are not the network's, timers, RCU",
        "asm_sysvec sysvec_ asm_common_interrupt common_interrupt handle_softirqs do_softirq \
         irq_ handle_irq handle_edge_irq hrtimer_ tick_ update_process_times run_timer \
         call_timer_fn timerfd_ do_timerfd x64_sys_timerfd rcu_core note_gp_changes asm_exc_nmi \
         el1_interrupt el0_interrupt gic_ clockevents_ posix_ do_nanosleep task_work_run perf_ \
         generic_handle vring_interrupt",
    ),
    Rule {
        name: "system call entry",
        help: "going into the kernel and back",
        functions: "entry_SYSCALL do_syscall_64 x64_sys_call syscall_ exit_to_user_mode x64_sys_ do_sys_ \
         se_sys_ arm64_sys_ el0_svc el0t_64_sync invoke_syscall entry_SYSRETQ irqentry_ \
         return_to_handler arch_exit_to x86_call_depth entry_",
        leaf_only: true,
    },
];

/// The subsystems that no kernel function decides, with their help.
pub const BY_PROCESS: [(&str, &str); 5] = [
    (OTHER, "kernel code that no rule matches; if its share is large, the table lacks a rule"),
    (DATABASE, "the code of the system itself"),
    (CLIENT_CODE, "the code of the load generator itself"),
    (PROXY, "all work of the processes that the layer adds, in the kernel too"),
    (PROGRAMS, "the code of any program on the CPUs kept for interrupts"),
];

/// Returns the subsystem of a stack. `frames` go from the leaf to the root. `part` is the part that
/// the process belongs to ([`tare_lab::stacks`]).
pub fn of(part: &str, frames: &[Frame]) -> &'static str {
    if part == LAYER {
        return PROXY;
    }
    if let Some(known) = first_match(ALL, frames) {
        return known;
    }
    match frames.first() {
        Some(leaf) if leaf.kernel => OTHER,
        _ if part == CLIENT => CLIENT_CODE,
        _ if part == INTERRUPT_CPUS => PROGRAMS,
        _ => DATABASE,
    }
}

/// Renders the table as a page of the reference.
pub fn page() -> String {
    let mut page = String::from(
        "<!-- Generated from crates/tare-probe/src/stacks/subsystem.rs; a test compares the two. -->\n\
         # Subsystems\n\n\
         Every sampled stack counts for exactly one subsystem. Its kernel frames are searched from\n\
         the leaf to the root. The first frame whose name starts with a prefix in the table decides.\n\
         Leading underscores are ignored. If two rows match, the upper one counts. A helper (copying,\n\
         locking, allocating) therefore counts for its caller, and TCP below a bridge is the network\n\
         stack: only the bridge's own functions are the bridge.\n\n\
         | subsystem | what is in it | prefixes of function names |\n|---|---|---|\n",
    );
    for one in ALL {
        let names: Vec<String> = one.functions().map(|name| format!("`{name}`")).collect();
        let leaf = if one.leaf_only { " (only as the leaf)" } else { "" };
        page += &format!("| {} | {} | {}{leaf} |\n", one.name, one.help, names.join(" "));
    }
    for (name, help) in BY_PROCESS {
        page += &format!("| {name} | {help} | |\n");
    }
    page += "\n## What threads wait for\n\n\
             Every stack of a waiting thread counts for one reason, in the same way.\n\n\
             | waiting for | what it is | prefixes of function names |\n|---|---|---|\n";
    page += &format!(
        "| {} | the thread is runnable: it was preempted, or its quota is used up | |\n",
        waits::A_CPU
    );
    for one in waits::ALL {
        let names: Vec<String> = one.functions().map(|name| format!("`{name}`")).collect();
        page += &format!("| {} | {} | {} |\n", one.name, one.help, names.join(" "));
    }
    page += &format!("| {} | no rule matches a function | |\n", waits::OTHER);
    page
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tare_lab::stacks::SYSTEM;

    use super::*;

    /// Parses frames from the root to the leaf. `k:` marks kernel frames.
    fn frames(text: &str) -> Vec<Frame> {
        let frame = |word: &str| match word.strip_prefix("k:") {
            Some(name) => Frame { name: name.into(), kernel: true },
            None => Frame { name: word.into(), kernel: false },
        };
        text.split(' ').rev().filter(|word| !word.is_empty()).map(frame).collect()
    }

    #[test]
    fn assigns_stacks_to_one_subsystem() {
        let check = |stack: &str, expected: &str| {
            assert_eq!(of(SYSTEM, &frames(stack)), expected, "{stack}");
        };
        let send = "main k:entry_SYSCALL_64_after_hwframe k:do_syscall_64 k:__sys_sendto \
                    k:tcp_sendmsg";
        check(send, "network stack");
        check(&format!("{send} k:skb_copy_datagram_from_iter k:memcpy_orig"), "network stack");
        let bridge = format!("{send} k:__local_bh_enable_ip k:net_rx_action k:br_handle_frame");
        check(&bridge, "bridge and veth");
        check(&format!("{bridge} k:br_nf_pre_routing"), "netfilter and conntrack");
        check(
            &format!("{bridge} k:nf_hook_slow k:nf_conntrack_in k:_raw_spin_lock"),
            "netfilter and conntrack",
        );
        check(&format!("{bridge} k:ip_rcv k:tcp_v4_rcv"), "network stack");
        check(&format!("{bridge} k:tcp_v4_rcv k:sock_def_readable k:ep_poll_callback"), "epoll");
        check(
            &format!("{bridge} k:sock_def_readable k:try_to_wake_up k:ttwu_do_activate"),
            "scheduler",
        );
        check(&format!("{bridge} k:veth_xmit"), "bridge and veth");
        // Taken from kernels 6.1 and 6.18.
        for function in [
            "macvlan_start_xmit",
            "macvlan_handle_frame",
            "ipvlan_queue_xmit",
            "ipvlan_handle_frame",
            "tun_get_user",
            "tun_net_xmit",
            "tun_do_read",
        ] {
            check(&format!("{send} k:dev_hard_start_xmit k:{function}"), "bridge and veth");
        }
        for function in
            ["vxlan_xmit", "vxlan_xmit_one", "vxlan_rcv", "udp_tunnel_xmit_skb", "iptunnel_xmit"]
        {
            check(&format!("{send} k:dev_hard_start_xmit k:{function}"), "tunnels");
        }
        let call = "main k:entry_SYSCALL_64_after_hwframe k:do_syscall_64";
        check(
            &format!("{call} k:syscall_trace_enter k:__seccomp_filter k:bpf_prog_0123_x"),
            "seccomp",
        );
        check(&format!("{call} k:__x64_sys_io_uring_enter k:io_submit_sqes"), "io_uring");
        check(&format!("{call} k:io_issue_sqe k:__io_write k:ext4_file_write_iter"), "file system");
        check(&format!("{call} k:ext4_x k:mem_cgroup_charge"), "cgroup accounting");
        check(&format!("{call} k:ovl_write_iter"), "overlay and FUSE");
        check(&format!("{call} k:blk_mq_submit_bio k:virtio_queue_rq"), "block layer");
        check(
            &format!("{call} k:virtio_queue_rq k:virtqueue_notify k:vp_notify k:iowrite16"),
            "hypervisor",
        );
        check(
            &format!("{call} k:do_epoll_wait k:schedule_hrtimeout_range k:__schedule"),
            "scheduler",
        );
        check(&format!("{call} k:do_epoll_wait k:fput k:rcu_read_unlock"), "epoll");
        check(&format!("{call} k:tcp_mstamp_refresh k:ktime_get k:read_tsc"), "network stack");
        check(&format!("{call} k:do_timerfd_settime k:_copy_from_user"), "interrupts and timers");
        check(call, "system call entry");
        check(&format!("{call} k:never_heard_of"), OTHER);
        check("main k:asm_exc_page_fault k:clear_page_rep", "page faults and memory");
        check("main k:asm_sysvec_apic_timer_interrupt k:native_write_msr", "interrupts and timers");
        check("main work", DATABASE);
        check("", DATABASE);
        // Kernel frames below the program belong to another call.
        check("k:tcp_sendmsg main", DATABASE);
        assert_eq!(of(CLIENT, &frames("main work")), CLIENT_CODE);
        assert_eq!(of(CLIENT, &frames(send)), "network stack");
        assert_eq!(of(LAYER, &frames(send)), PROXY);
        assert_eq!(of(LAYER, &frames("main")), PROXY);
    }

    #[test]
    fn table_has_no_unreachable_rule() {
        let names: Vec<&str> =
            ALL.iter().map(|one| one.name).chain(BY_PROCESS.map(|(name, _)| name)).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len(), "each name once");
        for one in ALL {
            assert!(one.functions().all(|f| !f.starts_with('_') && f.len() > 1), "{one:?}");
        }
        // If two rows have the same prefix, the lower one would never count.
        for (at, one) in ALL.iter().enumerate() {
            for function in one.functions() {
                let upper =
                    ALL[..at].iter().find(|upper| !upper.leaf_only && upper.matches(function));
                assert!(upper.is_none(), "{function} of {} also matches {upper:?}", one.name);
            }
        }
    }

    #[test]
    fn subsystems_reference_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/subsystems.md");
        tare_testkit::golden(&path, page());
    }
}
