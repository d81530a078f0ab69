//! `macvlan` and `ipvlan`: a device of the system and one of the client on the same parent.
//!
//! A host cannot talk to macvlan devices through their parent (the parent's own packets leave by
//! the card), so the client needs a device of the same kind. In bridge mode macvlan, and in L2 mode
//! ipvlan, hand a packet for another device of the parent to it directly (`macvlan_queue_xmit` in
//! drivers/net/macvlan.c, `ipvlan_xmit_mode_l2` in drivers/net/ipvlan/ipvlan_core.c). The parent
//! never sees it, so which one it is makes no difference: it is one end of a veth pair in a
//! namespace of its own, and no card of the host takes part.
//!
//! All devices end with that namespace, which holds their parent.

use tare_lab::layer::Network;

use super::Router;
use crate::client::{NetworkError, batch};
use crate::run_context::RunContext;

/// The parent of both devices, in the router's namespace.
pub(super) const PARENT: &str = "tare-p";

/// Returns the words of `ip` for a device of this kind, and the mode as it is read back.
pub(super) fn kind(network: Network) -> (&'static str, &'static str, &'static str) {
    match network {
        Network::Ipvlan => ("ipvlan", "type ipvlan mode l2", "l2"),
        _ => ("macvlan", "type macvlan mode bridge", "bridge"),
    }
}

impl Router {
    /// Creates the parent, if this is the first instance, and a device of the system.
    pub(super) fn make_on_same_parent(&self, context: &RunContext) -> Result<(), NetworkError> {
        let (router, system) = self.make_namespaces()?;
        let (_, words, _) = kind(self.network);
        let (device, client) = (self.client_device(), &context.client().name);
        let mut lines = match self.is_first() {
            false => String::new(),
            true => format!(
                "link set lo up\n\
                 link add {PARENT} type veth peer name tare-q\n\
                 link set {PARENT} up\n\
                 link set tare-q up\n\
                 link add link {PARENT} name {device} netns {client} {words}\n"
            ),
        };
        lines += &format!("link add link {PARENT} name eth0 netns {} {words}\n", self.system);
        batch(context.run(), Some(&router), &lines)?;
        batch(context.run(), Some(&system), &self.inside_direct(context, 30))?;
        let near = self.link_address(1);
        let lines = format!("addr add {near}/30 dev {device}\nlink set {device} up\n");
        batch(context.run(), Some(context.client().namespace()), &lines)
    }
}
