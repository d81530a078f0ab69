//! A network namespace for the server, behind a pair of virtual Ethernet devices.
//!
//! A capture on the client's device has each request when the client's kernel gives it to the
//! device, and each answer when it arrives, as on the card of a client's host. On the loopback
//! device libpcap shows packets at their arrival only.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::Result;
use crate::server::Place;

/// The device of the client.
pub(crate) const DEVICE: &str = "client";
const CLIENT: &str = "192.0.2.1/30";
const SERVER: &str = "192.0.2.2";

/// The namespace. It ends with its process, and that with its standard input.
pub(crate) struct ServerSide(Child);

impl ServerSide {
    /// Creates the namespace and the devices, in a namespace of the bench's own.
    pub(crate) fn create() -> Result<Self> {
        let mut child = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pid = child.id().to_string();
        let stdout = child.stdout.take().ok_or("unshare has no stdout")?;
        let side = Self(child);
        // The line comes from inside the namespace.
        BufReader::new(stdout).read_line(&mut String::new())?;
        let inside = format!("--net=/proc/{pid}/ns/net");
        ip(&[
            "ip", "link", "add", DEVICE, "type", "veth", "peer", "name", "server", "netns", &pid,
        ])?;
        ip(&["ip", "address", "add", CLIENT, "dev", DEVICE])?;
        ip(&["ip", "link", "set", DEVICE, "up"])?;
        let address = format!("{SERVER}/30");
        ip(&["nsenter", &inside, "ip", "address", "add", &address, "dev", "server"])?;
        ip(&["nsenter", &inside, "ip", "link", "set", "server", "up"])?;
        Ok(side)
    }

    pub(crate) fn place(&self) -> Place<'static> {
        Place { host: SERVER, network_of: Some(self.0.id()), bound: false }
    }
}

impl Drop for ServerSide {
    fn drop(&mut self) {
        // Both fail only if the process has already exited.
        let _killed = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn ip(words: &[&str]) -> Result<()> {
    let output = Command::new(words[0]).args(&words[1..]).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim()).into())
}
