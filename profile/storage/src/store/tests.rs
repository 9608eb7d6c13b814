use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::error::OpenError;
use crate::folder::Folder;
use deepctx_profile::frame::{Frame, Origin, Role};
use deepctx_profile::intern::{FrameId, StrId};
use deepctx_profile::ledger::{CheckTime, Reason, Stage};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Executable, KeptWindow, Limits, Meta, Profile};
use deepctx_profile::text;
use deepctx_profile::units::{Bytes, Nanos, Time};

type Monotonic = Time<deepctx_profile::units::clock::Monotonic>;

const START: u64 = 1_000_000;

pub(super) fn at(ns: u64) -> Monotonic {
    Time::from_nanos(START + ns)
}

pub(super) fn new_profile() -> Profile {
    let meta = Meta {
        target: "python train.py (pid 7)".to_owned(),
        host: "gpu-1".to_owned(),
        started: Time::from_nanos(1_700_000_000_000_000_000),
        started_monotonic: Time::from_nanos(START),
        boot_id: "3f1c8a52-0d64-4b7e-9a1e-2c5d7f80b6a9".to_owned(),
        frequency_hz: 99,
        version: "0.1.0".to_owned(),
        options: vec![("freq".to_owned(), "99".to_owned())],
        allowed_cpus: Some(6),
        kept: Some(KeptWindow { before: Nanos(5), before_records: 6, because: "signal".to_owned() }),
    };
    Profile::new(meta, Limits::default())
}

/// One frame of every kind, numbered.
pub(super) fn any_frame(profile: &mut Profile, n: u32) -> FrameId {
    let mut s = |text: &str| profile.strings.intern(text);
    let line = std::num::NonZeroU32::new(n % 5);
    let role = if n.is_multiple_of(2) { Role::Code } else { Role::Interpreter };
    let frame = match n % 14 {
        0 => Frame::Process { comm: s("python3"), pid: n },
        1 => Frame::Thread { name: s("pt;data"), tid: n },
        2 => Frame::Python { function: s("M.f"), file: s("/a/b.py"), line, first_line: line, role },
        3 => Frame::Native {
            symbol: s("f(int)"),
            module: s("/l/libx.so"),
            file: s("/x.c"),
            line,
            inlined: n > 13,
            role,
        },
        4 => Frame::NativeUnnamed {
            module: s("/l/libx.so"),
            offset: u64::from(n) << 40,
            reason: s("stripped"),
            role,
        },
        5 => Frame::Kernel { symbol: s("vfs_read") },
        6 => Frame::KernelUnnamed { reason: s("no-kallsyms") },
        7 if n > 100 => Frame::Range { name: s("epoch 1") },
        7 if n.is_multiple_of(2) => Frame::Layer { path: s("GPT.h.0"), class: s("Block") },
        7 => Frame::Operator { name: s("aten::addmm") },
        8 => Frame::GpuApi { name: s("cuLaunchKernel") },
        9 => Frame::GpuKernel { name: s("gemm") },
        10 if n.is_multiple_of(2) => {
            let name = if n > 100 { s("H200 GPU-1234abcd") } else { StrId::EMPTY };
            Frame::Stream { device: n, stream: Some(7), name }
        }
        10 => Frame::Unresolved { reason: s("code-changed"), origin: Origin::Python },
        11 => Frame::TreeFull,
        12 => Frame::Instruction { kernel: s("gemm"), offset: u64::from(n), file: s("/x.cu"), line },
        _ => Frame::Native { symbol: s(""), module: s(""), file: s(""), line: None, inlined: false, role },
    };
    profile.frame(frame)
}

pub(super) fn add(profile: &mut Profile, stack: &[u32], metric: Metric, value: u64) {
    let stack: Vec<FrameId> = stack.iter().map(|&n| any_frame(profile, n)).collect();
    profile.add(&stack, metric, value);
    profile.ledger.stage_mut(Stage::Attribute).pass(1);
}

/// The content of a profile, independent of the numbers of its handles.
pub(super) fn contents(profile: &Profile) -> String {
    let mut details: Vec<String> =
        profile.frames.iter().map(|(_, frame)| format!("{:?}", describe(profile, frame))).collect();
    details.sort();
    let mut values: Vec<String> = profile
        .tree
        .metrics()
        .flat_map(|metric| {
            profile.tree.cells(metric).map(move |(node, cell)| {
                let stack: Vec<_> = profile
                    .tree
                    .stack(node)
                    .into_iter()
                    .map(|id| describe(profile, profile.frames.get(id)))
                    .collect();
                format!("{metric} {cell:?} {stack:?}")
            })
        })
        .collect();
    values.sort();
    format!(
        "{}\n{details:#?}\n{values:#?}\n{:?}\n{:?}\n{:?}",
        text::tree(profile),
        profile.executables,
        profile.ledger,
        profile.meta
    )
}

/// A frame with its texts instead of their handles.
fn describe(profile: &Profile, frame: Frame) -> String {
    let mut texts = Vec::new();
    let shape = frame.map_texts(|id| {
        texts.push(profile.strings.get(id).to_owned());
        deepctx_profile::intern::StrId::EMPTY
    });
    format!("{shape:?} {texts:?}")
}

fn small_profile() -> Profile {
    let mut profile = new_profile();
    for n in 0..40 {
        add(&mut profile, &[0, 1, n % 7, n], Metric::CpuTime, u64::from(n) + 1);
    }
    profile.ledger.gap(Stage::Resolve, Reason::new("no-row", "the unwind table has no row for this PC"), 3);
    profile.ledger.dropped(Stage::Decode, Reason::new("short-record", "the record is too short"), 2);
    profile.executables.push(Executable {
        path: "/l/libx.so".to_owned(),
        build_id: "ab12".to_owned(),
        size: Bytes(9),
    });
    profile
}

/// A finished profile of two flushes.
fn stored() -> (TempDir, PathBuf, Profile) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.dctx");
    let mut profile = small_profile();
    let mut writer = Writer::create(&path, &profile.meta).unwrap();
    writer.flush(&profile, at(1_000)).unwrap();
    add(&mut profile, &[0, 1, 196, 2], Metric::CpuTime, 77);
    add(&mut profile, &[0, 1], Metric::GpuTime, u64::MAX);
    profile.executables.push(Executable {
        path: "/l/liby.so".to_owned(),
        build_id: String::new(),
        size: Bytes(1),
    });
    writer.finish(&profile, at(2_000)).unwrap();
    (folder, path, profile)
}

fn held(path: &Path) -> Arc<Folder> {
    Arc::new(Folder::open(path).unwrap())
}

pub(super) fn segments(path: &Path) -> Vec<String> {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut segments: Vec<String> = names.filter(|name| name.ends_with(".parquet")).collect();
    segments.sort();
    segments
}

#[test]
fn what_was_written_is_what_is_opened() {
    let (_folder, path, profile) = stored();
    let opened = open(&path).unwrap();
    assert_eq!(contents(&opened.profile), contents(&profile));
    assert!(opened.is_complete());
    assert_eq!(opened.elapsed.0, 2_000);
    assert_eq!(segments(&path).len(), 10);
}

#[test]
fn unfinished_profile_opens_at_its_last_flush_with_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.dctx");
    let mut profile = small_profile();
    let mut writer = Writer::create(&path, &profile.meta).unwrap();
    assert!(!open(&path).unwrap().finished);
    writer.flush(&profile, at(1_000)).unwrap();
    let flushed = contents(&profile);
    add(&mut profile, &[3, 4, 5], Metric::CpuTime, 1);
    // Left by an interrupted flush.
    fs::write(path.join("frames-000001.parquet"), "half").unwrap();
    fs::write(path.join(".manifest.json.new"), "{\"form").unwrap();

    let mut opened = open(&path).unwrap();
    assert!(!opened.finished && opened.lost.is_empty());
    assert_eq!(opened.profile.ledger.stage(Stage::Store).gaps.count("not-finished"), 1);
    opened.profile.ledger.stage_mut(Stage::Store).gaps = Default::default();
    assert_eq!(contents(&opened.profile), flushed);
}

#[test]
fn a_flush_with_nothing_new_adds_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut profile) = (folder.path().join("run.dctx"), small_profile());
    let mut writer = Writer::create(&path, &profile.meta).unwrap();
    writer.flush(&profile, at(1)).unwrap();
    let before = segments(&path);
    writer.flush(&profile, at(2)).unwrap();
    assert_eq!(segments(&path), before);
    add(&mut profile, &[0, 1, 0, 0], Metric::CpuTime, 5);
    writer.flush(&profile, at(3)).unwrap();
    let new: Vec<String> = segments(&path).into_iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(new, ["ledger-000002.parquet", "values-000002.parquet"]);
}

#[test]
fn existing_output_is_refused_with_a_hint_and_left_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.dctx");
    fs::write(&path, "precious").unwrap();
    let error = Writer::create(&path, &Meta::default()).unwrap_err();
    assert!(matches!(error, StoreError::AlreadyExists(_)) && error.hint().is_some());
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_missing_parent_folder_is_an_error_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let error = Writer::create(&folder.path().join("no/such/run.dctx"), &Meta::default()).unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("create the folder that shall hold the profile first"));
}

#[test]
fn failed_flush_keeps_the_previous_one_and_the_next_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.dctx");
    let mut profile = small_profile();
    let mut writer = Writer::create(&path, &profile.meta).unwrap();
    writer.flush(&profile, at(1_000)).unwrap();
    let (flushed, files) = (open(&path).unwrap(), segments(&path));

    // A folder in the file's place simulates a full disk, even for root.
    let aside = folder.path().join("aside");
    for obstacle in ["manifest.json", "values-000002.parquet"] {
        add(&mut profile, &[3, 4, 5], Metric::CpuTime, 1);
        let there = fs::rename(path.join(obstacle), &aside).is_ok();
        fs::create_dir(path.join(obstacle)).unwrap();
        let error = writer.flush(&profile, at(2_000)).unwrap_err();
        assert!(matches!(error, StoreError::Write { .. }), "{error}");
        fs::remove_dir(path.join(obstacle)).unwrap();
        if there {
            fs::rename(&aside, path.join(obstacle)).unwrap();
        }
        assert_eq!(contents(&open(&path).unwrap().profile), contents(&flushed.profile));
        assert_eq!(segments(&path), files);
    }
    writer.finish(&profile, at(3_000)).unwrap();
    assert_eq!(contents(&open(&path).unwrap().profile), contents(&profile));
}

/// A file that writers must not touch.
fn victim(folder: &Path) -> (PathBuf, impl Fn() -> bool + use<>) {
    let path = folder.join("victim");
    fs::write(&path, "precious").unwrap();
    (path.clone(), move || fs::read_to_string(&path).unwrap() == "precious")
}

#[test]
fn flushes_go_to_a_folder_that_was_moved() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved, trap) =
        (folder.path().join("run"), folder.path().join("moved"), folder.path().join("trap"));
    let (victim, is_unharmed) = victim(folder.path());
    let mut profile = small_profile();
    let mut writer = Writer::create(&path, &profile.meta).unwrap();
    writer.flush(&profile, at(1_000)).unwrap();
    fs::rename(&path, &moved).unwrap();
    fs::create_dir(&trap).unwrap();
    // All names that a flush and a merge could write to or remove.
    for name in ["manifest.json", ".manifest.json.new", "frames-000000.parquet", "values-000001.parquet"] {
        symlink(&victim, trap.join(name)).unwrap();
    }
    symlink(&trap, &path).unwrap();
    for round in 2..20 {
        add(&mut profile, &[3, 4, 5], Metric::CpuTime, 1);
        writer.flush(&profile, at(1_000 * round)).unwrap();
        writer.merge().unwrap();
    }
    writer.finish(&profile, at(20_000)).unwrap();
    assert!(is_unharmed());
    assert_eq!(fs::read_dir(&trap).unwrap().count(), 4);
    assert_eq!(contents(&open(&moved).unwrap().profile), contents(&profile));
}

#[test]
fn planted_links_are_replaced_and_not_written_through() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.dctx");
    let (victim, is_unharmed) = victim(folder.path());
    let profile = small_profile();
    let mut writer = Writer::create(&path, &profile.meta).unwrap();
    let planted = [".manifest.json.new", ".nodes-000000.parquet.new", "frames-000000.parquet"];
    for name in planted {
        symlink(&victim, path.join(name)).unwrap();
    }
    fs::remove_file(path.join("manifest.json")).unwrap();
    symlink(&victim, path.join("manifest.json")).unwrap();
    writer.finish(&profile, at(1_000)).unwrap();
    assert!(is_unharmed());
    assert_eq!(contents(&open(&path).unwrap().profile), contents(&profile));
    for name in segments(&path).iter().map(String::as_str).chain(["manifest.json"]) {
        assert!(fs::symlink_metadata(path.join(name)).unwrap().is_file(), "{name}");
    }
}

#[test]
fn a_profile_is_for_its_owner_alone() {
    let (_folder, path, _) = stored();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for file in fs::read_dir(&path).unwrap() {
        let file = file.unwrap().path();
        assert_eq!(mode(&file), 0o600, "{file:?}");
    }
}

#[test]
fn links_and_pipes_among_segments_are_lost_segments() {
    let (folder, path, _) = stored();
    let file = path.join("nodes-000000.parquet");
    let aside = folder.path().join("aside");
    fs::rename(&file, &aside).unwrap();
    let because = || open(&path).unwrap().lost.first().map(|lost| lost.because.clone());
    symlink(&aside, &file).unwrap();
    assert_eq!(because().as_deref(), Some("not a regular file"));
    fs::remove_file(&file).unwrap();
    // Opening it for reading would block until a writer appears.
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    assert_eq!(because().as_deref(), Some("not a regular file"));
}

#[test]
fn a_delta_that_was_overtaken_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.dctx");
    let mut profile = small_profile();
    let mut writer = Writer::create(&path, &profile.meta).unwrap();
    let (first, second) = (writer.delta(&profile, at(1)).unwrap(), writer.delta(&profile, at(1)).unwrap());
    add(&mut profile, &[3, 4, 5], Metric::CpuTime, 1);
    assert!(first.bytes() > 0);
    writer.commit(first, false).unwrap();
    assert!(matches!(writer.commit(second, false), Err(StoreError::StaleDelta)));
    writer.finish(&profile, at(2)).unwrap();
    assert_eq!(contents(&open(&path).unwrap().profile), contents(&profile));
}

#[test]
fn damaged_segments_are_labelled_losses_and_the_rest_is_read() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage, &str); 5] = [
        ("missing", |file| fs::remove_file(file).unwrap(), "No such file"),
        (
            "cut",
            |file| fs::write(file, &fs::read(file).unwrap()[..20]).unwrap(),
            "it has 20 bytes instead of",
        ),
        (
            "flipped",
            |file| {
                let mut bytes = fs::read(file).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                fs::write(file, bytes).unwrap();
            },
            "its checksum is wrong",
        ),
        (
            "folder",
            |file| {
                fs::remove_file(file).unwrap();
                fs::create_dir(file).unwrap();
            },
            "not a regular file",
        ),
        ("empty", |file| fs::write(file, "").unwrap(), "it has 0 bytes instead of"),
    ];
    let (_folder, path, profile) = stored();
    // Only the newest ledger is read.
    for file in segments(&path).into_iter().filter(|file| file != "ledger-000000.parquet") {
        for (name, damage, because) in damages {
            let (_folder, path, _) = stored();
            damage(&path.join(&file));
            let opened = open(&path).unwrap();
            assert_eq!(opened.lost.len(), 1, "{file} {name}");
            assert_eq!(opened.lost[0].file, file);
            assert!(opened.lost[0].because.contains(because), "{file} {name}: {:?}", opened.lost);
            assert_eq!(opened.profile.ledger.stage(Stage::Store).gaps.count("segment-lost"), 1);
            if !file.starts_with("values") {
                let total = |profile: &Profile| profile.tree.total(Metric::CpuTime);
                assert_eq!(total(&opened.profile), total(&profile), "{file} {name}");
            }
        }
    }
}

#[test]
fn contexts_of_a_lost_segment_are_shown_as_lost() {
    let (_folder, path, _) = stored();
    fs::remove_file(path.join("nodes-000000.parquet")).unwrap();
    fs::remove_file(path.join("frames-000001.parquet")).unwrap();
    let text = text::tree(&open(&path).unwrap().profile);
    assert!(
        text.contains("[unknown: context-lost]  cpu-time=") && text.contains("[unknown: frame-lost]"),
        "{text}"
    );
}

#[test]
fn previous_ledger_is_read_when_the_newest_is_lost() {
    let (_folder, path, profile) = stored();
    fs::remove_file(path.join("ledger-000001.parquet")).unwrap();
    let opened = open(&path).unwrap();
    let kept = |profile: &Profile| profile.ledger.stage(Stage::Attribute).kept;
    assert_eq!((kept(&opened.profile), kept(&profile)), (40, 42));
}

#[test]
fn what_is_no_profile_is_named_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    let check = |manifest: Option<&str>, expect: &str| {
        let path = folder.path().join("x.dctx");
        _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        if let Some(manifest) = manifest {
            fs::write(path.join("manifest.json"), manifest).unwrap();
        }
        let error = open(&path).unwrap_err().to_string().replace(path.to_str().unwrap(), "x.dctx");
        assert_eq!(error, expect);
    };
    check(None, "`x.dctx` is not a profile: it has no `manifest.json`");
    check(
        Some(""),
        "`x.dctx` is not a profile: `manifest.json` is damaged: EOF while parsing a value at line 1 column 0",
    );
    check(
        Some("{\"format\": \"other\", \"version\": 1}"),
        "`x.dctx` is not a profile: `manifest.json` has the format `other`",
    );
    check(
        Some("{\"format\": \"deepctx-profile\", \"version\": 2, \"anything\": []}"),
        "`x.dctx` has profile format 2.0, but this program reads format 1: \
         it needs a deepctx-bpf that reads format 2",
    );
    let missing = open(&folder.path().join("none.dctx")).unwrap_err();
    assert!(matches!(missing, OpenError::NotFound { .. }));
    let file = folder.path().join("file.dctx");
    fs::write(&file, "x").unwrap();
    assert!(
        open(&file)
            .unwrap_err()
            .to_string()
            .ends_with("is not a profile: it is neither a folder nor a packed one")
    );
}

#[test]
fn a_packed_profile_is_the_folder_in_one_file() {
    let (folder, path, profile) = stored();
    let packed = folder.path().join("packed.dctx");
    pack(&held(&path), &mut fs::File::create(&packed).unwrap()).unwrap();
    assert!(is_packed(&packed) && !is_packed(&path));
    let (from_folder, from_file) = (open(&path).unwrap(), open(&packed).unwrap());
    assert!(from_file.is_complete());
    assert_eq!(from_file.elapsed, from_folder.elapsed);
    assert_eq!(contents(&from_file.profile), contents(&profile));
}

#[test]
fn a_list_cannot_put_other_files_into_a_packed_profile() {
    let (folder, path, _) = stored();
    fs::write(folder.path().join("victim"), "precious").unwrap();
    let manifest = path.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap().replace("frames-000000.parquet", "../victim");
    fs::write(&manifest, text).unwrap();
    let mut packed = Vec::new();
    let error = pack(&held(&path), &mut packed).unwrap_err();
    assert!(matches!(error, StoreError::Open(OpenError::Read { .. })), "{error}");
    assert!(packed.windows(8).all(|part| part != b"precious"));
}

#[test]
fn a_file_that_no_reader_opens_is_not_packed() {
    let (_folder, path, _) = stored();
    let file = fs::File::options().write(true).open(path.join("frames-000000.parquet")).unwrap();
    // The rest takes no room on the disk.
    file.set_len(super::read::SEGMENT_BYTES_MAX + 1).unwrap();
    let error = pack(&held(&path), &mut std::io::sink()).unwrap_err();
    let StoreError::Open(OpenError::Read { source, .. }) = error else { panic!("{error}") };
    assert_eq!(source.kind(), std::io::ErrorKind::FileTooLarge);
}

#[test]
fn truncated_packed_profile_opens_incomplete_or_fails_with_an_error() {
    let (folder, path, _) = stored();
    let mut whole = Vec::new();
    pack(&held(&path), &mut whole).unwrap();
    let cut = folder.path().join("cut.dctx");
    // Everything after the last byte of the last file is padding.
    let end = whole.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    for length in (0..end).step_by(97).chain([511, 512, 513, end - 1]) {
        fs::write(&cut, &whole[..length]).unwrap();
        match open(&cut) {
            Ok(opened) => assert!(!opened.is_complete(), "cut at {length} of {end}"),
            Err(error) => {
                let said = error.to_string();
                assert!(said.contains("not a profile") || said.contains("cannot read"), "{said}");
            }
        }
    }
}

#[test]
fn a_segment_cannot_point_outside_the_profile() {
    for name in ["../secret", "/etc/passwd", "", ".hidden", "a/b"] {
        let (_folder, path, _) = stored();
        let manifest = path.join("manifest.json");
        let text = fs::read_to_string(&manifest).unwrap().replace("frames-000000.parquet", name);
        fs::write(&manifest, text).unwrap();
        assert_eq!(open(&path).unwrap().lost[0].because, "it has a name that no segment has");
    }
}

#[test]
fn truncated_manifest_is_an_error_and_never_a_panic() {
    let (_folder, path, _) = stored();
    let manifest = path.join("manifest.json");
    let text = fs::read(&manifest).unwrap();
    for length in 0..text.len() {
        fs::write(&manifest, &text[..length]).unwrap();
        assert!(matches!(open(&path), Err(OpenError::Corrupt { .. })), "cut at {length}");
    }
}

/// Not a test by itself: the writer that the next test kills.
#[test]
fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os("DEEPCTX_TEST_WRITE_INTO") else { return };
    let mut profile = new_profile();
    let mut writer = Writer::create(Path::new(&path), &profile.meta).unwrap();
    for n in 0.. {
        add(&mut profile, &[0, 1, n % 50, n], Metric::CpuTime, 1);
        writer.flush(&profile, at(u64::from(n))).unwrap();
        writer.merge().unwrap();
    }
}

#[test]
fn writer_killed_at_any_moment_leaves_a_readable_profile() {
    let folder = tempfile::tempdir().unwrap();
    // Long enough for several merges, one per eighth flush.
    for round in 0..12 {
        let path = folder.path().join(format!("{round}.dctx"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::tests::writes_until_it_is_killed"])
            .env("DEEPCTX_TEST_WRITE_INTO", &path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let flushed =
            || fs::read_to_string(path.join("manifest.json")).is_ok_and(|text| text.contains("nodes-"));
        while !flushed() {
            assert!(child.try_wait().unwrap().is_none(), "the writer ended by itself");
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_micros(9_100 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let opened = open(&path).unwrap();
        assert!(!opened.finished);
        assert_eq!(opened.lost, []);
        let total = opened.profile.tree.total(Metric::CpuTime);
        assert!(total.count > 0);
        assert_eq!(opened.profile.ledger.stage(Stage::Attribute).kept, total.count);
        assert_eq!(opened.profile.ledger.check(CheckTime::Finished), Ok(()));
    }
}

fn steps() -> impl Strategy<Value = Vec<Vec<(Vec<u32>, usize, u64)>>> {
    let value = prop_oneof![0u64..1000, Just(u64::MAX)];
    let one = (prop::collection::vec(0u32..60, 0..8), 0usize..4, value);
    prop::collection::vec(prop::collection::vec(one, 0..20), 1..5)
}

proptest! {
    // Each case writes and syncs files.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 8))]

    #[test]
    fn however_a_profile_grows_between_flushes_it_comes_back_whole(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.dctx");
        let mut profile = new_profile();
        let mut writer = Writer::create(&path, &profile.meta).unwrap();
        for (round, step) in (1u64..).zip(&steps) {
            for (stack, metric, value) in step {
                add(&mut profile, stack, Metric::ALL[*metric], *value);
            }
            writer.flush(&profile, at(round)).unwrap();
        }
        writer.finish(&profile, at(99)).unwrap();
        let opened = open(&path).unwrap();
        prop_assert!(opened.is_complete());
        // Saturated sums cannot be separated from their parts.
        let saturated = profile.tree.metrics().any(|m| profile.tree.cells(m).any(|(_, c)| c.sum == u64::MAX && c.count > 1));
        if saturated {
            prop_assert_eq!(opened.profile.tree.len(), profile.tree.len());
        } else {
            prop_assert_eq!(contents(&opened.profile), contents(&profile));
        }
    }

    #[test]
    fn hostile_segments_with_right_checksums_never_panic(
        table in 0usize..5,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.dctx");
        let profile = small_profile();
        Writer::create(&path, &profile.meta).unwrap().finish(&profile, at(1)).unwrap();
        let name = &segments(&path)[table];
        let mut bytes = fs::read(path.join(name)).unwrap();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(path.join(name), &bytes).unwrap();
        let manifest = path.join("manifest.json");
        let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
        for segment in json["segments"].as_array_mut().unwrap() {
            if segment["file"] == name.as_str() {
                segment["bytes"] = bytes.len().into();
                segment["crc32"] = crc32fast::hash(&bytes).into();
            }
        }
        fs::write(&manifest, json.to_string()).unwrap();
        let opened = open(&path).unwrap();
        prop_assert!(opened.lost.len() <= 1);
    }
}
