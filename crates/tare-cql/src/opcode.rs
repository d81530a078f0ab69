//! The opcodes of messages (section 2.4 of the specification).

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    Error = 0x00,
    Startup = 0x01,
    Ready = 0x02,
    Authenticate = 0x03,
    Options = 0x05,
    Supported = 0x06,
    Query = 0x07,
    Result = 0x08,
    Prepare = 0x09,
    Execute = 0x0a,
    Register = 0x0b,
    Event = 0x0c,
    Batch = 0x0d,
    AuthChallenge = 0x0e,
    AuthResponse = 0x0f,
    AuthSuccess = 0x10,
}

impl Opcode {
    /// The opcode with this code, if there is one.
    #[inline]
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0x00 => Self::Error,
            0x01 => Self::Startup,
            0x02 => Self::Ready,
            0x03 => Self::Authenticate,
            0x05 => Self::Options,
            0x06 => Self::Supported,
            0x07 => Self::Query,
            0x08 => Self::Result,
            0x09 => Self::Prepare,
            0x0a => Self::Execute,
            0x0b => Self::Register,
            0x0c => Self::Event,
            0x0d => Self::Batch,
            0x0e => Self::AuthChallenge,
            0x0f => Self::AuthResponse,
            0x10 => Self::AuthSuccess,
            _ => return None,
        })
    }
}
