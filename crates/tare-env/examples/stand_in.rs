//! A small program that replaces `tare` in tests of environments: a TCP echo server that uses some
//! CPU for each message (`serve ADDRESS PORT DATA`, on two addresses as `serve-node ADDRESS PORT
//! DATA NODE NODE_PORT`), the userland proxy (`proxy --listen A --to
//! B`), the first process of a virtual machine (`guest`), file operations of a database (`store
//! ADDRESS PORT DATA FILL`, `sync ADDRESS PORT DATA`), block device operations of a load (`device
//! ADDRESS PORT DEVICE`), and harnesses that start environments until they are killed (`harness
//! STATE`, `storage-harness STATE RUNTIME KIND...`).
#![expect(clippy::print_stdout, reason = "its parent reads its progress")]

use std::error::Error;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use tare_env::{EnvironmentFactory, FactoryOptions, ReachOptions};
use tare_lab::environment::{CpuPlan, Launch, StorageSpec};
use tare_testkit::EnvironmentBuilder;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    tare_host::memory_policy::apply_pages()?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", address, port, data] => serve(address, port.parse()?, data),
        ["serve-node", address, port, data, node, node_port] => {
            let (node, node_port) = (node.to_string(), node_port.parse()?);
            // It ends with the program.
            thread::spawn(move || listen(&node, node_port));
            serve(address, port.parse()?, data)
        }
        ["store", address, port, data, fill] => {
            let checks = store(Path::new(data), *fill == "fill")?;
            fs::write(format!("{data}/checks"), checks)?;
            serve(address, port.parse()?, data)
        }
        ["device", address, port, data] => {
            let checks = device(Path::new(data))?;
            fs::write(Path::new(data).with_file_name("checks"), checks)?;
            listen(address, port.parse()?)
        }
        ["sync", address, port, data] => {
            sync(Path::new(data))?;
            serve(address, port.parse()?, data)
        }
        ["proxy", "--listen", listen, "--to", to] => {
            Ok(tare_env::proxy::run(listen.parse()?, to.parse()?, None, &AtomicBool::new(false))?)
        }
        ["guest"] => Ok(tare_env::guest::run()?),
        ["facts"] => {
            println!("{}", serde_json::to_string(&tare_env::runtime::gvisor::SandboxView::read())?);
            Ok(())
        }
        ["proxy", "--listen", listen, "--to", to, "--delay", delay] => {
            let ns = delay.strip_suffix("ns").ok_or("a delay is in ns")?.parse()?;
            let delay = Some(Duration::from_nanos(ns));
            Ok(tare_env::proxy::run(listen.parse()?, to.parse()?, delay, &AtomicBool::new(false))?)
        }
        ["harness", state, runtimes @ ..] => harness(state, runtimes),
        ["storage-harness", state, runtime, kinds @ ..] => storage_harness(state, runtime, kinds),
        _ => Err(
            "usage: serve ADDRESS PORT DATA | store ... | proxy ... | harness STATE RUNTIME... | \
                storage-harness STATE RUNTIME KIND..."
                .into(),
        ),
    }
}

fn serve(address: &str, port: u16, data: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    fs::write(format!("{data}/seen"), std::process::id().to_string())?;
    listen(address, port)
}

fn listen(address: &str, port: u16) -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind((address, port))?;
    println!("listening on {address}:{port}");
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || echo(stream));
    }
    Ok(())
}

/// Does the file operations of a database: write, sync, read; direct I/O, aligned and misaligned;
/// and writes until the space is full. Returns one line for each, for the test to read.
fn store(data: &Path, fill: bool) -> std::io::Result<String> {
    let path = data.join("kept");
    let content: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_le_bytes).collect();
    let mut file = File::create(&path)?;
    file.write_all(&content)?;
    file.sync_all()?;
    let mut lines = format!("read back: {}\n", fs::read(&path)? == content);

    let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or_default();
    let mut direct = File::options();
    direct.read(true).write(true).create(true).truncate(true).custom_flags(flags);
    match direct.open(data.join("direct")) {
        Err(error) => lines += &format!("direct: no: {error}\n"),
        Ok(file) => {
            let buffer = vec![7; 16384];
            let start = buffer.as_ptr().align_offset(4096);
            let aligned = file.write_at(&buffer[start..start + 4096], 0);
            lines += &format!("direct: {aligned:?}\n");
            let off = file.write_at(&buffer[start + 1..start + 513], 1);
            let code = off.err().and_then(|error| error.raw_os_error());
            lines += &format!("misaligned: {code:?}\n");
        }
    }
    if fill {
        let path = data.join("fill");
        let mut file = File::create(&path)?;
        let chunk = vec![1; 1 << 20];
        let mut written_mib = 0u64;
        let error = loop {
            // Only a writeback reveals that a thin pool is full.
            if let Err(error) = file.write_all(&chunk).and_then(|()| file.sync_data()) {
                break error;
            }
            written_mib += 1;
        };
        // Some file systems report it only now.
        let _ = file.sync_all();
        fs::remove_file(&path)?;
        lines += &format!("full: {:?} after {written_mib} MiB\n", error.raw_os_error());
    }
    Ok(lines)
}

/// Does the operations of fio on a block device: direct writes and reads of whole blocks, and a
/// write beyond its end.
fn device(path: &Path) -> std::io::Result<String> {
    let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or_default();
    let device = File::options().read(true).write(true).custom_flags(flags).open(path)?;
    let is_device = device.metadata()?.file_type().is_block_device();
    let mut buffer = vec![7; 16384];
    let start = buffer.as_ptr().align_offset(4096);
    let block = &mut buffer[start..start + 4096];
    device.write_all_at(block, 4096)?;
    block.fill(0);
    device.read_exact_at(block, 4096)?;
    let same = block.iter().all(|byte| *byte == 7);
    let end = device.write_at(block, 1 << 40).err().and_then(|error| error.raw_os_error());
    Ok(format!("device: {is_device}\nread back: {same}\nbeyond the end: {end:?}\n"))
}

/// Writes and syncs forever in another thread, and prints when syncs work and when one fails.
fn sync(data: &Path) -> std::io::Result<()> {
    let file = File::create(data.join("synced"))?;
    thread::spawn(move || {
        for round in 0..u64::MAX {
            let written = file.write_at(&round.to_le_bytes(), round % 512 * 4096);
            match written.and_then(|_| file.sync_all()) {
                Ok(()) if round == 9 => println!("syncs work"),
                Ok(()) => {}
                Err(error) => {
                    println!("a sync failed: {:?}", error.raw_os_error());
                    return;
                }
            }
        }
    });
    Ok(())
}

/// Starts environments on each kind of storage forever, and prints each step. A kind is
/// `NAME[,OPTION=VALUE]...`.
fn storage_harness(
    state: &str,
    runtime: &str,
    kinds: &[&str],
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let cpus = tare_host::process::cpus_of_this_thread()?;
    let cpus =
        CpuPlan { all: cpus.clone(), system: cpus.clone(), client: cpus, ..CpuPlan::default() };
    let program = std::env::current_exe()?;
    let factory = EnvironmentFactory::open(FactoryOptions {
        state: state.into(),
        program,
        cpus,
        destroy: Vec::new(),
        reach: None,
    })?;
    let words = ["serve", "{listen}", "{port}", "{data}"];
    let launch = Launch { arguments: words.map(String::from).to_vec(), ..Launch::default() };
    loop {
        for kind in kinds {
            let named = EnvironmentBuilder::new(runtime).name(format!("{runtime} {kind}"));
            let mut spec = named.build();
            spec.storage = storage(kind);
            let mut environment = factory.environment(&spec)?;
            println!("starting {kind}");
            environment.start(&launch)?;
            println!("started {kind}");
            environment.stop()?;
        }
    }
}

fn storage(text: &str) -> StorageSpec {
    let mut words = text.split(',');
    let kind = words.next().unwrap_or_default().into();
    let options = words.filter_map(|word| word.split_once('='));
    StorageSpec {
        kind,
        options: options.map(|(name, value)| (name.into(), value.into())).collect(),
    }
}

/// Echoes the input after some work that is visible in the CPU account.
fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let sum = (0..200_000u64).fold(0u64, |sum, n| sum.wrapping_mul(31).wrapping_add(n));
        buffer[0] = std::hint::black_box(sum).to_le_bytes()[0].max(1).min(buffer[0]);
        if stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

/// Starts, freezes, thaws and stops environments forever, and prints each step.
fn harness(state: &str, runtimes: &[&str]) -> Result<(), Box<dyn Error + Send + Sync>> {
    let cpus = tare_host::process::cpus_of_this_thread()?;
    let cpus =
        CpuPlan { all: cpus.clone(), system: cpus.clone(), client: cpus, ..CpuPlan::default() };
    println!("opening");
    let program = std::env::current_exe()?;
    let factory = EnvironmentFactory::open(FactoryOptions {
        state: state.into(),
        program,
        cpus,
        destroy: Vec::new(),
        // The address at which a test reaches the systems from outside.
        reach: std::env::var("STAND_IN_REACH")
            .ok()
            .and_then(|text| text.parse().ok())
            .map(|address| ReachOptions { address, from_cluster: false }),
    })?;
    let words = ["serve", "{listen}", "{port}", "{data}"];
    let launch = Launch { arguments: words.map(String::from).to_vec(), ..Launch::default() };
    for round in 0.. {
        let mut environments = Vec::new();
        for runtime in runtimes {
            // A guest cannot use the host's network and boots slowly.
            let guest = runtime.starts_with("vm:");
            // A test of kinds of networks names them.
            let named = std::env::var("STAND_IN_NETWORKS").unwrap_or_default();
            let networks: Vec<&str> = match named.as_str() {
                "" if guest => vec!["bridge"],
                "" => vec!["bridge", "host", "bridge+proxy"],
                named => named.split(',').collect(),
            };
            for network in networks {
                let cgroup = if network == "host" { "none" } else { "own" };
                let vm: &[(&str, &str)] = match *runtime {
                    "vm:qemu" => &[("accelerator", "tcg")],
                    _ if guest => &[("memory", "384M")],
                    _ => &[],
                };
                let spec = EnvironmentBuilder::new(runtime)
                    .name(format!("{runtime} {network}"))
                    .network(network)
                    .cgroup(cgroup)
                    .vm(vm)
                    .build();
                let mut environment = factory.environment(&spec)?;
                environment.start(&launch)?;
                environment.freeze()?;
                println!("round {round}: {runtime} {network} started and frozen");
                environments.push(environment);
            }
        }
        for mut environment in environments {
            environment.thaw()?;
            environment.stop()?;
            println!("round {round}: {} stopped", environment.spec().name);
        }
    }
    Ok(())
}
