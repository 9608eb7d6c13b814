//! Finding functions in generated code.
//!
//! Owns: finding the starts of functions in memory that a program filled with code. Because: such code has no
//! symbols, and generators place each function on a page or at an aligned address. Does not: derive rows.

use std::ops::Range;

use deepctx_address_space::Arch;
use iced_x86::{Decoder, DecoderOptions, Mnemonic, Register};

use super::of_arch;

/// Generators map, fill and protect code by pages, and each page starts with a function.
const PAGE_BYTES: usize = 4096;
/// Most pages examined: 256 MiB, more than the code caches of all generators seen.
const PAGES_MAX: usize = 1 << 16;

/// The functions that start at a page boundary of `code` at `address`, each up to the start of the next.
///
/// A function starts with an instruction that hardly occurs elsewhere: `endbr64`, a push of a callee-saved register,
/// or a stack allocation. Empty for architectures without an instruction decoder.
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
        // By a constant, not by a register, which may be negative.
        Mnemonic::Sub => first == Register::RSP && instruction.op1_register() == Register::None,
        _ => false,
    }
}
