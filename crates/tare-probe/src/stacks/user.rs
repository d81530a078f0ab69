//! How the frames of programs are found: by frame pointers, by DWARF, or not at all.
//!
//! The kernel follows frame pointers itself at no cost, but finds the callers only in programs that
//! were built with them. With DWARF, the kernel copies the top of the stack with every sample, and
//! perf finds the callers afterwards in the exception tables of the program (`.eh_frame`). This
//! works for nearly every compiled program, but costs some µs a sample and time afterwards. Neither
//! method sees the code that a Java virtual machine compiles at run time, unless it keeps frame
//! pointers.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The method that finds the frames of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserFrames {
    /// Frame pointers if the system's program was built with them, and DWARF otherwise. Waiting
    /// threads always use frame pointers, because there are too many switches to copy stacks.
    Auto,
    FramePointers,
    Dwarf,
    /// Kernel frames only.
    None,
}

/// The most code that is searched, from the start of the program.
const LOOKED_BYTES_MAX: usize = 4 << 20;
/// With frame pointers, nearly every function sets one up, and few functions are longer than this.
/// Without them, only functions that need one do: one in 10 to 20 KiB.
const BYTES_PER_FRAME_MAX: usize = 2048;

/// `push %rbp; mov %rsp,%rbp` on x86-64.
const X86: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
/// `mov x29, sp` on arm64.
const ARM: [u8; 4] = [0xfd, 0x03, 0x00, 0x91];

impl UserFrames {
    /// Resolves `Auto` for a process.
    pub(super) fn settled(self, pid: u32, waiting: bool) -> Self {
        match self {
            Self::Auto if waiting => Self::FramePointers,
            // Most programs are built without frame pointers, so an unreadable one is assumed to
            // be.
            Self::Auto => match has_frame_pointers(pid) {
                Ok(true) => Self::FramePointers,
                Ok(false) | Err(_) => Self::Dwarf,
            },
            settled => settled,
        }
    }

    /// The arguments for perf.
    pub(super) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Auto | Self::FramePointers => &["--call-graph", "fp"],
            // The top 8 KiB are enough, because deeper callers are the same for most samples.
            Self::Dwarf => &["--call-graph", "dwarf,8192"],
            Self::None => &["--call-graph", "fp", "--kernel-callchains"],
        }
    }

    /// The name in a record, after the event.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Auto => "frame pointers or DWARF",
            Self::FramePointers => "frame pointers",
            Self::Dwarf => "DWARF",
            Self::None => "kernel frames only",
        }
    }
}

/// Whether the program of a process was built with frame pointers.
fn has_frame_pointers(pid: u32) -> io::Result<bool> {
    // The path goes through the process, because its file may be in a container or deleted.
    let program = File::open(format!("/proc/{pid}/exe"))?;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let path = std::fs::read_link(format!("/proc/{pid}/exe"))?;
    let path = path.to_string_lossy();
    let code = maps.lines().filter(|line| line.ends_with(&*path)).find_map(code);
    let Some((offset, bytes)) = code else { return Ok(false) };
    let mut text = vec![0; bytes.min(LOOKED_BYTES_MAX)];
    program.read_exact_at(&mut text, offset)?;
    Ok(sets_up_frames(&text))
}

/// The offset in the file and the length of a line of `/proc/PID/maps` that maps code.
fn code(line: &str) -> Option<(u64, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (begin, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    rights.contains('x').then_some((offset, address(end)?.checked_sub(address(begin)?)?))
}

fn sets_up_frames(text: &[u8]) -> bool {
    let frames = text.windows(4).filter(|bytes| **bytes == X86 || **bytes == ARM).count();
    frames * BYTES_PER_FRAME_MAX >= text.len().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_code_with_frame_pointers() {
        let functions = |begin: &[u8], length: usize| -> Vec<u8> {
            let mut function = begin.to_vec();
            function.resize(length, 0x90);
            function.repeat(100)
        };
        assert!(sets_up_frames(&functions(&X86, 600)));
        assert!(sets_up_frames(&functions(&ARM, 600)));
        assert!(!sets_up_frames(&functions(&X86, 12_000)));
        assert!(!sets_up_frames(&functions(&[0x41, 0x57], 600)));
        assert!(!sets_up_frames(&[]));
    }

    #[test]
    fn finds_code_in_process_maps() {
        let check = |line: &str, expected: Option<(u64, usize)>| assert_eq!(code(line), expected);
        check("00400000-00402000 r-xp 00001000 fe:00 7  /bin/x", Some((0x1000, 0x2000)));
        check("00400000-00402000 r--p 00001000 fe:00 7  /bin/x", None);
        check("nonsense", None);
        // The result depends on the build, but reading must succeed.
        has_frame_pointers(std::process::id()).unwrap();
        assert!(has_frame_pointers(u32::MAX).is_err());
        assert_eq!(UserFrames::Auto.settled(u32::MAX, false), UserFrames::Dwarf);
        assert_eq!(UserFrames::Auto.settled(u32::MAX, true), UserFrames::FramePointers);
        assert_eq!(UserFrames::None.settled(u32::MAX, true), UserFrames::None);
    }
}
