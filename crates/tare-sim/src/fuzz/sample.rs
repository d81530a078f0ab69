//! Sample files of a store: the result of a short run without faults, over a disk in memory.

use tare_std::rng::Rng;
use tare_store::{Durability, FileId, Now};

use crate::device::Device;
use crate::engine::{self, Engine};
use crate::faults::Faults;
use crate::files::DeviceFiles;
use crate::workload::Workload;

/// Number of writes of the run.
const WRITES: u64 = 12;
/// Bytes at the start of a log that are kept. Tables are kept whole, because they are read from
/// their end.
const LOG_BYTES_MAX: usize = 16 << 10;

/// The files that `wanted` selects, by name, after a stop with or without a flush.
pub(super) fn files(flushed: bool, wanted: impl Fn(FileId) -> bool) -> Vec<(String, Vec<u8>)> {
    let mut device = Device::new(Rng::new(1), Faults::none(), None, 1 << 30);
    let mut workload = Workload::new(Rng::new(2));
    let mut now = Now { monotonic_ns: 0, wall_s: 1_700_000_000 };
    let mut files = DeviceFiles::new(&mut device, Rng::new(3), None);
    let Ok(mut engine) = Engine::open(&mut files, engine::limits(Durability::Sync, 1 << 20), now)
    else {
        return Vec::new();
    };
    for _ in 0..WRITES {
        let _ = engine.write(&workload.write(now.wall_s));
        run_once(&mut engine, &mut device, &mut now);
    }
    engine.close(flushed);
    while !engine.is_closed() {
        run_once(&mut engine, &mut device, &mut now);
    }
    let names = device.disk.names().into_iter().filter(|&file| wanted(file));
    let read = |file: FileId| {
        let length = device.disk.length(file).and_then(|length| usize::try_from(length).ok());
        let mut bytes = vec![0; length.unwrap_or(0)];
        device.disk.read(file, 0, &mut bytes);
        if matches!(file, FileId::Log(_)) {
            bytes.truncate(LOG_BYTES_MAX);
            // Reserved space that was not written has no information.
            let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            bytes.truncate(used);
        }
        (file.file_name(), bytes)
    };
    names.map(read).filter(|(_, bytes)| !bytes.is_empty()).collect()
}

fn run_once(engine: &mut Engine, device: &mut Device, now: &mut Now) {
    while engine.work(*now) {}
    while engine.pump(device, *now).is_ok_and(|begun| begun) {}
    now.monotonic_ns = device.next_due_ns().unwrap_or(now.monotonic_ns + 1000);
    while let Some(completion) = device.next_completion(now.monotonic_ns) {
        let _ = engine.complete(completion, *now);
    }
}
