//! Lines as kernels write them, damaged ones, and the mappings of this process.

use proptest::prelude::*;

use super::*;

fn check(line: &str, backing: Backing, path: &str) {
    let maps = parse(line.as_bytes(), LineFilter::All);
    assert_eq!(maps.malformed, 0, "{line}");
    let [mapping] = &maps.mappings[..] else { panic!("one mapping: {line}") };
    assert_eq!((mapping.backing, mapping.path.to_str()), (backing, Some(path)), "{line}");
}

#[test]
fn the_path_determines_what_backs_a_mapping() {
    check(
        "00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/dbus-daemon",
        Backing::File,
        "/usr/bin/dbus-daemon",
    );
    check("7f0000000000-7f0000001000 r-xp 00000000 00:00 0 ", Backing::Anonymous, "");
    check("7f0000000000-7f0000001000 r-xp 00000000 00:00 0", Backing::Anonymous, "");
    check(
        "7f0000000000-7f0000001000 r-xp 00000000 08:02 9    /lib/x.so (deleted)",
        Backing::DeletedFile,
        "/lib/x.so",
    );
    check(
        "7f0000000000-7f0000001000 r-xs 00000000 00:01 9    /memfd:jit cache (deleted)",
        Backing::Memfd,
        "/memfd:jit cache",
    );
    check("7ffe3a5f2000-7ffe3a5f4000 r-xp 00000000 00:00 0    [vdso]", Backing::Vdso, "[vdso]");
    check("7fffffffe000-7ffffffff000 --xp 00000000 00:00 0    [uprobes]", Backing::Uprobes, "[uprobes]");
    check(
        "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]",
        Backing::Special,
        "[vsyscall]",
    );
    check("7f0000000000-7f0000001000 r-xp 00000000 00:00 0    [anon:v8]", Backing::Anonymous, "[anon:v8]");
    check(
        "7f0000000000-7f0000001000 rwxs 00000000 00:01 44   /dev/zero (deleted)",
        Backing::Anonymous,
        "/dev/zero",
    );
    check(
        "7f0000000000-7f0000001000 r-xp 00000000 08:02 9    /opt/a b\\012c/x.so",
        Backing::File,
        "/opt/a b\nc/x.so",
    );
    check(
        "7f0000000000-7f0000001000 r-xp 00000000 08:02 9    /odd\\name/x.so",
        Backing::File,
        "/odd\\name/x.so",
    );
}

#[test]
fn all_fields_of_a_line_are_parsed() {
    let maps = parse(b"7f1000-7f3000 r-xp 0001f000 fd:1a 18446744073709551615 /a", LineFilter::Executable);
    let expected = Mapping {
        begin: Avma(0x7f1000),
        end: Avma(0x7f3000),
        offset: FileOffset(0x1f000),
        device: DeviceNumber { major: 0xfd, minor: 0x1a },
        inode: u64::MAX,
        readable: true,
        writable: false,
        executable: true,
        backing: Backing::File,
        path: OsStr::new("/a").into(),
    };
    assert_eq!(maps.mappings, [expected]);
    assert_eq!(maps.mappings[0].len(), 0x2000);
}

#[test]
fn data_mappings_are_kept_only_on_request() {
    let bytes = b"1000-2000 r--p 0 0:0 0\n2000-3000 r-xp 0 0:0 0\n3000-4000 rw-p 0 0:0 0\n";
    assert_eq!(parse(bytes, LineFilter::Executable).mappings.len(), 1);
    assert_eq!(parse(bytes, LineFilter::All).mappings.len(), 3);
}

#[test]
fn a_jitdump_is_found_whatever_its_permissions() {
    let bytes = b"1000-2000 r--p 0 8:2 77 /tmp/.debug/jit/jit-4711.dump\n2000-3000 r-xp 0 0:0 0\n";
    let maps = parse(bytes, LineFilter::Executable);
    let paths: Vec<_> = maps.jitdumps.iter().map(Mapping::path).collect();
    assert_eq!(paths, [Path::new("/tmp/.debug/jit/jit-4711.dump")]);
    let other = b"1000-2000 r--p 0 8:2 77 /tmp/jit-x.dump\n";
    assert!(parse(other, LineFilter::Executable).jitdumps.is_empty());
}

#[test]
fn malformed_lines_are_counted_and_hide_no_others() {
    for bad in [
        "nonsense",
        "2000-1000 r-xp 0 0:0 0",
        "1000-1000 r-xp 0 0:0 0",
        "+1000-2000 r-xp 0 0:0 0",
        "1000 r-xp 0 0:0 0",
        "1000-2000 rwxpp 0 0:0 0",
        "1000-2000 r-xp 0 00 0",
        "1000-2000 r-xp 0 0:0 x",
        "10000000000000000-20000000000000000 r-xp 0 0:0 0",
    ] {
        let maps = parse(format!("{bad}\n5000-6000 r-xp 0 0:0 0\n").as_bytes(), LineFilter::All);
        assert_eq!((maps.mappings.len(), maps.malformed), (1, 1), "{bad}");
    }
}

#[test]
fn an_overlapping_line_counts_as_malformed() {
    let maps = parse(b"1000-3000 r-xp 0 0:0 0\n2000-4000 r-xp 0 0:0 0\n", LineFilter::All);
    assert_eq!((maps.mappings.len(), maps.malformed), (1, 1));
}

#[test]
fn mappings_beyond_the_bound_are_counted_as_dropped() {
    let lines: String =
        (0..MAPPINGS_MAX + 3).map(|i| format!("{:x}-{:x} r-xp 0 0:0 0\n", 2 * i, 2 * i + 1)).collect();
    let maps = parse(lines.as_bytes(), LineFilter::Executable);
    assert_eq!((maps.mappings.len(), maps.dropped), (MAPPINGS_MAX, 3));
}

#[test]
fn own_maps_contain_own_code_and_the_vdso() {
    let maps = read(std::process::id(), LineFilter::Executable).unwrap();
    assert_eq!((maps.malformed, maps.dropped), (0, 0));
    let here = Avma(own_maps_contain_own_code_and_the_vdso as fn() as usize as u64);
    let own = maps.mappings.iter().find(|m| (m.begin..m.end).contains(&here)).unwrap();
    assert_eq!(own.path(), std::env::current_exe().unwrap());
    assert!(open(std::process::id(), own).is_ok());
    assert!(open_path(own.path()).is_ok() && open_path(&map_files_path(std::process::id(), own)).is_ok());
    let vdso = maps.mappings.iter().find(|m| m.backing == Backing::Vdso).unwrap();
    assert_eq!(super::vdso(vdso).unwrap()[..4], *b"\x7fELF");
    let other = Mapping { end: Avma(vdso.end.0 + 4096), ..vdso.clone() };
    assert_eq!(super::vdso(&other), Err(NoSymbol::SpecialMapping));
}

#[test]
fn a_path_that_leads_to_another_file_is_not_opened() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let facts = file.as_file().metadata().unwrap();
    let check = |major: u32, inode: u64, expect: Result<(), NoSymbol>| {
        let device = format!("{major:x}:{:x}", minor(facts.dev()));
        // Nothing is mapped at this address, so the path is all there is.
        let line = format!("1000-2000 r-xp 00000000 {device} {inode} {}\n", file.path().display());
        let maps = parse(line.as_bytes(), LineFilter::All);
        assert_eq!(open(std::process::id(), &maps.mappings[0]).map(drop), expect, "{line}");
    };
    let own = major(facts.dev());
    check(own, facts.ino(), Ok(()));
    check(own, facts.ino() + 1, Err(NoSymbol::ModuleMissing));
    // Of another device than the file, as btrfs has them.
    check(own + 1, facts.ino() + 1, Ok(()));
}

#[test]
fn a_listed_file_is_never_another_one() {
    // A file system that states the same numbers for a file and its mappings.
    let Ok(file) = tempfile::NamedTempFile::new_in("/dev/shm") else {
        return println!("skipped: needs /dev/shm");
    };
    let facts = file.as_file().metadata().unwrap();
    let check = |major: u32, inode: u64, expect: Result<(), NoSymbol>| {
        let device = format!("{major:x}:{:x}", minor(facts.dev()));
        let line = format!("1000-2000 r-xp 00000000 {device} {inode} {}\n", file.path().display());
        let maps = parse(line.as_bytes(), LineFilter::All);
        assert_eq!(open_as_listed(std::process::id(), &maps.mappings[0]).map(drop), expect, "{line}");
    };
    let own = major(facts.dev());
    check(own, facts.ino(), Ok(()));
    check(own, facts.ino() + 1, Err(NoSymbol::ModuleMissing));
    check(own + 1, facts.ino(), Err(NoSymbol::ModuleMissing));
}

#[test]
fn a_process_that_never_existed_is_gone() {
    assert_eq!(read(u32::MAX, LineFilter::All).unwrap_err().reason, NoSymbol::ProcessGone);
}

#[test]
fn a_process_that_replaces_its_program_is_not_gone() {
    // One program after the other, all with the same id.
    let mut script = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut script, b"exec sh \"$0\"\n").unwrap();
    let mut child = std::process::Command::new("sh").arg(script.path()).spawn().unwrap();
    let gone = (0..3000).filter(|_| read(child.id(), LineFilter::Executable).is_err()).count();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(gone, 0);
}

proptest! {
    #[test]
    fn any_bytes_give_ordered_mappings(bytes in "[0-9a-f\\- rwxp:/\n\\\\]{0,400}") {
        let maps = parse(bytes.as_bytes(), LineFilter::All);
        prop_assert!(maps.mappings.iter().all(|m| m.begin < m.end));
        prop_assert!(maps.mappings.windows(2).all(|pair| pair[0].end <= pair[1].begin));
    }

    #[test]
    fn each_line_is_kept_or_counted(lines in proptest::collection::vec((0u64..99, 0u64..99, "[rwxp-]{4}"), 0..50)) {
        let text: String = lines.iter().map(|(b, e, p)| format!("{b:x}-{e:x} {p} 0 0:0 0 \n")).collect();
        let maps = parse(text.as_bytes(), LineFilter::All);
        prop_assert_eq!(maps.mappings.len() as u64 + maps.malformed + maps.dropped, lines.len() as u64);
    }
}
