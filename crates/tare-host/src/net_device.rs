//! The network device over which this host reaches an address, as `ip`, `ethtool` and sysfs show
//! it.
//!
//! `ip` and `ethtool` ask the kernel in the network namespace of the caller. `/sys` may show
//! another one's devices (it belongs to the namespace in which it was mounted), so it is read only
//! where name and number of the device agree.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use serde_json::Value;
use tare_std::net_device::{DeviceKind, NetDevice};

use crate::exec::{Command, find};

/// Offloads that change how much work a packet is.
const OFFLOADS: [&str; 7] = [
    "rx-checksumming",
    "tx-checksumming",
    "scatter-gather",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "large-receive-offload",
];

/// Returns the device over which packets to an address leave; `None` where the host does not tell,
/// for example without `ip`.
pub fn towards(to: IpAddr) -> Option<NetDevice> {
    let ip = find("ip")?;
    let run = |words: &[&str]| -> Option<Value> {
        let output = Command::new(&ip).arg("-json").args(words).run().ok()?;
        serde_json::from_str(&output.stdout).ok()
    };
    let route = run(&["route", "get", &to.to_string()])?;
    let name = route[0]["dev"].as_str()?;
    let link = run(&["-details", "link", "show", "dev", name])?;
    let mut device = described(&route[0], &link[0])?;
    let folder = Path::new("/sys/class/net").join(&device.name);
    let number = fs::read_to_string(folder.join("ifindex")).ok();
    let number = number.and_then(|text| text.trim().parse::<u64>().ok());
    if number.is_some() && number == link[0]["ifindex"].as_u64() {
        add_sysfs(&mut device, &folder);
    }
    if let Some(ethtool) = find("ethtool") {
        let output = Command::new(ethtool).args(["-k", &device.name]).run();
        device.offloads = output.map(|output| offloads(&output.stdout)).unwrap_or_default();
    }
    Some(device)
}

/// Returns a device as `ip -json route get` and `ip -json -details link show` describe it.
fn described(route: &Value, link: &Value) -> Option<NetDevice> {
    let address = |key: &str| route[key].as_str().and_then(|text| text.parse().ok());
    let kind = match (link["linkinfo"]["info_kind"].as_str(), link["link_type"].as_str()) {
        (_, Some("loopback")) => DeviceKind::Loopback,
        (Some("veth"), _) => DeviceKind::Veth,
        (Some("bridge"), _) => DeviceKind::Bridge,
        (Some("bond" | "team" | "vlan"), _) => DeviceKind::OfCards,
        (Some(_), _) => DeviceKind::Virtual,
        (None, _) => DeviceKind::Card,
    };
    Some(NetDevice {
        name: link["ifname"].as_str()?.to_string(),
        kind,
        address: address("prefsrc"),
        gateway: address("gateway"),
        mtu_bytes: link["mtu"].as_u64(),
        receive_queues: link["num_rx_queues"].as_u64(),
        transmit_queues: link["num_tx_queues"].as_u64(),
        ..NetDevice::default()
    })
}

/// Adds what only sysfs shows.
fn add_sysfs(device: &mut NetDevice, folder: &Path) {
    let driver = fs::read_link(folder.join("device/driver")).ok();
    let driver = driver.and_then(|path| Some(path.file_name()?.to_str()?.to_string()));
    device.driver = driver.filter(|_| device.kind == DeviceKind::Card);
    if device.kind.has_card() {
        // Virtual devices report a speed that means nothing; a card without one reports -1.
        let speed = fs::read_to_string(folder.join("speed")).ok();
        device.speed_mbit =
            speed.and_then(|text| text.trim().parse().ok()).filter(|mbit| *mbit > 0);
    }
    let count = |prefix: &str| {
        let queues = fs::read_dir(folder.join("queues")).ok()?.flatten();
        let named = queues.filter(|queue| queue.file_name().to_string_lossy().starts_with(prefix));
        u64::try_from(named.count()).ok()
    };
    device.receive_queues = count("rx-").or(device.receive_queues);
    device.transmit_queues = count("tx-").or(device.transmit_queues);
}

/// Returns the offloads that are on in the output of `ethtool -k`.
fn offloads(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.trim().split_once(": "));
    let on = lines.filter(|(name, value)| OFFLOADS.contains(name) && value.starts_with("on"));
    on.map(|(name, _)| name.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_ip_and_ethtool_print() {
        let route = r#"{"dst":"10.0.0.9","gateway":"10.1.0.1","dev":"eth1","prefsrc":"10.1.0.7"}"#;
        let link = r#"{"ifindex":3,"ifname":"eth1","mtu":9000,"link_type":"ether",
            "num_tx_queues":8,"num_rx_queues":4}"#;
        let read = |link: &str| {
            let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            described(&parsed(route), &parsed(link))
        };
        let device = read(link).unwrap();
        assert_eq!((device.kind, device.mtu_bytes), (DeviceKind::Card, Some(9000)));
        assert_eq!(device.gateway, Some("10.1.0.1".parse().unwrap()));
        assert_eq!((device.receive_queues, device.transmit_queues), (Some(4), Some(8)));
        for (kind, expect) in [
            (r#""linkinfo":{"info_kind":"veth"}"#, DeviceKind::Veth),
            (r#""linkinfo":{"info_kind":"vlan"}"#, DeviceKind::OfCards),
            (r#""linkinfo":{"info_kind":"vxlan"}"#, DeviceKind::Virtual),
            (r#""link_type":"loopback""#, DeviceKind::Loopback),
        ] {
            let device = read(&format!(r#"{{"ifname":"x","mtu":1500,{kind}}}"#)).unwrap();
            assert_eq!(device.kind, expect);
        }
        assert_eq!(read("{}"), None);
        let text = "Features for eth1:\nrx-checksumming: on\nlarge-receive-offload: off [fixed]\n\
                    generic-receive-offload: on\ntx-nocache-copy: on\n";
        assert_eq!(offloads(text), ["rx-checksumming", "generic-receive-offload"]);
    }

    #[test]
    fn own_address_is_on_loopback() {
        let device = towards("127.0.0.1".parse().unwrap());
        // Without `ip` there is no answer.
        assert!(device.is_none_or(|device| device.kind == DeviceKind::Loopback));
    }
}
