//! Unwind tables from arbitrary bytes: an ELF file, its call frame sections, a cached table, Go's function table,
//! memory next to generated code.
//!
//! The first byte selects the format of the rest. Beyond "no panic, no hang, bounded memory": a table must be sorted,
//! find its own rows, survive its cache file, and agree with gimli's interpreter on each frame that overlaps no other.

use deepctx_common::unwind::{PAGE_SHIFT, Rule, fp_kind, row, rule_kind};
use deepctx_symbolizer::generated::{GeneratedCode, described, frame_runs};
use deepctx_symbolizer::pclntab::Pclntab;
use deepctx_symbolizer::unwind_rows::{Limits, UnwindTable, cache};
use gimli::{BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, RegisterRule, UnwindSection, X86_64};

/// Address of the section, in the middle of the text, so that relative addresses in both directions stay inside.
const SECTION: u64 = 0x80_0000;
const TEXT: (u64, u64) = (0x1000, 0x100_0000);

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    match kind % 7 {
        0 => {
            check(data);
        }
        1 => {
            if let Some(table) = check(&elf(data, &[])) {
                compare(&table, data);
            }
        }
        2 => {
            check(&elf(&[], data));
        }
        3 => {
            let (eh_frame, debug_frame) = data.split_at(data.len() / 2);
            check(&elf(eh_frame, debug_frame));
        }
        4 => cached(data),
        5 => go(data),
        _ => generated(data),
    }
}

/// Limits small enough that a table with the maximum of pages does not dominate the run time.
fn limits() -> Limits {
    Limits { rows: 1 << 20, pages: 1 << 10, section_bytes: 16 << 20, ..Limits::default() }
}

fn check(file: &[u8]) -> Option<UnwindTable> {
    let table = UnwindTable::from_elf_within(file, &limits()).ok()?;
    let mut last = None;
    for (address, rule) in table.rows() {
        assert!(last < Some(address), "rows out of order at {address:#x}");
        assert_eq!(table.lookup(address), Some(*rule));
        last = Some(address);
    }
    for (page, blocks) in table.pages().iter().zip(table.page_blocks()) {
        assert_eq!(usize::from(page.blocks), blocks.len());
        assert!(
            blocks.first().is_none_or(|block| row::pc_low(block[0]) == 0),
            "a page without its first row"
        );
    }
    let begin = u64::from(table.first_page()) << PAGE_SHIFT;
    for address in [0, begin.wrapping_sub(1), begin, begin + 0xffff, u64::MAX] {
        table.lookup(address);
    }
    assert_eq!(cache::decode(&cache::encode(&table)).as_ref(), Some(&table));
    Some(table)
}

/// The parts of each function must lie in the function, in order.
fn go(data: &[u8]) {
    let Ok(table) = Pclntab::parse(data, Some(TEXT.0)) else { return };
    for function in table.functions() {
        assert!(function.range.start < function.range.end);
        let mut before = function.range.start;
        for (range, _) in table.depths(&function) {
            assert!(range.start == before && range.end <= function.range.end);
            before = range.end;
        }
    }
}

/// The functions that a run of frame descriptions covers must be those that gimli finds, if gimli can read it to the
/// end.
fn generated(memory: &[u8]) {
    let mut frames = Vec::new();
    for run in frame_runs(memory) {
        let (address, run) = (SECTION + run.start as u64, &memory[run]);
        let functions = described(address, run);
        assert!(functions.is_sorted_by_key(|function| function.start));
        if let Some(found) = all_described(address, run) {
            assert!(functions.iter().all(|function| found.contains(&(function.start, function.end))));
        }
        frames.push((address, run.to_vec()));
    }
    let code = GeneratedCode {
        text: TEXT.0..TEXT.0 + 0x1000,
        code: vec![0x90; 0x1000],
        frames,
        functions: Vec::new(),
    };
    check(&code.to_elf());
}

/// Begin and end of all functions that gimli finds; `None` if it stops before the end.
fn all_described(address: u64, eh_frame: &[u8]) -> Option<Vec<(u64, u64)>> {
    let section = EhFrame::new(eh_frame, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut found = Vec::new();
    let mut entries = section.entries(&bases);
    while let Some(entry) = entries.next().ok()? {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
        found.push((fde.initial_address(), fde.end_address()));
    }
    Some(found)
}

/// A cached table with a valid checksum.
fn cached(data: &[u8]) {
    let mut bytes = data.to_vec();
    if let Some(sum) = cache::checksum(&bytes) {
        bytes[cache::SUM_AT..][..4].copy_from_slice(&sum.to_le_bytes());
    }
    if let Some(table) = cache::decode(&bytes) {
        for (address, _) in table.rows().take(1 << 12) {
            table.lookup(address);
        }
        table.forms();
    }
}

/// Every frame that gimli finds and that overlaps no other must have the rows that gimli computes.
fn compare(table: &UnwindTable, eh_frame: &[u8]) {
    let section = EhFrame::new(eh_frame, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(SECTION).set_text(TEXT.0);
    let mut frames = Vec::new();
    let mut entries = section.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
        // gimli does not dereference such an address, and the table refuses it.
        if fde.cie().fde_address_encoding().is_some_and(|encoding| encoding.is_indirect()) {
            continue;
        }
        let begin = fde.initial_address();
        if begin.checked_add(fde.len()).is_some_and(|end| TEXT.0 <= begin && begin < end && end <= TEXT.1) {
            frames.push(fde);
        } else if fde.len() > 0 {
            // The table may still contain the row, cut to the text.
            return;
        }
    }
    if table.stats().get(deepctx_symbolizer::unwind_rows::Count::Frames) != frames.len() as u64 {
        // gimli stopped at something that the table skipped.
        return;
    }
    let mut context = gimli::UnwindContext::new();
    for fde in &frames {
        let (begin, end) = (fde.initial_address(), fde.initial_address() + fde.len());
        let overlaps = |other: &&gimli::FrameDescriptionEntry<_>| {
            other.initial_address() < end && begin < other.initial_address() + other.len()
        };
        if fde.is_signal_trampoline() || frames.iter().filter(overlaps).count() > 1 {
            continue;
        }
        let Ok(mut rows) = fde.rows(&section, &bases, &mut context) else { continue };
        let ra = fde.cie().return_address_register();
        while let Ok(Some(row)) = rows.next_row() {
            let (from, to) = (row.start_address().max(begin), row.end_address().min(end));
            if from >= to {
                continue;
            }
            for address in [from, to - 1] {
                let rule = table.lookup(address).expect("an address of a frame has a rule");
                same(&rule, row.cfa(), row.register(X86_64::RBP), row.register(ra), address);
            }
        }
    }
}

/// A supported rule must agree with gimli.
fn same(
    rule: &Rule,
    cfa: &CfaRule<usize>,
    rbp: Option<RegisterRule<usize>>,
    ra: Option<RegisterRule<usize>>,
    address: u64,
) {
    assert_ne!(rule.cfa, rule_kind::NONE, "at {address:#x}");
    if rule.cfa == rule_kind::END {
        assert!(matches!(ra, Some(RegisterRule::Undefined)), "at {address:#x}: {rule:?}, {ra:?}");
        return;
    }
    if rule.cfa == rule_kind::UNSUPPORTED {
        return;
    }
    if let CfaRule::RegisterAndOffset { register, offset } = cfa {
        let base = match rule.cfa {
            rule_kind::SP => X86_64::RSP,
            rule_kind::FP => X86_64::RBP,
            rule_kind::X86_R10 => X86_64::R10,
            rule_kind::X86_R13 => X86_64::R13,
            rule_kind::X86_RBX => X86_64::RBX,
            rule_kind::REGISTER => gimli::Register(u16::from(rule.detail)),
            _ => panic!("at {address:#x}: {rule:?}, {cfa:?}"),
        };
        assert_eq!((base, i64::from(rule.cfa_offset)), (*register, *offset), "at {address:#x}");
    }
    match rbp {
        None | Some(RegisterRule::SameValue) => assert_eq!(rule.fp, fp_kind::SAME, "at {address:#x}"),
        Some(RegisterRule::Undefined) => assert_eq!(rule.fp, fp_kind::UNDEFINED, "at {address:#x}"),
        Some(RegisterRule::Offset(offset)) => {
            assert_eq!((rule.fp, i64::from(rule.fp_offset)), (fp_kind::AT_CFA, offset), "at {address:#x}");
        }
        // The two supported expressions; an empty or constant one is relative to the CFA.
        Some(RegisterRule::Expression(_)) => {
            assert!(matches!(rule.fp, fp_kind::AT_CFA | fp_kind::X86_AT_FP | fp_kind::X86_AT_SP));
        }
        Some(RegisterRule::Register(X86_64::RBP)) => assert_eq!(rule.fp, fp_kind::SAME),
        other => panic!("at {address:#x}: {rule:?}, {other:?}"),
    }
}

/// An ELF file with one executable segment and these sections.
fn elf(eh_frame: &[u8], debug_frame: &[u8]) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.eh_frame\0.debug_frame\0";
    let names_at = 64 + 56;
    let eh_at = names_at + NAMES.len();
    let debug_at = eh_at + eh_frame.len();
    let headers_at = (debug_at + debug_frame.len()).next_multiple_of(8);
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
    for word in [0, 64, headers_at as u64] {
        file.extend(word.to_le_bytes());
    }
    file.extend([0; 4]);
    for half in [64u16, 56, 1, 64, 4, 3] {
        file.extend(half.to_le_bytes());
    }
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [0x1000, TEXT.0, TEXT.0, 0, TEXT.1 - TEXT.0, 1] {
        file.extend(word.to_le_bytes());
    }
    file.extend([NAMES, eh_frame, debug_frame].concat());
    file.resize(headers_at + 64, 0);
    let sections = [(1u32, 1u32, SECTION, eh_at, eh_frame.len()), (11, 1, 0, debug_at, debug_frame.len())];
    for (name, kind, address, at, length) in sections.into_iter().chain([(0, 3, 0, names_at, NAMES.len())]) {
        file.extend([name.to_le_bytes(), kind.to_le_bytes()].concat());
        for word in [0, address, at as u64, length as u64, 0, 1, 0] {
            file.extend(word.to_le_bytes());
        }
    }
    file
}
