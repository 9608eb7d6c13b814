//! Malformed files, and files that change while they are read.

use std::path::{Path, PathBuf};

use deepctx_symbolizer::native::{DebugInfo, Modules, NativeSymbolizer};
use deepctx_symbolizer::{NoSymbol, Svma, elf, maps};

use crate::program::{Program, has, is_root, left_out, pretended, run, shown};

#[test]
fn non_elf_files_are_refused_with_a_reason_without_blocking() {
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
        assert_eq!(
            modules.open_mapping(std::process::id(), &pretended(&path)),
            Err(expected),
            "{}",
            path.display()
        );
        assert_eq!(modules.counters().refused, 1);
    }
}

/// Takes a file through everything that is done with files. Only has to come back.
fn survive(native: &mut NativeSymbolizer, modules: &mut Modules, path: &Path) {
    if let Ok((module, _)) = modules.open_mapping(std::process::id(), &pretended(path)) {
        let facts = modules.get(module).unwrap().facts();
        let begin = facts.segments.iter().find(|s| s.executable).map_or(0, |s| s.svma.0);
        let addresses: Vec<Svma> = (0..64).map(|i| Svma(begin.wrapping_add(i * 16))).collect();
        assert_eq!(native.symbolize(modules, module, &addresses).len(), addresses.len());
    }
}

#[test]
fn damaged_files_never_end_the_profiler() {
    // Without a build-id each damaged file is another one; with it all would be taken for the first.
    let Some(program) = Program::compile(&["-g", "-Wl,--build-id=none"]) else { return };
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
    let (mut native, mut modules) = (NativeSymbolizer::new(DebugInfo::default()), Modules::new());
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
fn section_claiming_an_exabyte_uncompressed_is_not_decompressed() {
    let Some(program) = Program::compile(&["-g", "-gz=zlib"]) else { return };
    let mut bytes = std::fs::read(&program.path).unwrap();
    let mut modules = Modules::new();
    let mut native = NativeSymbolizer::new(DebugInfo::default());
    let (honest, _) = modules.open_mapping(std::process::id(), &pretended(&program.path)).unwrap();
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
    let (module, _) = modules.open_mapping(std::process::id(), &pretended(&path)).unwrap();
    assert_eq!(native.symbolize(&mut modules, module, &[address]), [Err(NoSymbol::CorruptElf)]);
}

#[test]
fn modules_beyond_the_open_limit_are_still_symbolized() {
    let Some(program) = Program::compile(&["-g"]) else { return };
    let bytes = std::fs::read(&program.path).unwrap();
    let address = Svma(program.function("work::outer(long)").0);
    let (mut native, mut modules) = (NativeSymbolizer::new(DebugInfo::default()), Modules::new());
    let handles: Vec<_> = (0..300)
        .map(|i| {
            // Bytes behind the last table belong to nothing, but make it another file.
            let path = program.folder.path().join(format!("copy-{i}"));
            std::fs::write(&path, [&bytes[..], &vec![0; i]].concat()).unwrap();
            modules.open_mapping(std::process::id(), &pretended(&path)).unwrap().0
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
fn file_truncated_after_reading_does_not_crash_the_profiler() {
    let Some(program) = Program::compile(&["-g"]) else { return };
    let (mut native, mut modules) = (NativeSymbolizer::new(DebugInfo::default()), Modules::new());
    let (module, _) = modules.open_mapping(std::process::id(), &pretended(&program.path)).unwrap();
    let (begin, size) = program.function("work::spin(long)");
    assert!(native.symbolize(&mut modules, module, &[Svma(begin)])[0].is_ok());
    std::fs::OpenOptions::new().write(true).open(&program.path).unwrap().set_len(4096).unwrap();
    // Which tables are still in memory is the reader's business; that it comes back is ours.
    let later: Vec<Svma> = (begin..begin + size).map(Svma).collect();
    assert_eq!(native.symbolize(&mut modules, module, &later).len(), later.len());
    let Some(other) = Program::compile(&["-g"]) else { return };
    let (module, _) = modules.open_mapping(std::process::id(), &pretended(&other.path)).unwrap();
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
    assembled(folder, "deep", &source)
}

/// A library of this name, from assembler text.
fn assembled(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (assembly, library) = (folder.join(format!("{name}.s")), folder.join(format!("{name}.so")));
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
        let (mut native, mut modules) = (NativeSymbolizer::new(DebugInfo::default()), Modules::new());
        let (module, _) = modules.open_mapping(std::process::id(), &pretended(&library)).unwrap();
        let table = run("nm", &[library.to_str().unwrap()]);
        let address = table.lines().find(|line| line.ends_with(" deep")).unwrap().split(' ').next().unwrap();
        let address = Svma(u64::from_str_radix(address, 16).unwrap());
        let named = native.symbolize(&mut modules, module, &[address]);
        let frames = named[0].as_ref().unwrap();
        assert_eq!((&*frames[0].name, frames.len()), ("deep", if followed { 1 + depth } else { 1 }));
        assert_eq!(native.counters().with_debug_info == 1, followed, "{depth}");
    }
}

/// A library of one function, with debug information of another one that the linker discarded.
fn with_discarded(folder: &Path) -> PathBuf {
    let source = r#"
        .text
        .globl kept
        .type kept, @function
kept:   nop
        ret
        .size kept, .-kept
        .section .debug_abbrev,"",@progbits
        .uleb128 1, 0x11
        .byte 1
        .uleb128 0x11, 1, 0x12, 7, 0, 0
        .uleb128 2, 0x2e
        .byte 0
        .uleb128 3, 8, 0x11, 1, 0x12, 7, 0, 0
        .byte 0
        .section .debug_info,"",@progbits
        .long end - start
start:  .value 4
        .long 0
        .byte 8
        .uleb128 1
        .quad kept
        .quad 2
        .uleb128 2
        .asciz "discarded"
        .quad 0
        .quad 0x80000
        .byte 0
end:
"#;
    assembled(folder, "kept", source)
}

#[test]
fn a_function_that_the_linker_discarded_names_no_code() {
    if !has("gcc") {
        left_out("gcc");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let library = with_discarded(folder.path());
    let (mut native, mut modules) = (NativeSymbolizer::new(DebugInfo::default()), Modules::new());
    let (module, _) = modules.open_mapping(std::process::id(), &pretended(&library)).unwrap();
    let table = run("nm", &[library.to_str().unwrap()]);
    let address = table.lines().find(|line| line.ends_with(" kept")).unwrap().split(' ').next().unwrap();
    let address = Svma(u64::from_str_radix(address, 16).unwrap());
    let named = native.symbolize(&mut modules, module, &[address]);
    assert_eq!(&*named[0].as_ref().unwrap()[0].name, "kept");
    assert_eq!(native.counters().with_debug_info, 1);
}

#[test]
fn file_identity_is_its_build_id_or_its_content() {
    let Some(with) = Program::compile(&["-Wl,--build-id=sha1"]) else { return };
    let Some(without) = Program::compile(&["-Wl,--build-id=none"]) else { return };
    let identity = |path: &Path| {
        let file = maps::open_path(path).unwrap();
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
    let (mut native, mut modules) = (NativeSymbolizer::new(DebugInfo::default()), Modules::new());
    let (module, _) = modules.open_mapping(std::process::id(), &pretended(&program.path)).unwrap();
    let (begin, size) = program.function("work::spin(long)");
    let first = native.symbolize(&mut modules, module, &[Svma(begin)]);
    std::fs::remove_file(&program.path).unwrap();
    std::fs::write(&program.path, "another file of this name").unwrap();
    let again = native.symbolize(&mut modules, module, &[Svma(begin), Svma(begin + size - 1)]);
    assert_eq!(again[0], first[0]);
    assert!(shown(&again[1])[0].starts_with("work::spin work.cc:"));
    assert_eq!(modules.open_mapping(std::process::id(), &pretended(&program.path)), Err(NoSymbol::NotElf));
}
