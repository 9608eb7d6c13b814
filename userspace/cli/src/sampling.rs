//! Sampling: options for sampling the instructions of kernels.
//!
//! Owns: `--pc-sampling` and its mode, and the variables that pass them to a command. Because: the collector within
//! the command takes the samples. Does not: find the collector.

use std::ffi::OsString;

use clap::Args;
use deepctx_capture::config::{SamplingMode, SamplingPeriod};
use deepctx_common::samples::{MODE_VARIABLE, PERIOD_VARIABLE, PERIODS, SERIALIZED};

/// How instructions are sampled.
#[derive(Clone, Debug, Args)]
pub(crate) struct SamplingArgs {
    /// Sample the stall reasons of kernel instructions (NVIDIA), every 2^PERIOD cycles (5 to 31; default: chosen by
    /// CUPTI). A command loads the collector, as with `--gpu-activity`; a process that has loaded it already takes the
    /// period from its own environment. Needs permission to read GPU counters (see `doctor`).
    #[arg(long, value_name = "PERIOD", env = "DEEPCTX_PC_SAMPLING", num_args = 0..=1, default_missing_value = "auto", value_parser = period)]
    pub pc_sampling: Option<SamplingPeriod>,
    /// Run kernels as launched, or one at a time. As launched, samples of a kernel with several launch sites cannot be
    /// separated.
    #[arg(
        long,
        value_name = "MODE",
        env = "DEEPCTX_PC_SAMPLING_MODE",
        default_value = "continuous",
        requires = "pc_sampling"
    )]
    pub pc_sampling_mode: SamplingMode,
}

impl SamplingArgs {
    /// The variables for a command.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let Some(period) = self.pc_sampling else { return Vec::new() };
        let mut variables = vec![(MODE_VARIABLE, self.mode().into())];
        // Overrides the setting of an outer profiler.
        variables.push((PERIOD_VARIABLE, period.to_string().into()));
        variables
    }

    fn mode(&self) -> &'static str {
        match self.pc_sampling_mode {
            SamplingMode::Continuous => "continuous",
            SamplingMode::Serialized => SERIALIZED,
        }
    }
}

fn period(text: &str) -> Result<SamplingPeriod, String> {
    if text == "auto" {
        return Ok(SamplingPeriod::Auto);
    }
    let number = text.parse().ok().filter(|number| PERIODS.contains(number));
    number.map(SamplingPeriod::Log2Cycles).ok_or_else(|| {
        format!("expected {} to {}, a period of 2^PERIOD cycles, or auto", PERIODS.start(), PERIODS.end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_one_that_cupti_takes() {
        for (text, expect) in [
            ("auto", Some(SamplingPeriod::Auto)),
            ("5", Some(SamplingPeriod::Log2Cycles(5))),
            ("31", Some(SamplingPeriod::Log2Cycles(31))),
            ("4", None),
            ("32", None),
            ("", None),
        ] {
            assert_eq!(period(text).ok(), expect, "{text}");
        }
    }

    #[test]
    fn a_mode_without_sampling_is_refused() {
        use clap::Parser as _;

        let parsed = |words: &[&str]| {
            crate::options::Cli::try_parse_from([&["deepctx-bpf", "record"][..], words].concat())
        };
        let mode = ["--pc-sampling-mode", "serialized"];
        assert!(parsed(&mode).unwrap_err().to_string().contains("required arguments"));
        assert!(parsed(&[&["--pc-sampling"], &mode[..]].concat()).is_ok());
        assert!(parsed(&[]).is_ok());
    }

    #[test]
    fn command_gets_only_requested_variables() {
        let none = SamplingArgs { pc_sampling: None, pc_sampling_mode: SamplingMode::Serialized };
        assert!(none.variables().is_empty());
        let some = SamplingArgs { pc_sampling: Some(SamplingPeriod::Log2Cycles(12)), ..none };
        assert_eq!(
            some.variables(),
            [
                ("DEEPCTX_PC_SAMPLING_MODE", "serialized".into()),
                ("DEEPCTX_PC_SAMPLING", OsString::from("12"))
            ]
        );
    }
}
