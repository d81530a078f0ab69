//! An assembler for the few BPF instructions that the probes need.
//!
//! Encoding: kernel, Documentation/bpf/standardization/instruction-set.rst. Register 0 holds
//! results. Registers 1 to 5 hold arguments and are lost in a call. Registers 6 to 9 survive calls.
//! Register 10 is the end of a stack of 512 bytes. Helper numbers: include/uapi/linux/bpf.h.

use std::os::fd::AsRawFd;

use super::Map;

pub(crate) type Register = u8;
/// The register of the stack. Values on the stack have negative offsets.
pub(crate) const STACK: Register = 10;

/// Kernel functions that a program of any licence may call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Helper {
    Lookup = 1,
    Update = 2,
    Delete = 3,
    /// `CLOCK_MONOTONIC` in ns.
    Time = 5,
    /// Process id in the upper half, thread id in the lower half.
    Ids = 14,
}

/// The width of a memory access, as instructions encode it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Width {
    Byte = 0x10,
    Word = 0x00,
    Double = 0x18,
}

const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const STORE_NUMBER: u8 = 0x62;
const ADD_ATOMICALLY: u8 = 0xdb;
const LOAD_NUMBER: u8 = 0x18;
const PSEUDO_MAP: u8 = 1;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const JUMP: u8 = 0x05;
const JUMP_IF_EQUAL: u8 = 0x15;
/// 64-bit arithmetic with a number. The bit [`WITH_REGISTER`] makes the operand a register.
const ARITHMETIC: u8 = 0x07;
const WITH_REGISTER: u8 = 0x08;

/// A 64-bit arithmetic operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AluOp {
    Add = 0x00,
    Subtract = 0x10,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Move = 0xb0,
}

/// A jump target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// A program under construction.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    words: Vec<u64>,
    labels: Vec<Option<usize>>,
    /// The position and the label of each jump.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn push(&mut self, code: u8, to: Register, from: Register, offset: i16, number: i32) {
        let [o0, o1] = offset.to_le_bytes();
        let [n0, n1, n2, n3] = number.to_le_bytes();
        let bytes = [code, to | from << 4, o0, o1, n0, n1, n2, n3];
        self.words.push(u64::from_ne_bytes(bytes));
    }

    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts the label at the current position.
    pub(crate) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.words.len());
    }

    /// `register = register OP number`.
    pub(crate) fn number(&mut self, what: AluOp, register: Register, number: i32) {
        self.push(ARITHMETIC | what as u8, register, 0, 0, number);
    }

    /// `to = to OP from`.
    pub(crate) fn register(&mut self, what: AluOp, to: Register, from: Register) {
        self.push(ARITHMETIC | WITH_REGISTER | what as u8, to, from, 0, 0);
    }

    /// `to = memory[from + offset]`.
    pub(crate) fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.push(LOAD | width as u8, to, from, offset, 0);
    }

    /// `memory[to + offset] = from`.
    pub(crate) fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.push(STORE | width as u8, to, from, offset, 0);
    }

    /// `memory[to + offset] = number`.
    pub(crate) fn store_number(&mut self, width: Width, to: Register, offset: i16, number: i32) {
        self.push(STORE_NUMBER | width as u8, to, 0, offset, number);
    }

    /// Adds a register to 8 bytes of memory atomically, because other CPUs may add at the same
    /// time.
    pub(crate) fn add_to_memory(&mut self, to: Register, from: Register) {
        self.push(ADD_ATOMICALLY, to, from, 0, 0);
    }

    pub(crate) fn jump(&mut self, label: Label) {
        self.jumps.push((self.words.len(), label));
        self.push(JUMP, 0, 0, 0, 0);
    }

    pub(crate) fn jump_if_equal(&mut self, register: Register, number: i32, label: Label) {
        self.jumps.push((self.words.len(), label));
        self.push(JUMP_IF_EQUAL, register, 0, 0, number);
    }

    pub(crate) fn call(&mut self, helper: Helper) {
        self.push(CALL, 0, 0, 0, helper as i32);
    }

    /// Puts a map into register 1 and the address of a key on the stack into register 2, and calls
    /// a helper.
    pub(crate) fn call_with_key(&mut self, helper: Helper, map: &Map, key: i16) {
        // The number takes two words; the second one holds its upper half.
        self.push(LOAD_NUMBER, 1, PSEUDO_MAP, 0, map.descriptor().as_raw_fd());
        self.words.push(0);
        self.register(AluOp::Move, 2, STACK);
        self.number(AluOp::Add, 2, i32::from(key));
        self.call(helper);
    }

    /// Returns 0 from the program.
    pub(crate) fn exit(&mut self) {
        self.number(AluOp::Move, 0, 0);
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// Resolves all jumps and returns the instructions.
    pub(crate) fn finish(mut self) -> Vec<u64> {
        for (at, label) in &self.jumps {
            let target = self.labels[label.0].expect("every label that is jumped to is placed");
            let distance =
                i16::try_from(target - at - 1).expect("programs jump forward, and not far");
            let mut bytes = self.words[*at].to_ne_bytes();
            bytes[2..4].copy_from_slice(&distance.to_le_bytes());
            self.words[*at] = u64::from_ne_bytes(bytes);
        }
        self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_instructions() {
        let mut code = Assembler::default();
        let end = code.label();
        code.load(Width::Double, 6, 1, 8);
        code.jump_if_equal(0, 0, end);
        code.register(AluOp::Move, 7, 6);
        code.number(AluOp::ShiftRight, 0, 32);
        code.store(Width::Word, STACK, -4, 0);
        code.add_to_memory(0, 1);
        code.call(Helper::Ids);
        code.place(end);
        code.exit();
        // As `bpftool prog dump xlated opcodes` shows them.
        let expected: [[u8; 8]; 9] = [
            [0x79, 0x16, 8, 0, 0, 0, 0, 0],
            [0x15, 0x00, 5, 0, 0, 0, 0, 0],
            [0xbf, 0x67, 0, 0, 0, 0, 0, 0],
            [0x77, 0x00, 0, 0, 32, 0, 0, 0],
            [0x63, 0x0a, 0xfc, 0xff, 0, 0, 0, 0],
            [0xdb, 0x10, 0, 0, 0, 0, 0, 0],
            [0x85, 0x00, 0, 0, 14, 0, 0, 0],
            [0xb7, 0x00, 0, 0, 0, 0, 0, 0],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(code.finish(), expected.map(u64::from_ne_bytes));
    }
}
