//! The steps of creating the target and the connection, and the description of a controller.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::PathBuf;

use tare_host::module;
use tare_host::nvme::{
    Connect, Controller, ListenAddress, NvmeError, Target, Transport, soft_roce, wait_for_namespace,
};

use super::options::SERVICE;
use super::{NvmeOf, TargetSide};
use crate::layer::network;
use crate::storage::{At, StorageError};

/// Returns the file with the names of the modules that this start loaded, for the read-back.
fn loaded_list(at: &At<'_>) -> PathBuf {
    at.folder.join("modules-loaded")
}

/// Loads the missing modules and writes their names to the start's directory.
pub(super) fn load(at: &At<'_>, modules: &[&str]) -> Result<(), StorageError> {
    let mut loaded = Vec::new();
    for name in modules {
        if module::load(name).map_err(NvmeError::Module)? {
            loaded.push(*name);
        }
    }
    let path = loaded_list(at);
    fs::write(&path, loaded.join(", ")).map_err(|source| StorageError::File { path, source })
}

/// Describes the modules that this start loaded; empty if none.
pub(super) fn loaded(at: &At<'_>) -> String {
    match fs::read_to_string(loaded_list(at)) {
        Ok(names) if !names.is_empty() => format!("; modules that Tare loaded: {names}"),
        _ => String::new(),
    }
}

/// Returns a text such as `; nvme3: tcp traddr=127.0.0.1,trsvcid=4420, live, nqn..., 2 queues for
/// I/O of 128, ...`.
pub(super) fn describe(controller: &Controller) -> String {
    let read = |name| controller.attribute(name).unwrap_or_else(|| "unreadable".into());
    let less = |name, by: i64| match read(name).parse::<i64>() {
        Ok(number) => (number + by).to_string(),
        Err(_) => "unreadable".into(),
    };
    format!(
        "; {}: {} {}, {}, {}, {} queues for I/O of {}, ctrl_loss_tmo {} s, keep-alive {} s",
        controller.name(),
        read("transport"),
        read("address"),
        read("state"),
        read("subsysnqn"),
        less("queue_count", -1),
        less("sqsize", 1),
        read("ctrl_loss_tmo"),
        read("kato"),
    )
}

impl NvmeOf {
    /// Creates the target unless it exists. Returns its address and port, and whether its block
    /// device is an image.
    pub(super) fn make_target(&self, at: &At<'_>) -> Result<(IpAddr, u16, bool), StorageError> {
        let (backing, address) = match &self.side {
            TargetSide::Given { address, service, .. } => return Ok((*address, *service, false)),
            TargetSide::Own { backing, address } => (backing, address),
        };
        let device = backing.make(at)?;
        let address = match (address, self.transport) {
            (Some(address), _) => *address,
            (None, Transport::Tcp) => Ipv4Addr::LOCALHOST.into(),
            (None, Transport::Rdma) => {
                let run = at.context.run();
                let (_, address) = network::free_pair(run, None, Vec::new())?;
                soft_roce::make(run, &Self::soft_roce_name(at), address)
                    .map_err(StorageError::SoftRoce)?;
                address.into()
            }
        };
        let service = match self.transport {
            Transport::Tcp => free_port(address)?,
            Transport::Rdma => SERVICE,
        };
        let target = Target::open()?.ok_or(NvmeError::NoTree)?;
        let listen = ListenAddress { transport: self.transport, address, service };
        target.make(&Self::name(at), &device, listen)?;
        Ok((address, service, backing.is_image()))
    }

    /// Connects, waits for the block device and returns its path.
    pub(super) fn connect(
        &self,
        at: &At<'_>,
        address: IpAddr,
        service: u16,
    ) -> Result<PathBuf, StorageError> {
        let (subsystem, namespace) = self.subsystem(at);
        let connect = Connect {
            name: &Self::name(at),
            transport: self.transport,
            address,
            service,
            subsystem: &subsystem,
            queues: self.queues,
            depth: self.depth,
            loss_s: self.loss_s,
            keep_alive_s: self.keep_alive_s,
        };
        connect.connect()?;
        Ok(wait_for_namespace(&subsystem, namespace)?)
    }
}

/// Returns a TCP port that is free on an address right now.
fn free_port(address: IpAddr) -> Result<u16, StorageError> {
    let bound = TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr());
    Ok(bound.map_err(|source| StorageError::Listen { address, source })?.port())
}
