//! Resolves names to the devices that carry the traffic.

use std::collections::BTreeSet;

use super::{NicError, driver_of, has_hardware, queues};
use crate::snapshot::Snapshot;

/// A device with the name that it was found for.
type Found = (String, String);

/// Lists every device with hardware that is up. A virtual function is listed with its synthetic
/// device.
pub(super) fn all(snapshot: &Snapshot) -> Vec<Found> {
    let devices = devices(snapshot);
    let up = devices.iter().filter(|name| has_hardware(snapshot, name) && is_up(snapshot, name));
    let found: Vec<Found> = up.flat_map(|name| below(snapshot, name)).collect();
    // A virtual function is also found by itself. The entry that names the device it serves stays.
    let serves = |(name, requested): &Found| name != requested;
    let of_others: BTreeSet<&String> =
        found.iter().filter(|device| serves(device)).map(|(name, _)| name).collect();
    let kept = found.iter().filter(|device| serves(device) || !of_others.contains(&device.0));
    once(kept.cloned().collect())
}

/// Returns the devices behind names, each once.
pub(super) fn named(snapshot: &Snapshot, names: &[String]) -> Result<Vec<Found>, NicError> {
    let mut found = Vec::new();
    for name in names {
        if !is_device(snapshot, name) {
            return Err(unknown(snapshot, name));
        }
        let devices = below(snapshot, name);
        if !devices.is_empty() {
            found.extend(devices);
        } else if queues(snapshot, name, "rx-").is_empty() {
            return Err(NicError::Virtual { name: name.clone() });
        } else {
            found.push((name.clone(), name.clone()));
        }
    }
    Ok(once(found))
}

/// Returns the devices with hardware at or below a name, each with that name.
fn below(snapshot: &Snapshot, requested: &str) -> Vec<Found> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let mut waiting = vec![requested.to_string()];
    while let Some(name) = waiting.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let hardware = has_hardware(snapshot, &name);
        let synthetic =
            hardware && driver_of(snapshot, &name).is_some_and(|driver| driver == "hv_netvsc");
        let mut lower = match hardware && !synthetic {
            true => Vec::new(),
            false => lower(snapshot, &name),
        };
        if hardware && lower.is_empty() {
            found.push((name, requested.to_string()));
        }
        // The last is popped first, so this keeps the order.
        lower.reverse();
        waiting.extend(lower);
    }
    found
}

/// Returns the devices directly below a device: the slaves of a bond and the `lower_*` links.
fn lower(snapshot: &Snapshot, name: &str) -> Vec<String> {
    let folder = format!("/sys/class/net/{name}");
    let slaves = snapshot.read(&format!("{folder}/bonding/slaves")).unwrap_or_default();
    let mut names: Vec<String> = slaves.split_whitespace().map(str::to_string).collect();
    let links = snapshot.names(&folder);
    let links = links.iter().filter_map(|link| link.strip_prefix("lower_"));
    names.extend(links.map(str::to_string));
    let mut seen = BTreeSet::new();
    names.retain(|name| is_device(snapshot, name) && seen.insert(name.clone()));
    names
}

fn once(found: Vec<Found>) -> Vec<Found> {
    let mut seen = BTreeSet::new();
    found.into_iter().filter(|(name, _)| seen.insert(name.clone())).collect()
}

/// Whether a name is a network device. `bonding_masters` is in the same folder but is a file, and a
/// name with `/` is a path.
fn is_device(snapshot: &Snapshot, name: &str) -> bool {
    let ordinary = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
    let path = format!("/sys/class/net/{name}");
    ordinary && snapshot.exists(&path) && snapshot.read(&path).is_none()
}

fn devices(snapshot: &Snapshot) -> Vec<String> {
    let names = snapshot.names("/sys/class/net");
    names.iter().filter(|name| is_device(snapshot, name)).map(|name| name.to_string()).collect()
}

/// Whether a device is up. Some drivers only report `unknown`; then the flag IFF_UP (1) decides.
fn is_up(snapshot: &Snapshot, name: &str) -> bool {
    match snapshot.read(&format!("/sys/class/net/{name}/operstate")) {
        Some("up") => true,
        Some("unknown") | None => {
            let flags = snapshot.read(&format!("/sys/class/net/{name}/flags"));
            let flags = flags.and_then(|flags| flags.strip_prefix("0x"));
            flags.and_then(|flags| u32::from_str_radix(flags, 16).ok()).is_some_and(|f| f & 1 == 1)
        }
        Some(_) => false,
    }
}

/// Returns the error for an unknown device, with the most likely intended name.
fn unknown(snapshot: &Snapshot, name: &str) -> NicError {
    let known = devices(snapshot);
    let driven = known.iter().filter(|device| {
        driver_of(snapshot, device).is_some_and(|driver| driver.eq_ignore_ascii_case(name))
    });
    let driven: Vec<String> = driven.cloned().collect();
    if !driven.is_empty() {
        return NicError::IsDriver { name: name.into(), devices: driven };
    }
    if name.chars().count() == 1 {
        return NicError::Letter { name: name.into(), known };
    }
    let nearest = known.iter().map(|device| (distance(name, device), device)).min();
    let nearest = nearest.filter(|(distance, _)| *distance <= 2).map(|(_, device)| device.clone());
    NicError::Unknown { name: name.into(), nearest, known }
}

/// Returns the number of letters to insert, remove or replace (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, of_a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, of_b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(of_a != *of_b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
