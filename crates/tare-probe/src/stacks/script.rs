//! Parses the output of `perf script -F pid,ip,sym,dso`.
//!
//! A sample is a line with a process id, then a line for each frame from the leaf to the root (a
//! tab, the address, the name, and the file in brackets), and an empty line:
//!
//! ```text
//!  2550
//!         ffffffff821f8914 __schedule ([kernel.kallsyms])
//!                  105f179 syscall (/usr/bin/tare)
//! ```
//!
//! Other lines are skipped, because names come from arbitrary binaries.

/// The name of a frame without a symbol.
pub const UNKNOWN: &str = "[unknown]";

/// One frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub name: String,
    pub kernel: bool,
}

/// One sample: the process and its frames, the leaf first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub pid: u32,
    pub frames: Vec<Frame>,
}

/// Parses the samples of a text.
pub fn samples(text: &str) -> impl Iterator<Item = Sample> {
    let mut lines = text.lines();
    std::iter::from_fn(move || {
        let mut sample: Option<Sample> = None;
        for line in lines.by_ref() {
            if line.trim().is_empty() {
                match sample.take() {
                    Some(done) => return Some(done),
                    None => continue,
                }
            }
            match (&mut sample, line.starts_with('\t')) {
                (Some(sample), true) => sample.frames.extend(frame(line)),
                (_, false) => sample = header(line).or(sample.take()),
                (None, true) => {}
            }
        }
        sample.take()
    })
}

/// Drops unknown callers at the root. Without frame pointers they are random words of the stack.
pub(super) fn drop_unknown_roots(frames: &mut Vec<Frame>) {
    while frames.len() > 1 && frames.last().is_some_and(|root| root.name == UNKNOWN) {
        frames.pop();
    }
}

fn header(line: &str) -> Option<Sample> {
    let pid = line.trim().parse().ok()?;
    Some(Sample { pid, frames: Vec::new() })
}

/// Parses the line of a frame.
pub(super) fn frame(line: &str) -> Option<Frame> {
    let (address, rest) = line.trim_start().split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    // Names and paths can contain brackets. A file is a path or a word in square brackets.
    let file = [" (/", " (["].iter().filter_map(|mark| rest.find(mark)).min();
    let (name, file) = file.map_or((rest, ""), |at| (&rest[..at], &rest[at + 2..]));
    // The upper half of the address space is the kernel's, on x86-64 and on arm64.
    let kernel = address >> 63 == 1;
    let name = match (name.trim(), kernel) {
        (UNKNOWN | "", true) => UNKNOWN.to_string(),
        (UNKNOWN | "", false) => of_file(file.trim_end_matches(')')),
        (name, true) => kernel_name(name).to_string(),
        (name, false) => program_name(name),
    };
    Some(Frame { name: without_separators(&name), kernel })
}

/// The name of a frame without a symbol: its file without the path, because records keep no paths
/// of the host.
fn of_file(file: &str) -> String {
    match file.trim_end_matches(" (deleted").rsplit('/').next() {
        None | Some("" | UNKNOWN) => UNKNOWN.into(),
        Some(file) => format!("[{}]", file.trim_matches(['[', ']'])),
    }
}

/// Strips the suffix of the compiler's copies of a function (`.isra.0`, `.constprop.0`, `.cold`).
fn kernel_name(name: &str) -> &str {
    match name.split_once('.') {
        Some((base, _)) if !base.is_empty() => base,
        _ => name,
    }
}

/// Strips the hash that the Rust compiler appends (`::h` and 16 hexadecimal digits).
fn program_name(name: &str) -> String {
    match name.rsplit_once("::h") {
        Some((base, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            base.to_string()
        }
        _ => name.to_string(),
    }
}

/// Replaces `;`, which separates the frames of a folded stack but also occurs in `[T; N]`.
fn without_separators(name: &str) -> String {
    let plain = |c: char| if c == ';' || c.is_control() { ',' } else { c };
    name.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(line: &str) -> Option<(String, bool)> {
        frame(line).map(|frame| (frame.name, frame.kernel))
    }

    #[test]
    fn parses_frames() {
        let check = |line: &str, name: &str, kernel: bool| {
            assert_eq!(frames(line), Some((name.to_string(), kernel)), "{line}");
        };
        check("\tffffffff821f8914 __schedule ([kernel.kallsyms])", "__schedule", true);
        check("\tffffffff813a2413 finish_task.isra.0 ([kernel.kallsyms])", "finish_task", true);
        check("\tffffffffc0001234 veth_xmit ([veth])", "veth_xmit", true);
        check("\tffffffffc0001234 [unknown] ([unknown])", "[unknown]", true);
        check("\t          a897a0 a::b::h0123456789abcdef (/usr/bin/tare)", "a::b", false);
        check("\t          a897a0 a::hello (/usr/bin/tare)", "a::hello", false);
        check("\t  1 <T as U>::f (/opt/x (1)/tare)", "<T as U>::f", false);
        check("\t  1 f(int, char (*)[4]) (/bin/x)", "f(int, char (*)[4])", false);
        check("\t  1 g::<[u8; 4]> (/bin/x)", "g::<[u8, 4]>", false);
        check("\t  7ffc00000b46 __vdso_clock_gettime ([vdso])", "__vdso_clock_gettime", false);
        check("\t  7f0000001000 [unknown] (/lib/libc.so.6)", "[libc.so.6]", false);
        check("\t  7f0000001000 [unknown] (/srv/x (deleted))", "[x]", false);
        check("\t  7f0000001000 [unknown] ([unknown])", "[unknown]", false);
        assert_eq!(frames("\tnonsense here (/bin/x)"), None);
        assert_eq!(frames("\t"), None);
    }

    #[test]
    fn separates_samples() {
        let text = "\n12550 \n\t 1 a (/x)\n\t 2 b (/x)\n\nwarning: odd\n 7 \n\t 3 c (/x)\n";
        let all: Vec<Sample> = samples(text).collect();
        let names = |sample: &Sample| {
            sample.frames.iter().map(|frame| frame.name.clone()).collect::<Vec<_>>().join(";")
        };
        let seen: Vec<(u32, String)> = all.iter().map(|one| (one.pid, names(one))).collect();
        assert_eq!(seen, [(12550, "a;b".to_string()), (7, "c".to_string())]);
        assert_eq!(samples("").count(), 0);
    }
}
