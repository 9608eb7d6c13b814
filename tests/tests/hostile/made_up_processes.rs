//! A forged `/proc`: processes with file contents that no kernel writes, and links to anywhere.
//!
//! Owns: the folder, made of slightly changed real files, and the process that sees it instead of the kernel's.
//! Because: programs control names, mappings, environments and command lines in files that several parts of the
//! profiler read. Does not: forge memory: `hostile_memory` does.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use deepctx_capture::{Targets, find_job, find_processes};
use deepctx_symbolizer::maps::{self, LineFilter};
use deepctx_symbolizer::python::locate_process;
use deepctx_symbolizer::{accountable_user, start_ticks};
use deepctx_tests::numbers::Numbers;
use deepctx_uprobes::{Kernel, Layers, Planner};

use super::cli_support::can_capture;

/// Set in the process that sees the forged folder: where real files were saved.
const SEEDS: &str = "TEST_MADE_UP_PROC";
/// Number of forged folders.
const ROUNDS: u64 = 400;
/// Processes in each.
const PIDS: [u32; 3] = [2, 4711, 4_194_304];
/// Names beside them that are not process ids, or barely.
const NAMES: [&str; 6] = ["self", "-1", "4711 ", "99999999999999999999", "0", "4294967295"];
const FILES: [&str; 10] =
    ["maps", "status", "stat", "statm", "comm", "cmdline", "environ", "cgroup", "uid_map", "task/4711/stat"];
/// Input that is difficult to parse.
const PIECES: [&str; 12] = [
    "18446744073709551615",
    "-1",
    "0",
    "ffffffffffffffff-0 r-xp",
    ") R ) (",
    "\\012",
    " (deleted)",
    "libcuda.so.1",
    "WORLD_SIZE=0\0RANK=-1\0",
    "\0",
    "\u{202e}",
    "\n",
];

/// Mutates bytes: changes, truncates, removes, inserts or repeats them.
fn changed(numbers: &mut Numbers, seed: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..numbers.below(5) {
        let at = numbers.below(bytes.len());
        match numbers.below(5) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << numbers.below(8),
            1 => bytes.truncate(at),
            2 => {
                bytes.splice(at..at, numbers.of(&PIECES).bytes());
            }
            3 => {
                let end = (at + numbers.below(200)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                let part = bytes[at..(at + numbers.below(300)).min(bytes.len())].to_vec();
                bytes.extend(part);
            }
        }
    }
    bytes
}

/// Creates the folder of one process; some files are missing, are folders, or are cyclic links.
fn process(folder: &Path, seeds: &BTreeMap<String, Vec<u8>>, numbers: &mut Numbers) {
    for name in ["ns", "task/4711", "map_files"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    for name in FILES {
        let path = folder.join(name);
        match numbers.below(24) {
            0 => {}
            1 => fs::create_dir(&path).unwrap(),
            2 => symlink(&path, &path).unwrap(),
            _ => fs::write(&path, changed(numbers, &seeds[name])).unwrap(),
        }
    }
    for name in ["exe", "root", "cwd", "ns/user", "ns/mnt", "ns/pid"] {
        let ways = ["/", "/bin/sh", "user:[4026531837]", "mnt:[99999999999999999999]", "", "/dev/full/x"];
        let way = ways[numbers.below(ways.len())];
        if !way.is_empty() {
            symlink(way, folder.join(name)).unwrap();
        }
    }
    fs::write(folder.join("mem"), changed(numbers, b"\x7fELF\x02\x01\x01")).unwrap();
}

/// Makes all queries that precede a capture. Only panics and endless loops count.
fn asked(pid: u32) -> usize {
    let found = [
        start_ticks(pid).is_some(),
        accountable_user(pid).is_some(),
        maps::has_user_space(pid),
        find_job(pid).is_ok(),
        find_processes(&[Targets::Pids(vec![pid])], true).is_ok(),
    ];
    let mut planner = Planner::new(Vec::new(), Layers::Lowest, Kernel { version: (6, 12) });
    let planned = planner.add_process(pid).is_ok();
    let mapped = [LineFilter::Executable, LineFilter::All].map(|filter| maps::read(pid, filter));
    let interpreter = mapped[1].as_ref().is_ok_and(|maps| locate_process(pid, &maps.mappings).is_ok());
    let is_sorted = |maps: &maps::Maps| maps.mappings.windows(2).all(|pair| pair[0].end <= pair[1].begin);
    assert!(mapped.iter().flatten().all(is_sorted));
    found.into_iter().chain([planned, interpreter]).filter(|found| *found).count()
}

/// Runs in the process that sees the forged folder.
fn all_rounds(seeds: &Path) {
    let seeds: BTreeMap<String, Vec<u8>> =
        FILES.map(|name| (name.to_owned(), fs::read(seeds.join(name.replace('/', "-"))).unwrap())).into();
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    let mut answers = 0;
    for _ in 0..ROUNDS {
        let folders: Vec<PathBuf> = PIDS.iter().map(|pid| Path::new("/proc").join(pid.to_string())).collect();
        for folder in &folders {
            process(folder, &seeds, &mut numbers);
        }
        for name in NAMES {
            let _ = fs::create_dir(Path::new("/proc").join(name));
        }
        answers += PIDS.into_iter().map(asked).sum::<usize>();
        for targets in [Targets::All, Targets::Comm("sh".into()), Targets::Container("abcdef".into())] {
            let _ = find_processes(&[targets], true);
        }
        folders.iter().for_each(|folder| fs::remove_dir_all(folder).unwrap());
    }
    // Most files are nearly valid: if none is understood, nothing was tested.
    println!("{answers} answers in {ROUNDS} rounds");
    assert!(answers > 3 * ROUNDS as usize, "{answers}");
}

#[test]
fn processes_that_no_kernel_describes_are_survived() {
    if let Some(seeds) = std::env::var_os(SEEDS) {
        return all_rounds(Path::new(&seeds));
    }
    if !can_capture() {
        return;
    }
    let seeds = tempfile::tempdir().unwrap();
    for name in FILES {
        let real = fs::read(Path::new("/proc/self").join(name.replace("task/4711", "task/self")));
        // For a single-threaded process, the thread's file equals the process's.
        let real = real.or_else(|_| fs::read("/proc/self/stat")).unwrap();
        fs::write(seeds.path().join(name.replace('/', "-")), real).unwrap();
    }
    let script = "mount -t tmpfs made-up /proc && exec \"$0\" --exact \"$1\" --nocapture";
    let mut apart = Command::new("unshare");
    apart.args(["--mount", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
    apart.arg("made_up_processes::processes_that_no_kernel_describes_are_survived");
    let output = apart.env(SEEDS, seeds.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("answers in"),
        "{said}{}",
        super::cli_support::stderr(&output)
    );
    println!("{said}");
}
