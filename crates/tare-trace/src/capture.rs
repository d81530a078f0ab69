//! Reads packets from a capture file: pcap or pcapng, with times in nanoseconds.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use pcap_parser::pcapng::Block;
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Linktype, PcapBlockOwned, PcapError, create_reader};

use crate::error::TraceError;

/// A packet as it was captured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    /// Since the epoch.
    pub(crate) at_ns: u64,
    pub(crate) link: Linktype,
    pub(crate) bytes: &'a [u8],
    /// Bytes at the end of the packet that the capture left out.
    pub(crate) missing: usize,
}

/// The first size of the buffer, and the size at which a packet is taken for damage.
const BUFFER_BYTES: usize = 1 << 18;
const BUFFER_BYTES_MAX: usize = 1 << 26;
/// The most interfaces of a section.
const INTERFACES_MAX: usize = 4096;

/// Calls `on_packet` with each packet of a file. Returns whether the file ends within one, as after
/// a kill of tcpdump.
pub(crate) fn packets(
    path: &Path,
    on_packet: &mut dyn FnMut(Packet<'_>) -> Result<(), TraceError>,
) -> Result<bool, TraceError> {
    let name = path.display().to_string();
    let fail = |source| TraceError::Read { file: name.clone(), source };
    let mut file = File::open(path).map_err(fail)?;
    if file.metadata().map_err(fail)?.is_dir() {
        return Err(fail(std::io::ErrorKind::IsADirectory.into()));
    }
    let mut start = [0; 4];
    let length = FullReads(&mut file).read(&mut start).map_err(fail)?;
    if length == 0 {
        return Err(TraceError::Empty { file: name });
    }
    let whole = FullReads(std::io::Cursor::new(start[..length].to_vec()).chain(file));
    let not_capture =
        |_| TraceError::NotCapture { file: name.clone(), hint: hint(&start[..length]) };
    let mut reader = create_reader(BUFFER_BYTES, whole).map_err(not_capture)?;
    read_blocks(&mut *reader, &name, on_packet)
}

/// A reader that fills a buffer as far as it can: `create_reader` reads only once.
struct FullReads<R>(R);

impl<R: Read> Read for FullReads<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut length = 0;
        while length < buffer.len() {
            match self.0.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(length)
    }
}

fn hint(start: &[u8]) -> &'static str {
    match start {
        [0x1f, 0x8b, ..] => "; unpack it with gunzip first",
        [0x28, 0xb5, 0x2f, 0xfd] => "; unpack it with unzstd first",
        [0xfd, b'7', b'z', b'X'] => "; unpack it with unxz first",
        _ => "",
    }
}

/// An interface of a pcapng file.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Linktype,
    /// Units of time in a second.
    resolution: u64,
    offset_s: i64,
}

/// What the blocks before a packet say about it.
#[derive(Debug)]
struct Headers {
    /// The only one in a pcap file; those of the section in a pcapng file.
    interfaces: Vec<Interface>,
}

fn read_blocks(
    reader: &mut dyn PcapReaderIterator,
    name: &str,
    on_packet: &mut dyn FnMut(Packet<'_>) -> Result<(), TraceError>,
) -> Result<bool, TraceError> {
    let mut headers = Headers { interfaces: Vec::new() };
    let mut packets = 0;
    let mut capacity = BUFFER_BYTES;
    let damaged = |packets| TraceError::Damaged { file: name.into(), packets };
    loop {
        match reader.next() {
            Ok((length, block)) => {
                if let Some(packet) = headers.block(&block) {
                    packets += 1;
                    on_packet(packet)?;
                }
                reader.consume(length);
            }
            Err(PcapError::Eof) => return Ok(false),
            Err(PcapError::UnexpectedEof) => return Ok(true),
            Err(PcapError::Incomplete(_) | PcapError::BufferTooSmall) => {
                if reader.data().len() >= capacity {
                    capacity *= 2;
                    if capacity > BUFFER_BYTES_MAX || !reader.grow(capacity) {
                        return Err(damaged(packets));
                    }
                }
                reader.refill().map_err(|_| damaged(packets))?;
            }
            Err(_) => return Err(damaged(packets)),
        }
    }
}

impl Headers {
    /// Notes a header, or returns a packet.
    fn block<'a>(&mut self, block: &'a PcapBlockOwned<'_>) -> Option<Packet<'a>> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let resolution =
                    if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
                self.interfaces = vec![Interface { link: header.network, resolution, offset_s: 0 }];
                None
            }
            PcapBlockOwned::Legacy(packet) => {
                let interface = self.interfaces.first()?;
                let units = u128::from(packet.ts_sec) * u128::from(interface.resolution)
                    + u128::from(packet.ts_usec);
                Some(interface.packet(units, packet.data, packet.origlen))
            }
            PcapBlockOwned::NG(block) => self.newer(block),
        }
    }

    fn newer<'a>(&mut self, block: &'a Block<'_>) -> Option<Packet<'a>> {
        match block {
            Block::SectionHeader(_) => self.interfaces.clear(),
            Block::InterfaceDescription(found) if self.interfaces.len() < INTERFACES_MAX => {
                let resolution = resolution(found.if_tsresol);
                let (link, offset_s) = (found.linktype, found.if_tsoffset);
                self.interfaces.push(Interface { link, resolution, offset_s });
            }
            Block::EnhancedPacket(packet) => {
                let interface = self.interfaces.get(usize::try_from(packet.if_id).ok()?)?;
                let units = u128::from(packet.ts_high) << 32 | u128::from(packet.ts_low);
                return Some(interface.packet(units, packet.packet_data(), packet.origlen));
            }
            // A simple packet has no time, so it gives neither a rate nor an order.
            _ => {}
        }
        None
    }
}

impl Interface {
    fn packet<'a>(&self, units: u128, bytes: &'a [u8], length: u32) -> Packet<'a> {
        let ns = units.saturating_mul(1_000_000_000) / u128::from(self.resolution.max(1));
        let at =
            i128::try_from(ns).unwrap_or(i128::MAX) + i128::from(self.offset_s) * 1_000_000_000;
        let at_ns = u64::try_from(at.max(0)).unwrap_or(u64::MAX);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let missing = length.saturating_sub(bytes.len());
        Packet { at_ns, link: self.link, bytes, missing }
    }
}

/// Returns the units of a second for `if_tsresol`: a power of ten, or of two with the first bit
/// set (pcapng, section 4.2). Microseconds where it is out of range.
fn resolution(code: u8) -> u64 {
    let power = u32::from(code & 0x7f);
    let units = if code & 0x80 == 0 { 10u64.checked_pow(power) } else { 1u64.checked_shl(power) };
    units.unwrap_or(1_000_000)
}
