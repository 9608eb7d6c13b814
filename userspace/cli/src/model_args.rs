//! Model arguments: which tables of a model `report` prints, and what the device can do at most.
//!
//! Owns: `--table`, `--peak-flops` and `--peak-bandwidth`. Because: users request these tables separately, and they
//! are too wide for the single screen of a report. Does not: compute; `analysis` does.

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use deepctx_analysis::model::{ModelTable, Peaks};

use super::failure::Failure;

/// Which tables of a model, and the limits of the device.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Print these tables of the model instead of the report: layers in order of first appearance, layer types, thirds
    /// of the layers, kernels by layer and by name, totals (see docs/model.md).
    #[arg(long, value_name = "LIST", env = "DEEPCTX_REPORT_TABLE", value_delimiter = ',')]
    pub table: Vec<Tables>,
    /// Peak operations per second of the device (`19.5T`), for the roofline (default: from the data sheet, if known).
    #[arg(long, value_name = "RATE", env = "DEEPCTX_PEAK_FLOPS", requires = "peak_bandwidth", value_parser = rate)]
    pub peak_flops: Option<f64>,
    /// Peak memory bandwidth of the device in bytes per second (`1555G`).
    #[arg(long, value_name = "RATE", env = "DEEPCTX_PEAK_BANDWIDTH", requires = "peak_flops", value_parser = rate)]
    pub peak_bandwidth: Option<f64>,
}

/// Tables of the model by a value of `--table`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// All of them.
    All,
    /// One.
    One(ModelTable),
}

impl Tables {
    const VALUES: [Tables; ModelTable::ALL.len() + 1] = {
        let mut values = [Tables::All; ModelTable::ALL.len() + 1];
        let mut at = 0;
        while at < ModelTable::ALL.len() {
            values[at + 1] = Tables::One(ModelTable::ALL[at]);
            at += 1;
        }
        values
    };
}

impl ValueEnum for Tables {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::VALUES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Tables::All => PossibleValue::new("all").help("All of them"),
            Tables::One(table) => PossibleValue::new(table.name()).help(table.subject()),
        })
    }
}

impl ModelArgs {
    /// The requested tables; may be empty.
    pub(crate) fn tables(&self) -> Vec<ModelTable> {
        let table = |tables: &Tables| match tables {
            Tables::All => None,
            Tables::One(table) => Some(*table),
        };
        let named: Option<Vec<ModelTable>> = self.table.iter().map(table).collect();
        named.unwrap_or_else(|| ModelTable::ALL.to_vec())
    }

    /// The peaks that the user specified.
    ///
    /// # Errors
    /// A rate is not above zero.
    pub(crate) fn peaks(&self) -> Result<Option<Peaks>, Failure> {
        let Some((flops, bytes)) = self.peak_flops.zip(self.peak_bandwidth) else { return Ok(None) };
        let peaks = Peaks::new(flops, bytes, "given by --peak-flops and --peak-bandwidth");
        peaks
            .map(Some)
            .ok_or_else(|| Failure::new("--peak-flops, --peak-bandwidth: expected rates above zero"))
    }
}

/// Parses a number with a suffix for a power of a thousand: `19.5T`.
fn rate(text: &str) -> Result<f64, String> {
    let powers = [('K', 1e3), ('M', 1e6), ('G', 1e9), ('T', 1e12), ('P', 1e15)];
    let (number, power) = match powers.iter().find(|(letter, _)| text.to_ascii_uppercase().ends_with(*letter))
    {
        Some((_, power)) => (&text[..text.len() - 1], *power),
        None => (text, 1.0),
    };
    let rate = number.trim().parse::<f64>().ok().map(|number| number * power);
    rate.filter(|rate| rate.is_finite() && *rate > 0.0).ok_or_else(|| {
        format!("expected a number above zero per second, as in 19.5T or 1555G, found '{text}'")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_a_letter_for_powers_of_a_thousand() {
        for (text, expect) in [("19.5T", Some(19.5e12)), ("1555g", Some(1555e9)), ("2e12", Some(2e12))] {
            assert_eq!(rate(text).ok(), expect, "{text}");
        }
        for text in ["", "T", "-1G", "0", "inf", "12X", "ü"] {
            assert!(rate(text).unwrap_err().contains("19.5T"), "{text}");
        }
    }

    #[test]
    fn all_stands_for_every_table() {
        let args =
            |table: &[Tables]| ModelArgs { table: table.to_vec(), peak_flops: None, peak_bandwidth: None };
        assert_eq!(args(&[]).tables(), []);
        assert_eq!(args(&[Tables::One(ModelTable::Layers)]).tables(), [ModelTable::Layers]);
        assert_eq!(args(&[Tables::One(ModelTable::Layers), Tables::All]).tables(), ModelTable::ALL);
    }
}
