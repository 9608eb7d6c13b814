//! Names of code in live processes.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use deepctx_symbolizer::Owner;
use deepctx_symbolizer::maps::Backing;
use deepctx_symbolizer::native::{DebugInfo, SymbolResult};
use deepctx_symbolizer::{Avma, CodeLocation, Lookup, NoSymbol, Symbolizer};

use crate::program::{Program, RunningProgram, bare, has, is_root, left_out, oracle, run, shown};

fn fresh() -> Symbolizer {
    Symbolizer::new(DebugInfo::default())
}

/// The name that a symbolizer gives `work::outer` that has seen nothing before.
fn name_of_outer(running: &RunningProgram) -> SymbolResult {
    let mut symbolizer = fresh();
    symbolizer.refresh(running.pid(), 1).unwrap();
    let place = symbolizer.locate(running.pid(), 1, running.outer, Lookup::Exact);
    symbolizer.name(place)
}

#[test]
fn every_instruction_has_the_functions_and_lines_that_addr2line_gives() {
    let Some(program) = Program::compile(&["-g"]) else { return };
    let running = program.start();
    let mut symbolizer = fresh();
    symbolizer.refresh(running.pid(), 1).unwrap();
    let mut deepest = 0;
    // Not main: for functions inlined from system headers this addr2line gives the caller's name twice.
    for function in ["work::outer(long)", "work::spin(long)"] {
        let (begin, size) = program.function(function);
        let addresses: Vec<u64> = (begin..begin + size).collect();
        let bias = running.outer.0 - program.function("work::outer(long)").0;
        for (address, expected) in addresses.iter().zip(oracle(program.text(), &addresses)) {
            let place = symbolizer.locate(running.pid(), 1, Avma(address + bias), Lookup::Exact);
            let frames = shown(&symbolizer.name(place));
            assert_eq!(frames, expected, "{address:#x} in {function}");
            deepest = deepest.max(frames.len());
            // The byte behind a call is looked up inside the call.
            let place_after = symbolizer.locate(running.pid(), 1, Avma(address + bias + 1), Lookup::Return);
            assert_eq!(place_after, place);
        }
    }
    assert_eq!(deepest, 5, "the calls inlined into work::outer were not seen");
}

#[test]
fn a_program_without_position_independence_is_named_too() {
    let Some(program) = Program::compile(&["-no-pie"]) else { return };
    let running = program.start();
    let mut symbolizer = fresh();
    symbolizer.refresh(running.pid(), 1).unwrap();
    let place = symbolizer.locate(running.pid(), 1, running.outer, Lookup::Exact);
    assert_eq!(shown(&symbolizer.name(place)), ["work::outer ??:0"]);
}

#[test]
fn a_program_without_symbols_has_the_file_and_the_offset() {
    let Some(program) = Program::compile(&["-s"]) else { return };
    let running = program.start();
    let mut symbolizer = fresh();
    symbolizer.refresh(running.pid(), 1).unwrap();
    let place = symbolizer.locate(running.pid(), 1, running.outer, Lookup::Exact);
    let reason = symbolizer.name(place).unwrap_err();
    assert!(matches!(reason, NoSymbol::NotCovered | NoSymbol::NoSymbolTable), "{reason:?}");
    let CodeLocation::Native { address, .. } = place else { panic!("{place:?}") };
    assert_eq!(symbolizer.label(place, reason), format!("work+{:#x}", address.0));
}

#[test]
fn separate_debug_file_is_used_only_with_a_matching_checksum() {
    let Some(program) = Program::compile(&["-g", "-Wl,--build-id=none"]) else { return };
    let debug = program.folder.path().join(".debug");
    std::fs::create_dir(&debug).unwrap();
    let debug = debug.join("work.debug");
    run("objcopy", &["--only-keep-debug", program.text(), debug.to_str().unwrap()]);
    run("objcopy", &["--strip-all", &format!("--add-gnu-debuglink={}", debug.display()), program.text()]);
    let running = program.start();
    let name = || name_of_outer(&running);
    let frames = shown(&name());
    assert!(frames.last().unwrap().starts_with("work::outer work.cc:"), "{frames:?}");
    std::fs::OpenOptions::new().append(true).open(&debug).unwrap().write_all(b"x").unwrap();
    assert!(name().is_err());
    // A FIFO in its place must not be waited for.
    std::fs::remove_file(&debug).unwrap();
    run("mkfifo", &[debug.to_str().unwrap()]);
    assert!(name().is_err());
}

#[test]
fn a_linked_debug_file_is_recognized_by_its_build() {
    let build = |id: &str| Program::compile(&["-g", &format!("-Wl,--build-id=0x{}", id.repeat(20))]);
    let (Some(program), Some(other)) = (build("ab"), build("cd")) else { return };
    let beside = program.folder.path().join(".debug");
    let debug = split(&program, true, &beside, "work.debug");
    run("objcopy", &["--strip-all", &format!("--add-gnu-debuglink={}", debug.display()), program.text()]);
    // Another checksum: that of a large file is not computed either.
    std::fs::OpenOptions::new().append(true).open(&debug).unwrap().write_all(b"x").unwrap();
    let running = program.start();
    let name = || name_of_outer(&running);
    let frames = shown(&name());
    assert!(frames.last().unwrap().starts_with("work::outer work.cc:"), "{frames:?}");
    split(&other, true, &beside, "work.debug");
    assert_eq!(name(), Err(NoSymbol::NoSymbolTable));
}

/// Splits what is not code off into a file of its own, without debug information, or with it.
fn split(program: &Program, with_debug: bool, folder: &Path, name: &str) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    let debug = folder.join(name);
    if !with_debug {
        run("objcopy", &["--strip-debug", program.text()]);
    }
    run("objcopy", &["--only-keep-debug", program.text(), debug.to_str().unwrap()]);
    let sections = run("readelf", &["-SW", debug.to_str().unwrap()]);
    assert_eq!((sections.contains(".debug_info"), sections.contains(".symtab")), (with_debug, true));
    debug
}

#[test]
fn symbols_in_a_separate_file_name_stripped_code() {
    let check = |by_id: bool, with_debug: bool, bytes_max: u64, expect: &str| {
        let Some(program) = Program::compile(&["-g", "-Wl,--build-id=sha1"]) else { return };
        let folders = vec![program.folder.path().join("debug")];
        let mut strip = vec!["--strip-all".to_owned(), program.text().to_owned()];
        if by_id {
            let notes = run("readelf", &["-n", program.text()]);
            let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap();
            split(
                &program,
                with_debug,
                &folders[0].join(".build-id").join(&id[..2]),
                &format!("{}.debug", &id[2..]),
            );
        } else {
            let debug = split(&program, with_debug, &program.folder.path().join(".debug"), "work.debug");
            strip.push(format!("--add-gnu-debuglink={}", debug.display()));
        }
        run("objcopy", &strip.iter().map(String::as_str).collect::<Vec<_>>());
        let running = program.start();
        let mut symbolizer = Symbolizer::new(DebugInfo { bytes_max, folders, servers: None });
        symbolizer.refresh(running.pid(), 1).unwrap();
        let place = symbolizer.locate(running.pid(), 1, running.outer, Lookup::Exact);
        let found = symbolizer.name(place);
        let found = found.as_ref().map(|frames| bare(&frames[0].name)).map_err(|reason| reason.key());
        assert_eq!(found.unwrap_or_else(|key| key), expect, "{by_id} {with_debug} {bytes_max}");
    };
    for by_id in [true, false] {
        check(by_id, false, 512 << 20, "work::outer");
        // More debug information than is read.
        check(by_id, true, 1, "work::outer");
        check(by_id, true, 0, NoSymbol::NoSymbolTable.key());
    }
}

#[test]
fn a_debug_file_of_another_build_names_nothing() {
    let build = |id: String| Program::compile(&["-g", &format!("-Wl,--build-id=0x{id}")]);
    let (Some(program), Some(other)) = (build("ab".repeat(20)), build("cd".repeat(20))) else { return };
    let debug = program.folder.path().join("debug");
    // The other's file is where this program's should be.
    split(&other, true, &debug.join(".build-id/ab"), &format!("{}.debug", "ab".repeat(19)));
    run("strip", &[program.text()]);
    let running = program.start();
    let mut symbolizer = Symbolizer::new(DebugInfo { folders: vec![debug], ..DebugInfo::default() });
    symbolizer.refresh(running.pid(), 1).unwrap();
    let place = symbolizer.locate(running.pid(), 1, running.outer, Lookup::Exact);
    assert_eq!(symbolizer.name(place), Err(NoSymbol::NoSymbolTable));
}

#[test]
fn names_outlive_the_process_and_its_file() {
    let Some(program) = Program::compile(&["-g"]) else { return };
    let running = program.start();
    let (pid, outer) = (running.pid(), running.outer);
    let mut symbolizer = fresh();
    symbolizer.refresh(pid, 1).unwrap();
    drop(running);
    drop(program);
    symbolizer.exit(pid, 5);
    let place = symbolizer.locate(pid, 4, outer, Lookup::Exact);
    assert!(shown(&symbolizer.name(place)).last().unwrap().starts_with("work::outer work.cc:"));
    assert_eq!(symbolizer.locate(pid, 6, outer, Lookup::Exact), CodeLocation::Unknown(NoSymbol::ProcessGone));
    assert_eq!(symbolizer.refresh(pid, 7).unwrap_err().reason, NoSymbol::ProcessGone);
}

#[test]
fn a_deleted_file_is_read_through_the_kernel() {
    let Some(program) = Program::compile(&["-g"]).filter(|_| is_root()) else { return };
    let running = program.start();
    std::fs::remove_file(&program.path).unwrap();
    std::fs::write(&program.path, "something else").unwrap();
    let mut symbolizer = fresh();
    symbolizer.refresh(running.pid(), 1).unwrap();
    let place = symbolizer.locate(running.pid(), 1, running.outer, Lookup::Exact);
    assert!(shown(&symbolizer.name(place)).last().unwrap().starts_with("work::outer work.cc:"));
}

#[test]
fn a_program_that_never_had_a_file_is_named() {
    let Some(program) = Program::compile(&["-g"]).filter(|_| is_root()) else { return };
    let memory = rustix::fs::memfd_create("nameless", rustix::fs::MemfdFlags::empty()).unwrap();
    let mut memory = std::fs::File::from(memory);
    memory.write_all(&std::fs::read(&program.path).unwrap()).unwrap();
    // What is open for writing cannot be run.
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let readable = std::fs::File::open(&path).unwrap();
    rustix::io::fcntl_setfd(&readable, rustix::io::FdFlags::empty()).unwrap();
    drop(memory);
    let path = format!("/proc/self/fd/{}", readable.as_raw_fd());
    let running = RunningProgram::start(&mut Command::new(&path));
    let mut symbolizer = fresh();
    symbolizer.refresh(running.pid(), 1).unwrap();
    let place = symbolizer.locate(running.pid(), 1, running.outer, Lookup::Exact);
    assert!(shown(&symbolizer.name(place)).last().unwrap().starts_with("work::outer work.cc:"));
}

#[test]
fn files_of_a_process_are_read_in_its_mount_namespace() {
    let Some(program) = Program::compile(&["-g"]).filter(|_| is_root()) else { return };
    let hidden = program.folder.path().join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    let script =
        format!("mount -t tmpfs none {0} && cp {1} {0}/ && exec {0}/work", hidden.display(), program.text());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "sh", "-c", &script]);
    let running = RunningProgram::start(&mut command);
    let mut symbolizer = fresh();
    symbolizer.refresh(running.pid(), 1).unwrap();
    let place = symbolizer.locate(running.pid(), 1, running.outer, Lookup::Exact);
    assert!(shown(&symbolizer.name(place)).last().unwrap().starts_with("work::outer work.cc:"));
    assert!(!hidden.join("work").exists());
}

#[test]
fn two_names_of_one_file_are_one_module() {
    let Some(program) = Program::compile(&["-g"]) else { return };
    let copy = program.folder.path().join("copy");
    std::fs::copy(&program.path, &copy).unwrap();
    let (one, two) = (program.start(), RunningProgram::start(&mut Command::new(&copy)));
    let mut symbolizer = fresh();
    symbolizer.refresh(one.pid(), 1).unwrap();
    symbolizer.refresh(two.pid(), 1).unwrap();
    let place = |symbolizer: &mut Symbolizer, r: &RunningProgram| {
        symbolizer.locate(r.pid(), 1, r.outer, Lookup::Exact)
    };
    assert_eq!(place(&mut symbolizer, &one), place(&mut symbolizer, &two));
}

#[test]
fn the_vdso_is_a_module_like_any_other() {
    let mut symbolizer = fresh();
    let found = symbolizer.refresh(std::process::id(), 1).unwrap();
    let (mapping, owner) = found.mappings.iter().find(|(m, _)| m.backing == Backing::Vdso).unwrap();
    let Owner::Module { module, .. } = owner else { panic!("{owner:?}") };
    assert_eq!(&**symbolizer.modules().get(*module).unwrap().name(), "[vdso]");
    let names: Vec<String> = (mapping.begin.0..mapping.end.0)
        .filter_map(|address| {
            let place = symbolizer.locate(std::process::id(), 1, Avma(address), Lookup::Exact);
            symbolizer.name(place).ok().map(|frames| frames[0].name.to_string())
        })
        .collect();
    assert!(names.iter().any(|name| name.contains("clock_gettime")), "{names:?}");
}

#[test]
fn generated_code_is_named_by_the_map_of_its_runtime() {
    let pid = std::process::id();
    let code = memmap2::MmapMut::map_anon(8192).unwrap().make_exec().unwrap();
    let begin = code.as_ptr() as u64;
    let mut symbolizer = fresh();
    symbolizer.refresh(pid, 1).unwrap();
    let nowhere = symbolizer.locate(pid, 1, Avma(begin), Lookup::Exact);
    assert_eq!(nowhere, CodeLocation::Unknown(NoSymbol::JitWithoutMap));
    let map = format!("/tmp/perf-{pid}.map");
    std::fs::write(&map, format!("{begin:x} 40 py::generated:<string>\n")).unwrap();
    let place = symbolizer.locate(pid, 1_000_000_000, Avma(begin + 0x40), Lookup::Return);
    let named = symbolizer.name(place);
    std::fs::remove_file(&map).unwrap();
    assert_eq!(&*named.unwrap()[0].name, "py::generated:<string>");
    let behind = symbolizer.locate(pid, 1_000_000_001, Avma(begin + 0x40), Lookup::Exact);
    assert_eq!(behind, CodeLocation::Unknown(NoSymbol::JitNotCovered));
    drop(code);
}

#[test]
fn jitdump_found_among_the_mappings_names_generated_code() {
    let pid = std::process::id();
    let code = memmap2::MmapMut::map_anon(4096).unwrap().make_exec().unwrap();
    let begin = code.as_ptr() as u64;
    let folder = tempfile::tempdir().unwrap();
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let halves = |halves: &[u32]| halves.iter().flat_map(|half| half.to_ne_bytes()).collect::<Vec<u8>>();
    let name = b"wasm-function[7]\0";
    let dump = [
        halves(&[0x4A69_5444, 1, 40, 62, 0, pid]),
        words(&[0, 0]),
        halves(&[0, 16 + 40 + u32::try_from(name.len()).unwrap() + 64]),
        words(&[5_000]),
        halves(&[pid, pid]),
        words(&[begin, begin, 64, 7]),
        name.to_vec(),
        vec![0xcc; 64],
    ];
    let path = folder.path().join(format!("jit-{pid}.dump"));
    std::fs::write(&path, dump.concat()).unwrap();
    // SAFETY: nobody shortens the file, and its bytes are not read through the mapping.
    let mark = unsafe { memmap2::Mmap::map(&std::fs::File::open(&path).unwrap()) }.unwrap();
    let mut symbolizer = fresh();
    symbolizer.refresh(pid, 1).unwrap();
    let place = symbolizer.locate(pid, 10_000, Avma(begin + 63), Lookup::Exact);
    assert_eq!(&*symbolizer.name(place).unwrap()[0].name, "wasm-function[7]");
    assert_eq!(symbolizer.counters().jit.malformed, 0);
    drop((mark, code));
}

#[test]
fn jit_map_is_found_by_the_pid_inside_the_namespace() {
    if !has("python3") || !is_root() {
        left_out("python3 or root");
        return;
    }
    let runtime = "import ctypes, mmap, os, sys\n\
        code = mmap.mmap(-1, 4096, prot=7)\n\
        begin = ctypes.addressof(ctypes.c_char.from_buffer(code))\n\
        open(f'/tmp/perf-{os.getpid()}.map', 'w').write(f'{begin:x} 1000 made in a container\\n')\n\
        print(hex(begin), flush=True)\n\
        sys.stdin.read()";
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs none /tmp && exec python3 -c \"$0\"";
    // The checkout may lie below /tmp, which is covered up.
    command.current_dir("/").args([
        "--mount",
        "--propagation=private",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        script,
        runtime,
    ]);
    let running = RunningProgram::start(&mut command);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", running.pid())).unwrap();
    let pid: u32 = children.trim().parse().unwrap();
    let mut symbolizer = fresh();
    symbolizer.refresh(pid, 1).unwrap();
    let place = symbolizer.locate(pid, 1, running.outer, Lookup::Exact);
    assert_eq!(&*symbolizer.name(place).unwrap()[0].name, "made in a container");
}
