//! The clock source.
//!
//! What: `current_clocksource`, changed only on request; otherwise advice.
//! Why: engines read the clock several times per request. With the TSC, kvm-clock or Hyper-V's page
//! a read takes about 25 ns in user space (vDSO); with hpet, acpi_pm or Xen's clock it is a system
//! call and a slow read, about a microsecond.
//! Source: the kernel's Documentation/virt/kvm/x86/timekeeping.rst and vdso(7); seastar's
//! perftune.py.
//! Risk: with TSCs that are not synchronized across CPUs, time can run backwards; the kernel offers
//! the TSC only where its watchdog found it stable.

use crate::knobs::Context;
use crate::plan::{Action, Group, Item, Key, ValueFormat};
use crate::snapshot::Snapshot;

use super::Knob;

#[derive(Debug)]
pub(super) struct ClockSource;

const FOLDER: &str = "/sys/devices/system/clocksource/clocksource0";

/// Clock sources that need a system call, a slow read, or both.
const SLOW: &[&str] = &["hpet", "acpi_pm", "xen", "jiffies", "refined-jiffies", "pit"];

impl Knob for ClockSource {
    fn name(&self) -> &'static str {
        "clock_source"
    }

    fn group(&self) -> Group {
        Group::Cpu
    }

    fn help(&self) -> &'static str {
        "a clock that is read without a system call (changed only on request)"
    }

    fn why(&self) -> &'static str {
        "an engine reads the clock several times per request"
    }

    fn risk(&self) -> &'static str {
        "time can run backwards if the TSCs of this machine are not synchronized"
    }

    fn source(&self) -> &'static str {
        "Linux Documentation/virt/kvm/x86/timekeeping.rst; vdso(7); seastar's perftune.py"
    }

    fn in_perftune(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let snapshot = context.snapshot;
        let path = format!("{FOLDER}/current_clocksource");
        let Some(now) = snapshot.read(&path).map(str::to_string) else { return Vec::new() };
        let offered = snapshot.read(&format!("{FOLDER}/available_clocksource")).unwrap_or_default();
        let is_offered = |name: &str| offered.split_whitespace().any(|word| word == name);
        let perftune = context.options.like_perftune;
        if perftune && !context.options.clock {
            return Vec::new();
        }
        // Only x86 has a choice. Other architectures have one counter.
        let x86 = ["tsc", "kvm-clock", "hpet", "acpi_pm"];
        let is_x86 = x86.iter().any(|name| is_offered(name) || now == *name);
        let wanted = match perftune {
            true if is_kvm(snapshot) => "kvm-clock",
            true if is_x86 => "tsc",
            true => return Vec::new(),
            false if SLOW.contains(&now.as_str()) && is_x86 => "tsc",
            false => {
                let action = Action::AlreadySet { now };
                return vec![context.line(self, "host", "clock source", action)];
            }
        };
        if now == wanted || (is_offered(wanted) && context.options.clock) {
            let key = Key::file(path);
            let item = context.item(self, "host", "clock source", key, ValueFormat::Text, wanted);
            return item.into_iter().collect();
        }
        let how = match is_offered(wanted) {
            true => "tare tune apply --clock switches it".into(),
            false => format!(
                "this kernel does not offer {wanted} (it offers {offered}): search dmesg for \
                 \"clocksource\" to see why it was marked unstable"
            ),
        };
        let action = Action::Advise { now, wanted: wanted.into(), how };
        vec![context.line(self, "host", "clock source", action)]
    }
}

/// Whether perftune.py would choose kvm-clock: `systemd-detect-virt` prints kvm, amazon or google,
/// which it finds in DMI (systemd's src/basic/virt.c).
fn is_kvm(snapshot: &Snapshot) -> bool {
    if snapshot.read("/sys/hypervisor/type") == Some("xen") {
        return false;
    }
    let fields = ["product_name", "sys_vendor"];
    let known = ["KVM", "OpenStack", "KubeVirt", "Amazon EC2", "QEMU", "Google Compute Engine"];
    // A bare-metal instance of AWS has the vendor's name too, but no hypervisor.
    let product = snapshot.read("/sys/class/dmi/id/product_name").unwrap_or_default();
    let is_known = fields.iter().any(|field| {
        let text = snapshot.read(&format!("/sys/class/dmi/id/{field}")).unwrap_or_default();
        known.iter().any(|name| text.starts_with(name))
    });
    is_known && !product.contains(".metal")
}
