//! The per-opcode functions of an interpreter whose evaluation loop is built from tail calls.
//!
//! Owns: [`opcode_functions`]. Because: since 3.14 CPython built with clang has a function for each opcode
//! (`--with-tail-call-interp`; Python/generated_cases.c.h and ceval_macros.h), and in a stripped build only the table
//! through which they jump to one another identifies them. Does not: read symbols from a file that has them.
//!
//! ```text
//! _PyEval_EvalFrameDefault ── call ─▶ first ── jmp *table(,%opcode,8) ─▶ opcode ── jmp *table(,%opcode,8) ─▶ …
//!                                                                         └ jmp ─▶ error, unwinding
//! ```

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use object::ReadRef;

use super::elf::{Elf, Extent, Symbol};
use super::eval_ranges::jumps_out_of;

/// Prefix of CPython's names of these functions (`TARGET` and `LABEL` in Python/ceval_macros.h).
const PREFIX: &str = "_TAIL_CALL_";
/// Prefix of our name of an opcode's own function.
const OPCODE: &str = "_TAIL_CALL_opcode_";
/// Entries of the table: an opcode is a byte.
const OPCODES: usize = 256;
/// An entry shared by this many opcodes is that of undefined opcodes.
const UNKNOWN_OPCODES: usize = 8;
/// Most bytes decoded of one function; the largest seen has 6 KB.
const FUNCTION_BYTES_MAX: u64 = 64 << 10;
/// Most functions that the evaluation loop may call first.
const CALLED_MAX: usize = 64;
/// Most parts of functions: some hundred opcodes, the cold part of each, and shared parts.
const PARTS_MAX: usize = 2048;
/// Most bytes of relocations; libpython has half a megabyte.
const RELOCATIONS_MAX: u64 = 64 << 20;

/// The parts of the functions, and their names, by stated address; empty for any other file. The opcode is shown by its
/// number, since the file does not contain its name.
pub(crate) fn opcode_functions<'a, R: ReadRef<'a>>(data: R) -> Vec<(Range<u64>, String)> {
    let found = Elf::parse(data).and_then(|elf| {
        let evaluation = elf.exported("_PyEval_EvalFrameDefault")?;
        let (first, table) = table(&elf, evaluation)?;
        let entries = entries(&elf, table)?;
        Some(parts(&elf, first, &entries))
    });
    found.unwrap_or_default()
}

/// The first function called by the evaluation loop that jumps through a table, and the table's stated address.
fn table<'a, R: ReadRef<'a>>(elf: &Elf<'a, R>, evaluation: Symbol) -> Option<(u64, u64)> {
    let begin = evaluation.address;
    let end = begin.checked_add(evaluation.size.min(FUNCTION_BYTES_MAX))?;
    let mut called: Vec<u64> = instructions(elf, [begin, end])
        .filter(|instruction| instruction.mnemonic() == Mnemonic::Call)
        .map(|call| call.near_branch_target())
        .filter(|target| *target != 0)
        .collect();
    called.dedup();
    called.truncate(CALLED_MAX);
    called.into_iter().find_map(|called| {
        let extent = elf.extent_at(called).filter(|extent| extent.begin == called)?;
        Some((called, jumped_through(elf, &extent)?))
    })
}

/// The table that a function jumps through: eight bytes per entry, at an address relative to the instruction.
fn jumped_through<'a, R: ReadRef<'a>>(elf: &Elf<'a, R>, extent: &Extent) -> Option<u64> {
    let mut bases: HashMap<Register, u64> = HashMap::new();
    for instruction in instructions(elf, decoded(extent)) {
        if instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand() {
            bases.insert(instruction.op0_register(), instruction.ip_rel_memory_address());
            continue;
        }
        let jump = instruction.flow_control() == FlowControl::IndirectBranch
            && instruction.op0_kind() == OpKind::Memory
            && instruction.memory_index_scale() == 8
            && instruction.memory_index() != Register::None;
        if jump {
            return match instruction.memory_base() {
                Register::None => Some(instruction.memory_displacement64()),
                base if instruction.memory_displacement64() == 0 => bases.get(&base).copied(),
                _ => None,
            };
        }
    }
    None
}

/// The targets of the table, by opcode; `None` if it is not such a table.
fn entries<'a, R: ReadRef<'a>>(elf: &Elf<'a, R>, table: u64) -> Option<Vec<u64>> {
    let bytes = elf.bytes_at(table, OPCODES as u64 * 8).filter(|bytes| bytes.len() == OPCODES * 8)?;
    let mut entries: Vec<u64> =
        bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    // In position-independent files the dynamic linker writes the addresses.
    for [at, info, addend] in relocations(elf) {
        /// `R_X86_64_RELATIVE` (System V ABI, table 4.9).
        const RELATIVE: u64 = 8;
        let entry = at.wrapping_sub(table) / 8;
        if info == RELATIVE && at >= table && entry < OPCODES as u64 && at.is_multiple_of(8) {
            entries[entry as usize] = addend;
        }
    }
    let leads = |entry: &u64| elf.extent_at(*entry).is_some_and(|extent| extent.begin == *entry);
    entries.iter().all(leads).then_some(entries)
}

/// Offset, type and addend of each relocation.
fn relocations<'a, R: ReadRef<'a>>(elf: &Elf<'a, R>) -> impl Iterator<Item = [u64; 3]> {
    let bytes = elf.section(".rela.dyn", RELOCATIONS_MAX).unwrap_or_default();
    bytes.as_chunks::<24>().0.iter().map(|relocation| {
        let words = relocation.as_chunks::<8>().0;
        [0, 1, 2].map(|word| u64::from_le_bytes(words[word]))
    })
}

/// The functions, their split-off parts, and the functions that they jump to.
fn parts<'a, R: ReadRef<'a>>(elf: &Elf<'a, R>, first: u64, entries: &[u64]) -> Vec<(Range<u64>, String)> {
    let mut opcodes: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (opcode, entry) in entries.iter().enumerate() {
        opcodes.entry(*entry).or_default().push(opcode);
    }
    let name = |(entry, opcodes): (u64, Vec<usize>)| match opcodes[..] {
        [first, ..] if opcodes.len() < UNKNOWN_OPCODES => (entry, format!("{OPCODE}{first}")),
        _ => (entry, format!("{PREFIX}unknown_opcode")),
    };
    let mut waiting: Vec<(u64, String)> = opcodes.into_iter().map(name).collect();
    waiting.push((first, format!("{PREFIX}start_frame")));
    let mut parts = Parts::default();
    parts.add(elf, waiting);
    // The target of one opcode's jump is a split-off part of it; the target of several is shared by them.
    while !parts.left_to.is_empty() {
        let left_to = std::mem::take(&mut parts.left_to).into_iter().map(|(target, by)| match &*by {
            [one] => (target, one.clone()),
            _ => (target, format!("{PREFIX}label")),
        });
        parts.add(elf, left_to.collect());
    }
    parts.found.into_iter().map(|(begin, (end, name))| (begin..end, name)).collect()
}

/// Parts of functions, by begin.
#[derive(Default)]
struct Parts {
    found: BTreeMap<u64, (u64, String)>,
    /// Beginnings of functions that these jump to, with the names of the functions that do.
    left_to: BTreeMap<u64, Vec<String>>,
}

impl Parts {
    /// Adds functions, and the parts that are entered with their stack frame.
    fn add<'a, R: ReadRef<'a>>(&mut self, elf: &Elf<'a, R>, mut waiting: Vec<(u64, String)>) {
        let mut next = 0;
        while let Some((address, name)) = waiting.get(next).cloned() {
            next += 1;
            let Some(extent) = elf.extent_at(address).filter(|_| self.found.len() < PARTS_MAX) else {
                continue;
            };
            if self.found.contains_key(&extent.begin) {
                continue;
            }
            self.found.insert(extent.begin, (extent.end, name.clone()));
            for target in jumps_out_of(elf, decoded(&extent)) {
                let Some(other) = elf.extent_at(target) else { continue };
                if !other.is_function || other.begin != target {
                    waiting.push((target, name.clone()));
                    continue;
                }
                // Their jump targets may make calls.
                if !name.starts_with(OPCODE) || self.found.contains_key(&target) {
                    continue;
                }
                let by = self.left_to.entry(target).or_default();
                if by.len() < 2 && !by.contains(&name) {
                    by.push(name.clone());
                }
            }
        }
    }
}

/// The decoded part of a function.
fn decoded(extent: &Extent) -> [u64; 2] {
    [extent.begin, extent.end.min(extent.begin.saturating_add(FUNCTION_BYTES_MAX))]
}

fn instructions<'a, R: ReadRef<'a>>(
    elf: &Elf<'a, R>,
    [begin, end]: [u64; 2],
) -> impl Iterator<Item = Instruction> + use<'a, R> {
    let text = elf.bytes_at(begin, end - begin).unwrap_or_default();
    Decoder::with_ip(64, text, begin, DecoderOptions::NONE).into_iter()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// Like CPython: this many opcodes have a function of their own, and undefined ones share the last entry.
    fn source(opcodes: usize) -> String {
        let mut text = "typedef long Opcode(unsigned char *, long);\nstatic Opcode *const TABLE[256];\n\
            __attribute__((noinline, cold)) static long error(unsigned char *at, long sum) { return sum + at[7] * 3; }\n"
            .to_owned();
        for opcode in 0..opcodes {
            writeln!(
                text,
                "__attribute__((noinline)) static long _TAIL_CALL_{opcode}(unsigned char *at, long sum) {{\n\
                 if (sum == {opcode} - 7) return error(at, sum);\n\
                 sum += at[1] * {opcode}; return TABLE[at[2]](at + 2, sum); }}"
            )
            .unwrap();
        }
        text.push_str("static long last(unsigned char *at, long sum) { return at[0] + sum; }\n");
        text.push_str("static Opcode *const TABLE[256] = {\n");
        for entry in 0..256 {
            let name = if entry < opcodes { format!("_TAIL_CALL_{entry}") } else { "last".to_owned() };
            writeln!(text, "{name},").unwrap();
        }
        text.push_str(
            "};\n__attribute__((noinline)) static long start(unsigned char *at, long sum) {\n\
             return TABLE[at[0]](at, sum + 1); }\n\
             long _PyEval_EvalFrameDefault(unsigned char *at) { volatile long sum = at[1]; return start(at, sum) + 1; }\n",
        );
        text
    }

    fn built(folder: &Path, opcodes: usize, options: &[&str]) -> Vec<u8> {
        let (source_file, file) = (folder.join("loop.c"), folder.join("loop.so"));
        std::fs::write(&source_file, source(opcodes)).unwrap();
        let mut command = Command::new("cc");
        command.args(["-O2", "-fno-ipa-icf", "-shared", "-fPIC", "-s"]).args(options).arg("-o");
        assert!(command.arg(&file).arg(&source_file).status().unwrap().success());
        std::fs::read(file).unwrap()
    }

    #[test]
    fn functions_of_opcodes_are_found_without_symbols() {
        let folder = tempfile::tempdir().unwrap();
        let found = opcode_functions(&*built(folder.path(), 200, &[]));
        let named = |name: &str| found.iter().filter(|(_, other)| other == name).count();
        for opcode in 0..200 {
            // With the part that compilers split off.
            assert!((1..=2).contains(&named(&format!("{OPCODE}{opcode}"))), "{opcode}: {found:?}");
        }
        let shared = ["start_frame", "unknown_opcode", "label"];
        assert_eq!(shared.map(|name| named(&format!("{PREFIX}{name}"))), [1, 1, 1], "{found:?}");
        assert!(found.is_sorted_by_key(|(range, _)| range.start));
        assert!(found.windows(2).all(|pair| pair[0].0.end <= pair[1].0.start), "no two overlap");
    }

    #[test]
    fn damaged_files_give_nothing_or_functions_within_them() {
        let folder = tempfile::tempdir().unwrap();
        let whole = built(folder.path(), 200, &[]);
        assert_eq!(opcode_functions(&b"\x7fELF"[..]), []);
        for length in (0..whole.len()).step_by(whole.len() / 97) {
            assert!(opcode_functions(&whole[..length]).len() <= PARTS_MAX);
        }
        for at in (0..whole.len()).step_by(whole.len() / 331) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            assert!(opcode_functions(&*damaged).len() <= PARTS_MAX);
        }
    }

    #[test]
    fn an_evaluation_loop_without_a_table_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let source = "__attribute__((noinline)) static long f(long x) { return x * 3; }\n\
            long _PyEval_EvalFrameDefault(long x) { volatile long y = x; return f(y) + 1; }\n";
        std::fs::write(folder.path().join("plain.c"), source).unwrap();
        let mut command = Command::new("cc");
        command.args(["-O2", "-shared", "-fPIC", "-o", "plain.so", "plain.c"]).current_dir(folder.path());
        assert!(command.status().unwrap().success());
        assert_eq!(opcode_functions(&*std::fs::read(folder.path().join("plain.so")).unwrap()), []);
    }
}
