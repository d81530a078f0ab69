//! How the frames of programs are found: by frame pointers, by DWARF, or not at all.
//!
//! The kernel follows frame pointers by itself, which costs nothing, but finds the callers only in programs that
//! were built with them. With DWARF it copies the top of the stack with every sample, and perf finds
//! the callers afterwards in the tables that programs carry for exceptions (`.eh_frame`): that works for nearly every compiled
//! program, costs some µs a sample, and time afterwards. Neither sees through the code that a
//! Java machine makes at run time, unless that is told to keep frame pointers.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What finds the frames of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserFrames {
    /// Frame pointers where the system's own program was built with them, DWARF where it was not.
    /// For waiting always frame pointers: there are too many switches to copy stacks.
    Auto,
    FramePointers,
    Dwarf,
    /// Frames of the kernel alone.
    None,
}

/// Code that is looked through, from the program's beginning.
const LOOKED_BYTES_MAX: usize = 4 << 20;
/// With frame pointers nearly every function sets one up, and few are longer than this. Without, it
/// is only those that need one: one in 10 to 20 KiB.
const BYTES_PER_FRAME_MAX: usize = 2048;

/// `push %rbp; mov %rsp,%rbp` on x86-64.
const X86: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
/// `mov x29, sp` on arm64.
const ARM: [u8; 4] = [0xfd, 0x03, 0x00, 0x91];

impl UserFrames {
    /// Settles what `Auto` means for a process.
    pub(super) fn settled(self, pid: u32, waiting: bool) -> Self {
        match self {
            Self::Auto if waiting => Self::FramePointers,
            // A program that cannot be read is looked at as most are built.
            Self::Auto => match has_frame_pointers(pid) {
                Ok(true) => Self::FramePointers,
                Ok(false) | Err(_) => Self::Dwarf,
            },
            settled => settled,
        }
    }

    /// What perf is told.
    pub(super) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Auto | Self::FramePointers => &["--call-graph", "fp"],
            // The top 8 KiB: deeper callers are the same for most samples.
            Self::Dwarf => &["--call-graph", "dwarf,8192"],
            Self::None => &["--call-graph", "fp", "--kernel-callchains"],
        }
    }

    /// In a record, behind what ticked.
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
    // Through the process: its file may be in a container, or gone.
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

/// Offset and length in the file of a line of `/proc/PID/maps` that is code.
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
    fn code_with_frame_pointers_sets_one_up_in_most_functions() {
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
    fn code_is_found_in_the_map_of_a_process() {
        let check = |line: &str, expected: Option<(u64, usize)>| assert_eq!(code(line), expected);
        check("00400000-00402000 r-xp 00001000 fe:00 7  /bin/x", Some((0x1000, 0x2000)));
        check("00400000-00402000 r--p 00001000 fe:00 7  /bin/x", None);
        check("nonsense", None);
        // Whatever it says of this test, it can be read.
        has_frame_pointers(std::process::id()).unwrap();
        assert!(has_frame_pointers(u32::MAX).is_err());
        assert_eq!(UserFrames::Auto.settled(u32::MAX, false), UserFrames::Dwarf);
        assert_eq!(UserFrames::Auto.settled(u32::MAX, true), UserFrames::FramePointers);
        assert_eq!(UserFrames::None.settled(u32::MAX, true), UserFrames::None);
    }
}
