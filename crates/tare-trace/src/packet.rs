//! Finds the TCP segment in a packet.

use std::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::Linktype;

use crate::capture::Packet;

/// A TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) sequence: u32,
    pub(crate) acknowledged: Option<u32>,
    pub(crate) opens: bool,
    pub(crate) data: &'a [u8],
    /// Bytes at the end of the data that the capture left out.
    pub(crate) missing: usize,
}

/// A link type whose packets are not read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnknownLink(pub(crate) i32);

/// Returns the TCP segment of a packet; `None` if it has none, or is damaged.
pub(crate) fn segment<'a>(packet: &Packet<'a>) -> Result<Option<Segment<'a>>, UnknownLink> {
    Ok(sliced(packet)?.and_then(|sliced| of_slices(&sliced, packet.missing)))
}

/// Link types by number: <https://www.tcpdump.org/linktypes.html>.
fn sliced<'a>(packet: &Packet<'a>) -> Result<Option<LaxSlicedPacket<'a>>, UnknownLink> {
    let bytes = packet.bytes;
    // A cooked header has the EtherType at one place and the packet at another.
    let cooked = |type_at: usize, packet_at: usize| {
        let kind = bytes.get(type_at..type_at + 2)?;
        let kind = u16::from_be_bytes([kind[0], kind[1]]);
        Some(LaxSlicedPacket::from_ether_type(EtherType(kind), bytes.get(packet_at..)?))
    };
    let ip = |at: usize| LaxSlicedPacket::from_ip(bytes.get(at..)?).ok();
    Ok(match packet.link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(bytes).ok(),
        Linktype::LINUX_SLL => cooked(14, 16),
        Linktype(276) => cooked(0, 20),
        Linktype::NULL | Linktype(108) => ip(4),
        // Raw IP has 101 in files, and 12 or 14 as some systems number it.
        Linktype(12 | 14 | 101 | 228 | 229) => ip(0),
        Linktype(number) => return Err(UnknownLink(number)),
    })
}

fn of_slices<'a>(sliced: &LaxSlicedPacket<'a>, missing: usize) -> Option<Segment<'a>> {
    let (from, to): (IpAddr, IpAddr) = match sliced.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        LaxNetSlice::Ipv6(ip) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { return None };
    let is_cut = sliced.net.as_ref()?.ip_payload_ref()?.incomplete;
    Some(Segment {
        from: SocketAddr::new(from, tcp.source_port()),
        to: SocketAddr::new(to, tcp.destination_port()),
        sequence: tcp.sequence_number(),
        acknowledged: tcp.ack().then(|| tcp.acknowledgment_number()),
        opens: tcp.syn(),
        data: tcp.payload(),
        missing: if is_cut { missing } else { 0 },
    })
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    fn check(link: i32, bytes: &[u8], missing: usize, expect: Option<(&str, &[u8], usize)>) {
        let packet = Packet { at_ns: 0, link: Linktype(link), bytes, missing };
        let found = segment(&packet).unwrap();
        let found = found.map(|one| (one.from.to_string(), one.data, one.missing));
        let expect = expect.map(|(from, data, missing)| (from.to_string(), data, missing));
        assert_eq!(found, expect, "link type {link}");
    }

    #[test]
    fn segments_are_found_below_every_link() {
        let mut v4 = Vec::new();
        let tcp = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(4000, 9042, 7, 512);
        tcp.write(&mut v4, b"hello").unwrap();
        let mut v6 = Vec::new();
        let tcp = PacketBuilder::ipv6([1; 16], [2; 16], 64).tcp(4000, 9042, 7, 512);
        tcp.write(&mut v6, b"hello").unwrap();
        let expect = Some(("10.0.0.1:4000", b"hello".as_slice(), 0));
        let with = |head: &[u8], ip: &[u8]| [head, ip].concat();
        check(101, &v4, 0, expect);
        check(0, &with(&[2, 0, 0, 0], &v4), 0, expect);
        check(113, &with(&[[0; 14].as_slice(), &[8, 0]].concat(), &v4), 0, expect);
        check(276, &with(&[[8, 0].as_slice(), &[0; 18]].concat(), &v4), 0, expect);
        let ethernet = [[0; 12].as_slice(), &[8, 0]].concat();
        // Ethernet pads short packets; the padding is no data.
        check(1, &with(&with(&ethernet, &v4), &[0; 6]), 0, expect);
        let vlan = [[0; 12].as_slice(), &[0x81, 0, 0, 5, 8, 0]].concat();
        check(1, &with(&vlan, &v4), 0, expect);
        let from = "[101:101:101:101:101:101:101:101]:4000";
        check(101, &v6, 0, Some((from, b"hello", 0)));
        check(101, &v4[..v4.len() - 2], 2, Some(("10.0.0.1:4000", b"hel", 2)));
        for length in 0..40 {
            check(101, &v4[..length], 45 - length, None);
        }
        let other = Packet { at_ns: 0, link: Linktype(105), bytes: &v4, missing: 0 };
        assert_eq!(segment(&other), Err(UnknownLink(105)));
    }
}
