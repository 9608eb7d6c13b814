//! Tests with files as runtimes write them, and as an attacker could.

use std::fs::File;
use std::io::Write as _;
use std::sync::Mutex;

use deepctx_address_space::running_for;
use proptest::prelude::*;

use super::*;

const SECOND_NS: u64 = 1_000_000_000;

fn check_line(line: &str, expected: Option<(u64, u64, &str)>) {
    let map = parse_perf_map(format!("{line}\n").as_bytes());
    let entry = map.entries.first().map(|e| (e.begin, e.size, &*e.name));
    assert_eq!(entry, expected, "{line}");
    assert_eq!(map.malformed, u64::from(expected.is_none()), "{line}");
}

#[test]
fn lines_of_real_runtimes_are_parsed() {
    check_line("7f3a 10 py::f:/a.py", Some((0x7f3a, 0x10, "py::f:/a.py")));
    check_line(
        "0x7f3a 0x10 LazyCompile:*run /srv/x.js:10:3",
        Some((0x7f3a, 0x10, "LazyCompile:*run /srv/x.js:10:3")),
    );
    check_line(
        "00007F3A 000010 instance void [A] B::C(int32)[Tier0]",
        Some((0x7f3a, 0x10, "instance void [A] B::C(int32)[Tier0]")),
    );
}

#[test]
fn malformed_lines_are_counted() {
    for line in [
        "x",
        "1000 10",
        "1000 10 ",
        "1000 0 empty",
        "+1000 10 f",
        "-1 10 f",
        "ffffffffffffffff 2 wraps",
        "zz 10 f",
    ] {
        check_line(line, None);
    }
}

#[test]
fn an_incomplete_line_is_left_for_the_next_read() {
    let map = parse_perf_map(b"1000 10 first\n2000 10 sec");
    assert_eq!((map.entries.len(), map.consumed, map.malformed), (1, 14, 0));
}

#[test]
fn an_overlong_name_is_truncated() {
    let map = parse_perf_map(format!("1000 10 {}\n", "n".repeat(1 << 20)).as_bytes());
    assert_eq!(map.entries[0].name.len(), perf_map::NAME_BYTES_MAX);
}

fn dump_header(flags: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0x4A69_5444_u32, 1, 40, 62, 0, 4711] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(1_u64.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes
}

fn record(kind: u32, time: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(u32::try_from(16 + body.len()).unwrap().to_ne_bytes());
    bytes.extend(time.to_ne_bytes());
    bytes.extend(body);
    bytes
}

fn load(time: u64, begin: u64, size: u64, index: u64, name: &str, code: &[u8]) -> Vec<u8> {
    let mut body = vec![0; 8];
    for word in [begin, begin, size, index] {
        body.extend(word.to_ne_bytes());
    }
    body.extend(name.as_bytes());
    body.push(0);
    body.extend(code);
    record(0, time, &body)
}

fn moved(time: u64, begin: u64, to: u64, size: u64, index: u64) -> Vec<u8> {
    let mut body = vec![0; 8];
    for word in [to, begin, to, size, index] {
        body.extend(word.to_ne_bytes());
    }
    record(1, time, &body)
}

fn name_of(event: &DumpEvent) -> (u64, u64, &str) {
    match event {
        DumpEvent::Load { time_ns, begin, name, .. } => (*time_ns, *begin, name),
        DumpEvent::Move { time_ns, begin, .. } => (*time_ns, *begin, "moved"),
    }
}

#[test]
fn loads_and_moves_are_parsed_and_code_is_skipped() {
    let debug = record(2, 5, &[0; 24]);
    let parts = [
        dump_header(0),
        load(10, 0x1000, 4, 1, "f", b"\x90\x90\x90\xc3"),
        debug,
        moved(20, 0x1000, 0x2000, 4, 1),
    ];
    let dump = parse_jitdump(&parts.concat()).unwrap();
    assert_eq!(
        dump.events.iter().map(name_of).collect::<Vec<_>>(),
        [(10, 0x1000, "f"), (20, 0x2000, "moved")]
    );
    assert_eq!((dump.next, dump.malformed, dump.ended), (parts.concat().len() as u64, 0, false));
}

#[test]
fn timestamps_of_another_clock_are_ignored() {
    let dump = parse_jitdump(&[dump_header(1), load(10, 0x1000, 4, 1, "f", b"")].concat()).unwrap();
    assert_eq!(name_of(&dump.events[0]), (0, 0x1000, "f"));
}

#[test]
fn impossible_lengths_end_the_file() {
    let check = |size: u32, ended: bool, next: u64| {
        let mut bytes = load(1, 0x1000, 4, 1, "f", b"");
        bytes[4..8].copy_from_slice(&size.to_ne_bytes());
        bytes.resize(4096, 0);
        let dump = parse_records(&bytes, DumpHeader { size: 40, monotonic: true, pid: 1 });
        assert_eq!((dump.ended, dump.next), (ended, next), "{size}");
    };
    check(0, true, 0);
    check(15, true, 0);
    check(u32::MAX, false, u64::from(u32::MAX));
}

#[test]
fn files_that_are_not_jitdump_are_refused() {
    let foreign = dump_header(0)[..4]
        .iter()
        .rev()
        .copied()
        .chain(dump_header(0)[4..].iter().copied())
        .collect::<Vec<_>>();
    for bytes in [&b""[..], b"short", &foreign, &[0; 64]] {
        assert_eq!(parse_jitdump(bytes), None);
    }
}

#[test]
fn a_sample_before_a_replacement_gets_the_old_name() {
    let mut table = CodeTable::default();
    assert!(table.insert(0x1000, 0x100, 10, JitSymbol(1)));
    assert!(table.insert(0x1080, 0x100, 20, JitSymbol(2)));
    let check = |address, time, expected: Option<u32>| {
        assert_eq!(table.lookup(address, time), expected.map(JitSymbol), "{address:#x} at {time}");
    };
    check(0x1080, 25, Some(2));
    check(0x1080, 15, Some(1));
    check(0x1080, 5, Some(2));
    // Where the new code does not reach.
    check(0x1010, 5, None);
    check(0x1010, 19, Some(1));
    check(0x1010, 20, None);
    check(0x1010, 25, None);
    check(0x117f, 25, Some(2));
    check(0x1180, 25, None);
}

#[test]
fn new_code_ends_the_name_of_the_code_before() {
    let named = |names: usize, ranges: usize| {
        let (names, range_shares) = (Names::bounded(names, 1 << 20), Shares::new(ranges, 1));
        let mut jit = Jit { names, range_shares, ..Jit::new() };
        let mut process = Process { user: Some(1000), ..Process::default() };
        for (begin, name) in [(0x1000, "first"), (0x2000, "second"), (0x1008, "third")] {
            jit.add(&mut process, 0, begin, 16, name);
        }
        assert_eq!(process.ranges, process.table.len());
        [0x1000, 0x1008, 0x2000].map(|at| {
            let symbol = process.table.lookup(at, 0)?;
            jit.name(symbol).map(str::to_owned)
        })
    };
    let expect = |names: [Option<&str>; 3]| names.map(|name| name.map(str::to_owned));
    assert_eq!(named(64, 64), expect([None, Some("third"), Some("second")]));
    // With room for two names, the third function has none; with room for two ranges, it has that of the first.
    assert_eq!(named(4, 64), expect([None, None, Some("second")]));
    assert_eq!(named(64, 4), expect([None, Some("third"), Some("second")]));
}

#[test]
fn a_forked_process_has_only_code_from_before() {
    let mut jit = Jit::new();
    let mut process = Process { user: Some(1000), ..Process::default() };
    jit.add(&mut process, 10, 0x1000, 16, "before");
    jit.add(&mut process, 30, 0x2000, 16, "after");
    jit.processes.insert(7, process);
    jit.fork(7, 8, 20);
    let has = |pid: u32| [0x1000, 0x2000].map(|at| jit.processes[&pid].table.lookup(at, 40).is_some());
    assert_eq!((has(7), has(8)), ([true, true], [true, false]));
    assert_eq!(jit.processes[&8].ranges, 1);
}

#[test]
fn unknown_code_that_moved_ends_the_name_there() {
    let mut jit = Jit::new();
    let mut process = Process::default();
    let load =
        |begin, name: &str| DumpEvent::Load { time_ns: 0, begin, size: 16, index: 1, name: name.into() };
    jit.apply(&mut process, load(0x1000, "first"));
    assert!(process.table.lookup(0x1008, 0).is_some());
    jit.apply(&mut process, DumpEvent::Move { time_ns: 0, begin: 0x1000, size: 16, index: 9 });
    assert_eq!(process.table.lookup(0x1008, 0), None);
}

#[test]
fn an_index_that_is_used_again_takes_no_more_room() {
    let mut jit = Jit { range_shares: Shares::new(16, 1), ..Jit::new() };
    let mut process = Process { user: Some(1000), ..Process::default() };
    for n in 0..100 {
        let name = format!("function{}", n % 2).into();
        jit.apply(&mut process, DumpEvent::Load { time_ns: n, begin: 0x1000, size: 16, index: 7, name });
        assert_eq!((process.ranges, process.table.len()), (2, 2), "{n}");
    }
    // What moves is what the index stands for last.
    jit.apply(&mut process, DumpEvent::Move { time_ns: 100, begin: 0x2000, size: 16, index: 7 });
    let found = process.table.lookup(0x2008, 100);
    assert_eq!(found.and_then(|symbol| jit.name(symbol)), Some("function1"));
}

#[test]
fn names_beyond_a_users_time_stay_mangled() {
    let mut jit = Jit::new();
    let mut process = Process { user: Some(1000), ..Process::default() };
    let symbol = jit.add(&mut process, 0, 0x1000, 16, "_ZN4work5outerEl").unwrap();
    assert_eq!(jit.readable_name(symbol).as_deref(), Some("work::outer(long)"));
    jit.demangling.charge(1000, 2 * READING.credit, Instant::now());
    assert_eq!(jit.readable_name(symbol).as_deref(), Some("_ZN4work5outerEl"));
}

/// A process has one map, and tests are threads of one process.
static MAP: Mutex<()> = Mutex::new(());

#[test]
fn names_beyond_a_users_share_are_counted_as_lost() {
    let _alone = MAP.lock();
    let pid = std::process::id();
    let path = format!("/tmp/perf-{pid}.map");
    let lines: String = (1..=20).map(|n| format!("{n:x}000 10 function{n:x}\n")).collect();
    std::fs::write(&path, lines).unwrap();
    let check = |jit: &mut Jit, kept: u64| {
        for n in 1..=20 {
            let found = jit.lookup(pid, 0, Avma(n << 12)).map(|symbol| jit.name(symbol).unwrap().to_owned());
            let expect = if n <= kept { Ok(format!("function{n:x}")) } else { Err(NoSymbol::JitNoRoom) };
            assert_eq!(found, expect);
        }
        let elsewhere = jit.lookup(pid, 0, Avma(0x500));
        assert_eq!(elsewhere, Err(NoSymbol::JitNotCovered), "nothing was left out there");
        assert_eq!((jit.counters().entries, jit.counters().dropped), (20, 20 - kept));
    };
    check(&mut Jit { names: Names::bounded(16, 1 << 20), ..Jit::new() }, 8);
    let bytes = 2 * 5 * "function1".len();
    check(&mut Jit { names: Names::bounded(1 << 20, bytes), ..Jit::new() }, 5);
    let mut jit = Jit { range_shares: Shares::new(12, 1), ..Jit::new() };
    check(&mut jit, 6);
    jit.forget(pid);
    assert!(jit.range_shares.take(u32::MAX, 6), "the room of a process that is gone is given back");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn names_of_processes_that_are_gone_make_room() {
    let mut jit = Jit { names: Names::bounded(20_000, 1 << 20), ..Jit::new() };
    // A week of processes that end: each uses as many names of its own as one user may have.
    for pid in 1..=10 {
        let mut process = Process { user: Some(1000), ..Process::default() };
        let named = (0..10_000).filter(|n| {
            let begin = (1 + *n) << 12;
            jit.add(&mut process, 0, begin, 16, &format!("{pid} {n}")).is_some()
        });
        assert_eq!(named.count(), 10_000, "process {pid}");
        jit.processes.insert(pid, process);
        jit.retain(|other| other != pid);
    }
}

#[test]
fn the_user_with_most_processes_loses_those_beyond_bounds() {
    let mut jit = Jit::new();
    let add = |jit: &mut Jit, pid, user| {
        jit.make_room();
        jit.processes.insert(pid, Process { user: Some(user), used_at_ns: pid.into(), ..Process::default() });
    };
    (0..3).for_each(|pid| add(&mut jit, pid, 1000));
    (3..3 + 4 * PROCESSES_MAX as u32).for_each(|pid| add(&mut jit, pid, 2000));
    assert_eq!(jit.processes.len(), PROCESSES_MAX);
    assert!((0..3).all(|pid| jit.processes.contains_key(&pid)));
    assert!(!jit.processes.contains_key(&3), "the oldest of the other user's went first");
}

#[test]
fn a_registration_for_other_code_names_nothing() {
    let _alone = MAP.lock();
    let (own, pid) = (gdb::object_functions(gdb::tests::OBJECT)[0].code.to_vec(), std::process::id());
    let mut other = own.clone();
    other[0] ^= 1;
    // In the memory of this process, as a runtime keeps it: code, object file, entry, descriptor.
    let registered = |code: &[u8]| {
        let address = code.as_ptr() as u64;
        let object = gdb::tests::object_at(address);
        let entry = [0, 0, object.as_ptr() as u64, object.len() as u64];
        let first = entry.as_ptr() as u64;
        let descriptor = [1 << 32 | 1, first, first];
        let mut jit = Jit::new();
        jit.add_descriptor(pid, Avma(descriptor.as_ptr() as u64));
        let found = jit.lookup(pid, 0, Avma(address));
        (found.map(|symbol| jit.name(symbol).unwrap().to_owned()), jit.counters().refuted)
    };
    assert_eq!(registered(&own), (Ok("wrapped_add.1".into()), 0));
    assert_eq!(registered(&other), (Err(NoSymbol::JitRefuted), 1));
}

#[test]
fn a_growing_map_is_read_from_where_it_ended() {
    let _alone = MAP.lock();
    let path = format!("/tmp/perf-{}.map", std::process::id());
    let mut file = File::create(&path).unwrap();
    file.write_all(b"1000 10 first\n2000 10 sec").unwrap();
    let mut jit = Jit::new();
    let pid = std::process::id();
    let named = |jit: &mut Jit, time, address| {
        let found = jit.lookup(pid, time, Avma(address));
        found.map(|symbol| jit.name(symbol).unwrap().to_owned())
    };
    assert_eq!(named(&mut jit, 0, 0x1008), Ok("first".into()));
    assert_eq!(named(&mut jit, 0, 0x2008), Err(NoSymbol::JitNotCovered));
    file.write_all(b"ond\n").unwrap();
    // Additions are found, whatever the time of the lookup.
    assert_eq!(named(&mut jit, 0, 0x2008), Ok("second".into()));
    assert_eq!(jit.counters().entries, 2);
    // A registered function is not affected by the file.
    let source = NameSource::Registered { code_hash: 0, order: 0, is_confirmed: true };
    let mut process = jit.take_process(pid);
    let registered = jit.names.add(process.user(), "registered".into(), source).unwrap();
    assert!(jit.insert(&mut process, 0x5000, 0x10, 0, registered));
    jit.processes.insert(pid, process);
    // Rewritten, as a runtime does after a fork.
    std::fs::write(&path, b"9000 10 third\n").unwrap();
    assert_eq!(named(&mut jit, 10 * SECOND_NS, 0x9000), Ok("third".into()));
    assert_eq!(named(&mut jit, 20 * SECOND_NS, 0x1008), Err(NoSymbol::JitNotCovered));
    assert_eq!(named(&mut jit, 20 * SECOND_NS, 0x5008), Ok("registered".into()));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(jit.lookup(u32::MAX, 0, Avma(0x1000)), Err(NoSymbol::JitWithoutMap));
}

#[test]
fn a_map_that_was_rewritten_or_replaced_is_read_again() {
    let _alone = MAP.lock();
    let pid = std::process::id();
    let path = format!("/tmp/perf-{pid}.map");
    let mut jit = Jit::new();
    let mut check = |second: u64, address: u64, expect: Result<&str, NoSymbol>| {
        let found = jit.lookup(pid, second * SECOND_NS, Avma(address));
        let found = found.map(|symbol| jit.name(symbol).unwrap().to_owned());
        assert_eq!(found, expect.map(str::to_owned), "{address:#x} in second {second}");
    };
    std::fs::write(&path, "1000 10 first\n2000 10 second\n").unwrap();
    check(0, 0x1008, Ok("first"));
    // In the same file and longer: where reading ended, a line ends by chance.
    std::fs::write(&path, "1000 10 third\n2000 10 fourth\n3000 10 fifth\n").unwrap();
    check(10, 0x1008, Ok("third"));
    check(10, 0x3008, Ok("fifth"));
    // Within a line, of which the rest reads like one.
    std::fs::write(&path, "1000 10 a name that is longer\n2000 10 b 3000 4000 5000\n6000 10 c\n").unwrap();
    check(20, 0x1008, Ok("a name that is longer"));
    check(20, 0x4008, Err(NoSymbol::JitNotCovered));
    // As long as before.
    std::fs::write(&path, "1000 10 a name as long as that\n2000 10 b3000 4000 5000\n6000 10 d\n").unwrap();
    check(30, 0x6008, Ok("d"));
    std::fs::remove_file(&path).unwrap();
    // The process has these names even without a file.
    check(40, 0x6008, Ok("d"));
    std::fs::write(&path, "1000 10 sixth\n").unwrap();
    check(50, 0x1008, Ok("sixth"));
    check(50, 0x6008, Err(NoSymbol::JitNotCovered));
    // Another link keeps the file before.
    let backup = format!("{path}.old");
    std::fs::rename(&path, &backup).unwrap();
    std::fs::write(&path, "1000 10 seventh\n").unwrap();
    check(60, 0x1008, Ok("seventh"));
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(&backup).unwrap();
}

#[test]
fn names_that_changed_are_reported_without_a_lookup() {
    let _alone = MAP.lock();
    let pid = std::process::id();
    let path = format!("/tmp/perf-{pid}.map");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"1000 10 first\n").unwrap();
    let mut jit = Jit::new();
    assert!(jit.lookup(pid, 0, Avma(0x1008)).is_ok() && !jit.recheck(pid, 0));
    let mut check = |line: &[u8], expect: bool, name: &str| {
        file.write_all(line).unwrap();
        assert_eq!(jit.recheck(pid, 0), expect);
        assert!(!jit.recheck(pid, 0), "once");
        let found = jit.processes[&pid].table.lookup(0x1008, 0);
        assert_eq!(found.and_then(|symbol| jit.name(symbol)), Some(name));
    };
    check(b"2000 10 second\n", false, "first");
    check(b"1000 10 first\n", false, "first");
    check(b"1000 20 third\n", true, "third");
    drop(file);
    std::fs::write(&path, "1000 10 fourth\n").unwrap();
    assert!(jit.recheck(pid, 0));
    std::fs::remove_file(&path).unwrap();
    assert!(!jit.recheck(u32::MAX, 0) && jit.pids() == [pid], "a process without code");
}

#[test]
fn names_of_a_dump_are_reported_when_samples_reach_them() {
    let _alone = MAP.lock();
    let pid = std::process::id();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[dump_header(0), load(10, 0x1000, 16, 1, "first", b"")].concat()).unwrap();
    let header = parse_dump_header(&dump_header(0)).unwrap();
    let mut jit = Jit::new();
    jit.process(pid).dump = Some(GrowingFile::dump(file.try_clone().unwrap(), header));
    assert!(!jit.recheck(pid, 100));
    let mut check = |time_ns: u64, record: &[u8], expect: bool, name: &str| {
        file.write_all(record).unwrap();
        assert_eq!(jit.recheck(pid, time_ns), expect, "{time_ns}");
        let found = jit.processes[&pid].table.lookup(0x1008, time_ns);
        assert_eq!(found.and_then(|symbol| jit.name(symbol)), Some(name), "{time_ns}");
    };
    // Generated now, while the samples are still those of a while ago.
    check(150, &load(200, 0x1000, 16, 2, "second", b""), true, "first");
    check(199, b"", true, "first");
    check(200, b"", true, "second");
    check(250, b"", false, "second");
    // By another clock.
    check(300, &load(u64::MAX, 0x1000, 16, 3, "third", b""), true, "second");
    check(350, b"", false, "second");
}

#[test]
fn a_dump_that_was_closed_keeps_its_names() {
    let check = |last: &[u8], expect: Option<&str>| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[load(5, 0x1000, 16, 1, "f", b"").as_slice(), last].concat()).unwrap();
        let mut growing = GrowingFile::dump(file, DumpHeader { size: 0, monotonic: true, pid: 1 });
        let (mut jit, mut process) = (Jit::new(), Process::default());
        jit.read_growth(&mut growing, &mut process).unwrap();
        let found = process.table.lookup(0x1000, 9);
        assert_eq!(found.and_then(|symbol| jit.name(symbol)), expect);
    };
    check(&record(3, 5, b""), Some("f"));
    // Where the record after one of eight bytes begins is unknown, and so is which code it is of.
    check(&[2, 0, 0, 0, 8, 0, 0, 0], None);
}

#[test]
fn a_dump_that_another_process_opened_names_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let pid = std::process::id();
    let mut jit = Jit::new();
    let mapped = |owner: u32| {
        let path = folder.path().join(format!("jit-{owner}.dump"));
        let mut dump = dump_header(0);
        dump[20..24].copy_from_slice(&owner.to_ne_bytes());
        std::fs::write(&path, [dump, load(10, 0x1000, 16, 1, "f", b"")].concat()).unwrap();
        let line = format!("1000-2000 r--p 00000000 00:00 77 {}\n", path.display());
        maps::parse(line.as_bytes(), maps::LineFilter::Executable).jitdumps.remove(0)
    };
    // A child that was forked still maps the dump of its parent, which goes on without it.
    let (of_parent, own) = (mapped(pid + 1), mapped(pid));
    jit.add_dump(pid, std::slice::from_ref(&of_parent));
    assert!(!jit.processes.contains_key(&pid));
    jit.add_dump(pid, &[of_parent, own]);
    assert!(jit.processes[&pid].dump.is_some());
    assert_eq!(jit.counters().refused, 0);
}

#[test]
fn lines_of_an_earlier_process_name_nothing() {
    let _alone = MAP.lock();
    let pid = std::process::id();
    let path = format!("/tmp/perf-{pid}.map");
    let named = |jit: &mut Jit, second: u64, address| {
        let found = jit.lookup(pid, second * SECOND_NS, Avma(address));
        found.map(|symbol| jit.name(symbol).unwrap().to_owned())
    };
    // Killed while it wrote a line, an hour before this process started.
    std::fs::write(&path, "1000 10 earlier\n2000 1").unwrap();
    let file = File::options().append(true).open(&path).unwrap();
    let before = std::time::SystemTime::now() - running_for(pid).unwrap() - Duration::from_secs(3600);
    file.set_modified(before).unwrap();
    let mut jit = Jit::new();
    assert_eq!(named(&mut jit, 0, 0x1008), Err(NoSymbol::JitWithoutMap));
    // Appended, as CPython does.
    (&file).write_all(b"3000 10 own\n").unwrap();
    assert_eq!(named(&mut jit, 1, 0x3008), Ok("own".into()));
    assert_eq!(named(&mut jit, 2, 0x1008), Err(NoSymbol::JitNotCovered));
    assert_eq!(jit.counters().malformed, 0);
    // Rewritten, as others do.
    file.set_modified(before).unwrap();
    let mut jit = Jit::new();
    assert_eq!(named(&mut jit, 0, 0x3008), Err(NoSymbol::JitWithoutMap));
    std::fs::write(&path, "4000 10 all of this is of the process itself\n").unwrap();
    assert_eq!(named(&mut jit, 1, 0x4008), Ok("all of this is of the process itself".into()));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_function_that_was_unregistered_or_overwritten_loses_its_name() {
    let _alone = MAP.lock();
    let pid = std::process::id();
    let mut code = gdb::object_functions(gdb::tests::OBJECT)[0].code.to_vec();
    let address = code.as_ptr() as u64;
    let object = gdb::tests::object_at(address);
    let entry = [0, 0, object.as_ptr() as u64, object.len() as u64];
    let first = entry.as_ptr() as u64;
    let mut descriptor = [1 << 32 | 1, first, first];
    let mut jit = Jit::new();
    jit.add_descriptor(pid, Avma(descriptor.as_ptr() as u64));
    let named = |jit: &mut Jit, second: u64| {
        let found = jit.lookup(pid, second * SECOND_NS, Avma(address + 4));
        found.map(|symbol| jit.name(symbol).unwrap().to_owned())
    };
    assert_eq!(named(&mut jit, 0), Ok("wrapped_add.1".into()));
    // Another generator has this memory now, and nothing was unregistered.
    std::hint::black_box(&mut code)[8] ^= 1;
    assert!(jit.recheck(pid, 10 * SECOND_NS));
    assert_eq!(named(&mut jit, 10), Err(NoSymbol::JitRefuted));
    std::hint::black_box(&mut code)[8] ^= 1;
    jit.forget(pid);
    jit.add_descriptor(pid, Avma(descriptor.as_ptr() as u64));
    assert_eq!(named(&mut jit, 20), Ok("wrapped_add.1".into()));
    *std::hint::black_box(&mut descriptor) = [2 << 32 | 1, first, 0];
    assert_eq!(named(&mut jit, 30), Err(NoSymbol::JitNotCovered));
    let process = &jit.processes[&pid];
    assert!(process.objects.is_empty() && process.ranges == 0, "its room is free");
}

#[test]
fn a_located_function_that_was_overwritten_loses_its_name() {
    let _alone = MAP.lock();
    let pid = std::process::id();
    let mut code = vec![0x90_u8; 64];
    let address = code.as_ptr() as u64;
    let (name, hash) = ("located".to_owned(), gdb::bytes_hash(&code));
    let mut jit = Jit::new();
    let located = LocatedFunction { address, size: 64, name, key: 1, hash };
    assert!(jit.add_located(pid, 0, located).is_some());
    let named = |jit: &mut Jit, second: u64| {
        let found = jit.lookup(pid, second * SECOND_NS, Avma(address + 4));
        found.map(|symbol| jit.name(symbol).unwrap().to_owned())
    };
    assert_eq!(named(&mut jit, 10), Ok("located".into()));
    assert!(!jit.recheck(pid, 20 * SECOND_NS));
    std::hint::black_box(&mut code)[8] ^= 1;
    assert_eq!(named(&mut jit, 30), Err(NoSymbol::JitWithoutMap));
    assert!(jit.recheck(pid, 30 * SECOND_NS), "names given before are out of date");
    assert!(jit.processes[&pid].located.is_empty() && jit.processes[&pid].ranges == 0);
}

#[test]
fn located_code_of_a_child_is_compared_after_a_sample() {
    let _alone = MAP.lock();
    let (parent, child) = (7, std::process::id());
    let mut code = vec![0x90_u8; 64];
    let address = code.as_ptr() as u64;
    let (name, hash) = ("located".to_owned(), gdb::bytes_hash(&code));
    let mut jit = Jit::new();
    let located = LocatedFunction { address, size: 64, name, key: 1, hash };
    assert!(jit.add_located(parent, 0, located).is_some());
    jit.fork(parent, child, SECOND_NS);
    std::hint::black_box(&mut code)[8] ^= 1;
    assert!(!jit.recheck(child, 20 * SECOND_NS));
    assert!(!jit.processes[&child].located.is_empty(), "nothing was read");
    assert_eq!(jit.lookup(child, 30 * SECOND_NS, Avma(address + 4)), Err(NoSymbol::JitWithoutMap));
    assert!(jit.processes[&child].located.is_empty());
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_as_a_perf_map(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let map = parse_perf_map(&bytes);
        prop_assert!(map.consumed <= bytes.len());
    }

    #[test]
    fn any_bytes_are_parsed_as_a_jitdump(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let whole = [dump_header(0), bytes].concat();
        prop_assert!(parse_jitdump(&whole).is_some());
    }

    #[test]
    fn parsing_in_parts_equals_parsing_at_once(
        names in proptest::collection::vec("[a-z]{1,8}", 1..20), cut in any::<proptest::sample::Index>(),
    ) {
        let header = DumpHeader { size: 40, monotonic: true, pid: 1 };
        let bytes: Vec<u8> = (1..).zip(&names).flat_map(|(i, name)| load(i, i * 64, 64, i, name, &[0x90; 33])).collect();
        let whole = parse_records(&bytes, header);
        prop_assert_eq!(whole.events.len(), names.len());
        let first = parse_records(&bytes[..cut.index(bytes.len())], header);
        let rest = bytes.get(usize::try_from(first.next).unwrap()..).unwrap_or_default();
        let second = parse_records(rest, header);
        prop_assert_eq!([first.events, second.events].concat(), whole.events);
    }

    #[test]
    fn code_ranges_never_overlap(inserts in proptest::collection::vec((0u64..200, 1u64..50), 0..60), address in 0u64..250) {
        let mut table = CodeTable::default();
        for (i, (begin, size)) in inserts.iter().enumerate() {
            table.insert(*begin, *size, 0, JitSymbol(u32::try_from(i).unwrap()));
        }
        let last = inserts.iter().rposition(|(begin, size)| (*begin..begin + size).contains(&address));
        if let Some(symbol) = table.lookup(address, 0) {
            prop_assert_eq!(Some(symbol.0 as usize), last);
        }
    }
}
