//! The catalogue against the vendors' own libraries, where a folder with them is named by `DEEPCTX_VENDOR_LIBRARIES`.
//!
//! They are under licenses of their own, so the repository has none; `cargo xtask test` fetches those that registries
//! have.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use deepctx_events::Family;
use deepctx_uprobes::locate::instruction::ProbeCost;
use deepctx_uprobes::{Contents, Kernel, Layers, Library, Name, NoProbe, Planner, Version, rows};

/// Every file below a folder, links to files left out.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found
}

/// The folder; `None` where none is named, which must not be so in CI.
fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("DEEPCTX_VENDOR_LIBRARIES");
    if folder.is_none() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "the vendors' libraries are not named");
        println!("skipped: DEEPCTX_VENDOR_LIBRARIES names no folder with the vendors' libraries");
    }
    folder.map(PathBuf::from)
}

#[test]
fn statically_linked_nvidia_runtime_is_found_by_its_symbols() {
    let Some(folder) = folder() else { return };
    let built = tempfile::tempdir().unwrap();
    let source = built.path().join("main.c");
    fs::write(
        &source,
        "int cudaMalloc(void **, unsigned long); int main(void) { void *p; return cudaMalloc(&p, 1); }",
    )
    .unwrap();
    let archives: Vec<_> =
        files(&folder).into_iter().filter(|path| path.ends_with("libcudart_static.a")).collect();
    assert!(!archives.is_empty(), "no archive of the runtime");
    for archive in archives {
        let program = built.path().join("program");
        let mut compiler = Command::new("cc");
        compiler.arg("-o").arg(&program).arg(&source).arg(&archive).args(["-ldl", "-lpthread", "-lrt"]);
        assert!(compiler.status().unwrap().success(), "{}", archive.display());
        let mut planner = Planner::new(Vec::new(), Layers::Lowest, Kernel { version: (6, 12) });
        planner.add_libraries(vec![Library::of_file(&program).unwrap()]);
        let [planned] = planner.planned() else { panic!("{}: no probes", archive.display()) };
        assert_eq!(planned.contents, Contents::RuntimeInside);
        for symbol in
            ["__cudaRegisterFatBinary", "__cudaRegisterFunction", "__cudaGetKernel", "cudaGetFuncBySymbol"]
        {
            let site = planned.sites.iter().find(|site| site.symbol == symbol);
            let cost = site.unwrap_or_else(|| panic!("{}: no {symbol}", archive.display())).point.cost;
            assert!(matches!(cost, ProbeCost::Emulated(_)), "{symbol}");
        }
    }
}

#[test]
fn every_row_is_found_in_vendor_libraries_or_explained() {
    let Some(folder) = folder() else { return };
    let mut planner = Planner::new(Vec::new(), Layers::All, Kernel { version: (6, 12) });
    for path in files(&folder) {
        planner.add_libraries(vec![Library::of_file(&path).unwrap()]);
    }
    for planned in planner.planned() {
        let path = planned.library.mapping.path().display();
        let family = match planned.contents {
            Contents::Library(family) => family,
            Contents::RuntimeInside => Family::CudaRuntime,
            Contents::User | Contents::Collector => Family::User,
        };
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut costs: BTreeMap<String, usize> = BTreeMap::new();
        for missing in &planned.missing {
            *reasons.entry(missing.because.to_string()).or_default() += 1;
        }
        for site in &planned.sites {
            *costs.entry(site.point.to_string()).or_default() += 1;
        }
        let names: usize = rows().iter().filter(|row| row.family == family).map(|row| row.names.len()).sum();
        let aliases: usize = planned.sites.iter().map(|site| site.aliases.len()).sum();
        let stepped =
            planned.sites.iter().filter(|site| matches!(site.point.cost, ProbeCost::Stepped(_))).count();
        println!(
            "{path}: {} sites, {aliases} aliases, {stepped} stepped {costs:?}, missing {reasons:?}",
            planned.sites.len()
        );
        assert_eq!(planned.sites.len() + aliases + planned.missing.len(), names, "{path}");
        // The very bytes of the file are what was decided upon.
        let bytes = fs::read(planned.library.mapping.path()).unwrap();
        for site in planned.sites.iter().filter(|site| matches!(site.point.cost, ProbeCost::Emulated(_))) {
            let at = usize::try_from(site.offset.0).unwrap();
            let emulated = matches!(
                bytes[at..at + 2],
                [0x50..=0x57 | 0x90 | 0xe8 | 0xe9 | 0xeb | 0x70..=0x7f, _] | [0x41, 0x50..=0x57] | [0x66, 0x90] | [0x0f, 0x80..=0x8f]
            );
            assert!(emulated, "{path}: {} at {at:#x}: {:02x?}", site.symbol, &bytes[at..at + 4]);
        }
    }
    assert!(!planner.planned().is_empty(), "no library in the folder");
}

/// NVIDIA's libraries that are fetched, by the end of their path, and the version of CUDA that each is of.
const OF_NVIDIA: [(&str, Version); 11] = [
    ("libcuda.so.535.", Version(12, 2)),
    ("libcuda.so.550.", Version(12, 4)),
    ("libcudart.so.11.8.", Version(11, 8)),
    ("libcudart.so.12.4.", Version(12, 4)),
    ("12.9.79/nvidia/cuda_runtime/lib/libcudart.so.12", Version(12, 9)),
    ("13.5.37/nvidia/cu13/lib/libcudart.so.13", Version(13, 5)),
    ("libcupti.so.2022.3.", Version(11, 8)),
    ("libcupti.so.2024.1.", Version(12, 4)),
    ("12.9.79/nvidia/cuda_cupti/lib/libcupti.so.12", Version(12, 9)),
    ("13.0.85/nvidia/cu13/lib/libcupti.so.13", Version(13, 0)),
    ("13.5.25/nvidia/cu13/lib/libcupti.so.13", Version(13, 5)),
];

#[test]
fn functions_missing_in_nvidia_libraries_are_newer_or_differ() {
    let Some(folder) = folder() else { return };
    let files = files(&folder);
    for (name, version) in OF_NVIDIA {
        let of_name = |path: &&PathBuf| path.to_string_lossy().contains(name);
        let path = files.iter().find(of_name).unwrap_or_else(|| panic!("no {name}"));
        let mut planner = Planner::new(Vec::new(), Layers::All, Kernel { version: (6, 12) });
        planner.add_libraries(vec![Library::of_file(path).unwrap()]);
        let [planned] = planner.planned() else { panic!("{name}: no probes") };
        assert!(planned.sites.len() >= 8, "{name}: {}", planned.sites.len());
        for missing in &planned.missing {
            let name_of = |name: &&Name| *name.symbol == *missing.symbol;
            let since = missing.row.names.iter().find(name_of).and_then(|name| name.since);
            let is_so = match missing.because {
                // By what it has, a library is not newer than it is.
                NoProbe::NewerThanLibrary { library } => library <= version && since > Some(version),
                NoProbe::OtherMajor => true,
                _ => false,
            };
            assert!(is_so, "{name}: {} is missing: {}", missing.symbol, missing.because);
        }
    }
}
