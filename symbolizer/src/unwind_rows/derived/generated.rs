//! Owns: finding where functions begin in memory that a program filled with code itself.
//! Because: such code has no symbols, and generators start each function on a page or at an aligned address.
//! Does not: derive rows.

use std::ops::Range;

use deepctx_address_space::Arch;

use iced_x86::{Decoder, DecoderOptions, Mnemonic, Register};

use super::of_arch;

/// Generators map, fill and protect code by pages, each of which begins with a function.
const PAGE_BYTES: usize = 4096;
/// Most pages looked at: 256 MiB, more than the code caches of all generators seen.
const PAGES_MAX: usize = 1 << 16;

/// The functions that begin at a page boundary of `code` at `address`, each up to the beginning of the next.
///
/// A function begins where the instruction is one that functions begin with and hardly anything else does: `endbr64`,
/// a push of a register that functions must preserve, or room being made on the stack. No function begins in code of
/// a machine whose instructions cannot be read.
pub fn entries_of_generated_code(arch: Arch, code: &[u8], address: u64) -> Vec<Range<u64>> {
    if of_arch(arch).is_none() {
        return Vec::new();
    }
    let first = address.wrapping_neg() as usize % PAGE_BYTES;
    let mut begins: Vec<u64> = (first..code.len())
        .step_by(PAGE_BYTES)
        .take(PAGES_MAX)
        .filter(|&at| is_prologue(&code[at..]))
        .filter_map(|at| address.checked_add(at as u64))
        .collect();
    begins.dedup();
    let end = address.saturating_add(code.len() as u64);
    let ends = begins.iter().skip(1).copied().chain([end]);
    begins.iter().zip(ends).map(|(&begin, end)| begin..end).collect()
}

fn is_prologue(code: &[u8]) -> bool {
    let instruction = Decoder::new(64, code, DecoderOptions::NONE).decode();
    let first = instruction.op0_register();
    match instruction.mnemonic() {
        Mnemonic::Endbr64 => true,
        Mnemonic::Push => matches!(
            first,
            Register::RBP | Register::RBX | Register::R12 | Register::R13 | Register::R14 | Register::R15
        ),
        // By an amount, not by a register, which may be either sign.
        Mnemonic::Sub => first == Register::RSP && instruction.op1_register() == Register::None,
        _ => false,
    }
}
