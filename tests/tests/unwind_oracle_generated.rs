//! Call frame information that no compiler emits, against `readelf`: every assembler directive in any order.
//!
//! Owns: generating it, the same in every run, and more on CI and for `cargo xtask fuzz readelf`. Because: libraries
//! only show what compilers emit today, and anybody can write an assembler file. Does not: compare
//! (`deepctx_tests::unwind_oracle`), or generate input that `readelf` cannot read.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use deepctx_tests::numbers::Numbers;
use deepctx_tests::unwind_oracle::{Report, compare};

/// Functions per library.
const FUNCTIONS: usize = 600;
/// Number of libraries that are the same in every run.
const LIBRARIES: u64 = 6;
/// The first of them is made from it.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
/// Registers that can define a frame, by the assembler's numbers: all of x86-64 except the return address.
const REGISTERS: usize = 16;

/// One function: directives between instructions of any length.
fn function(number: usize, numbers: &mut Numbers, text: &mut String) {
    let _ = write!(text, "f{number}:\n.cfi_startproc\n");
    if numbers.below(40) == 0 {
        text.push_str(".cfi_signal_frame\n");
    }
    // Remembered states, and whether each found the frame by a register: only then may that change.
    let (mut remembered, mut by_register) = (Vec::new(), true);
    // `readelf` prints an expression where it is set, but not where a state with it is restored.
    let has_expressions = numbers.below(2) == 0;
    for _ in 0..numbers.below(14) {
        let _ = writeln!(text, ".skip {}, 0x90", numbers.of(&[1, 1, 2, 5, 63, 64, 255, 256, 300, 5000]));
        let register = numbers.of(&[7, 7, 7, 6, 6, 3, 10, numbers.0 as usize % REGISTERS]);
        let offset = numbers.of(&[8, 16, 24, 48, 176, 4096, 65_544, 1 << 20, 12]);
        let below = -numbers.of(&[8_i64, 16, 24, 32, 64, 4096, 40_000]);
        match numbers.below(14) {
            0 | 1 => {
                by_register = true;
                let _ = writeln!(text, ".cfi_def_cfa {register}, {offset}");
            }
            2 if by_register => _ = writeln!(text, ".cfi_def_cfa_register {register}"),
            3 | 4 if by_register => _ = writeln!(text, ".cfi_def_cfa_offset {offset}"),
            5 if by_register => _ = writeln!(text, ".cfi_adjust_cfa_offset {}", numbers.of(&[8, 16, 4096])),
            6 | 7 => _ = writeln!(text, ".cfi_offset {register}, {below}"),
            8 => _ = writeln!(text, ".cfi_restore {register}"),
            9 => {
                // `readelf` does not distinguish an undefined frame pointer from an unmentioned one.
                let how = if register == 6 { "same_value" } else { numbers.of(&["undefined", "same_value"]) };
                let _ = writeln!(text, ".cfi_{how} {register}");
            }
            10 => _ = writeln!(text, ".cfi_register {register}, {}", numbers.of(&[0, 6, 12])),
            11 if !has_expressions => {
                remembered.push(by_register);
                text.push_str(".cfi_remember_state\n");
            }
            12 => {
                if let Some(before) = remembered.pop() {
                    by_register = before;
                    text.push_str(".cfi_restore_state\n");
                }
            }
            _ if has_expressions => {
                by_register = false;
                escape(numbers, text);
            }
            _ => {}
        }
    }
    let _ = write!(text, ".skip {}, 0x90\n.cfi_endproc\n", 1 + numbers.below(40));
    // Some functions are adjacent.
    let _ = writeln!(text, ".skip {}, 0xcc", numbers.of(&[0, 0, 0, 8, 200]));
}

/// Expressions for the frame, for which the assembler has no directive.
fn escape(numbers: &mut Numbers, text: &mut String) {
    if numbers.below(2) == 0 {
        // DW_CFA_def_cfa_expression: DW_OP_breg10 0, DW_OP_deref, as for a realigned stack.
        let _ = writeln!(text, ".cfi_escape 0x0f, 3, 0x7a, {:#x}, 6", numbers.of(&[0, 0x78, 8]));
    } else {
        // As for the linkage table: DW_OP_breg7 8, DW_OP_breg16 0, DW_OP_lit15, DW_OP_and, DW_OP_lit11, DW_OP_ge,
        // DW_OP_lit3, DW_OP_shl, DW_OP_plus.
        text.push_str(".cfi_escape 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22\n");
    }
}

/// Whether this machine has what is needed.
fn can_compare() -> bool {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let can = cfg!(target_arch = "x86_64") && has("readelf") && has("cc");
    if !can {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "no readelf or no compiler");
        println!("skipped: this needs x86-64, readelf and a compiler");
    }
    can
}

/// Compares a library that is made from these numbers.
fn check(folder: &Path, seed: u64) -> Report {
    let mut numbers = Numbers(seed);
    let mut text = ".text\n".to_owned();
    for number in 0..FUNCTIONS {
        function(number, &mut numbers, &mut text);
    }
    let (source, built) = (folder.join("random.s"), folder.join("random.so"));
    std::fs::write(&source, &text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-nostdlib", "-o"]).arg(&built).arg(&source);
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&output.stderr));
    let report = compare(&built).unwrap();
    assert_eq!(report.mismatches, 0, "seed {seed}: {report}");
    assert!(report.frames >= FUNCTIONS as u64, "seed {seed}: {report}");
    report
}

#[test]
fn call_frame_information_at_random_is_what_readelf_prints() {
    if !can_compare() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut supported, mut unsupported) = (0, 0);
    for library in 0..LIBRARIES {
        let report = check(folder.path(), SEED ^ library << 7);
        supported += report.supported;
        unsupported += report.unsupported.values().sum::<u64>();
    }
    println!("{supported} rows of a supported form, {unsupported} of others");
    assert!(supported > 2_000 && unsupported > 2_000, "{supported} supported, {unsupported} not");
}

/// Seconds for libraries that differ from run to run; not set: there are none.
const SECONDS: &str = "DEEPCTX_FUZZ_SECONDS";

#[test]
fn new_call_frame_information_is_what_readelf_prints() {
    let Some(seconds) = std::env::var(SECONDS).ok().map(|text| text.parse().unwrap()) else { return };
    if !can_compare() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let (begin, mut libraries, mut rows) = (Instant::now(), 0, 0);
    while begin.elapsed() < Duration::from_secs(seconds) {
        // An odd number: of 0 only zeros would follow.
        rows += check(folder.path(), (now.as_nanos() as u64 ^ libraries << 7) | 1).rows;
        libraries += 1;
    }
    println!("{libraries} new libraries, {rows} rows");
}
