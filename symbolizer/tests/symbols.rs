//! Names of real code in real processes, against what `addr2line` and the sources say; and files made to hurt.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up should fail where that happens")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use deepctx_symbolizer::maps::{Backing, Mapping};
use deepctx_symbolizer::native::{DebugInfo, Modules, Named, Native};
use deepctx_symbolizer::space::Owner;
use deepctx_symbolizer::{Avma, FileOffset, Lookup, NoSymbol, Place, Svma, Symbolizer, elf};
use tempfile::TempDir;

const SOURCE: &str = r#"#include <cstdio>
namespace work {
volatile long sink;
__attribute__((noinline)) void spin(long n) {
    for (long i = 0; i < n; i++)
        sink = sink + i;
}
template <int N> struct Deep {
    __attribute__((always_inline)) static inline void run(long n) {
        sink = sink + N;
        Deep<N - 1>::run(n);
        sink = sink - N;
    }
};
template <> struct Deep<0> {
    __attribute__((always_inline)) static inline void run(long n) {
        spin(n);
        sink = sink + 7;
    }
};
__attribute__((noinline)) void outer(long n) {
    Deep<3>::run(n);
    sink = sink + 2;
}
}
int main() {
    work::outer(10);
    std::printf("%p\n", (void *)&work::outer);
    std::fflush(stdout);
    return std::getchar();
}
"#;

/// True when a test must be left out for want of something; a build server must have everything.
fn left_out(missing: &str) -> bool {
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{missing} is missing");
    eprintln!("left out: {missing} is missing");
    true
}

fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool).args(arguments).output().unwrap();
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A compiled program in a folder of its own.
struct Program {
    folder: TempDir,
    path: PathBuf,
}

impl Program {
    fn compile(options: &[&str]) -> Option<Self> {
        if !has("g++") || !has("addr2line") {
            left_out("g++ or binutils");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (source, path) = (folder.path().join("work.cc"), folder.path().join("work"));
        std::fs::write(&source, SOURCE).unwrap();
        run("g++", &[options, &["-O2", "-o", path.to_str().unwrap(), source.to_str().unwrap()]].concat());
        Some(Self { folder, path })
    }

    fn text(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// First address and size of a function, as the file states them.
    fn function(&self, name: &str) -> (u64, u64) {
        let table = run("nm", &["-CS", self.text()]);
        let line = table.lines().find(|line| line.ends_with(name)).unwrap();
        let mut fields = line.split(' ').map(|field| u64::from_str_radix(field, 16).unwrap_or(0));
        (fields.next().unwrap(), fields.next().unwrap())
    }

    fn start(&self) -> Running {
        Running::start(&mut Command::new(&self.path))
    }
}

/// A process that waits for its standard input.
struct Running {
    child: Child,
    /// What it says is the address of `work::outer`.
    outer: Avma,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let outer = Avma(u64::from_str_radix(line.trim().trim_start_matches("0x"), 16).unwrap());
        Self { child, outer }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn fresh() -> Symbolizer {
    Symbolizer::new(DebugInfo::default())
}

/// Frames as text, the innermost first, as `addr2line -i` has them.
fn shown(named: &Named) -> Vec<String> {
    let frames = named.as_ref().unwrap();
    assert!(!frames[0].inlined && frames[1..].iter().all(|frame| frame.inlined));
    let line = |frame: &deepctx_symbolizer::native::Frame| {
        let file = frame.file.as_deref().map_or("??", |file| file.rsplit('/').next().unwrap());
        format!("{} {file}:{}", bare(&frame.name), frame.line)
    };
    frames.iter().rev().map(line).collect()
}

/// A name without its parameters.
fn bare(name: &str) -> &str {
    name.split('(').next().unwrap()
}

/// What `addr2line` says of addresses of a file.
fn oracle(path: &str, addresses: &[u64]) -> Vec<Vec<String>> {
    let texts: Vec<String> = addresses.iter().map(|a| format!("{a:#x}")).collect();
    let arguments: Vec<&str> =
        ["-a", "-f", "-i", "-C", "-e", path].into_iter().chain(texts.iter().map(|t| &**t)).collect();
    let mut answers: Vec<Vec<String>> = Vec::new();
    let output = run("addr2line", &arguments);
    let mut lines = output.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            answers.push(Vec::new());
            continue;
        }
        let place =
            lines.next().unwrap().split(" (discriminator").next().unwrap().rsplit('/').next().unwrap();
        answers.last_mut().unwrap().push(format!(
            "{} {}",
            bare(line),
            place.replace('?', "0").replace("00:0", "??:0")
        ));
    }
    answers
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
            let place = symbolizer.place(running.pid(), 1, Avma(address + bias), Lookup::Exact);
            let frames = shown(&symbolizer.name(place));
            assert_eq!(frames, expected, "{address:#x} in {function}");
            deepest = deepest.max(frames.len());
            // The byte behind a call is looked up inside the call.
            let place_after = symbolizer.place(running.pid(), 1, Avma(address + bias + 1), Lookup::Return);
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
    let place = symbolizer.place(running.pid(), 1, running.outer, Lookup::Exact);
    assert_eq!(shown(&symbolizer.name(place)), ["work::outer ??:0"]);
}

#[test]
fn a_program_without_symbols_has_the_file_and_the_offset() {
    let Some(program) = Program::compile(&["-s"]) else { return };
    let running = program.start();
    let mut symbolizer = fresh();
    symbolizer.refresh(running.pid(), 1).unwrap();
    let place = symbolizer.place(running.pid(), 1, running.outer, Lookup::Exact);
    let reason = symbolizer.name(place).unwrap_err();
    assert!(matches!(reason, NoSymbol::NotCovered | NoSymbol::NoSymbolTable), "{reason:?}");
    let Place::Native { address, .. } = place else { panic!("{place:?}") };
    assert_eq!(symbolizer.label(place, reason), format!("work+{:#x}", address.0));
}

#[test]
fn a_separate_debug_file_is_believed_only_with_the_right_checksum() {
    let Some(program) = Program::compile(&["-g", "-Wl,--build-id=none"]) else { return };
    let debug = program.folder.path().join(".debug");
    std::fs::create_dir(&debug).unwrap();
    let debug = debug.join("work.debug");
    run("objcopy", &["--only-keep-debug", program.text(), debug.to_str().unwrap()]);
    run("objcopy", &["--strip-all", &format!("--add-gnu-debuglink={}", debug.display()), program.text()]);
    let running = program.start();
    let name = || {
        let mut symbolizer = fresh();
        symbolizer.refresh(running.pid(), 1).unwrap();
        let place = symbolizer.place(running.pid(), 1, running.outer, Lookup::Exact);
        symbolizer.name(place)
    };
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
fn names_outlive_the_process_and_its_file() {
    let Some(program) = Program::compile(&["-g"]) else { return };
    let running = program.start();
    let (pid, outer) = (running.pid(), running.outer);
    let mut symbolizer = fresh();
    symbolizer.refresh(pid, 1).unwrap();
    drop(running);
    drop(program);
    symbolizer.exit(pid, 5);
    let place = symbolizer.place(pid, 4, outer, Lookup::Exact);
    assert!(shown(&symbolizer.name(place)).last().unwrap().starts_with("work::outer work.cc:"));
    assert_eq!(symbolizer.place(pid, 6, outer, Lookup::Exact), Place::Nowhere(NoSymbol::ProcessGone));
    assert_eq!(symbolizer.refresh(pid, 7), Err(NoSymbol::ProcessGone));
}

/// Reading `/proc/PID/map_files` needs root.
fn is_root() -> bool {
    std::fs::read_link("/proc/1/exe").is_ok() || !left_out("root")
}

#[test]
fn a_deleted_file_is_read_through_the_kernel() {
    let Some(program) = Program::compile(&["-g"]).filter(|_| is_root()) else { return };
    let running = program.start();
    std::fs::remove_file(&program.path).unwrap();
    std::fs::write(&program.path, "something else").unwrap();
    let mut symbolizer = fresh();
    symbolizer.refresh(running.pid(), 1).unwrap();
    let place = symbolizer.place(running.pid(), 1, running.outer, Lookup::Exact);
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
    let running = Running::start(&mut Command::new(&path));
    let mut symbolizer = fresh();
    symbolizer.refresh(running.pid(), 1).unwrap();
    let place = symbolizer.place(running.pid(), 1, running.outer, Lookup::Exact);
    assert!(shown(&symbolizer.name(place)).last().unwrap().starts_with("work::outer work.cc:"));
}

#[test]
fn a_program_in_other_namespaces_is_read_where_it_sees_its_files() {
    let Some(program) = Program::compile(&["-g"]).filter(|_| is_root()) else { return };
    let hidden = program.folder.path().join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    let script =
        format!("mount -t tmpfs none {0} && cp {1} {0}/ && exec {0}/work", hidden.display(), program.text());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "sh", "-c", &script]);
    let running = Running::start(&mut command);
    let mut symbolizer = fresh();
    symbolizer.refresh(running.pid(), 1).unwrap();
    let place = symbolizer.place(running.pid(), 1, running.outer, Lookup::Exact);
    assert!(shown(&symbolizer.name(place)).last().unwrap().starts_with("work::outer work.cc:"));
    assert!(!hidden.join("work").exists());
}

#[test]
fn two_names_of_one_file_are_one_module() {
    let Some(program) = Program::compile(&["-g"]) else { return };
    let copy = program.folder.path().join("copy");
    std::fs::copy(&program.path, &copy).unwrap();
    let (one, two) = (program.start(), Running::start(&mut Command::new(&copy)));
    let mut symbolizer = fresh();
    symbolizer.refresh(one.pid(), 1).unwrap();
    symbolizer.refresh(two.pid(), 1).unwrap();
    let place =
        |symbolizer: &mut Symbolizer, r: &Running| symbolizer.place(r.pid(), 1, r.outer, Lookup::Exact);
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
            let place = symbolizer.place(std::process::id(), 1, Avma(address), Lookup::Exact);
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
    let nowhere = symbolizer.place(pid, 1, Avma(begin), Lookup::Exact);
    assert_eq!(nowhere, Place::Nowhere(NoSymbol::JitWithoutMap));
    let map = format!("/tmp/perf-{pid}.map");
    std::fs::write(&map, format!("{begin:x} 40 py::generated:<string>\n")).unwrap();
    let place = symbolizer.place(pid, 1_000_000_000, Avma(begin + 0x40), Lookup::Return);
    let named = symbolizer.name(place);
    std::fs::remove_file(&map).unwrap();
    assert_eq!(&*named.unwrap()[0].name, "py::generated:<string>");
    let behind = symbolizer.place(pid, 1_000_000_001, Avma(begin + 0x40), Lookup::Exact);
    assert_eq!(behind, Place::Nowhere(NoSymbol::JitNotCovered));
    drop(code);
}

#[test]
fn generated_code_is_named_by_a_jitdump_found_among_the_mappings() {
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
    let place = symbolizer.place(pid, 10_000, Avma(begin + 63), Lookup::Exact);
    assert_eq!(&*symbolizer.name(place).unwrap()[0].name, "wasm-function[7]");
    assert_eq!(symbolizer.counters().jit.malformed, 0);
    drop((mark, code));
}

#[test]
fn a_process_in_another_pid_namespace_is_found_by_the_pid_that_it_knows() {
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
    command.args([
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
    let running = Running::start(&mut command);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", running.pid())).unwrap();
    let pid: u32 = children.trim().parse().unwrap();
    let mut symbolizer = fresh();
    symbolizer.refresh(pid, 1).unwrap();
    let place = symbolizer.place(pid, 1, running.outer, Lookup::Exact);
    assert_eq!(&*symbolizer.name(place).unwrap()[0].name, "made in a container");
}

/// A mapping of a file that is not really mapped.
fn pretended(path: &Path) -> Mapping {
    Mapping {
        begin: Avma(0x1000),
        end: Avma(0x2000),
        offset: FileOffset(0),
        device: (0, 0),
        inode: 1,
        readable: true,
        writable: false,
        executable: true,
        backing: Backing::File,
        path: path.as_os_str().into(),
    }
}

#[test]
fn what_is_not_an_elf_file_says_what_it_is_and_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    run("mkfifo", &[at("fifo").to_str().unwrap()]);
    std::fs::write(at("empty"), "").unwrap();
    std::fs::write(at("text"), "#!/bin/sh\n".repeat(100)).unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    std::os::unix::fs::symlink(at("loop"), at("loop")).unwrap();
    for (path, expected) in [
        (at("fifo"), NoSymbol::NotRegularFile),
        (at("folder"), NoSymbol::NotRegularFile),
        (PathBuf::from("/dev/zero"), NoSymbol::NotRegularFile),
        (PathBuf::from("/dev/tty"), NoSymbol::NotRegularFile),
        (at("empty"), NoSymbol::NotElf),
        (at("text"), NoSymbol::NotElf),
        (at("missing"), NoSymbol::ModuleMissing),
        (at("loop"), NoSymbol::ModuleUnreadable),
    ] {
        let mut modules = Modules::new();
        assert_eq!(modules.admit(std::process::id(), &pretended(&path)), Err(expected), "{}", path.display());
        assert_eq!(modules.counters().refused, 1);
    }
}

/// Takes a file through everything that is done with files. Only has to come back.
fn survive(native: &mut Native, modules: &mut Modules, path: &Path) {
    if let Ok((module, _)) = modules.admit(std::process::id(), &pretended(path)) {
        let facts = modules.get(module).unwrap().facts();
        let begin = facts.segments.iter().find(|s| s.executable).map_or(0, |s| s.svma.0);
        let addresses: Vec<Svma> = (0..64).map(|i| Svma(begin.wrapping_add(i * 16))).collect();
        assert_eq!(native.symbolize(modules, module, &addresses).len(), addresses.len());
    }
}

#[test]
fn damaged_files_never_end_the_profiler() {
    let Some(program) = Program::compile(&["-g"]) else { return };
    let good = std::fs::read(&program.path).unwrap();
    let path = program.folder.path().join("damaged");
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let section_table = usize::try_from(u64::from_le_bytes(*good[40..].first_chunk().unwrap())).unwrap();
    let (mut native, mut modules) = (Native::new(DebugInfo::default()), Modules::new());
    for round in 0..400 {
        let mut bytes = good.clone();
        match round % 4 {
            0 => bytes.truncate(random(good.len())),
            // Headers of the file, its segments and its sections are where lengths and places are.
            1 => (0..4).for_each(|_| bytes[random(64 + 13 * 56)] = random(256) as u8),
            2 => (0..4)
                .for_each(|_| bytes[section_table + random(good.len() - section_table)] = random(256) as u8),
            _ => (0..64).for_each(|_| bytes[random(good.len())] = random(256) as u8),
        }
        std::fs::write(&path, bytes).unwrap();
        survive(&mut native, &mut modules, &path);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_section_that_claims_to_unpack_to_an_exabyte_is_not_unpacked() {
    let Some(program) = Program::compile(&["-g", "-gz=zlib"]) else { return };
    let mut bytes = std::fs::read(&program.path).unwrap();
    let mut modules = Modules::new();
    let mut native = Native::new(DebugInfo::default());
    let (honest, _) = modules.admit(std::process::id(), &pretended(&program.path)).unwrap();
    let address = Svma(program.function("work::outer(long)").0);
    assert!(
        shown(&native.symbolize(&mut modules, honest, &[address])[0]).last().unwrap().contains("work.cc:")
    );
    // The size in the header of each compressed section: ELFCOMPRESS_ZLIB, reserved 0, then the size.
    let sections = usize::try_from(u64::from_le_bytes(*bytes[40..].first_chunk().unwrap())).unwrap();
    for header in (sections..bytes.len() - 63).step_by(64) {
        if bytes[header + 9] & 8 != 0 {
            let at =
                usize::try_from(u64::from_le_bytes(*bytes[header + 24..].first_chunk().unwrap())).unwrap();
            bytes[at + 8..at + 16].copy_from_slice(&(1_u64 << 60).to_le_bytes());
        }
    }
    let path = program.folder.path().join("claims");
    std::fs::write(&path, bytes).unwrap();
    let (module, _) = modules.admit(std::process::id(), &pretended(&path)).unwrap();
    assert_eq!(native.symbolize(&mut modules, module, &[address]), [Err(NoSymbol::CorruptElf)]);
}

#[test]
fn more_modules_than_are_kept_open_are_named_all_the_same() {
    let Some(program) = Program::compile(&["-g"]) else { return };
    let bytes = std::fs::read(&program.path).unwrap();
    let address = Svma(program.function("work::outer(long)").0);
    let (mut native, mut modules) = (Native::new(DebugInfo::default()), Modules::new());
    let handles: Vec<_> = (0..300)
        .map(|i| {
            // Bytes behind the last table belong to nothing, but make it another file.
            let path = program.folder.path().join(format!("copy-{i}"));
            std::fs::write(&path, [&bytes[..], &vec![0; i]].concat()).unwrap();
            modules.admit(std::process::id(), &pretended(&path)).unwrap().0
        })
        .collect();
    for handle in &handles {
        assert!(
            shown(&native.symbolize(&mut modules, *handle, &[address])[0])
                .last()
                .unwrap()
                .contains("work.cc:")
        );
    }
    assert!(modules.counters().closed > 0 && modules.counters().reopened > 0, "{:?}", modules.counters());
    assert!(native.counters().unloaded > 0, "{:?}", native.counters());
}

#[test]
fn a_file_that_is_shortened_after_it_was_read_does_not_end_the_profiler() {
    let Some(program) = Program::compile(&["-g"]) else { return };
    let (mut native, mut modules) = (Native::new(DebugInfo::default()), Modules::new());
    let (module, _) = modules.admit(std::process::id(), &pretended(&program.path)).unwrap();
    let (begin, size) = program.function("work::spin(long)");
    assert!(native.symbolize(&mut modules, module, &[Svma(begin)])[0].is_ok());
    std::fs::OpenOptions::new().write(true).open(&program.path).unwrap().set_len(4096).unwrap();
    // Which tables are still in memory is the reader's business; that it comes back is ours.
    let later: Vec<Svma> = (begin..begin + size).map(Svma).collect();
    assert_eq!(native.symbolize(&mut modules, module, &later).len(), later.len());
    let Some(other) = Program::compile(&["-g"]) else { return };
    let (module, _) = modules.admit(std::process::id(), &pretended(&other.path)).unwrap();
    assert!(native.symbolize(&mut modules, module, &[Svma(begin)])[0].is_ok());
}

/// An assembly file whose debug information is one function in which `depth` inlined calls nest.
fn nested(folder: &Path, depth: usize) -> PathBuf {
    let source = format!(
        r#"
        .text
        .globl deep
        .type deep, @function
deep:   .file 1 "deep.c"
        .loc 1 1
        nop
        nop
        ret
        .size deep, .-deep
        .section .debug_abbrev,"",@progbits
        .uleb128 1, 0x11
        .byte 1
        .uleb128 0x10, 0x17, 0x11, 1, 0x12, 7, 0, 0
        .uleb128 2, 0x2e
        .byte 1
        .uleb128 3, 8, 0x11, 1, 0x12, 7, 0, 0
        .uleb128 3, 0x1d
        .byte 1
        .uleb128 0x11, 1, 0x12, 7, 0, 0
        .byte 0
        .section .debug_info,"",@progbits
        .long end - start
start:  .value 4
        .long 0
        .byte 8
        .uleb128 1
        .long 0
        .quad deep
        .quad 3
        .uleb128 2
        .asciz "deep"
        .quad deep
        .quad 3
        .rept {depth}
        .uleb128 3
        .quad deep
        .quad 3
        .endr
        .fill {depth} + 2, 1, 0
end:
"#
    );
    let (assembly, library) = (folder.join("deep.s"), folder.join("deep.so"));
    std::fs::write(&assembly, source).unwrap();
    run("gcc", &["-shared", "-nostdlib", "-o", library.to_str().unwrap(), assembly.to_str().unwrap()]);
    library
}

#[test]
fn debug_information_that_nests_without_end_is_not_followed() {
    if !has("gcc") || !is_root() {
        left_out("gcc or root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (depth, followed) in [(3, true), (300_000, false)] {
        let library = nested(folder.path(), depth);
        // Only files of other users are doubted.
        std::os::unix::fs::chown(&library, Some(65_534), None).unwrap();
        let (mut native, mut modules) = (Native::new(DebugInfo::default()), Modules::new());
        let (module, _) = modules.admit(std::process::id(), &pretended(&library)).unwrap();
        let table = run("nm", &[library.to_str().unwrap()]);
        let address = table.lines().find(|line| line.ends_with(" deep")).unwrap().split(' ').next().unwrap();
        let address = Svma(u64::from_str_radix(address, 16).unwrap());
        let named = native.symbolize(&mut modules, module, &[address]);
        let frames = named[0].as_ref().unwrap();
        assert_eq!((&*frames[0].name, frames.len()), ("deep", if followed { 1 + depth } else { 1 }));
        assert_eq!(native.counters().with_debug_info == 1, followed, "{depth}");
    }
}

#[test]
fn the_identity_of_a_file_is_its_build_id_or_its_content() {
    let Some(with) = Program::compile(&["-Wl,--build-id=sha1"]) else { return };
    let Some(without) = Program::compile(&["-Wl,--build-id=none"]) else { return };
    let identity = |path: &Path| {
        let file = elf::open_regular(path).unwrap();
        elf::ElfFacts::read(&file).unwrap().identity(&file).unwrap()
    };
    let notes = run("readelf", &["-n", with.text()]);
    assert!(notes.contains(&format!("Build ID: {}", identity(&with.path))), "{notes}");
    let content = identity(&without.path);
    assert!(matches!(content, elf::ModuleId::Content { .. }));
    let mut bytes = std::fs::read(&without.path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&without.path, bytes).unwrap();
    assert_ne!(identity(&without.path), content);
}

#[test]
fn names_of_a_file_survive_its_replacement() {
    let Some(program) = Program::compile(&["-g"]) else { return };
    let (mut native, mut modules) = (Native::new(DebugInfo::default()), Modules::new());
    let (module, _) = modules.admit(std::process::id(), &pretended(&program.path)).unwrap();
    let (begin, size) = program.function("work::spin(long)");
    let first = native.symbolize(&mut modules, module, &[Svma(begin)]);
    std::fs::remove_file(&program.path).unwrap();
    std::fs::write(&program.path, "another file of this name").unwrap();
    let again = native.symbolize(&mut modules, module, &[Svma(begin), Svma(begin + size - 1)]);
    assert_eq!(again[0], first[0]);
    assert!(shown(&again[1])[0].starts_with("work::spin work.cc:"));
    assert_eq!(modules.admit(std::process::id(), &pretended(&program.path)), Err(NoSymbol::NotElf));
}
