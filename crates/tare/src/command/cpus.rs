//! `tare cpus`: converts sets of CPUs, and calculates with them.

use std::io::Write;

use anyhow::{Context, anyhow};
use serde_json::json;
use tare_std::cpus::CpuSet;

use crate::cli::{CpuForm, Cpus};
use crate::exit::{Exit, ExitWith};

pub(crate) fn run(options: &Cpus, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let set = calculate(&options.sets, options.mask).exit_with(Exit::Usage)?;
    if options.json {
        let forms = json!({
            "list": set.to_string(),
            "mask": set.to_mask(),
            "kernel": set.to_kernel_mask(),
            "count": set.len(),
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&forms)?)?;
        return Ok(Exit::Success);
    }
    let text = match options.to {
        CpuForm::List => set.to_string(),
        CpuForm::Mask => set.to_mask(),
        CpuForm::Kernel => set.to_kernel_mask(),
        CpuForm::Count => set.len().to_string(),
    };
    writeln!(out, "{text}")?;
    Ok(Exit::Success)
}

/// Evaluates `SET [OPERATOR SET]...` from left to right.
fn calculate(words: &[String], masks: bool) -> anyhow::Result<CpuSet> {
    let parse = |text: &String| -> anyhow::Result<CpuSet> {
        let set = if masks { CpuSet::parse_mask(text) } else { text.parse() };
        set.map_err(|error| match CpuSet::parse_mask(text) {
            // `00000000,000e3862` is not a list: lists have no leading zeros.
            Ok(_) if !masks => anyhow!("{error}; if it is a mask, pass --mask"),
            _ => anyhow!(error),
        })
    };
    let (first, rest) = words.split_first().context("no set of CPUs; write SET OPERATOR SET")?;
    let mut set = parse(first)?;
    for pair in rest.chunks(2) {
        let [operator, operand] = pair else {
            return Err(anyhow!("no set after {:?}; write SET OPERATOR SET", pair[0]));
        };
        let operand = || parse(operand);
        set = match operator.as_str() {
            "plus" => set.union(&operand()?),
            "minus" => set.difference(&operand()?),
            "and" => set.intersection(&operand()?),
            "xor" => {
                let operand = operand()?;
                set.union(&operand).difference(&set.intersection(&operand))
            }
            _ => {
                return Err(anyhow!(
                    "{operator:?} is not plus, minus, and or xor; \
                     write SET OPERATOR SET"
                ));
            }
        };
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let words: Vec<String> = text.split(' ').map(str::to_string).collect();
        assert_eq!(calculate(&words, false).unwrap().to_string(), expect, "{text}");
    }

    #[test]
    fn sets_are_calculated_from_left_to_right() {
        check("0-31 minus 0,16", "1-15,17-31");
        check("0xffffffff minus 0x00010001", "1-15,17-31");
        check("0-3 plus 8 and 2-9", "2-3,8");
        check("0-3 xor 2-5", "0-1,4-5");
        check("0 minus 0", "");
    }

    #[test]
    fn bad_expressions_are_refused() {
        let error = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_string).collect();
            calculate(&words, false).unwrap_err().to_string()
        };
        assert!(error("0-3 minus").contains("no set after \"minus\""));
        assert!(error("0-3 without 1").contains("plus, minus, and or xor"));
        assert!(error("000e3862").contains("if it is a mask, pass --mask"));
        assert!(error("1,15-17-31").contains("1-15,17-31"));
    }
}
