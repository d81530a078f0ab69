//! `pasta`: the user-mode network of rootless Podman.
//!
//! The router's namespace is the container's host, with a veth pair to the client. The program
//! pasta (Debian's package passt) runs there, makes a tap device in the system's namespace, listens
//! on the published port, and copies each connection between its socket and the tap device, for
//! which it speaks TCP itself. Connections from the loopback of its host would be spliced past the
//! tap device; the client's come over its link, as those of any other machine, so that they are
//! not.
//!
//! Its CPU time counts for the layer, under the name `pasta`. It keeps root, because namespaces of
//! a run have no users of their own.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tare_host::RUN_VARIABLE;
use tare_host::exec::Command;
use tare_host::netns;

use super::{BRIDGE_ADDRESS, PORT, Router, SYSTEM_ADDRESS};
use crate::client::{NetworkError, batch};
use crate::run_context::RunContext;

/// The program, and the name of its CPU time.
pub(crate) const PASTA: &str = "pasta";

/// The hardware address of the system's device, which is locally administered. Without it pasta
/// learns the address from the first packet of the system, and a system without IPv6 sends none
/// before it is asked something.
const HARDWARE_ADDRESS: &str = "02:74:61:72:65:01";

/// How long pasta may take to bring up its device.
const READY_LIMIT: Duration = Duration::from_secs(10);

impl Router {
    /// Creates both namespaces with the client's link, and starts pasta.
    pub(super) fn make_pasta(&mut self, context: &RunContext) -> Result<(), NetworkError> {
        let (router, system) = self.make_namespaces()?;
        let (near, far) = (self.link_address(1), self.link_address(2));
        let (device, client) = (self.client_device(), context.client());
        let lines = format!(
            "link set lo up\n\
             link add tare-c type veth peer name {device} netns {}\n\
             addr add {far}/30 dev tare-c\n\
             link set tare-c up\n",
            client.name
        );
        batch(context.run(), Some(&router), &lines)?;
        let lines = format!("addr add {near}/30 dev {device}\nlink set {device} up\n");
        batch(context.run(), Some(client.namespace()), &lines)?;
        batch(context.run(), Some(&system), "link set lo up\n")?;

        let log = context.work().join(format!("pasta-{}", self.number));
        let open = || File::create(&log).and_then(|out| Ok((out.try_clone()?, out)));
        let failed = |source: std::io::Error| NetworkError::Pasta { log: source.to_string() };
        let (out, err) = open().map_err(failed)?;
        let (published, system_path) =
            (format!("{far}/{PORT}:{}", self.port), system.display().to_string());
        let (address, gateway) = (SYSTEM_ADDRESS.to_string(), BRIDGE_ADDRESS.to_string());
        let child = Command::new(PASTA)
            .args(["--foreground", "--stderr", "--quiet", "--runas", "0", "--ipv4-only"])
            .args(["--config-net", "--interface", "tare-c", "--ns-ifname", "eth0"])
            .args(["--ns-mac-addr", HARDWARE_ADDRESS])
            .args(["--address", &address, "--netmask", "24", "--gateway", &gateway])
            .args(["--tcp-ports", &published, "--udp-ports", "none"])
            .args(["--tcp-ns", "none", "--udp-ns", "none", "--netns", &system_path])
            .variable(RUN_VARIABLE, context.run())
            .on_cpus(&context.cpus().all)
            .in_namespace(&router)
            .spawn(Stdio::null(), out.into(), err.into())?;
        let child = self.proxy.insert(child);
        match is_ready(child, &system, SYSTEM_ADDRESS) {
            true => Ok(()),
            false => Err(NetworkError::Pasta { log: last_line(&log) }),
        }
    }
}

/// Waits until pasta has given its device an address. Returns false if it ends or does not.
fn is_ready(child: &mut Child, system: &Path, address: Ipv4Addr) -> bool {
    let deadline = Instant::now() + READY_LIMIT;
    let routes = || fs::read_to_string("/proc/thread-self/net/fib_trie").unwrap_or_default();
    let address = address.to_string();
    while Instant::now() < deadline {
        let found = netns::within(system, routes).unwrap_or_default();
        if found.split_whitespace().any(|word| word == address) {
            return true;
        }
        if !matches!(child.try_wait(), Ok(None)) {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    false
}

/// Returns the last line that pasta printed. Without a system logger it prints a line about that
/// before each other one.
fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let mut lines = text.lines().filter(|line| !line.contains("to syslog"));
    lines.next_back().unwrap_or("it printed nothing").trim().to_string()
}
