//! A Rust program that loads the driver at run time, by `cudarc`.
//!
//! Owns: its build, and the part `rust`. Because: Rust programs use the device without CUDA's runtime and without
//! Python, through pointers that they look up themselves. Does not: know how programs are recorded.

use super::compare;
use super::row::Row;
use super::stage::Stage;
use crate::sh;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

const PART: &str = "rust";
/// File name.
pub(super) const PROGRAM: &str = "deepctx-gpu-cudarc";
/// Manifest of its separate workspace.
const MANIFEST: &str = "tests/workloads/cudarc/Cargo.toml";
/// Launches of each kernel by each of its threads.
const LAUNCHES: &str = "200";
/// Expected kernel durations in nanoseconds, by the device's clock.
const KERNELS: [(&str, f64); 2] = [("spin_20us", 20_000.0), ("spin_100us", 100_000.0)];
/// Minimum ratio of a kernel's time: the clock has steps of up to a microsecond.
const SHORTER: f64 = 0.9;
/// Maximum ratio of the mean: kernels have overhead and may share the device.
const LONGER: f64 = 2.0;

/// Own counts = probes = CUPTI, and times match the kernels' names.
pub(super) fn run(stage: &Stage) -> Result<Vec<Row>> {
    let program = stage.beside_product(PROGRAM);
    let program = if program.is_file() { program } else { built()? };
    let mut rows = Vec::new();
    for (tier, words) in [("T0", &[][..]), ("T2", &["--gpu-activity"])] {
        let name = format!("rust-{tier}");
        let run = stage.record_program(&name, words, &[program.clone().into()], true, &[LAUNCHES])?;
        let named = |row: Row| Row { what: format!("cudarc {tier}: {}", row.what), ..row };
        let timed = tier == "T2";
        rows.extend(compare::counts(PART, &run.account, &run.reported, timed).into_iter().map(named));
        if timed {
            rows.extend(compare::both_sides(PART, &run.reported).into_iter().map(named));
            for (kernel, takes) in KERNELS {
                let reported = run.reported.kernels.get(kernel).copied().unwrap_or_default();
                rows.push(named(took(kernel, takes, reported.ns as f64 / reported.timed.max(1) as f64)));
            }
        }
    }
    Ok(rows)
}

/// Whether a kernel's mean time is as expected.
fn took(kernel: &str, takes: f64, mean: f64) -> Row {
    let holds = (takes * SHORTER..takes * LONGER).contains(&mean);
    Row::holds(PART, format!("{kernel}: mean time"), format!("{takes:.0} ns"), format!("{mean:.0} ns"), holds)
}

/// Builds it in a separate folder: its dependencies are not needed elsewhere.
pub(super) fn built() -> Result<PathBuf> {
    let folder = sh::target_dir().join("workloads/cudarc");
    let mut cargo: Command = sh::command("cargo");
    cargo.args(["build", "--locked", "--quiet", "--manifest-path"]).arg(sh::root().join(MANIFEST));
    sh::run(cargo.env("CARGO_TARGET_DIR", &folder))?;
    Ok(Path::new(&folder).join("debug").join(PROGRAM))
}

#[cfg(test)]
mod tests {
    use super::super::row::Verdict;
    use super::*;

    #[test]
    fn a_kernel_takes_as_long_as_its_name_says() {
        let check =
            |mean: f64, expect: Verdict| assert_eq!(took("k", 20_000.0, mean).verdict, expect, "{mean}");
        check(20_100.0, Verdict::Ok);
        check(19_000.0, Verdict::Ok);
        check(5_000.0, Verdict::Failed);
        check(60_000.0, Verdict::Failed);
        check(0.0, Verdict::Failed);
    }
}
