use super::*;

/// A plan of a host with this many CPUs for the system, and as many for the client.
fn plan(system: u32) -> CpuPlan {
    let (first, all) = (system - 1, 2 * system - 1);
    let text = format!(r#"{{"all":"0-{all}","system":"{system}-{all}","client":"0-{first}"}}"#);
    serde_json::from_str(&text).unwrap()
}

fn study(system: &str, limits: &str) -> Study {
    let text = format!(
        "name = \"memory\"\ntitle = \"memory\"\nbaseline = \"native\"\n[system]\nname = \"tare-db\"\n{system}\n\
         [[environment]]\nname = \"native\"\nruntime = \"process\"\ncpu = \"pinned\"\n{limits}\n\
         [[environment]]\nname = \"other\"\nruntime = \"process\"\ncpu = \"pinned\"\nsecurity = \"default\"\n\
         [[workload]]\nname = \"point-read\"\nwrite_share = 0.5\n"
    );
    tare_lab::study::parse(&text, "memory", &crate::registry::vocabulary())
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn memory_grows_with_shards_and_instances() {
    let check = |system: &str, cpus: u32, expect_mib: u64| {
        let found = memory_bytes(&study(system, ""), &plan(cpus)) >> 20;
        assert_eq!(found, expect_mib, "{system} on {cpus} CPUs");
    };
    check("", 1, 32);
    check("", 128, 4096);
    // Two instances have half of the shards each.
    check("instances = 2", 128, 4096);
    // Each of three instances on two CPUs has a shard.
    check("instances = 3", 2, 96);
    check("memory = \"1G\"\ninstances = 4", 8, 4096);
    assert_eq!(copies_of_rows(&study("instances = 4", "")), 4);
    assert_eq!(copies_of_rows(&study("", "")), 1);
}

#[test]
fn a_limit_too_small_for_the_shards_is_refused() {
    let info = tare_system::find("tare-db").unwrap();
    let study = study("", "cgroup = \"own\"\nlimits = { memory = \"1G\" }");
    check(&study, info, &plan(16)).unwrap();
    let error = check(&study, info, &plan(32)).unwrap_err().to_string();
    assert_eq!(
        error,
        "environment \"native\" has 1024 MiB of memory, and tare-db needs 2048 MiB (32 shards of 32 \
         MiB in the half of a limit that it uses); raise the limit of the environment, or lower the \
         memory of the system"
    );
}
