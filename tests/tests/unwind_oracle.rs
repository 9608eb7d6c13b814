//! Unwind rows against `readelf`, for the installed libraries; see `deepctx_tests::unwind_oracle`.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use deepctx_symbolizer::unwind_rows::NoTable;
use deepctx_tests::unwind_oracle::{NotCompared, Report, aarch64_files, compare, default_files};

/// Prints what is missing; on CI, where everything is installed, that is a failure.
fn skipped(reason: &str) {
    assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "cannot run: {reason}");
    println!("skipped: {reason}");
}

fn has_readelf() -> bool {
    let found = std::process::Command::new("readelf").arg("--version").output().is_ok();
    if !found {
        skipped("needs readelf of binutils");
    }
    found
}

fn check(file: &Path) -> Report {
    let report = compare(file).unwrap_or_else(|reason| panic!("{reason}"));
    println!("{report}");
    assert_eq!(report.mismatches, 0, "{report}");
    assert!(report.rows > 0, "{report}");
    // GCC's runtime installs the registers of catching frames.
    let is_runtime = file.to_string_lossy().contains("libgcc_s");
    assert!(report.replaced == 0 || is_runtime, "{report}");
    let unsupported: u64 = report.unsupported.values().sum();
    assert_eq!(report.supported + unsupported, report.rows, "{report}");
    report
}

#[test]
fn every_row_of_the_installed_libraries_is_what_readelf_prints() {
    if !has_readelf() {
        return;
    }
    let files = default_files();
    let has = |name: &str| files.iter().any(|file| file.to_string_lossy().contains(name));
    assert!(has("libc.so"), "{files:?}");
    for name in ["libstdc++.so", "libpython"] {
        if !has(name) {
            skipped(&format!("no {name} found"));
        }
    }
    for file in &files {
        check(file);
    }
}

#[test]
fn aarch64_library_unwind_rows_match_readelf() {
    if !has_readelf() {
        return;
    }
    let files = aarch64_files();
    if !files.iter().any(|file| file.ends_with("libc.so.6")) {
        return skipped("needs the C library of aarch64 (libc6-arm64-cross)");
    }
    for file in &files {
        match compare(file) {
            Ok(report) => {
                println!("{report}");
                assert_eq!(report.mismatches, 0, "{report}");
                let unsupported: u64 = report.unsupported.values().sum();
                assert!(unsupported * 1000 <= report.rows, "{report}");
            }
            // Some files exist only for their names.
            Err(NotCompared::NoTable(_, NoTable::NoFrames)) => {}
            Err(reason) => panic!("{reason}"),
        }
    }
}

#[test]
fn every_row_of_the_vdso_is_what_readelf_prints() {
    if !has_readelf() {
        return;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(line) = maps.lines().find(|line| line.ends_with("[vdso]")) else {
        return skipped("this kernel maps no vdso");
    };
    let (begin, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
    let [begin, end] = [begin, end].map(|text| u64::from_str_radix(text, 16).unwrap());
    let mut bytes = vec![0; (end - begin) as usize];
    let mut memory = std::fs::File::open("/proc/self/mem").unwrap();
    memory.seek(SeekFrom::Start(begin)).unwrap();
    memory.read_exact(&mut bytes).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    check(file.path());
}

#[test]
fn a_file_without_a_table_is_no_comparison() {
    let reason = compare(Path::new("/proc/self/maps")).unwrap_err();
    assert!(matches!(reason, NotCompared::NoTable(..)), "{reason}");
}
