//! The simulated libraries as seen by probes: every row of the catalogue, each with code of its own.
//!
//! Their crate and the collector's tests cover the behavior of the libraries; these tests cover symbols, versions and
//! first instructions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use deepctx_events::Family;
use deepctx_uprobes::locate::instruction::ProbeCost;
use deepctx_uprobes::{Kernel, Layers, Library, Name, Planner, Row, rows};

/// Output folder of `cargo xtask sim`; `None` with a printed reason if it was not run.
fn simulated() -> Option<PathBuf> {
    let folder = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().with_file_name("sim");
    if folder.join("hip/libamdhip64.so.6").exists() {
        return Some(folder);
    }
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "the simulated libraries are not built");
    println!("skipped: the simulated libraries are not built (cargo xtask sim)");
    None
}

/// The functions of a row that this version of a library has.
fn due<'r>(row: &'r Row, file: &str) -> impl Iterator<Item = &'r str> {
    let twelve = file.ends_with(".12");
    let is_due = move |name: &&Name| match name.major {
        Some(major) => major == if twelve { 12 } else { 13 },
        // CUPTI 12.9 accepts only one subscriber.
        None => !(twelve && row.family == Family::Cupti && name.symbol.ends_with("_v2")),
    };
    row.names.iter().filter(is_due).map(|name| &*name.symbol)
}

fn check(file: &str, family: Family) {
    let Some(folder) = simulated() else { return };
    let mut planner = Planner::new(Vec::new(), Layers::All, Kernel { version: (6, 12) });
    planner.add_libraries(vec![Library::of_file(&folder.join(file)).unwrap()]);
    let [planned] = planner.planned() else { panic!("{file} is not a library of the catalogue") };
    let missing: Vec<&str> = planned
        .missing
        .iter()
        .filter(|missing| due(&missing.row, file).any(|symbol| symbol == missing.symbol))
        .map(|missing| missing.symbol.as_str())
        // The row may belong to another version.
        .filter(|symbol| planned.sites.iter().all(|site| site.symbol != **symbol))
        .collect();
    assert!(missing.is_empty(), "{file} has not {missing:?}");
    let due: usize = rows().iter().filter(|row| row.family == family).map(|row| due(row, file).count()).sum();
    assert_eq!(planned.sites.len(), due, "{file}");
    let shared: Vec<_> = planned.sites.iter().filter(|site| !site.aliases.is_empty()).collect();
    assert!(shared.is_empty(), "{file}: one code for several functions: {shared:?}");
    let stepped =
        planned.sites.iter().filter(|site| matches!(site.point.cost, ProbeCost::Stepped(_))).count();
    println!("{file}: {due} functions, {stepped} of them stepped");
}

#[test]
fn the_driver_has_every_function_of_the_catalogue() {
    check("cuda13/libcuda.so.1", Family::CudaDriver);
}

#[test]
fn the_runtimes_have_the_functions_of_their_versions() {
    check("cuda13/libcudart.so.13", Family::CudaRuntime);
    check("cuda12/libcudart.so.12", Family::CudaRuntime);
}

#[test]
fn cupti_has_the_functions_of_its_version() {
    check("cuda13/libcupti.so.13", Family::Cupti);
    check("cuda12/libcupti.so.12", Family::Cupti);
}

#[test]
fn amds_runtime_has_every_function_of_the_catalogue() {
    check("hip/libamdhip64.so.6", Family::Hip);
}

#[test]
fn the_collectives_have_every_function_of_the_catalogue() {
    check("cuda13/libnccl.so.2", Family::Nccl);
}
