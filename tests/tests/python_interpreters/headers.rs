//! The layout tables against the compiled headers of every CPython installed here.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::pythons;
use deepctx_common::python::NO_FIELD;
use deepctx_symbolizer::python::Layout;

/// Header folders: those of interpreters that have them, and those in `DEEPCTX_PYTHON_HEADERS` (separated by colons,
/// each with its `patchlevel.h`).
fn headers() -> Vec<PathBuf> {
    let program = "import sysconfig; print(sysconfig.get_paths()['include'])";
    let of = |python: crate::support::Python| {
        let output = Command::new(&python.path).args(["-c", program]).output().ok()?;
        Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
    };
    let more = std::env::var_os("DEEPCTX_PYTHON_HEADERS").unwrap_or_default();
    let found = pythons().into_iter().filter_map(of).chain(std::env::split_paths(&more));
    found
        .filter(|folder| {
            ["internal/pycore_runtime.h", "pyconfig.h"].iter().all(|file| folder.join(file).exists())
        })
        .collect()
}

/// Names and offsets by the compiler. With `define`, as if the interpreter were built with it.
fn compiled(folder: &Path, define: Option<&str>) -> Vec<(String, u64)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python_interpreters/offsets.c");
    let scratch = tempfile::tempdir().unwrap();
    let binary = scratch.path().join("offsets");
    let mut compiler = Command::new("cc");
    compiler.arg("-w").arg("-I").arg(folder).arg("-I").arg(folder.join("internal"));
    // Debian's architecture folder of pyconfig.h, which the common one includes.
    compiler.arg("-I").arg(folder.parent().unwrap());
    compiler.args(define.map(|name| format!("-D{name}=1"))).arg("-o").arg(&binary).arg(source);
    assert!(compiler.status().unwrap().success(), "{}", folder.display());
    let output = String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap();
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    output.lines().map(pair).collect()
}

fn minor_of(folder: &Path) -> u8 {
    let text = std::fs::read_to_string(folder.join("patchlevel.h")).unwrap();
    let line = text.lines().find(|line| line.starts_with("#define PY_MINOR_VERSION")).unwrap();
    line.split_whitespace().nth(2).unwrap().parse().unwrap()
}

/// The table's values, under the names of `offsets.c`. Fields that the version lacks are skipped.
fn stated(layout: &Layout) -> Vec<(String, u64)> {
    let (k, u) = (&layout.kernel, &layout.user);
    let sentinel = k.entry_rule == deepctx_common::python::entry_rule::SENTINEL;
    let bit = |n: u32| 1_u64 << (u32::from(u.str_kind_shift) + n);
    let fields: [(&str, u16); 31] = [
        ("tstate_frame", k.tstate_frame),
        ("cframe_current_frame", k.cframe_current_frame),
        ("tstate_thread_id", k.tstate_thread_id),
        ("frame_code", k.frame_code),
        ("frame_previous", k.frame_previous),
        ("frame_instruction", k.frame_instruction),
        ("frame_entry_mark", k.frame_entry_mark),
        ("frame_tlbc_index", k.frame_tlbc_index),
        ("entry_value", if sentinel { k.entry_value.into() } else { NO_FIELD }),
        ("code_identity", k.code_identity),
        ("code_identity_words", k.code_identity_words),
        ("code_argcount", u.code_argcount),
        ("code_flags", u.code_flags),
        ("code_firstlineno", u.code_firstlineno),
        ("code_bytecode", k.code_bytecode),
        ("code_tlbc", k.code_tlbc),
        ("code_filename", u.code_filename),
        ("code_name", u.code_name),
        ("code_qualname", u.code_qualname),
        ("code_lines", u.code_lines),
        ("code_first_traceable", u.code_first_traceable),
        ("object_type", u.object_type),
        ("bytes_size", u.bytes_size),
        ("bytes_data", u.bytes_data),
        ("str_length", u.str_length),
        ("str_state", u.str_state),
        ("runtime_tss", u.runtime_tss),
        ("runtime_running", u.runtime_running),
        ("frame_owner", u.frame_owner),
        ("frame_locals", u.frame_locals),
        ("runtime_main", u.runtime_main),
    ];
    let more = [
        ("str_ascii_data", u.str_ascii_data.into()),
        ("str_compact_data", u.str_compact_data.into()),
        ("str_kind_bit", bit(0)),
        ("str_compact_bit", bit(3)),
        ("str_ascii_bit", bit(4)),
    ];
    let present = fields.into_iter().filter(|(_, offset)| *offset != NO_FIELD);
    let jit = [("interpreter_jit", u64::from(u.interpreter_jit))].into_iter().filter(|(_, at)| *at != 0);
    let all = present.map(|(name, offset)| (name, u64::from(offset))).chain(more).chain(jit);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn check(folder: &Path, free_threaded: bool) {
    let minor = minor_of(folder);
    let layout = Layout::of(minor, free_threaded).unwrap();
    let mut compiled = compiled(folder, free_threaded.then_some("Py_GIL_DISABLED"));
    let mut stated = stated(layout);
    compiled.sort();
    stated.sort();
    assert_eq!(stated, compiled, "{}, free-threaded: {free_threaded}", folder.display());
    println!("{}, free-threaded: {free_threaded}: {} fields agree", folder.display(), stated.len());
}

#[test]
fn every_layout_agrees_with_the_headers_of_its_version() {
    let found = headers();
    if found.is_empty() || Command::new("cc").arg("--version").output().is_err() {
        let missing = "needs a C compiler and the headers of a CPython";
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{missing}");
        println!("skipped: {missing}");
        return;
    }
    for folder in found {
        check(&folder, false);
        // The same headers describe the free-threaded build; only a configuration macro differs.
        if minor_of(&folder) >= 13 {
            check(&folder, true);
        }
    }
}
