//! How full the profiler's kernel tables are.
//!
//! Owns: reading their entries, and how much fuller the worst of them became. Because: a table that fills up slowly
//! refuses entries after days only. Does not: read maps itself; that takes libbpf, which this program must not need.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::super::figure::median;
use crate::sh;

/// Shares of the capacity in use, by table.
pub(super) type Fill = BTreeMap<String, f64>;

/// The program that counts entries.
pub(super) struct TableReader(PathBuf);

impl TableReader {
    /// Builds it.
    pub(super) fn built() -> Result<Self> {
        let program = ["-p", "deepctx-tests", "--example", "table_fill"];
        sh::run(sh::command("cargo").args(["build", "--locked", "--quiet"]).args(program))?;
        Ok(Self(sh::target_dir().join("debug/examples/table_fill")))
    }

    /// The tables of the process with this pid.
    pub(super) fn read(&self, pid: u32) -> Result<Fill> {
        parse(&sh::output(Command::new(&self.0).arg(pid.to_string()))?)
    }
}

fn parse(said: &str) -> Result<Fill> {
    let mut fill = Fill::new();
    for line in said.lines() {
        let mut words = line.split_whitespace();
        let mut next = || words.next().with_context(|| format!("not a table: {line}"));
        let (name, entries, capacity) =
            (next()?.to_owned(), next()?.parse::<f64>()?, next()?.parse::<f64>()?);
        fill.insert(name, entries / capacity.max(1.0));
    }
    Ok(fill)
}

/// The table whose share rose most from one part of a run to the next (medians), and by how much.
pub(super) fn most_growth(before: &[&Fill], after: &[&Fill]) -> (String, f64) {
    let middle = |part: &[&Fill], name: &str| {
        let shares: Vec<f64> = part.iter().filter_map(|fill| fill.get(name).copied()).collect();
        if shares.is_empty() { 0.0 } else { median(&shares) }
    };
    let names = after.iter().flat_map(|fill| fill.keys());
    let rises = names.map(|name| (name.clone(), middle(after, name) - middle(before, name)));
    rises.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_fills_up_is_named() {
        let at = |targets: u32| parse(&format!("PROCESSES 20 8192\nTARGETS {targets} 8192")).unwrap();
        let readings = [at(10), at(12), at(1000), at(2060)];
        let (first, last): (Vec<&Fill>, Vec<&Fill>) =
            (readings[..2].iter().collect(), readings[2..].iter().collect());
        let (name, rise) = most_growth(&first, &last);
        assert_eq!(name, "TARGETS");
        assert!((rise - 1519.0 / 8192.0).abs() < 1e-9, "{rise}");
        assert_eq!(most_growth(&first, &first).1, 0.0);
        assert_eq!(most_growth(&[], &[]), (String::new(), 0.0));
    }

    #[test]
    fn a_line_without_a_capacity_is_an_error() {
        assert!(parse("PROCESSES 20").is_err());
        assert!(parse("PROCESSES many 8192").is_err());
    }
}
