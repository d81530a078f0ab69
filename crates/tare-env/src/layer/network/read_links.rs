//! Reads back the links of a running environment: its devices as its own namespace shows them, and
//! the other ends.

use std::path::Path;

use serde_json::Value;
use tare_host::exec::Command;
use tare_host::{netns, process};
use tare_lab::environment::LayerState;
use tare_lab::layer::Network;

use super::overlay::{MTU, TUNNEL};
use super::{Router, SystemNetwork, same_parent};
use crate::run_context::RunContext;

impl SystemNetwork {
    /// Adds to the read-back of the network layer the links in the namespace of the process `pid`
    /// and their other ends. `host` and the bridges are read back elsewhere.
    pub(crate) fn read_links(
        &self,
        context: &RunContext,
        (network, pid): (Network, u32),
        mut state: LayerState,
    ) -> LayerState {
        if matches!(network, Network::Host | Network::Bridge { .. }) {
            return state;
        }
        let client = context.client().namespace();
        let inode = |path: &Path| {
            netns::within(path, || process::inode_of_link(Path::new("/proc/thread-self/ns/net")))
                .ok()
                .flatten()
        };
        let wanted = self.namespace.as_deref().and_then(inode);
        state.in_force &= wanted.is_some() && process::namespace_inode(pid, "net") == wanted;
        if network == Network::None {
            let shared = wanted.is_some() && wanted == inode(client);
            let local = self.address.ip().is_loopback();
            state.found += &format!(
                "; {} the client's; reached at {}, {}",
                if shared { "it is" } else { "it is not" },
                self.address,
                if local { "a loopback address" } else { "no loopback address" }
            );
            state.in_force &= shared && local;
            return state;
        }
        let (Some(router), Some(inside)) = (&self.router, &self.namespace) else {
            state.in_force = false;
            return state;
        };
        let links = list(inside);
        let others = links.iter().filter(|link| link["ifname"] != "lo").count();
        let own = find(&links, "eth0");
        state.found +=
            &format!("; inside {}", links.iter().map(shown).collect::<Vec<_>>().join(", "));
        let (text, in_force) = router.other_ends(network, &own, client);
        state.found += &text;
        state.in_force &= in_force && others == 1 && is_up(&own);
        state
    }
}

impl Router {
    /// Returns the other ends of the system's device in words, and whether all of them are as the
    /// layer wants them.
    fn other_ends(&self, network: Network, own: &Value, client: &Path) -> (String, bool) {
        let router = netns::path(&self.router);
        let clients = || find(&list(client), &self.client_device());
        match network {
            Network::Vxlan => {
                let (near, far) = (clients(), find(&list(&router), TUNNEL));
                let tunnel = |link: &Value| {
                    link["linkinfo"]["info_kind"] == "vxlan"
                        && link["linkinfo"]["info_data"]["id"] == self.vxlan_id()
                        && link["mtu"] == MTU
                        && is_up(link)
                };
                let in_force = own["mtu"] == MTU
                    && own["linkinfo"]["info_kind"] == "veth"
                    && far["master"] == "tare0"
                    && tunnel(&near)
                    && tunnel(&far);
                let text = format!(
                    "; the bridge has {}; the client has {} (VXLAN {})",
                    shown(&far),
                    shown(&near),
                    self.vxlan_id()
                );
                (text, in_force)
            }
            Network::Pasta => {
                let alive = self.proxy_pid().and_then(process::name);
                // The process has the name of the file that is best for this CPU: `passt.avx2`.
                let is_pasta =
                    |name: &String| [super::PASTA, "passt"].iter().any(|one| name.starts_with(one));
                let in_force =
                    own["linkinfo"]["info_kind"] == "tun" && alive.as_ref().is_some_and(is_pasta);
                let name = alive.unwrap_or_else(|| "no process of pasta".into());
                (format!("; {name} serves it"), in_force)
            }
            _ => {
                let (kind, _, mode) = same_parent::kind(network);
                let near = clients();
                let is_one = |link: &Value| {
                    link["linkinfo"]["info_kind"] == kind
                        && link["linkinfo"]["info_data"]["mode"] == mode
                        && is_up(link)
                };
                (format!("; the client has {}", shown(&near)), is_one(own) && is_one(&near))
            }
        }
    }
}

/// Lists the links of a namespace; none if they cannot be read.
fn list(namespace: &Path) -> Vec<Value> {
    let command = Command::new("ip").args(["-details", "-json", "link", "show"]);
    let output = command.in_namespace(namespace).run().map(|output| output.stdout);
    serde_json::from_str(&output.unwrap_or_default()).unwrap_or_default()
}

/// Returns the link of this name, or `null`.
fn find(links: &[Value], name: &str) -> Value {
    links.iter().find(|link| link["ifname"] == name).cloned().unwrap_or_default()
}

fn is_up(link: &Value) -> bool {
    let flags = link["flags"].as_array();
    flags.is_some_and(|flags| ["UP", "LOWER_UP"].iter().all(|flag| flags.contains(&(*flag).into())))
}

/// Returns a link in words: `eth0 (macvlan, bridge, mtu 1500)`.
fn shown(link: &Value) -> String {
    let Some(name) = link["ifname"].as_str() else { return "no such link".into() };
    let info = &link["linkinfo"];
    let kind = info["info_kind"].as_str().unwrap_or("loopback");
    let mode = info["info_data"]["mode"].as_str().or(info["info_data"]["type"].as_str());
    let mode = mode.map_or_else(String::new, |mode| format!(", {mode}"));
    let state = if is_up(link) { "" } else { ", down" };
    format!("{name} ({kind}{mode}, mtu {}{state})", link["mtu"])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ip -details -json link` of iproute2 6.1 prints them, without what is not read.
    const LINKS: &str = r#"[
      {"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"mtu":65536},
      {"ifname":"eth0","flags":["BROADCAST","UP","LOWER_UP"],"mtu":1500,
       "linkinfo":{"info_kind":"macvlan","info_data":{"mode":"bridge"}}},
      {"ifname":"tap","flags":["BROADCAST","UP"],"mtu":65520,
       "linkinfo":{"info_kind":"tun","info_data":{"type":"tap"}}}]"#;

    #[test]
    fn shows_links() {
        let links: Vec<Value> = serde_json::from_str(LINKS).unwrap();
        let check = |name: &str, expect: &str, up: bool| {
            let link = find(&links, name);
            assert_eq!((shown(&link).as_str(), is_up(&link)), (expect, up));
        };
        check("lo", "lo (loopback, mtu 65536)", true);
        check("eth0", "eth0 (macvlan, bridge, mtu 1500)", true);
        check("tap", "tap (tun, tap, mtu 65520, down)", false);
        check("eth1", "no such link", false);
    }
}
