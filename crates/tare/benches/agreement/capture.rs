//! Captures the packets of a load and extracts the service times.
//!
//! tcpdump records the traffic of a device with the kernel's time of each packet. The requests and
//! answers are extracted twice: by our own reader, and by tshark's dissector if it is installed.
//! Both pair them by connection and stream id; a request counts from the packet with its first byte
//! (tshark: with its last), an answer from the packet with its last byte.
//!
//! Formats: <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html>, RFC 791, RFC 9293,
//! CQL native protocol v4, section 2. Limits: IPv4, Ethernet framing, no lost packets (an error).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::Result;

/// EXECUTE, and the answers to it: RESULT, ERROR (CQL, section 2.4).
const EXECUTE: u8 = 0x0a;
const ANSWERS: [u8; 2] = [0x08, 0x00];
/// Bytes of a frame's header.
const HEAD: usize = 9;
/// The kernel's buffer for packets that tcpdump has not read yet, in KiB.
const BUFFER_KIB: &str = "131072";

/// A request or an answer on the wire.
#[derive(Clone, Copy, Debug)]
struct Frame {
    at_ns: u64,
    /// The client's port.
    port: u16,
    stream: i16,
    opcode: u8,
    is_request: bool,
}

/// A request with its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) sent_ns: u64,
    pub(crate) answered_ns: u64,
}

/// A running capture.
pub(crate) struct Capture {
    child: Child,
    said: BufReader<ChildStderr>,
    file: PathBuf,
    port: u16,
}

impl Capture {
    /// Starts to capture the traffic of a device to and from a port.
    pub(crate) fn start(file: &Path, device: &str, port: u16) -> Result<Self> {
        let mut child = Command::new("tcpdump")
            .args(["-i", device, "-n", "-Z", "root", "--time-stamp-precision=nano"])
            .args(["-B", BUFFER_KIB, "-w"])
            .arg(file)
            .args(["tcp", "and", "port", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().ok_or("tcpdump has no stderr")?;
        let mut said = BufReader::new(stderr);
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            if said.read_line(&mut line)? == 0 {
                child.wait()?;
                return Err("tcpdump exited before it listened".into());
            }
        }
        Ok(Self { child, said, file: file.into(), port })
    }

    /// Stops the capture. Fails if packets are missing.
    pub(crate) fn finish(mut self) -> Result<Captured> {
        let pid = Pid::from_raw(self.child.id().try_into()?).ok_or("no pid")?;
        // The last packets take a while to reach tcpdump.
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        kill_process(pid, Signal::INT)?;
        let said: Vec<String> = self.said.by_ref().lines().collect::<std::io::Result<_>>()?;
        self.child.wait()?;
        let dropped = said.iter().find(|line| line.ends_with("dropped by kernel"));
        let dropped = dropped.ok_or("tcpdump does not say how many packets were dropped")?;
        if !dropped.starts_with("0 ") {
            return Err(format!("the capture is not whole: {dropped}").into());
        }
        Ok(Captured { file: self.file.clone(), port: self.port })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // Both fail only if tcpdump has already exited.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A finished capture.
pub(crate) struct Captured {
    file: PathBuf,
    port: u16,
}

impl Captured {
    /// Extracts the exchanges with our own reader.
    pub(crate) fn read(&self) -> Result<Vec<Exchange>> {
        let bytes = std::fs::read(&self.file)?;
        let mut reader = Reader { port: self.port, halves: HashMap::new(), frames: Vec::new() };
        reader.read(&bytes)?;
        Ok(pair(reader.frames))
    }

    /// Extracts the exchanges with tshark.
    pub(crate) fn dissect(&self) -> Result<Vec<Exchange>> {
        let cql = format!("tcp.port=={},cql", self.port);
        let fields = ["frame.time_epoch", "tcp.srcport", "tcp.dstport", "cql.opcode", "cql.stream"];
        let mut command = Command::new("tshark");
        command.arg("-r").arg(&self.file).args(["-d", &cql, "-Y", "cql", "-T", "fields"]);
        command.args(["-E", "separator=/t", "-E", "occurrence=a", "-E", "aggregator=,"]);
        command.args(fields.iter().flat_map(|field| ["-e", field]));
        let output = command.stderr(Stdio::null()).output()?;
        let mut frames = Vec::new();
        for line in String::from_utf8(output.stdout)?.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            let [time, from, to, opcodes, streams] = words[..] else {
                return Err(format!("tshark printed {line:?}").into());
            };
            let (seconds, fraction) = time.split_once('.').ok_or("a time without a point")?;
            let at_ns = seconds.parse::<u64>()? * 1_000_000_000 + fraction.parse::<u64>()?;
            let (from, to): (u16, u16) = (from.parse()?, to.parse()?);
            let is_request = to == self.port;
            let port = if is_request { from } else { to };
            for (opcode, stream) in opcodes.split(',').zip(streams.split(',')) {
                let opcode = match opcode.strip_prefix("0x") {
                    Some(digits) => u8::from_str_radix(digits, 16)?,
                    None => opcode.parse()?,
                };
                let stream = i16::try_from(stream.parse::<i32>()?)?;
                frames.push(Frame { at_ns, port, stream, opcode, is_request });
            }
        }
        Ok(pair(frames))
    }
}

/// Pairs answers with their requests.
fn pair(frames: Vec<Frame>) -> Vec<Exchange> {
    let mut sent = HashMap::new();
    let mut exchanges = Vec::new();
    for Frame { at_ns, port, stream, opcode, is_request } in frames {
        if is_request && opcode == EXECUTE {
            sent.insert((port, stream), at_ns);
        } else if !is_request && ANSWERS.contains(&opcode) {
            // An answer without an EXECUTE belongs to a request of the connection's set-up.
            let sent_ns = sent.remove(&(port, stream));
            exchanges.extend(sent_ns.map(|sent_ns| Exchange { sent_ns, answered_ns: at_ns }));
        }
    }
    exchanges
}

/// Reads a capture file.
struct Reader {
    port: u16,
    /// By client's port and direction.
    halves: HashMap<(u16, bool), Half>,
    frames: Vec<Frame>,
}

/// One direction of a connection.
#[derive(Default)]
struct Half {
    /// The sequence number of the next byte, once a packet has arrived.
    next: Option<u32>,
    /// An incomplete frame, and the time of its first byte.
    bytes: Vec<u8>,
    begun_ns: u64,
}

impl Reader {
    fn read(&mut self, file: &[u8]) -> Result<()> {
        let word = |bytes: &[u8], at: usize| -> Option<u32> {
            Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        if word(file, 0) != Some(0xa1b2_3c4d) || word(file, 20) != Some(1) {
            return Err("not a capture of Ethernet frames in ns of this byte order".into());
        }
        let mut at = 24;
        while let Some(seconds) = word(file, at) {
            let nanoseconds = word(file, at + 4).ok_or("a torn capture")?;
            let length = word(file, at + 8).ok_or("a torn capture")? as usize;
            let whole = word(file, at + 12).ok_or("a torn capture")? as usize;
            let packet = file.get(at + 16..at + 16 + length).ok_or("a torn capture")?;
            if length != whole {
                return Err("the capture has cut packets".into());
            }
            let at_ns = u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds);
            self.packet(packet, at_ns)?;
            at += 16 + length;
        }
        Ok(())
    }

    fn packet(&mut self, packet: &[u8], at_ns: u64) -> Result<()> {
        const ETHERNET: usize = 14;
        let (Some(&[high, low]), Some(&first)) = (packet.get(12..14), packet.get(ETHERNET)) else {
            return Err("a packet without a header".into());
        };
        if u16::from_be_bytes([high, low]) != 0x0800 {
            return Ok(()); // No IPv4.
        }
        let tcp = ETHERNET + usize::from(first & 0x0f) * 4;
        let ip_length = usize::from(u16::from_be_bytes([packet[16], packet[17]]));
        let head = packet.get(tcp..tcp + 20).ok_or("a packet without a TCP header")?;
        let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let (from, to) = (number(0), number(2));
        let sequence = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let data = tcp + usize::from(head[12] >> 4) * 4;
        // Segments above 64 KiB (BIG TCP) leave the length at 0; frames are not padded here.
        let end = if ip_length == 0 { packet.len() } else { ETHERNET + ip_length };
        let data = packet.get(data..end).unwrap_or_default();
        let is_request = to == self.port;
        let client = if is_request { from } else { to };
        let half = self.halves.entry((client, is_request)).or_default();
        let is_syn = head[13] & 0x02 != 0;
        if is_syn {
            *half = Half { next: Some(sequence.wrapping_add(1)), ..Half::default() };
            return Ok(());
        }
        if data.is_empty() {
            return Ok(()); // After a FIN the sequence number is one ahead.
        }
        let expected = *half.next.get_or_insert(sequence);
        let ahead = sequence.wrapping_sub(expected).cast_signed();
        if ahead > 0 {
            return Err(format!("{ahead} bytes of port {client} are missing in the capture").into());
        }
        // Skips retransmitted bytes.
        let known = usize::try_from(-i64::from(ahead))?;
        let Some(data) = data.get(known..).filter(|data| !data.is_empty()) else { return Ok(()) };
        half.next = Some(expected.wrapping_add(u32::try_from(data.len())?));
        if half.bytes.is_empty() {
            half.begun_ns = at_ns;
        }
        half.bytes.extend_from_slice(data);
        let mut offset = 0;
        while let Some(head) = half.bytes.get(offset..offset + HEAD) {
            let length = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) as usize;
            if half.bytes.len() < offset + HEAD + length {
                break;
            }
            let (stream, opcode) = (i16::from_be_bytes([head[2], head[3]]), head[4]);
            let frame_ns = if is_request { half.begun_ns } else { at_ns };
            self.frames.push(Frame { at_ns: frame_ns, port: client, stream, opcode, is_request });
            offset += HEAD + length;
            // The next frame starts in this packet.
            half.begun_ns = at_ns;
        }
        if offset > 0 {
            half.bytes.drain(..offset);
        }
        Ok(())
    }
}
