//! Reads tables with a line per source and a column per CPU: `/proc/interrupts`, `/proc/softirqs`.
//!
//! On a large host such a table has 2,000 lines of 256 numbers. A reading allocates one list of
//! numbers, and nothing per line or field: the names of the sources are kept from the last reading.

use tare_std::cpus::CpuSet;

/// The parser of a table, and the sources that it has seen.
#[derive(Debug)]
pub(crate) struct CpuTable {
    cpus: Vec<u32>,
    sources: Vec<Source>,
    /// For each column of the current text, the index of its CPU in `cpus`.
    columns: Vec<Option<usize>>,
}

/// A line of the table.
#[derive(Debug)]
pub(crate) struct Source {
    /// The word before the colon: the number of an interrupt, or a short name.
    pub(crate) label: String,
    /// The last word after the numbers, which is the action of a device's interrupt. It may be
    /// empty.
    pub(crate) action: String,
}

/// The numbers of one reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// By source and CPU, the CPUs of a source together.
    numbers: Vec<u64>,
    /// Whether the table has a column for each CPU. An offline CPU has none.
    present: Vec<bool>,
}

impl Counts {
    pub(crate) fn of(&self, source: usize, cpu: usize) -> u64 {
        self.numbers.get(source * self.present.len() + cpu).copied().unwrap_or(0)
    }

    pub(crate) fn has(&self, cpu: usize) -> bool {
        self.present[cpu]
    }

    /// The growth since an earlier reading. A source that the earlier one lacks counts from zero.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let earlier = before.numbers.iter().copied().chain(std::iter::repeat(0));
        let grown = self.numbers.iter().zip(earlier).map(|(now, then)| now.saturating_sub(then));
        Self { numbers: grown.collect(), present: self.present.clone() }
    }
}

impl CpuTable {
    pub(crate) fn new(cpus: &CpuSet) -> Self {
        Self { cpus: cpus.iter().collect(), sources: Vec::new(), columns: Vec::new() }
    }

    /// The CPUs that are read, in ascending order.
    pub(crate) fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// The sources so far. Their indices stay the same from reading to reading.
    pub(crate) fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Reads the numbers of a text. `None` if it has no column of any of the CPUs.
    pub(crate) fn read(&mut self, text: &str) -> Option<Counts> {
        let (head, lines) = text.split_once('\n')?;
        self.columns.clear();
        let mut present = vec![false; self.cpus.len()];
        for name in head.split_ascii_whitespace() {
            let cpu = name.strip_prefix("CPU")?.parse().ok();
            let at = cpu.and_then(|cpu: u32| self.cpus.binary_search(&cpu).ok());
            if let Some(at) = at {
                present[at] = true;
            }
            self.columns.push(at);
        }
        if !present.contains(&true) {
            return None;
        }
        let width = self.cpus.len();
        let mut numbers = vec![0; self.sources.len() * width];
        let mut line_numbers = vec![0; width];
        let mut next = 0;
        for line in lines.lines() {
            let Some((label, rest)) = line.split_once(':') else { continue };
            let end = read_numbers(rest.as_bytes(), &self.columns, &mut line_numbers);
            let Some(end) = end else { continue };
            let action = rest[end..].trim_ascii_end().rsplit(' ').next().unwrap_or_default();
            let source = self.source(next, label.trim_ascii_start(), action);
            next = source + 1;
            let place = source * width;
            if numbers.len() < place + width {
                numbers.resize(place + width, 0);
            }
            numbers[place..place + width].copy_from_slice(&line_numbers);
        }
        Some(Counts { numbers, present })
    }

    /// The index of a source. Lines keep their order, so that it is nearly always `next`.
    fn source(&mut self, next: usize, label: &str, action: &str) -> usize {
        let is = |source: &Source| source.label == label && source.action == action;
        if self.sources.get(next).is_some_and(is) {
            return next;
        }
        self.sources.iter().position(is).unwrap_or_else(|| {
            self.sources.push(Source { label: label.to_string(), action: action.to_string() });
            self.sources.len() - 1
        })
    }
}

/// Puts the numbers of the columns of wanted CPUs into their places, and returns the offset behind
/// all numbers. `None` for a line with fewer numbers than columns: ERR and MIS of
/// `/proc/interrupts` have one for the whole host.
fn read_numbers(line: &[u8], columns: &[Option<usize>], places: &mut [u64]) -> Option<usize> {
    let mut at = 0;
    for column in columns {
        while line.get(at) == Some(&b' ') {
            at += 1;
        }
        let first = at;
        let mut number = 0_u64;
        while let Some(digit) = line.get(at).filter(|byte| byte.is_ascii_digit()) {
            number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            at += 1;
        }
        if at == first {
            return None;
        }
        if let Some(column) = column {
            places[*column] = number;
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "            CPU0  CPU2  CPU3\n";

    fn table(cpus: &str) -> CpuTable {
        CpuTable::new(&cpus.parse().unwrap())
    }

    #[test]
    fn reads_wanted_columns_and_skips_short_lines() {
        let mut table = table("1-2");
        let text = format!("{HEAD} 24:  1 22 3  MSI  5-edge  eth0-rx\nLOC: 4 5 6 Timer\nERR: 7\n");
        let counts = table.read(&text).unwrap();
        let names: Vec<(&str, &str)> =
            table.sources().iter().map(|one| (one.label.as_str(), one.action.as_str())).collect();
        assert_eq!(names, [("24", "eth0-rx"), ("LOC", "Timer")]);
        assert_eq!((counts.of(0, 1), counts.of(1, 1)), (22, 5));
        assert_eq!((counts.has(0), counts.has(1)), (false, true));
        assert_eq!(table.read("     CPU0\n LOC: 3\n"), None);
        assert_eq!(table.read(""), None);
    }

    #[test]
    fn sources_keep_their_place_when_lines_come_and_go() {
        let mut table = table("0");
        let first = table.read(&format!("{HEAD}1: 1 0 0 a\n3: 3 0 0 c\n")).unwrap();
        let later = table.read(&format!("{HEAD}1: 5 0 0 a\n2: 2 0 0 b\n3: 4 0 0 c\n")).unwrap();
        let grown = later.since(&first);
        assert_eq!([grown.of(0, 0), grown.of(1, 0), grown.of(2, 0)], [4, 1, 2]);
        // A number whose action has changed is another source.
        let last = table.read(&format!("{HEAD}1: 9 0 0 new\n")).unwrap();
        assert_eq!([last.of(0, 0), last.of(3, 0)], [0, 9]);
    }
}
