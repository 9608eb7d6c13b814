//! Flight arguments: the options of the flight recorder.
//!
//! Owns: `--keep` and `--on-hang`, and what they cannot be combined with. Because: `record` and `live` both take
//! them. Does not: record.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::Args;
use deepctx_capture::ProbeFeature;
use deepctx_capture::config::HangFactor;

use super::capture_args::CaptureArgs;
use super::duration;
use super::failure::Failure;

/// Bounds of `--keep`: shorter windows end before anyone asks for them; longer ones are recordings.
const KEEP: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// What a flight recorder keeps, and when it writes that by itself.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct FlightArgs {
    /// Flight recorder: keep the last TIME (1s to 1h) in memory. Write it as a profile on SIGUSR1, on a hang
    /// (`--on-hang`), on `w` in the live view, and when `record` ends. Each write makes a new profile (run.dctx,
    /// run-2.dctx, …), and the capture continues.
    #[arg(long, value_name = "TIME", env = "DEEPCTX_KEEP", value_parser = keep)]
    pub keep: Option<Duration>,
    /// With `--keep` and `--probe ranges`: write the kept data when no training step has ended for this many times the
    /// usual step time (`5x`), and for at least one second.
    #[arg(long, value_name = "FACTOR", env = "DEEPCTX_ON_HANG", requires = "keep")]
    pub on_hang: Option<HangFactor>,
}

impl FlightArgs {
    /// Fails if hangs cannot be detected.
    ///
    /// # Errors
    /// Training steps are not recorded.
    pub(crate) fn check(self, capture: &CaptureArgs) -> Result<(), Failure> {
        if self.on_hang.is_some() && !capture.names(ProbeFeature::Ranges) {
            return Err(Failure::new("`--on-hang` watches training steps, which need `--probe ranges`"));
        }
        Ok(())
    }
}

fn keep(text: &str) -> Result<Duration, String> {
    let keep = duration::parse(text)?;
    KEEP.contains(&keep).then_some(keep).ok_or_else(|| format!("expected 1s to 1h, found '{text}'"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::options::{Cli, Command};
    use super::*;

    fn parsed(arguments: &str) -> Result<FlightArgs, String> {
        let arguments = format!("deepctx-bpf record {arguments}");
        let cli = Cli::try_parse_from(arguments.split_whitespace()).map_err(|error| error.to_string())?;
        let Some(Command::Record(record)) = cli.command else { return Err("another command".into()) };
        record.flight.check(&record.capture).map_err(|failure| failure.to_string())?;
        Ok(record.flight)
    }

    #[test]
    fn what_is_kept_has_bounds_and_a_hang_needs_steps() {
        assert_eq!(parsed("--keep 60s").unwrap().keep, Some(Duration::from_secs(60)));
        let watched = parsed("--keep 1m --on-hang 5x --probe ranges").unwrap();
        assert_eq!(watched.on_hang.map(HangFactor::times), Some(5.0));
        for (arguments, expect) in [
            ("--keep 0s", "expected 1s to 1h, found '0s'"),
            ("--keep 2h", "expected 1s to 1h, found '2h'"),
            ("--keep soon", "expected a duration like 30s"),
            ("--keep 60s --on-hang 5x", "need `--probe ranges`"),
            ("--keep 60s --probe ranges --on-hang 1x", "from 1.5x to 1000x"),
            ("--on-hang 5x --probe ranges", "--keep"),
        ] {
            let error = parsed(arguments).unwrap_err();
            assert!(error.contains(expect), "{arguments}: {error}");
        }
    }
}
