//! Divides CPUs among instances: disjoint, in whole cores, and within NUMA nodes where possible.

use crate::cpus::CpuSet;

/// Divides cores, given by NUMA node, among `count` instances. `None` if there are fewer cores than
/// instances, or none.
///
/// With fewer instances than nodes, each gets whole nodes. Otherwise every node gets one instance
/// and a share of the others in proportion to its cores (highest averages method), and divides its
/// cores among its instances so that they differ by at most one core.
pub fn divide(nodes: &[Vec<CpuSet>], count: usize) -> Option<Vec<CpuSet>> {
    let nodes: Vec<&[CpuSet]> =
        nodes.iter().map(Vec::as_slice).filter(|cores| !cores.is_empty()).collect();
    let cores: usize = nodes.iter().map(|cores| cores.len()).sum();
    let count = count.max(1);
    if count > cores {
        return None;
    }
    if count <= nodes.len() {
        return Some(runs(nodes.len(), count).map(|part| union(nodes[part].concat())).collect());
    }
    let shares = nodes.iter().zip(apportion(&nodes, count));
    let shares = shares.flat_map(|(cores, count)| {
        runs(cores.len(), count).map(move |part| union(cores[part].iter().cloned()))
    });
    Some(shares.collect())
}

/// Returns the first `count` CPUs of cores that are given by NUMA node: whole cores as long as they
/// fit, those of the first node first, and then hardware threads of further cores.
pub fn first(nodes: &[Vec<CpuSet>], count: usize) -> CpuSet {
    let cores = || nodes.iter().flatten();
    let whole = cores().fold(CpuSet::new(), |all, core| match all.len() + core.len() <= count {
        true => all.union(core),
        false => all,
    });
    let others = cores().flat_map(CpuSet::iter).filter(|cpu| !whole.contains(*cpu));
    let others: CpuSet = others.take(count.saturating_sub(whole.len())).collect();
    whole.union(&others)
}

/// Returns how many instances each node gets; no node gets more than it has cores.
fn apportion(nodes: &[&[CpuSet]], instances: usize) -> Vec<usize> {
    let cores: Vec<usize> = nodes.iter().map(|cores| cores.len()).collect();
    let mut counts = vec![1; cores.len()];
    for _ in cores.len()..instances {
        // The node with the largest cores / (count + 1); of equal ones the first.
        let best = (0..cores.len()).reduce(|best, next| {
            let more = cores[next] * (counts[best] + 1) > cores[best] * (counts[next] + 1);
            if more { next } else { best }
        });
        if let Some(best) = best {
            counts[best] += 1;
        }
    }
    counts
}

/// Splits `length` items into `parts` ranges, the longer ones first.
fn runs(length: usize, parts: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let (least, longer) = (length / parts, length % parts);
    let start = move |part: usize| part * least + part.min(longer);
    (0..parts).map(move |part| start(part)..start(part + 1))
}

fn union(cores: impl IntoIterator<Item = CpuSet>) -> CpuSet {
    cores.into_iter().fold(CpuSet::new(), |all, core| all.union(&core))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_get_whole_cores_within_nodes() {
        let check = |nodes: &[&[&str]], count, expect: &[&str]| {
            let core = |text: &&str| CpuSet::parse_list(text).unwrap();
            let nodes: Vec<Vec<CpuSet>> =
                nodes.iter().map(|cores| cores.iter().map(core).collect()).collect();
            let found = divide(&nodes, count).unwrap_or_default();
            let found: Vec<String> = found.iter().map(CpuSet::to_string).collect();
            assert_eq!(found, expect, "{count} on {nodes:?}");
        };
        check(&[&["0,4", "1,5", "2,6", "3,7"]], 2, &["0-1,4-5", "2-3,6-7"]);
        check(&[&["0", "1", "2", "3"]], 3, &["0-1", "2", "3"]);
        check(&[&["0", "1"], &["2", "3"]], 2, &["0-1", "2-3"]);
        check(&[&["0", "1"], &[], &["2", "3"]], 3, &["0", "1", "2-3"]);
        check(&[&["0"], &["1", "2", "3"]], 3, &["0", "1-2", "3"]);
        check(&[&["0"]], 2, &[]);
        check(&[], 1, &[]);
    }

    #[test]
    fn first_cpus_are_whole_cores() {
        let check = |nodes: &[&[&str]], count, expect: &str| {
            let core = |text: &&str| CpuSet::parse_list(text).unwrap();
            let nodes: Vec<Vec<CpuSet>> =
                nodes.iter().map(|cores| cores.iter().map(core).collect()).collect();
            assert_eq!(first(&nodes, count).to_string(), expect, "{count} of {nodes:?}");
        };
        check(&[&["0,4", "1,5", "2,6"]], 2, "0,4");
        check(&[&["0,4", "1,5", "2,6"]], 3, "0-1,4");
        check(&[&["0,4", "1,5", "2,6"]], 4, "0-1,4-5");
        check(&[&["2", "3"], &["0", "1"]], 3, "0,2-3");
        check(&[&["0,4"]], 1, "0");
        check(&[&["0", "1"]], 9, "0-1");
    }
}
