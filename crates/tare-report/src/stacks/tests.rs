use tare_lab::stacks::{CLIENT, LAYER, PartCpu, SYSTEM, SampledStack, StackKind, StackSlice};

use super::*;
use crate::html::flamegraph;
use crate::layout::Style;

const HOSTILE: &str = "</script><script>alert(1)</script>{{data}}\u{202e}\u{1b}[31m";

fn stack(part: &str, subsystem: &str, folded: &str, samples: u64) -> SampledStack {
    SampledStack { part: part.into(), subsystem: subsystem.into(), folded: folded.into(), samples }
}

fn slice(round: u32, environment: &str, stacks: Vec<SampledStack>) -> StackSlice {
    let cpu = |part: &str, cpu_ns| PartCpu { part: part.into(), cpu_ns, idle_poll_ns: 0 };
    StackSlice {
        id: 0,
        round,
        kind: StackKind::OnCpu,
        position: 0,
        environment: environment.into(),
        workload: "w".into(),
        started_unix_ms: 0,
        window_ns: 1_000_000_000,
        operations: 1000,
        rate_per_s: 1000.0,
        event: "cpu-clock at 999 Hz".into(),
        cpu: vec![cpu(SYSTEM, 10_000_000), cpu(CLIENT, 4_000_000)],
        stacks,
        void: None,
    }
}

/// The bridge is new in `box`, the ring is gone, the database is the same but for noise.
fn slices() -> Vec<StackSlice> {
    let mut all = Vec::new();
    for round in 0..5u64 {
        let noise = round % 2;
        all.push(slice(
            u32::try_from(round).unwrap(),
            "native",
            vec![
                stack(SYSTEM, "database", "main;work", 60 + noise),
                stack(SYSTEM, "io_uring", "main;x64_sys_ring_[k];io_submit_[k]", 40 - noise),
                stack(CLIENT, "client", "load", 10),
            ],
        ));
        all.push(slice(
            u32::try_from(round).unwrap(),
            "box",
            vec![
                stack(SYSTEM, "database", "main;work", 60 + noise),
                stack(SYSTEM, "bridge and veth", "main;send_[k];br_forward_[k]", 40 - noise),
                stack(CLIENT, "client", "load", 10),
            ],
        ));
    }
    all
}

fn profile(slices: &[StackSlice]) -> Profile {
    let side = |name| Side::of(slices, StackKind::OnCpu, "w", name);
    Profile::new(side("native"), side("box")).unwrap()
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9, "{a} is not {b}");
}

#[test]
fn samples_divide_the_cpu_time_and_parts_add_up() {
    let profile = profile(&slices());
    let total = profile.total();
    // 10 ms and 4 ms over 1,000 operations.
    close(total.from.us, 14.0);
    let rows = profile.subsystems();
    close(rows.iter().map(|row| row.from.us).sum(), 14.0);
    close(rows.iter().map(|row| row.to.us).sum(), 14.0);
    let functions = profile.functions();
    close(functions.iter().map(|row| row.from.us).sum(), 14.0);
    let client = rows.iter().find(|row| row.name == "client").unwrap();
    close(client.from.us, 4.0);
    let bridge = rows.iter().find(|row| row.name == "bridge and veth").unwrap();
    close(bridge.from.us, 0.0);
    close(bridge.to.us, (40.0 * 3.0 + 39.0 * 2.0) / 5.0 * 0.1);
    assert!(bridge.difference.found());
    let database = rows.iter().find(|row| row.name == "database").unwrap();
    assert!(!database.difference.found());
    // With callees, a caller has what it calls.
    let send = functions.iter().find(|row| row.name == "send_[k]").unwrap();
    close(send.difference.us, 0.0);
    close(send.difference_with_callees.unwrap().us, bridge.to.us);
}

#[test]
fn idle_polling_is_taken_off_the_systems_own_code() {
    let mut slices = slices();
    for slice in slices.iter_mut().filter(|slice| slice.environment == "native") {
        slice.cpu[0].idle_poll_ns = 3_000_000;
    }
    let one = profile(&slices);
    close(one.total().from.us, 11.0);
    close(one.idle().from.us, 3.0);
    let rows = one.subsystems();
    let figure = |name: &str| rows.iter().find(|row| row.name == name).unwrap().from.us;
    close(figure("io_uring"), (40.0 * 3.0 + 39.0 * 2.0) / 5.0 * 0.1);
    close(figure("client"), 4.0);
    // More than was sampled cannot be taken.
    for slice in slices.iter_mut().filter(|slice| slice.environment == "native") {
        slice.cpu[0].idle_poll_ns = 9_900_000;
    }
    let rows = profile(&slices).subsystems();
    close(rows.iter().find(|row| row.name == "database").unwrap().from.us, 0.0);
    assert!(rows.iter().all(|row| row.from.us >= 0.0));
}

#[test]
fn what_was_not_sampled_is_a_part_of_the_sum() {
    let mut slices = slices();
    for slice in &mut slices {
        slice.cpu.push(PartCpu { part: LAYER.into(), cpu_ns: 1_000_000, idle_poll_ns: 0 });
    }
    let profile = profile(&slices);
    close(profile.total().to.us, 15.0);
    let rows = profile.subsystems();
    close(rows.iter().find(|row| row.name == NOT_SAMPLED).unwrap().to.us, 1.0);
}

#[test]
fn void_slices_and_lone_rounds_do_not_count() {
    let mut slices = slices();
    slices[0].void = Some("interrupted".into());
    let one = profile(&slices);
    assert_eq!((one.rounds(), one.from.rounds(), one.to.rounds()), (4, 4, 5));
    assert!(
        Profile::new(
            Side::of(&slices, StackKind::OnCpu, "w", "native"),
            Side::of(&slices, StackKind::OnCpu, "w", "no")
        )
        .is_none()
    );
    assert!(
        overview(&[], StackKind::OnCpu, "w", "native", Style::new(false, 120))
            .contains("no stack slice")
    );
    // One round has figures and no interval.
    let two: Vec<StackSlice> = slices.into_iter().filter(|slice| slice.round == 1).collect();
    let one = profile(&two);
    assert_eq!(one.total().from.low, None);
    assert!(!one.subsystems().iter().any(|row| row.difference.found()));
}

#[test]
fn tables_say_what_is_new_gone_and_within_the_noise() {
    let slices = slices();
    let style = Style::new(false, 160);
    let text = pair(&slices, StackKind::OnCpu, "w", &profile(&slices), style);
    let line = |name: &str| text.lines().find(|line| line.trim().starts_with(name)).unwrap();
    assert!(line("bridge and veth").ends_with("new"), "{text}");
    assert!(line("io_uring").ends_with("gone"), "{text}");
    assert!(line("database").contains("none found (within"), "{text}");
    assert!(line("sum").contains("14.00"), "{text}");
    assert!(line("br_forward").contains("bridge and veth"), "{text}");
    let all = overview(&slices, StackKind::OnCpu, "w", "native", style);
    assert!(all.contains("native") && all.contains("box") && all.contains("sum"), "{all}");
    let value = json(&slices, StackKind::OnCpu, "w", &profile(&slices));
    assert_eq!(value["rounds"], 5);
    assert_eq!(value["subsystems"].as_array().unwrap().len(), 4);
}

/// Text between the script elements and around them, as a browser would cut it.
fn data_of(page: &str) -> &str {
    let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    &page[start..start + page[start..].find("</script>").unwrap()]
}

#[test]
fn the_flame_graph_holds_both_trees_and_adds_up() {
    let page = flamegraph("Stacks", "w", &profile(&slices()));
    let data: serde_json::Value = serde_json::from_str(data_of(&page)).unwrap();
    let data = &data["pairs"][0];
    assert_eq!((&data["from"], &data["to"]), (&"native".into(), &"box".into()));
    fn sums(node: &serde_json::Value) {
        let children = node[5].as_array().unwrap();
        for which in [2, 3] {
            let inside: f64 = children.iter().map(|child| child[which].as_f64().unwrap()).sum();
            assert!(inside <= node[which].as_f64().unwrap() + 1e-3, "{node}");
        }
        children.iter().for_each(sums);
    }
    sums(&data["tree"]);
    assert!((data["tree"][2].as_f64().unwrap() - 14.0).abs() < 1e-3);
    let names = data["names"].as_array().unwrap();
    assert!(names.contains(&"br_forward_[k]".into()) && names.contains(&"io_submit_[k]".into()));
    assert!(
        !page.contains("http://") || page.matches("http://").count() == 1,
        "the SVG name alone"
    );
    assert!(!page.contains("https://") && !page.contains("src="));
}

#[test]
fn hostile_names_stay_text() {
    let mut slices = slices();
    for slice in &mut slices {
        slice.workload = HOSTILE.into();
        if slice.environment == "box" {
            slice.environment = HOSTILE.into();
        }
        slice.stacks.push(stack(SYSTEM, HOSTILE, &format!("main;{HOSTILE}"), 5));
    }
    let side = |name| Side::of(&slices, StackKind::OnCpu, HOSTILE, name);
    let one = Profile::new(side("native"), side(HOSTILE)).unwrap();
    let page = flamegraph(HOSTILE, HOSTILE, &one);
    assert_eq!(page.matches("<script").count(), 3, "the page's own three");
    assert_eq!(page.matches("</script>").count(), 3);
    let data: serde_json::Value = serde_json::from_str(data_of(&page)).unwrap();
    let data = &data["pairs"][0];
    assert_eq!(data["to"], crate::figures::clean(HOSTILE));
    assert!(!page.contains(['\u{202e}', '\u{1b}']));
    assert_eq!(page.matches("\"names\"").count(), 1, "no name is taken for a gap of the page");
    let style = Style::new(false, 200);
    for text in [
        pair(&slices, StackKind::OnCpu, HOSTILE, &one, style),
        overview(&slices, StackKind::OnCpu, HOSTILE, "native", style),
    ] {
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
    }
}

#[test]
fn waiting_is_divided_by_operations_and_by_nothing_else() {
    let stacks = vec![SampledStack {
        part: SYSTEM.into(),
        subsystem: "disk".into(),
        folded: "run;do_fsync_[k]".into(),
        samples: 3_000_000,
    }];
    let mut one = slice(0, "native", stacks);
    one.kind = StackKind::OffCpu;
    let expected = 3000.0 / one.operations as f64;
    let side = Side::of(&[one.clone()], StackKind::OffCpu, "w", "native");
    assert!((side.total().us - expected).abs() < 1e-9 && side.idle().us == 0.0);
    assert!((side.subsystem("disk").us - expected).abs() < 1e-9);
    assert_eq!(Side::of(&[one.clone()], StackKind::OnCpu, "w", "native").rounds(), 0);
    let text = overview(&[one], StackKind::OffCpu, "w", "native", Style::new(false, 120));
    assert!(text.starts_with("Waiting in"), "{text}");
}
