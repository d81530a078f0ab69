//! The log of garbage collections of a Java virtual machine (`-Xlog:gc`, JEP 271).

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The logs that were read, each with how far and what it said, so that every reading costs what
/// was written since the one before.
#[derive(Clone, Debug, Default)]
pub(crate) struct GarbageCollections(RefCell<HashMap<PathBuf, Seen>>);

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    bytes: u64,
    paused_ns: u64,
}

impl GarbageCollections {
    /// Returns the time for which garbage collections stopped the program since its start, in ns;
    /// `None` if there is no log. A program that starts again writes a new log.
    pub(crate) fn paused_ns(&self, log: &Path) -> Option<u64> {
        let mut file = File::open(log).ok()?;
        let length = file.metadata().ok()?.len();
        let mut all = self.0.borrow_mut();
        let seen = all.entry(log.to_path_buf()).or_default();
        if length < seen.bytes {
            *seen = Seen::default();
        }
        file.seek(SeekFrom::Start(seen.bytes)).ok()?;
        let mut more = Vec::new();
        file.take(length - seen.bytes).read_to_end(&mut more).ok()?;
        // The last line may not be complete yet.
        let whole = more.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let text = String::from_utf8_lossy(&more[..whole]);
        seen.paused_ns += text.lines().filter_map(pause_ns).sum::<u64>();
        seen.bytes += whole as u64;
        Some(seen.paused_ns)
    }
}

/// Reads the time of a line such as
/// `[1.5s] GC(3) Pause Young (Normal) (G1 Evacuation Pause) 24M->3M(512M) 4.236ms`.
fn pause_ns(line: &str) -> Option<u64> {
    let time = line.contains(" Pause ").then(|| line.trim_end().rsplit(' ').next())??;
    let ms: f64 = time.strip_suffix("ms")?.parse().ok()?;
    std::time::Duration::try_from_secs_f64(ms / 1e3).ok()?.as_nanos().try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn pauses_add_up_as_the_log_grows() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("gc.log");
        let seen = GarbageCollections::default();
        assert_eq!(seen.paused_ns(&log), None);
        let mut file = File::create(&log).unwrap();
        let first = "[0.012s] Using G1\n\
            [1.5s] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 24M->3M(512M) 4.250ms\n\
            [1.9s] GC(1) Concurrent Mark Cycle 33.100ms\n[2.0s] GC(1) Pause Rem";
        file.write_all(first.as_bytes()).unwrap();
        assert_eq!(seen.paused_ns(&log), Some(4_250_000));
        file.write_all(b"ark 5M->5M(512M) 1.750ms\n").unwrap();
        assert_eq!(seen.paused_ns(&log), Some(6_000_000));
        assert_eq!(seen.paused_ns(&log), Some(6_000_000));
        std::fs::write(&log, "[1.5s] GC(0) Pause Full (System.gc()) 9M->3M(512M) 2.000ms\n")
            .unwrap();
        assert_eq!(seen.paused_ns(&log), Some(2_000_000));
    }
}
