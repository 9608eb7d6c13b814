//! Compares derived rows with those of compilers, at every instruction of complete libraries.

use std::path::Path;

use deepctx_common::unwind::{Rule, rule_kind};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use crate::unwind_rows::UnwindTable;
use crate::unwind_rows::derived::state::{State, Value};
use crate::unwind_rows::derived::{Bounds, Code, derive_all, groups};

/// Most disagreements printed.
const EXAMPLES_MAX: usize = 20;

#[derive(Debug, Default)]
struct Report {
    functions: u64,
    /// Instructions with a row by the compiler.
    instructions: u64,
    /// Of these, with a derived row.
    derived: u64,
    /// Of these, where the CFA of both can be compared.
    compared: u64,
    compared_rbp: u64,
    wrong_cfa: u64,
    wrong_rbp: u64,
    /// Of the wrong ones, where the compiler's row comes late: it still states the stack before a release, or lacks the
    /// word that was just pushed.
    stated_late: u64,
    examples: Vec<String>,
}

impl Report {
    fn range(&mut self, code: &[u8], begin: u64, from: u32, to: u32, state: &State, table: &UnwindTable) {
        let mut decoder = Decoder::with_ip(
            64,
            &code[from as usize..to as usize],
            begin + u64::from(from),
            DecoderOptions::NONE,
        );
        while decoder.can_decode() {
            let instruction = decoder.decode();
            let address = instruction.ip();
            let Some(stated) = table.lookup(address) else { continue };
            // After a call that never returns. LLVM takes it for the end of the function, with an empty stack.
            if instruction.mnemonic() == Mnemonic::Ud2 {
                continue;
            }
            if matches!(
                stated.cfa,
                rule_kind::NONE | rule_kind::UNSUPPORTED | rule_kind::END | rule_kind::SIGNAL
            ) {
                continue;
            }
            self.instructions += 1;
            let Some(rule) = state.rule() else { continue };
            assert_eq!(state.cfa_of(&rule), Some(Ok(0)), "{rule:?} does not follow from {state:?}");
            self.derived += 1;
            // After LLVM's loop that touches each page of a large frame, rsp equals r11: only the loop's condition
            // shows it, so the two rows cannot be compared.
            let is_behind_probes = (rule.cfa, rule.detail) == (rule_kind::REGISTER, DWARF_R11);
            let cfa = state.cfa_of(&stated).filter(|cfa| cfa.is_ok() || !is_behind_probes);
            if let Some(cfa) = cfa {
                self.compared += 1;
                if cfa != Ok(0) {
                    self.wrong_cfa += 1;
                    let is_late = match cfa {
                        Ok(8..=64) => true,
                        Ok(-8) => is_behind_push(code, from, begin, address),
                        _ => false,
                    };
                    self.stated_late += u64::from(stated.cfa == rule_kind::SP && is_late);
                    self.example(address, &stated, &rule, state);
                }
            }
            if let Some(rbp) = state.rbp_of(&stated) {
                self.compared_rbp += 1;
                if rbp != Value::CallerRbp {
                    self.wrong_rbp += 1;
                    self.example(address, &stated, &rule, state);
                }
            }
        }
    }

    fn example(&mut self, address: u64, stated: &Rule, rule: &Rule, state: &State) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(format!("{address:#x}: stated {stated:?}\n  derived {rule:?}\n  {state:?}"));
        }
    }
}

/// Whether the instruction before this one, the first of its range, pushes a register (`50+r`, `41 50+r`).
fn is_behind_push(code: &[u8], from: u32, begin: u64, address: u64) -> bool {
    let before = from.checked_sub(1).map(|at| code[at as usize]);
    address == begin + u64::from(from) && before.is_some_and(|byte| byte & 0xf8 == 0x50)
}

/// Number of r11 in call frame information.
const DWARF_R11: u8 = 11;

fn compare(path: &Path) -> Option<Report> {
    let bytes = std::fs::read(path).ok()?;
    let table = UnwindTable::from_elf(&bytes).unwrap();
    let file = object::File::parse(&bytes[..]).unwrap();
    let mut entries: Vec<_> = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 0)
        .map(|symbol| symbol.address()..symbol.address() + symbol.size())
        .collect();
    entries.sort_by_key(|range| (range.start, range.end));
    entries.dedup();
    let text = file.section_by_name(".text").unwrap();
    let pieces = [Code { address: text.address(), bytes: text.data().unwrap() }];
    let mut report = Report::default();
    let derived = derive_all(&pieces, &entries, &Bounds::default());
    let mut stats = Default::default();
    for group in groups(&pieces, &entries, &Bounds::default(), &mut stats) {
        report.functions += 1;
        // Functions that were refused have no rows.
        let has_row = |from: u64| {
            let after = derived.rows.partition_point(|&(row, ..)| row <= from);
            after.checked_sub(1).is_some_and(|at| from < derived.rows[at].1)
        };
        let Ok((graph, states)) = group.states(&[]) else { continue };
        let followed = graph.follow(group.range.start, states, |from, to, state| {
            if has_row(group.range.start + u64::from(from)) {
                report.range(group.code, group.range.start, from, to, state, &table);
            } else {
                report.range(group.code, group.range.start, from, to, &State::unknown(), &table);
            }
        });
        followed.unwrap();
    }
    let covered = report.derived as f64 / report.instructions.max(1) as f64 * 100.0;
    println!(
        "{}: {} functions, {} instructions, {covered:.2} % with a derived row; CFA compared {} wrong {}, \
         rbp compared {} wrong {}; {:?}",
        path.display(),
        report.functions,
        report.instructions,
        report.compared,
        report.wrong_cfa,
        report.compared_rbp,
        report.wrong_rbp,
        derived.stats,
    );
    for example in &report.examples {
        println!("  {example}");
    }
    Some(report)
}

#[test]
fn derived_rows_agree_with_gcc() {
    let more = std::env::var("DEEPCTX_ORACLE_FILES").unwrap_or_default();
    let files = [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    ];
    let files = files.into_iter().chain(more.split(':')).map(Path::new);
    let mut compared = 0;
    for report in files.filter_map(compare) {
        assert_eq!((report.wrong_cfa, report.wrong_rbp), (0, 0), "{:#?}", report.examples);
        compared += report.compared;
    }
    assert!(compared > 10_000, "none of the libraries is installed");
}

/// LLVM 21 has late rows: if it moves an `add rsp, n` shared by two paths in front of the branch, and if it moves an
/// instruction between a `push` of an argument and its row. Some 30 of half a million instructions of this program.
#[test]
fn derived_rows_agree_with_llvm_except_late_rows() {
    let report = compare(&std::env::current_exe().unwrap()).unwrap();
    assert!(report.compared > 10_000, "{report:?}");
    assert_eq!(report.wrong_rbp, 0, "{:#?}", report.examples);
    assert!(report.wrong_cfa * 10_000 <= report.compared, "{:#?}", report.examples);
    assert_eq!(report.wrong_cfa, report.stated_late, "{:#?}", report.examples);
}
