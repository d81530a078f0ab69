//! `card_queues`: packets by queue of the host's network cards, as their drivers count them. It
//! shows whether the hash of a card spreads the load over its queues.
//!
//! Source: the statistics of `ethtool --statistics`. Drivers name them freely; those of a queue are
//! recognised by their words (`rx_queue_0_packets`, `rx0_packets`, `rx-0.packets`,
//! `queue_0_rx_cnt`). A driver that takes too long to read is left out.

#[allow(unsafe_code, reason = "ioctl(2) takes addresses")]
mod sys;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tare_lab::probe::Counter;

use crate::counter_names::{CounterNames, grown};
use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::{CounterKind, Opened, ProbeCpus, ProbeError, ProbeKind, Roots, name_part};
use sys::Device;

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "card_queues",
    help: "packets by queue of the host's network cards",
    needs: "a network card that is up and whose driver counts packets by queue (ethtool --statistics)",
    limits: "in the namespace of tare; all traffic of the card counts; at most 4 cards and 32 queues, the \
             first with traffic; without cards whose statistics take over 0.5 ms to read, and without those whose driver \
             counts queues only for netlink (virtio-net of newer kernels)",
    optional: true,
    disturbs: false,
    counters: &[
        CounterKind {
            name: "card_{device}_rx{N}_packets",
            help: "packets that queue N of a card received",
        },
        CounterKind { name: "card_{device}_tx{N}_packets", help: "packets that queue N sent" },
    ],
    open,
};

const CARDS_MAX: usize = 4;
const QUEUES_MAX: usize = 32;
/// The longest time that a reading of one card may take.
const READING_MAX: Duration = Duration::from_micros(500);

struct CardQueues {
    cards: Vec<Card>,
    names: CounterNames,
}

struct Card {
    name: String,
    device: Device,
    /// The counters of queues, by their place among the statistics.
    queues: Vec<(usize, String)>,
    /// The number of statistics. It changes with the number of queues.
    count: usize,
}

fn open(roots: &Roots, _: &ProbeCpus) -> Opened {
    let mut cards: Vec<Card> =
        names_of_cards(&roots.sys).iter().filter_map(|name| Card::open(name)).collect();
    cards.truncate(CARDS_MAX);
    if cards.is_empty() {
        let path = roots.sys.join("class/net");
        let what = "card whose driver counts packets by queue".into();
        return Err(ProbeError::Missing { path, what, needs: KIND.needs });
    }
    edge_probe(&KIND, CardQueues { cards, names: CounterNames::new(QUEUES_MAX) })
}

/// Returns the devices with hardware that are up, in the order of their names.
fn names_of_cards(sys: &Path) -> Vec<String> {
    let entries = fs::read_dir(sys.join("class/net")).into_iter().flatten().flatten();
    let up = |path: &Path| {
        fs::read_to_string(path.join("operstate")).is_ok_and(|state| state.trim() == "up")
    };
    let cards = entries.filter(|one| one.path().join("device").exists() && up(&one.path()));
    let mut names: Vec<String> =
        cards.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

impl Card {
    /// `None` if its driver counts no packets by queue, or takes too long.
    fn open(name: &str) -> Option<Self> {
        let device = Device::open(name).ok()??;
        let mut card = Self { name: name.into(), device, queues: Vec::new(), count: 0 };
        card.read_names()?;
        if card.queues.is_empty() {
            return None;
        }
        let reading = |card: &mut Self| {
            let began = Instant::now();
            card.device.values().ok()?;
            Some(began.elapsed())
        };
        let times: Option<Vec<Duration>> = (0..5).map(|_| reading(&mut card)).collect();
        (times?.into_iter().min()? <= READING_MAX).then_some(card)
    }

    fn read_names(&mut self) -> Option<()> {
        let names = self.device.names().ok()?;
        self.count = names.len();
        let of_queue = |(at, name): (usize, &String)| {
            let (direction, queue) = queue_of(name)?;
            Some((at, format!("card_{}_{direction}{queue}_packets", name_part(&self.name))))
        };
        self.queues = names.iter().enumerate().filter_map(of_queue).collect();
        Some(())
    }

    fn read(&mut self, into: &mut Vec<(String, u64)>) {
        // A change of channels during a study changes the statistics.
        if self.device.count().is_ok_and(|count| count != self.count) {
            self.read_names();
        }
        let Ok(values) = self.device.values() else { return };
        let values =
            self.queues.iter().filter_map(|(at, name)| Some((name.clone(), *values.get(*at)?)));
        into.extend(values);
    }
}

/// Returns `rx` or `tx` and the queue of a statistic that counts the packets of a queue.
fn queue_of(name: &str) -> Option<(&'static str, u32)> {
    let (mut direction, mut queue, mut packets) = (None, None, false);
    for word in words(name) {
        match word {
            "rx" if direction.is_none() => direction = Some("rx"),
            "tx" if direction.is_none() => direction = Some("tx"),
            "packets" | "cnt" if !packets => packets = true,
            "queue" | "q" => {}
            number if queue.is_none() => queue = Some(number.parse().ok()?),
            _ => return None,
        }
    }
    packets.then_some((direction?, queue?))
}

/// Splits a name into words and numbers.
fn words(name: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for part in name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()) {
        let mut rest = part;
        while let Some(first) = rest.chars().next() {
            let same = |c: char| c.is_ascii_digit() == first.is_ascii_digit();
            let end = rest.find(|c| !same(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            words.push(word);
            rest = after;
        }
    }
    words
}

impl EdgeReader for CardQueues {
    type Values = Vec<(String, u64)>;

    fn read(&mut self, _: Edge) -> Result<Self::Values, ProbeError> {
        let mut values = Vec::new();
        self.cards.iter_mut().for_each(|card| card.read(&mut values));
        Ok(values)
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        self.names.select(grown(&begin, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_recognised_by_their_words() {
        for (name, expect) in [
            ("rx_queue_0_packets", Some(("rx", 0))),
            ("tx_queue_13_packets", Some(("tx", 13))),
            ("rx7_packets", Some(("rx", 7))),
            ("rx-3.packets", Some(("rx", 3))),
            ("queue_2_tx_cnt", Some(("tx", 2))),
            ("rx_packets[5]", Some(("rx", 5))),
            ("tx_1_packets", Some(("tx", 1))),
            ("rx_queue_0_xdp_packets", None),
            ("rx_queue_0_drops", None),
            ("rx_queue_0_bytes", None),
            ("rx_packets", None),
            ("rx_size_64_packets", None),
            ("rx_prio0_packets", None),
            ("rx_64_byte_packets", None),
            ("", None),
        ] {
            assert_eq!(queue_of(name), expect, "{name}");
        }
    }

    #[test]
    fn devices_without_queue_statistics_have_no_card() {
        assert!(Card::open("lo").is_none());
        assert!(Card::open("nosuch0").is_none());
        assert!(Card::open("a-name-that-is-too-long").is_none());
    }

    /// What the driver of a card of this host says, if it has one.
    #[test]
    fn card_of_this_host_is_read() {
        let names = names_of_cards(Path::new("/sys"));
        let Some(mut card) = names.iter().find_map(|name| Card::open(name)) else {
            let reason = tare_testkit::Machine::NoCardQueues;
            tare_testkit::skip("card_of_this_host_is_read", reason);
            return;
        };
        let (mut begin, mut end) = (Vec::new(), Vec::new());
        card.read(&mut begin);
        card.read(&mut end);
        assert_eq!(begin.len(), card.queues.len());
        assert!(begin.iter().zip(&end).all(|(b, e)| b.0 == e.0 && b.1 <= e.1), "{begin:?} {end:?}");
        assert!(begin.iter().any(|(name, _)| name.contains("_rx")), "{begin:?}");
    }
}
