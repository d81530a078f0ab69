//! The first process of the trial guest: a static program of x86-64, assembled here so that a trial
//! needs neither a compiler nor Tare's own program.
//!
//! It writes a line to its standard output and powers the guest off.

/// The line, without its newline.
pub(super) const LINE: &str = "tare-trial: the guest is up";

/// The program's load address: the usual one of programs that are not relocatable.
const BASE: u64 = 0x40_0000;

/// Sizes of the ELF header and of one program header (elf(5)).
const ELF_HEADER: u16 = 64;
const PROGRAM_HEADER: u16 = 56;

/// Returns the ELF file: headers, one readable and executable segment, the code, the line.
pub(super) fn program() -> Vec<u8> {
    let entry = u64::from(ELF_HEADER + PROGRAM_HEADER);
    let line = format!("{LINE}\n").into_bytes();
    let code = code(u32::try_from(line.len()).unwrap_or(u32::MAX));
    let bytes = entry + (code.len() + line.len()) as u64;
    let half = |values: &[u16]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let word = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let long = |values: &[u64]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let parts: [Vec<u8>; 10] = [
        // Class 64, little-endian, version 1, and padding.
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec(),
        // Executable, for x86-64, version 1.
        half(&[2, 62]),
        word(&[1]),
        // The entry point and the offset of the program header; there are no sections.
        long(&[BASE + entry, u64::from(ELF_HEADER), 0]),
        word(&[0]),
        half(&[ELF_HEADER, PROGRAM_HEADER, 1, 0, 0, 0]),
        // A segment to load, readable and executable: the whole file.
        word(&[1, 5]),
        long(&[0, BASE, BASE, bytes, bytes, 0x1000]),
        code,
        line,
    ];
    parts.concat()
}

/// Returns the code: `write(1, line, bytes)`, `reboot(POWER_OFF)`, and a loop. The line follows it.
fn code(bytes: u32) -> Vec<u8> {
    let after_lea: Vec<u8> = [
        // mov edx, bytes; syscall
        &[0xba][..],
        &bytes.to_le_bytes(),
        &[0x0f, 0x05],
        // mov eax, 169 (reboot)
        &[0xb8, 169, 0, 0, 0],
        // mov edi, LINUX_REBOOT_MAGIC1
        &[0xbf],
        &0xfee1_dead_u32.to_le_bytes(),
        // mov esi, LINUX_REBOOT_MAGIC2
        &[0xbe],
        &672_274_793_u32.to_le_bytes(),
        // mov edx, LINUX_REBOOT_CMD_POWER_OFF; syscall
        &[0xba],
        &0x4321_fedc_u32.to_le_bytes(),
        &[0x0f, 0x05],
        // jmp to itself
        &[0xeb, 0xfe],
    ]
    .concat();
    let distance = u32::try_from(after_lea.len()).unwrap_or(u32::MAX);
    let begin: Vec<u8> = [
        // mov eax, 1 (write); mov edi, 1
        &[0xb8, 1, 0, 0, 0, 0xbf, 1, 0, 0, 0][..],
        // lea rsi, [rip + distance]
        &[0x48, 0x8d, 0x35],
        &distance.to_le_bytes(),
    ]
    .concat();
    [begin, after_lea].concat()
}
