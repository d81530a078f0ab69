//! The image: a tar archive (POSIX ustar) of the static program and the mount points, generated in
//! chunks so that a large program never has to fit in memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::layer::rootfs::{DATA, PROGRAM};

const BLOCK: usize = 512;
const CHUNK: usize = 1 << 20;

/// Returns the archive, chunk by chunk. An item is an error if the program cannot be read.
///
/// # Errors
/// Fails if the program cannot be opened.
pub(super) fn tar(program: &Path) -> io::Result<impl Iterator<Item = io::Result<Vec<u8>>> + use<>> {
    let mut file = File::open(program)?;
    let bytes = file.metadata()?.len();
    let mut head = Vec::new();
    for folder in [DATA, "/proc", "/sys", "/dev", "/tmp", "/etc"] {
        head.extend(header(&format!("{}/", folder.trim_start_matches('/')), b'5', 0));
    }
    head.extend(header(PROGRAM.trim_start_matches('/'), b'0', bytes));
    let mut left = bytes;
    let body = std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let mut chunk = vec![0; usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK))];
        let read = file.read_exact(&mut chunk);
        left = if read.is_ok() { left - chunk.len() as u64 } else { 0 };
        Some(read.map(|()| chunk))
    });
    let padding = bytes.next_multiple_of(BLOCK as u64) - bytes;
    // Two empty blocks end an archive.
    let tail = vec![0; usize::try_from(padding).unwrap_or(0) + 2 * BLOCK];
    Ok(std::iter::once(Ok(head)).chain(body).chain(std::iter::once(Ok(tail))))
}

/// Returns a header block: owned by root, readable and executable, and dated 1970, so that the same
/// program gives the same image.
fn header(name: &str, kind: u8, bytes: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        block[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    put(0, name);
    put(100, "0000755\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{bytes:011o}\0"));
    put(136, "00000000000\0");
    put(148, "        ");
    put(257, "ustar\0");
    put(263, "00");
    block[156] = kind;
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn tar_can_read_the_archive() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        for bytes in [0, 1, 512, CHUNK + 700] {
            let content: Vec<u8> = (0..bytes).map(|i| u8::try_from(i % 251).unwrap()).collect();
            std::fs::write(&program, &content).unwrap();
            let archive: Vec<u8> = tar(&program).unwrap().flat_map(Result::unwrap).collect();
            assert_eq!(archive.len() % BLOCK, 0);
            let extract = std::process::Command::new("tar")
                .args(["--extract", "--to-stdout", "--file=-", "tare"])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn();
            let mut extract = extract.unwrap();
            let mut stdin = extract.stdin.take().unwrap();
            let writer = std::thread::spawn(move || stdin.write_all(&archive));
            let output = extract.wait_with_output().unwrap();
            writer.join().unwrap().unwrap();
            assert!(output.status.success());
            assert!(output.stdout == content, "{bytes} bytes");
        }
    }
}
