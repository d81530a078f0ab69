//! Sets of CPUs and their text forms: lists (`0-3,8`), and masks as the kernel (`0000000f`,
//! `00000001,00000000`) and hwloc (`0x00000001,,0x1`) write them.
//!
//! A mask is 32-bit words in hexadecimal, most significant first, joined by commas. hwloc leaves
//! an interior zero word empty. Source: hwloc's `hwloc_bitmap_snprintf`, the kernel's `%*pb`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest supported CPU number, plus one.
pub const CPUS_MAX: u32 = 4096;

/// A set of CPUs by their kernel numbers.
///
/// ```
/// use tare_std::cpus::CpuSet;
///
/// let cpus: CpuSet = "0-3,8".parse()?;
/// assert_eq!(cpus.to_mask(), "0x0000010f");
/// # Ok::<(), tare_std::cpus::ParseCpuSetError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet(BTreeSet<u32>);

/// Why a text is not a set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseCpuSetError {
    #[error("{text:?} is not a CPU list: {part:?} is not a number or range{}", suggest(.suggestion))]
    Part { text: String, part: String, suggestion: Option<String> },
    #[error("{text:?} is not a CPU list: the range {part:?} runs backwards")]
    Backwards { text: String, part: String },
    #[error("{text:?} names CPU {cpu}; the largest supported CPU is {}", CPUS_MAX - 1)]
    TooLarge { text: String, cpu: u64 },
    #[error("{text:?} is not a CPU mask: {word:?} is not a 32-bit word in hexadecimal")]
    Word { text: String, word: String },
}

fn suggest(suggestion: &Option<String>) -> String {
    suggestion.as_ref().map(|s| format!("; did you mean {s:?}?")).unwrap_or_default()
}

impl CpuSet {
    /// Returns the empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses a list such as `0-3,8`. The empty text is the empty set, as in the kernel's files.
    pub fn parse_list(text: &str) -> Result<Self, ParseCpuSetError> {
        let text = text.trim();
        let mut set = BTreeSet::new();
        if text.is_empty() {
            return Ok(Self(set));
        }
        for part in text.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => {
                    (parse_cpu(text, part, first)?, parse_cpu(text, part, last)?)
                }
                None => {
                    let cpu = parse_cpu(text, part, part)?;
                    (cpu, cpu)
                }
            };
            if first > last {
                return Err(ParseCpuSetError::Backwards { text: text.into(), part: part.into() });
            }
            set.extend(first..=last);
        }
        Ok(Self(set))
    }

    /// Parses a mask in the kernel's or hwloc's form.
    pub fn parse_mask(text: &str) -> Result<Self, ParseCpuSetError> {
        let text = text.trim();
        let mut set = BTreeSet::new();
        for (index, word) in text.rsplit(',').enumerate() {
            let bad = || ParseCpuSetError::Word { text: text.into(), word: word.into() };
            let digits = word.strip_prefix("0x").unwrap_or(word);
            if digits.is_empty() {
                // Only an interior word of hwloc's form may be empty.
                let interior = index > 0 && !text.starts_with(',') && word.is_empty();
                if interior {
                    continue;
                }
                return Err(bad());
            }
            if digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(bad());
            }
            let bits = u32::from_str_radix(digits, 16).map_err(|_| bad())?;
            let base = u64::try_from(index).unwrap_or(u64::MAX).saturating_mul(32);
            for bit in (0..32).filter(|bit| bits & (1 << bit) != 0) {
                let cpu = base + bit;
                match u32::try_from(cpu) {
                    Ok(small) if small < CPUS_MAX => set.insert(small),
                    _ => return Err(ParseCpuSetError::TooLarge { text: text.into(), cpu }),
                };
            }
        }
        Ok(Self(set))
    }

    /// Returns the mask as hwloc prints it: `0x00000001,,0x00000001`; the empty set is `0x0`.
    pub fn to_mask(&self) -> String {
        let Some(last) = self.0.last() else { return "0x0".into() };
        let mut words = vec![0u32; (last / 32 + 1) as usize];
        for cpu in &self.0 {
            words[(cpu / 32) as usize] |= 1 << (cpu % 32);
        }
        let last_index = words.len() - 1;
        let print = |(index, word): (usize, &u32)| match word {
            0 if index == 0 => "0x0".to_string(),
            0 => String::new(),
            _ => format!("0x{word:08x}"),
        };
        debug_assert_ne!(words[last_index], 0);
        let texts: Vec<String> = words.iter().enumerate().rev().map(print).collect();
        texts.join(",")
    }

    /// Returns the mask as the kernel's files take it: `00000001,00000000,00000001`.
    pub fn to_kernel_mask(&self) -> String {
        let words = self.0.last().map_or(1, |last| last / 32 + 1);
        let word = |index: u32| {
            let bits = self.0.range(index * 32..(index + 1) * 32);
            format!("{:08x}", bits.fold(0u32, |word, cpu| word | 1 << (cpu % 32)))
        };
        (0..words).rev().map(word).collect::<Vec<_>>().join(",")
    }

    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// Adds a CPU. Returns false if it was already in the set.
    ///
    /// # Panics
    /// If `cpu` is `CPUS_MAX` or above.
    pub fn insert(&mut self, cpu: u32) -> bool {
        assert!(cpu < CPUS_MAX, "CPU {cpu} is beyond the {CPUS_MAX} that are supported");
        self.0.insert(cpu)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    pub fn union(&self, other: &Self) -> Self {
        Self(&self.0 | &other.0)
    }

    pub fn intersection(&self, other: &Self) -> Self {
        Self(&self.0 & &other.0)
    }

    pub fn difference(&self, other: &Self) -> Self {
        Self(&self.0 - &other.0)
    }

    /// Returns whether no CPU is in both sets.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.0.is_disjoint(&other.0)
    }

    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
}

fn parse_cpu(text: &str, part: &str, number: &str) -> Result<u32, ParseCpuSetError> {
    let all_digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let cpu: Option<u64> = all_digits.then(|| number.parse().unwrap_or(u64::MAX));
    match cpu {
        Some(cpu) => match u32::try_from(cpu) {
            Ok(small) if small < CPUS_MAX => Ok(small),
            _ => Err(ParseCpuSetError::TooLarge { text: text.into(), cpu }),
        },
        None => Err(ParseCpuSetError::Part {
            text: text.into(),
            part: part.into(),
            suggestion: mended(text),
        }),
    }
}

/// Guesses the list that was meant: in `1,15-17-31` one dash is where a comma belongs.
fn mended(text: &str) -> Option<String> {
    let parts = text.split(',').map(|part| {
        let numbers: Vec<&str> = part.split('-').collect();
        match numbers.as_slice() {
            [a, b, c] => Some((format!("{a}-{b}"), Some(*c))),
            _ => Some((part.to_string(), None)),
        }
    });
    let parts: Vec<(String, Option<&str>)> = parts.collect::<Option<_>>()?;
    // `1,15-17-31`: the separators before and inside the odd part are swapped.
    let odd = parts.iter().position(|(_, third)| third.is_some())?;
    let mut words: Vec<String> = Vec::new();
    for (index, (part, third)) in parts.iter().enumerate() {
        match third {
            Some(third) if index == odd && index > 0 && !parts[index - 1].0.contains('-') => {
                let (a, b) = part.split_once('-')?;
                let before = words.pop()?;
                words.push(format!("{before}-{a}"));
                words.push(format!("{b}-{third}"));
            }
            Some(_) => return None,
            None => words.push(part.clone()),
        }
    }
    let candidate = words.join(",");
    (!candidate.contains("--") && CpuSet::parse_list(&candidate).is_ok()).then_some(candidate)
}

impl fmt::Display for CpuSet {
    /// Writes the list form: `0-3,8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    /// Parses a text with `0x` as a mask, any other as a list.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains("0x") { Self::parse_mask(text) } else { Self::parse_list(text) }
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = Self::new();
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(text: &str) -> CpuSet {
        CpuSet::parse_list(text).unwrap()
    }

    #[test]
    fn hwloc_and_kernel_masks_parse() {
        // Golden cases of hex2list and the defects of its missing padding.
        let check = |mask: &str, expect: &str| {
            assert_eq!(CpuSet::parse_mask(mask).unwrap().to_string(), expect, "{mask}");
        };
        check("00000000,000e3862", "1,5-6,11-13,17-19");
        check("0xfffefffe", "1-15,17-31");
        check("0x1,0x0", "32");
        check("0x00000001,,0x1", "0,64");
        check("0x0000003f,,,0x0000003f", "0-5,96-101");
        check("0xffffffff,,0xffffffff,0x0", "32-63,96-127");
        check("0x40000000,0x00000000,0x00000000", "94");
        check("0x000000ff,0x00000000", "32-39");
        check("0x00000001,0x00000001,0x00010117", "0-2,4,8,16,32,64");
        check("0x0", "");
    }

    #[test]
    fn masks_of_real_machines_round_trip() {
        // Divisions of public clouds: scylla-cluster-tests #6192, scylladb #25320.
        let check = |mask: &str, cpus: &str| {
            assert_eq!(CpuSet::parse_mask(mask).unwrap().to_string(), cpus, "{mask}");
            assert_eq!(list(cpus).to_mask(), mask, "{cpus}");
        };
        check("0xfffefffe", "1-15,17-31");
        check("0x00010001", "0,16");
        check("0x00000010,0x01001001", "0,12,24,36");
        check("0x30000300,0x00300003", "0-1,20-21,40-41,60-61");
        check("0x00000f00,0x0000000f", "0-3,40-43");
        check("0x0000003f,,,0x0000003f", "0-5,96-101");
    }

    #[test]
    fn the_largest_set_round_trips() {
        let all = format!("0-{}", CPUS_MAX - 1);
        let set = list(&all);
        assert_eq!(set.len(), CPUS_MAX as usize);
        assert_eq!(CpuSet::parse_mask(&set.to_mask()).unwrap(), set);
        assert_eq!(CpuSet::parse_mask(&set.to_kernel_mask()).unwrap(), set);
        assert_eq!(set.to_string(), all);
    }

    #[test]
    fn masks_are_written_in_both_forms() {
        assert_eq!(list("0,64").to_mask(), "0x00000001,,0x00000001");
        assert_eq!(list("32").to_mask(), "0x00000001,0x0");
        assert_eq!(list("").to_mask(), "0x0");
        assert_eq!(list("0,64").to_kernel_mask(), "00000001,00000000,00000001");
        assert_eq!(list("").to_kernel_mask(), "00000000");
    }

    #[test]
    fn bad_text_is_an_error_with_a_reason() {
        let error = |text: &str| text.parse::<CpuSet>().unwrap_err().to_string();
        assert!(
            error("1,15-17-31").ends_with("did you mean \"1-15,17-31\"?"),
            "{}",
            error("1,15-17-31")
        );
        assert!(error("3-1").contains("runs backwards"));
        assert!(error("4096").contains("the largest supported CPU is 4095"));
        assert!(error("a").contains("\"a\" is not a number or range"));
        assert!(error("1,,2").contains("not a number or range"));
        assert!(error("0x123456789").contains("not a 32-bit word"));
        assert!(error("0x1,").contains("not a 32-bit word"));
    }

    proptest! {
        #[test]
        fn every_form_round_trips(cpus in proptest::collection::btree_set(0..CPUS_MAX, 0..200)) {
            let set: CpuSet = cpus.into_iter().collect();
            prop_assert_eq!(&CpuSet::parse_list(&set.to_string()).unwrap(), &set);
            prop_assert_eq!(&CpuSet::parse_mask(&set.to_mask()).unwrap(), &set);
            prop_assert_eq!(&CpuSet::parse_mask(&set.to_kernel_mask()).unwrap(), &set);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "[0-9a-fx,-]{0,24}") {
            if let Ok(set) = text.parse::<CpuSet>() {
                prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
            }
        }
    }
}
