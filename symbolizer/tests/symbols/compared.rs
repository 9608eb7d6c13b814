//! Compares names with those of `blazesym`, an independent reader of the same files.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{self, Input, Symbolized};
use deepctx_symbolizer::native::{DebugInfo, Modules, NativeSymbolizer, SymbolResult};
use deepctx_symbolizer::{NoSymbol, Svma, maps};

use crate::program::{Program, has, left_out, pretended, run};

/// Addresses of each file that are compared.
const ADDRESSES: u64 = 4000;

/// Name, file and line of each function at an address; none without a symbol.
type Functions = Vec<(String, String, u32)>;

fn ours(named: &SymbolResult) -> Functions {
    let frames = named.as_deref().unwrap_or_default();
    let of = |frame: &deepctx_symbolizer::native::Frame| {
        (frame.name.to_string(), frame.file.as_deref().unwrap_or_default().to_owned(), frame.line)
    };
    frames.iter().map(of).collect()
}

/// The functions, and whether they are a guess: the address is somewhere behind a symbol without a size.
fn theirs(symbol: &Symbolized<'_>) -> (Functions, bool) {
    let Some(symbol) = symbol.as_sym() else { return (Functions::new(), false) };
    let of = |name: &str, code: Option<&symbolize::CodeInfo<'_>>| {
        let file = code.map(|code| code.to_path().to_string_lossy().into_owned()).unwrap_or_default();
        // With the version of the symbol.
        let name = name.split("@@").next().and_then(|name| name.split("@GLIBC").next()).unwrap_or(name);
        (deepctx_names::demangle(name), file, code.and_then(|code| code.line).unwrap_or(0))
    };
    let outer = of(&symbol.name, symbol.code_info.as_deref());
    let inner = symbol.inlined.iter().map(|call| of(&call.name, call.code_info.as_ref()));
    (std::iter::once(outer).chain(inner).collect(), symbol.size.is_none() && symbol.offset > 0)
}

/// Compares addresses all over the code of a file; `debug`: where its debug information is. Returns how many have
/// names, and how many have lines.
fn compare(path: &Path, debug: Option<&Path>) -> (usize, usize) {
    let (mut native, mut modules) = (NativeSymbolizer::new(DebugInfo::default()), Modules::new());
    let (module, _) = modules.open_mapping(std::process::id(), &pretended(path)).unwrap();
    let code =
        modules.get(module).unwrap().facts().segments.iter().find(|segment| segment.executable).unwrap();
    let (begin, size) = (code.svma.0, code.file_size);
    let mut addresses: Vec<u64> = (0..ADDRESSES).map(|n| begin + n * size / ADDRESSES).collect();
    addresses.dedup();
    let named =
        native.symbolize(&mut modules, module, &addresses.iter().copied().map(Svma).collect::<Vec<_>>());
    let reader = symbolize::Symbolizer::builder().enable_demangling(false).build();
    let read = |path: &Path, debug_syms| {
        let file: File = maps::open_path(path).unwrap();
        let mut elf = Elf::new(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
        elf.debug_syms = debug_syms;
        let symbols = reader.symbolize(&Source::Elf(elf), Input::VirtOffset(&addresses)).unwrap();
        symbols.iter().map(theirs).collect::<Vec<_>>()
    };
    let with_debug = debug.map(|debug| read(debug, true));
    let mut differ = Vec::new();
    for (n, without) in read(path, false).into_iter().enumerate() {
        let with_debug = with_debug.as_ref().map(|all| all[n].clone()).filter(|(of, _)| !of.is_empty());
        let (expected, is_guess) = with_debug.unwrap_or(without);
        let found = ours(&named[n]);
        // Theirs knows no stubs of the PLT.
        let is_stub = found.iter().any(|(name, ..)| name.starts_with("[plt] "));
        if found != expected && !is_stub && !(is_guess && found.is_empty()) {
            differ.push(format!("{:#x}: {found:?}, not {expected:?}", addresses[n]));
        }
    }
    assert!(
        differ.is_empty(),
        "{} of {}: {}",
        path.display(),
        addresses.len(),
        differ[..differ.len().min(5)].join("\n")
    );
    let named: Vec<Functions> = named.iter().map(ours).collect();
    let lines = named.iter().filter(|of| of.iter().any(|function| function.2 > 0)).count();
    (named.iter().filter(|of| !of.is_empty()).count(), lines)
}

#[test]
fn this_program_has_the_same_names_and_lines() {
    let path = std::env::current_exe().unwrap();
    let (names, lines) = compare(&path, Some(&path));
    assert!(names > 3000 && lines > 1000, "{names} {lines}");
}

#[test]
fn compiled_programs_have_the_same_names_and_lines() {
    for options in
        [&["-g"][..], &["-g", "-gz=zlib"], &["-g", "-gdwarf-4", "-no-pie"], &["-g1", "-ffunction-sections"]]
    {
        let Some(program) = Program::compile(options) else { return };
        let (names, lines) = compare(&program.path, Some(&program.path));
        assert!(names > 100 && lines > 50, "{options:?}: {names} {lines}");
    }
    for options in [&[][..], &["-s"], &["-rdynamic", "-s"]] {
        let Some(program) = Program::compile(options) else { return };
        let (_, lines) = compare(&program.path, None);
        assert_eq!(lines, 0, "{options:?}");
    }
}

#[test]
fn the_c_library_has_the_same_names_and_lines() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(libc) = maps
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(5))
        .find(|path| path.contains("/libc.so"))
    else {
        println!("skipped: the tests are linked statically");
        return;
    };
    let file = File::open(libc).unwrap();
    let facts = deepctx_symbolizer::elf::ElfFacts::read(&file).unwrap();
    let id = facts.build_id.unwrap().to_string();
    let debug = format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
    let debug = Some(Path::new(&debug)).filter(|debug| debug.exists());
    if debug.is_none() {
        println!("skipped: lines, since {libc} has no debug file here");
    }
    let (names, lines) = compare(Path::new(libc), debug);
    assert!(names > 100 && (debug.is_none() || lines > 1000), "{names} {lines}");
}

#[test]
fn symbols_without_a_size_end_with_their_section() {
    let Some(program) = Program::compile(&["-g", "-Wl,-z,lazy"]) else { return };
    let sections = run("readelf", &["-SW", program.text()]);
    let plt = sections.lines().find_map(|line| line.split_once(" .plt ")).map(|(_, rest)| rest);
    let plt = plt.and_then(|rest| rest.split_ascii_whitespace().nth(1)).unwrap();
    let plt = u64::from_str_radix(plt, 16).unwrap();
    // `_init` has no size, and its section is the one before.
    let (init, _) = program.function(" _init");
    assert!(init < plt, "{init:#x} {plt:#x}");
    let (mut native, mut modules) = (NativeSymbolizer::new(DebugInfo::default()), Modules::new());
    let (module, _) = modules.open_mapping(std::process::id(), &pretended(&program.path)).unwrap();
    let named = native.symbolize(&mut modules, module, &[Svma(init + 1), Svma(plt + 1)]);
    assert_eq!(&*named[0].as_ref().unwrap()[0].name, "_init");
    assert_eq!(named[1], Err(NoSymbol::NotCovered));
    // Behind the first entry, which leads to the dynamic linker, there is one for each function.
    let addresses: Vec<Svma> = (plt..plt + 0x200).map(Svma).collect();
    let stubs = native.symbolize(&mut modules, module, &addresses);
    let names: Vec<&str> = stubs.iter().flatten().map(|frames| &*frames[0].name).collect();
    assert!(names.iter().filter(|name| **name == "[plt] fflush").count() >= 8, "{names:?}");
}

#[test]
fn symbols_that_are_packed_in_a_stripped_program_name_it() {
    if !has("xz") || !has("objcopy") {
        left_out("xz or binutils");
        return;
    }
    let Some(program) = Program::compile(&["-g"]) else { return };
    let at = |name: &str| program.folder.path().join(name).to_str().unwrap().to_owned();
    run("objcopy", &["--strip-debug", program.text(), &at("mini")]);
    let (spin, _) = program.function("work::spin(long)");
    run("xz", &[&at("mini")]);
    run("strip", &[program.text()]);
    run("objcopy", &["--add-section", &format!(".gnu_debugdata={}", at("mini.xz")), program.text()]);
    let (names, _) = compare(&program.path, None);
    assert!(names > 100, "{names}");
    let (mut native, mut modules) = (NativeSymbolizer::new(DebugInfo::default()), Modules::new());
    let (module, _) = modules.open_mapping(std::process::id(), &pretended(&program.path)).unwrap();
    let named = native.symbolize(&mut modules, module, &[Svma(spin)]);
    assert_eq!(&*named[0].as_ref().unwrap()[0].name, "work::spin(long)");
}
