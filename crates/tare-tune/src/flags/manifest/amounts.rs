//! Amounts of CPU and memory in a manifest.
//!
//! Source: kubernetes.io, "Resource Management for Pods and Containers": a request that is missing
//! is the limit, and a pod is Guaranteed if every container has a limit of CPU and of memory that
//! equals its request.

use crate::flags::yaml::Node;
use crate::machine::kubelet::quantity;

/// Reads an amount; `None` if it cannot be read.
pub(super) type ReadAmount = fn(&str) -> Option<u64>;

/// Amounts of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    pub(super) requests: Pair,
    pub(super) limits: Pair,
}

/// Amounts as the file has them; `None` where it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) cpu: Option<String>,
    pub(super) memory: Option<String>,
}

impl Amounts {
    pub(super) fn of(container: &Node) -> Self {
        let pair = |kind: &str| {
            let amount = |resource: &str| {
                let node = container.at(&["resources", kind, resource])?;
                node.text().map(str::to_string)
            };
            Pair { cpu: amount("cpu"), memory: amount("memory") }
        };
        Self { requests: pair("requests"), limits: pair("limits") }
    }

    /// Whether a container with these amounts lets its pod be Guaranteed.
    pub(super) fn is_guaranteed(&self) -> bool {
        let same = |request: &Option<String>, limit: &Option<String>, read: ReadAmount| {
            let Some(limit) = limit else { return false };
            request.as_ref().is_none_or(|request| same_amount(request, limit, read))
        };
        same(&self.requests.cpu, &self.limits.cpu, millis)
            && same(&self.requests.memory, &self.limits.memory, quantity::bytes)
    }
}

/// Whether two texts are one amount: `8` and `8000m`.
pub(super) fn same_amount(a: &str, b: &str, read: ReadAmount) -> bool {
    a == b || matches!((read(a), read(b)), (Some(a), Some(b)) if a == b)
}

/// Parses an amount of CPU in thousandths of a CPU: `2`, `7500m`, `0.5`.
pub(in crate::flags) fn millis(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_suffix('m') {
        Some(millis) => millis.parse().ok(),
        None => {
            let (whole, part) = text.split_once('.').unwrap_or((text, ""));
            let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            if whole.is_empty() || !digits(whole) || !digits(part) {
                return None;
            }
            // Finer parts than a thousandth are rounded up, as Kubernetes does.
            let rounded = part.get(3..).is_some_and(|rest| rest.bytes().any(|byte| byte != b'0'));
            let part = format!("{part:0<3}").get(..3)?.parse::<u64>().ok()?;
            whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part + u64::from(rounded))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_cpu_are_read() {
        let check = |text: &str, expect: Option<u64>| assert_eq!(millis(text), expect, "{text}");
        check("2", Some(2000));
        check("7500m", Some(7500));
        check("0.5", Some(500));
        check("1.25", Some(1250));
        check("0.0001", Some(1));
        check("", None);
        check("1e3", None);
        check("-1", None);
        check("two", None);
    }

    #[test]
    fn guaranteed_needs_limits_that_equal_requests() {
        let pair = |cpu: &str, memory: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_string());
            Pair { cpu: some(cpu), memory: some(memory) }
        };
        let check = |requests: Pair, limits: Pair, expect: bool| {
            assert_eq!(Amounts { requests, limits }.is_guaranteed(), expect);
        };
        check(pair("2", "1Gi"), pair("2000m", "1024Mi"), true);
        check(pair("", ""), pair("2", "1Gi"), true);
        check(pair("1", ""), pair("2", "1Gi"), false);
        check(pair("2", "1Gi"), pair("2", ""), false);
        check(pair("2", "1Gi"), pair("", ""), false);
    }
}
