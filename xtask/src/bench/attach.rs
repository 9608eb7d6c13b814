//! Time from the start of `record` to the first complete stack of a running process.
//!
//! Owns: the figure `attach`. Because: unwind tables of millions of rows are built or loaded in that time, while a user
//! waits. Does not: measure the time itself; the profiler reports it with `-v`, by the clock of the records.

use super::Options;
use super::figure::{Figure, Target, in_seconds};
use super::profiler::Profilers;
use crate::workloads::{self, Workload};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::time::{Duration, Instant};

/// The profiler's message before the number of seconds.
const SAYS: &str = "first complete stack after ";
/// Root's cache of unwind tables. After it is emptied, the next run takes longer.
const CACHE: &str = "/var/cache/deepctx-bpf";
/// Longer attach times count as failures.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Attaches to a fresh process once; returns seconds to the first complete stack.
fn once(profilers: &Profilers, workload: Maker, options: &Options) -> Result<f64> {
    let running = workload()?.start()?;
    let mut attached = profilers.attach_verbose(running.pid(), options.freq)?;
    let begin = Instant::now();
    loop {
        attached.alive()?;
        let said = std::fs::read_to_string(profilers.file("profiler.err")).unwrap_or_default();
        if let Some(seconds) = seconds_in(&said) {
            return Ok(seconds);
        }
        if begin.elapsed() > TIMEOUT {
            bail!("the profiler did not say `{SAYS}…` within {TIMEOUT:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The number after [`SAYS`], in seconds; it has a unit (`s` or `ms`).
fn seconds_in(said: &str) -> Option<f64> {
    let mut words = said.split_once(SAYS)?.1.split_whitespace();
    let (number, unit) = (words.next()?, words.next()?);
    in_seconds(&format!("{number}{}", unit.trim_end_matches(|c: char| !c.is_alphanumeric())))
}

/// Builds a workload.
type Maker = fn() -> Result<Workload>;

pub(super) fn run(profilers: &Profilers, options: &Options) -> Result<()> {
    let programs: [(&str, Maker); 2] = [("torch", workloads::torch), ("numpy", workloads::mixed)];
    let cache = Path::new(CACHE);
    for (name, workload) in programs {
        for (state, bound) in [("cold", 1.0), ("warm", 0.2)] {
            let mut runs = Vec::new();
            for _ in 0..options.runs {
                if state == "cold" && cache.exists() {
                    std::fs::remove_dir_all(cache).context("cannot empty the cache of unwind tables")?;
                }
                runs.push(once(profilers, workload, options)?);
            }
            Figure::new("attach", format!("{name} loaded, {state} cache"), "s", runs)
                .target(Target::AtMost(bound))
                .note("frequency_hz", options.freq)
                .print();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_read_with_its_unit() {
        let check = |said: &str, expect: Option<f64>| assert_eq!(seconds_in(said), expect, "{said}");
        check("attached\nfirst complete stack after 0.25 s\n", Some(0.25));
        check("first complete stack after 250 ms, of pid 7\n", Some(0.25));
        check("first complete stack after soon\n", None);
        check("nothing yet\n", None);
    }
}
