//! The text of a study that a command derives from another.

use std::fmt::Write;

use tare_lab::study::Study;

/// Returns the derived environments in the syntax of a study, and the text of the source study as
/// comments below them: what the record keeps can be run again.
pub(crate) fn text(command: &str, study: &Study, source: &str, original: &str) -> String {
    let mut text = format!("# Derived by {command} from the study {source}, which is below.\n");
    for loader in &study.loaders {
        let _ = writeln!(text, "\n[[loader]]\nhost = {:?}", loader.name());
        if let Some(cpus) = &loader.cpus {
            let _ = writeln!(text, "cpus = \"{cpus}\"");
        }
        if let Some(address) = &loader.address {
            let _ = writeln!(text, "address = \"{address}\"");
        }
    }
    for spec in &study.environments {
        let mut line = |key: &str, value: &str| {
            // A name has no control characters, so Rust's quoting is TOML's.
            let _ = writeln!(text, "{key} = {value:?}");
        };
        line("\n[[environment]]\nname", &spec.name);
        for (key, value) in [
            ("runtime", spec.runtime.to_string()),
            ("network", spec.network.to_string()),
            ("cpu", spec.cpu.to_string()),
            ("user", spec.confinement.user.to_string()),
            ("apparmor", spec.confinement.apparmor.to_string()),
            ("cgroup", spec.cgroup.to_string()),
            ("host", spec.host.to_string()),
            ("inject", spec.inject.to_string()),
            ("sidecar", spec.sidecar.to_string()),
        ] {
            line(key, &value);
        }
        let (seccomp, confinement) = (spec.security, spec.confinement);
        let _ = writeln!(
            text,
            "security = {{ seccomp = \"{seccomp}\", capabilities = \"{}\" }}",
            confinement.capabilities
        );
        let node = confinement.node.map_or("\"any\"".into(), |node| node.to_string());
        let _ = writeln!(text, "memory = {{ pages = \"{}\", node = {node} }}", confinement.pages);
        // Keys and values of options have no control characters either.
        let table = |options: &[(String, String)]| -> String {
            let pairs: Vec<String> =
                options.iter().map(|(key, value)| format!("{key} = {value:?}")).collect();
            format!("{{ {} }}", pairs.join(", "))
        };
        if !spec.storage.is_directory() {
            let mut storage = vec![("kind".to_string(), spec.storage.kind.clone())];
            storage.extend_from_slice(&spec.storage.options);
            let _ = writeln!(text, "storage = {}", table(&storage));
        }
        let rootfs: Vec<(String, String)> = spec.rootfs.clone().into();
        for (key, options) in [
            ("vm", &spec.vm),
            ("sandbox", &spec.sandbox),
            ("rootfs", &rootfs),
            ("system", &spec.system),
        ] {
            if !options.is_empty() {
                let _ = writeln!(text, "{key} = {}", table(options));
            }
        }
        let limits = spec.limits.all();
        let limits: Vec<String> =
            limits.map(|(limit, value)| format!("{} = {value}", limit.name())).collect();
        if !limits.is_empty() {
            let _ = writeln!(text, "limits = {{ {} }}", limits.join(", "));
        }
    }
    text.push('\n');
    for line in original.lines() {
        text.push_str(if line.is_empty() { "#" } else { "# " });
        text.push_str(line);
        text.push('\n');
    }
    text
}
