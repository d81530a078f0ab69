//! Two or more records compared: the cost of the same environment in each, the operations of each
//! machine per CPU and per unit of money, and warnings where the comparison is unsafe.
//!
//! The records are independent of each other. A cost is a ratio to its own record's baseline, so
//! two costs are compared as the ratio of these ratios, in log space, which cancels the speed of
//! the machines. Absolute figures are compared as ratios too. The intervals are Welch's
//! (`tare_stats::difference`; docs/concepts/cost.md).
//!
//! Limits: the interval of an absolute figure holds for its own run; two runs on one host differ by
//! more.

mod conditions;
mod costs;
mod csv;
mod economics;
mod markdown;
mod pairs;
mod prices;
mod resources;
mod summary;
mod tables;
mod terminal;
#[cfg(test)]
mod tests;

use serde::Serialize;
use serde_json::json;
use tare_lab::analysis::Analysis;
use tare_lab::record::Record;

use crate::figures::utc;
use crate::fleet::Price;
use crate::headline::headline;

pub use self::csv::csv;
pub(crate) use conditions::facts;
pub use conditions::{Fact, Warning, WarningKind};
pub use costs::{CostRow, Difference};
pub(crate) use costs::{between, log, percent as percent_of};
pub use economics::{Figures, FiguresRow, Ratio};
pub use markdown::markdown;
pub use pairs::{Pair, PairError, pair};
pub use prices::{PriceError, PriceTag};
pub use resources::{Kept, KeptRow, MachineResources};
pub(crate) use summary::sentences;
pub(crate) use tables::{ComparisonTable, Entry, money, tables};
pub use terminal::terminal;

/// A record and its name in the comparison, such as that of its file.
pub type Named = (String, Record, Analysis);

/// `schema_version` of the JSON of a comparison. 2: figures, warnings and facts as data.
const SCHEMA_VERSION: u32 = 2;

pub(crate) const METHOD: &str = "A difference is the ratio of two records' cost ratios, as a percentage; above 0 the environment costs more than in the first record. \"vs A\" is a figure over that of the first record. The 95 % intervals are Welch's, on the logarithms of independent records. The interval of an absolute figure holds for its own run: two runs on one host differ by more.";

/// One record of a comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'r> {
    pub(crate) name: &'r str,
    pub(crate) record: &'r Record,
    pub(crate) analysis: &'r Analysis,
}

/// A comparison of records, from which every format is written.
#[derive(Clone, Debug)]
pub struct Comparison<'r> {
    pub(crate) sides: Vec<Side<'r>>,
    /// One per record, if given.
    pub(crate) prices: Vec<Option<Price>>,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) costs: Vec<CostRow<'r>>,
    pub(crate) figures: Vec<FiguresRow<'r>>,
    /// One per record.
    pub(crate) machines: Vec<MachineResources>,
    /// The environments whose layers keep CPU time or memory.
    pub(crate) kept: Vec<KeptRow<'r>>,
    /// Facts of studies and hosts that are not the same in all records.
    pub(crate) differing: Vec<Fact>,
    /// Those that are.
    pub(crate) equal: Vec<Fact>,
    /// Environments that not all records have, with whether each has it.
    pub(crate) only_in_some: Vec<(&'r str, Vec<bool>)>,
    /// Environments that have another name in each record.
    pub(crate) pairs: Vec<Pair>,
}

impl<'r> Comparison<'r> {
    /// Compares records with the first of them.
    ///
    /// # Errors
    /// If a price fits no record, or a record has two.
    pub fn new(records: &'r [Named], prices: &[PriceTag]) -> Result<Self, PriceError> {
        Self::paired(records, prices, Vec::new())
    }

    /// Compares records whose environments were paired with [`pair`].
    ///
    /// # Errors
    /// As those of [`Comparison::new`].
    pub fn paired(
        records: &'r [Named],
        prices: &[PriceTag],
        pairs: Vec<Pair>,
    ) -> Result<Self, PriceError> {
        let sides: Vec<Side<'r>> = records
            .iter()
            .map(|(name, record, analysis)| Side { name, record, analysis })
            .collect();
        let prices = prices::assign(&sides, prices)?;
        let costs = costs::rows(&sides);
        let figures = economics::rows(&sides, &prices);
        let machines = resources::machines(&sides, &prices);
        let kept = resources::kept(&sides, &machines);
        let (differing, equal): (Vec<Fact>, Vec<Fact>) =
            conditions::facts(&sides).into_iter().partition(Fact::differs);
        let warnings = conditions::warnings(&sides, &prices, &costs, &pairs);
        let only_in_some = conditions::only_in_some(&sides);
        Ok(Self {
            sides,
            prices,
            warnings,
            costs,
            figures,
            machines,
            kept,
            differing,
            equal,
            only_in_some,
            pairs,
        })
    }

    /// Whether the cost of an environment differs from that in the first record, beyond the noise
    /// of both A/A controls. `only_rise`: only a cost that is larger than in the first counts.
    pub fn has_claimed_difference(&self, only_rise: bool) -> bool {
        let rows = self.costs.iter().filter(|row| !row.control);
        let differences = rows.flat_map(|row| row.differences_to_first.iter().flatten());
        differences
            .filter(|difference| difference.claimed())
            .any(|difference| !only_rise || difference.cost.percent.value > 0.0)
    }

    /// Host, machine and prices of one record in a few words.
    pub(crate) fn place(&self, index: usize) -> String {
        let Side { record, .. } = self.sides[index];
        let plan = &record.cpu_plan;
        let mut words = vec![format!("study {}", record.study.name)];
        words.extend(host_name(record).map(|name| format!("host {name}")));
        words.push(format!("{} of {} CPUs for the system", plan.system.len(), plan.all.len()));
        if let Some(price) = self.prices.get(index).and_then(Option::as_ref) {
            words.push(price.to_string());
        }
        words.push(utc(record.header.started_unix_ms));
        words.join(", ")
    }
}

/// The name of a record's host, if the record has it.
pub(crate) fn host_name(record: &Record) -> Option<&str> {
    let fact = record.host.iter().find(|f| f.section == "kernel" && f.key == "host name");
    fact.map(|fact| fact.value.as_str())
}

/// `A` to `Z`, then `27` and on.
pub(crate) fn letter(index: usize) -> String {
    match u8::try_from(index) {
        Ok(small @ 0..26) => char::from(b'A' + small).to_string(),
        _ => (index + 1).to_string(),
    }
}

/// The comparison as JSON. Schema: `docs/reference/record-json.md`.
pub fn json(comparison: &Comparison<'_>) -> String {
    #[derive(Serialize)]
    struct Described<'r> {
        letter: String,
        name: &'r str,
        host: Option<&'r str>,
        study: &'r str,
        baseline: &'r str,
        started_unix_ms: u64,
        blocks: u32,
        system_cpus: usize,
        price_per_hour: Option<f64>,
        currency: Option<&'r str>,
        headline: String,
    }
    let records: Vec<Described<'_>> = comparison
        .sides
        .iter()
        .enumerate()
        .map(|(index, side)| {
            let price = comparison.prices[index].as_ref();
            Described {
                letter: letter(index),
                name: side.name,
                host: host_name(side.record),
                study: &side.record.study.name,
                baseline: &side.record.study.baseline,
                started_unix_ms: side.record.header.started_unix_ms,
                blocks: side.analysis.rounds,
                system_cpus: side.record.cpu_plan.system.len(),
                price_per_hour: price.map(Price::per_hour),
                currency: price.map(|price| price.currency.as_str()),
                headline: headline(side.record, side.analysis),
            }
        })
        .collect();
    let only: Vec<_> = comparison
        .only_in_some
        .iter()
        .map(|(environment, has)| json!({ "environment": environment, "has": has }))
        .collect();
    let document = json!({
        "schema": "tare-comparison",
        "schema_version": SCHEMA_VERSION,
        "records": records,
        "warnings": comparison.warnings,
        "summary": sentences(comparison),
        "costs": comparison.costs,
        "figures": comparison.figures,
        "machines": comparison.machines,
        "kept_by_layers": comparison.kept,
        "differing_facts": comparison.differing,
        "equal_facts": comparison.equal,
        "only_in_some": only,
        "pairs": comparison.pairs,
        "method": METHOD,
    });
    format!("{document:#}")
}
