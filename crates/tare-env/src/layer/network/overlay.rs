//! `vxlan`: an overlay network as Swarm and Flannel have it, between two nodes.
//!
//! The router's namespace is the system's node: a bridge with the veth pair of the system's
//! namespace, and a VXLAN device as another port. The client's namespace is the other node, whose
//! VXLAN device has the client's address, as `flannel.1` has the host's. A veth pair, the underlay,
//! joins the nodes, and each packet is encapsulated in UDP on one side and unpacked on the other,
//! in both directions. The overlay's MTU is 1450: 50 bytes less than the underlay's, for the outer
//! headers.
//!
//! The underlay has the first two of a router's four addresses, the overlay the others. An address
//! is known to the other end by one remote, so nothing is multicast.

use std::net::Ipv4Addr;

use super::Router;
use crate::client::{NetworkError, batch};
use crate::run_context::RunContext;

/// The VXLAN device on the system's node, a port of its bridge.
pub(super) const TUNNEL: &str = "tare-x";
/// The MTU of all devices of the overlay.
pub(super) const MTU: u32 = 1450;
/// The port that IANA has assigned.
const PORT: u16 = 4789;
/// The first VXLAN network identifier: in a namespace no two devices may have the same.
const FIRST_ID: u32 = 4096;

impl Router {
    /// Returns the VXLAN network identifier.
    pub(super) fn vxlan_id(&self) -> u32 {
        FIRST_ID + self.of
    }

    /// Creates both nodes with the tunnel, if this is the first instance, and the system's
    /// namespace behind the bridge.
    pub(super) fn make_overlay(&self, context: &RunContext) -> Result<(), NetworkError> {
        let (router, system) = self.make_namespaces()?;
        let client = context.client();
        let underlay = format!("tare-u{}", self.of);
        let (here, there) = (self.link_address(1), self.link_address(0));
        let tunnel = |name: &str, lower: &str, local: Ipv4Addr, remote: Ipv4Addr| {
            let id = self.vxlan_id();
            format!(
                "link add {name} type vxlan id {id} local {local} remote {remote} dstport {PORT} dev {lower}\n"
            )
        };
        let mut lines = String::new();
        if self.is_first() {
            lines = format!(
                "link set lo up\n\
                 link add tare-u type veth peer name {underlay} netns {}\n\
                 addr add {here}/31 dev tare-u\n\
                 link set tare-u up\n\
                 link add tare0 type bridge\n\
                 {}\
                 link set {TUNNEL} master tare0\n\
                 link set {TUNNEL} up\n",
                client.name,
                tunnel(TUNNEL, "tare-u", here, there),
            );
        }
        let port = super::bridge_port(self.slot);
        lines += &format!(
            "link add {port} mtu {MTU} type veth peer name eth0 mtu {MTU} netns {}\n\
             link set {port} master tare0\n\
             link set {port} up\n\
             link set tare0 up\n",
            self.system
        );
        batch(context.run(), Some(&router), &lines)?;
        batch(context.run(), Some(&system), &self.inside_direct(context, 31))?;
        let device = self.client_device();
        let mut lines = String::new();
        if self.is_first() {
            lines = format!(
                "addr add {there}/31 dev {underlay}\n\
                 link set {underlay} up\n\
                 {}",
                tunnel(&device, &underlay, there, here),
            );
        }
        let near = self.link_address(3);
        lines += &format!("addr add {near}/31 dev {device}\nlink set {device} up\n");
        batch(context.run(), Some(client.namespace()), &lines)
    }
}
