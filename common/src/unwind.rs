//! Unwind tables, as both sides see them.
//!
//! ```text
//! PROCESSES[pid] ──▶ MAPPINGS[start..start+len]  sorted by begin ──▶ EXECUTABLES[id]
//!                                                                     │ pages_base + (svma>>16 - first_page)
//!                                                                     ▼
//!        RULES[rules_base + rule] ◀── row = pc_low:16 | rule:16 ◀── PAGES[..] = shard, first block, row count
//!                                            in SHARDS[shard][block] = 16 rows (one cache line)
//! ```
//! A page is 64 KiB of text. The rows of a page are sorted by `pc_low`; a page starts at a new block and never
//! straddles two shards. The row for a PC is the last one with `pc_low <= pc & 0xffff`. A page whose first row lies
//! above its beginning gets a copy of the row in force there (or a [`rule_kind::NONE`] rule).

use crate::Plain;

/// log2 of the text bytes covered by one page.
pub const PAGE_SHIFT: u32 = 16;
/// Rows in one block: 16 × 4 bytes, one cache line.
pub const ROWS_PER_BLOCK: usize = 16;
/// Blocks in one shard: 16 Ki × 64 B = 1 MiB.
pub const BLOCKS_PER_SHARD: u32 = 16 * 1024;
/// Limit on shards (1 MiB each): 128 MiB or 33.5 M rows over all processes; torch and jax together need about 30.
pub const SHARDS_MAX: u32 = 128;
/// Limit on pages over all executables: 16 GiB of text.
pub const PAGES_MAX: u32 = 1 << 18;
/// Limit on rules over all executables (libtorch_cpu, the largest seen, has 1407).
pub const RULES_MAX: u32 = 1 << 17;
/// Limit on executables loaded at a time.
pub const EXECUTABLES_MAX: u32 = 8192;
/// Limit on executable mappings over all processes.
pub const MAPPINGS_MAX: u32 = 1 << 16;
/// Limit on processes walked at a time.
pub const PROCESSES_MAX: u32 = 8192;
/// Steps of the mapping search in the kernel: enough for 2^11 executable mappings of one process.
pub const MAPPING_SEARCH_STEPS: u32 = 12;
/// Steps of the block search within one page: 65536 rows / 16 = 2^12 blocks.
pub const BLOCK_SEARCH_STEPS: u32 = 13;

/// 16 rows, packed by [`row`]. Unused rows at the end repeat the last one.
pub type RowBlock = [u32; ROWS_PER_BLOCK];

/// A row: `pc_low << 16 | rule`, so that rows compare as integers.
pub mod row {
    /// Packs a row.
    #[inline(always)]
    pub const fn pack(pc_low: u16, rule: u16) -> u32 {
        (pc_low as u32) << 16 | rule as u32
    }
    /// Low 16 bits of the first PC of the row.
    #[inline(always)]
    pub const fn pc_low(row: u32) -> u16 {
        (row >> 16) as u16
    }
    /// Index into the executable's rules.
    #[inline(always)]
    pub const fn rule(row: u32) -> u16 {
        row as u16
    }
}

/// How to compute the canonical frame address (CFA) and the caller's registers.
///
/// The caller's stack pointer is the CFA. `sp` and `fp` stand for rsp and rbp on x86-64, for sp and x29 on aarch64.
/// Kinds specific to one architecture have it in their names.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// One of [`rule_kind`].
    pub cfa: u8,
    /// One of [`fp_kind`].
    pub fp: u8,
    /// One of [`ra_kind`].
    pub ra: u8,
    /// Depends on `cfa`. [`rule_kind::UNSUPPORTED`]: one of [`unsupported`]. `X86_PLT`: the threshold. `REGISTER`,
    /// `X86_HANDLER`: the register. `X86_GO_CALLS_C`: bytes. All others: one of [`rule_detail`].
    pub detail: u8,
    /// Offset added to the base register (before the load, for the `DEREF` kinds).
    pub cfa_offset: i32,
    /// Offset of the saved frame pointer, from the base that [`Rule::fp`] names.
    pub fp_offset: i32,
    /// `DEREF` kinds and `X86_SAVED_RBX`: added after the load. `X86_GO_CALLS_C`: offset of the second word.
    /// [`ra_kind::AT_CFA`]: offset of the return address from the CFA. No rule needs two of these, because on x86-64
    /// the return address is always at CFA − 8.
    pub addend: i32,
}

/// Values of [`Rule::cfa`].
pub mod rule_kind {
    /// No row: the PC is between functions.
    pub const NONE: u8 = 0;
    /// CFA = sp + offset.
    pub const SP: u8 = 1;
    /// CFA = fp + offset.
    pub const FP: u8 = 2;
    /// CFA = *(rbp + offset) + addend (stack realignment by GCC).
    pub const X86_FP_DEREF: u8 = 3;
    /// CFA = *(rsp + offset) + addend.
    pub const X86_SP_DEREF: u8 = 4;
    /// CFA = r10 + offset; r10 is known at the leaf only.
    pub const X86_R10: u8 = 5;
    /// CFA = r13 + offset; r13 is known at the leaf only.
    pub const X86_R13: u8 = 6;
    /// CFA = rbx + offset; rbx is known at the leaf only.
    pub const X86_RBX: u8 = 7;
    /// CFA = rsp + 8 + 8 × ((rip & 15) >= detail): a PLT stub.
    pub const X86_PLT: u8 = 8;
    /// A signal frame: the registers are in the `ucontext` above sp (`struct rt_sigframe` of the architecture).
    pub const SIGNAL: u8 = 9;
    /// The outermost frame: the return address is undefined.
    pub const END: u8 = 10;
    /// An unsupported form; `detail` says which.
    pub const UNSUPPORTED: u8 = 11;
    /// No rows: unwind by frame pointer. fp points at the saved fp of the caller; the return address is the next word.
    pub const FRAME_POINTER: u8 = 12;
    /// CFA = register + offset, for any other register; `detail` is its DWARF number, and its value is known at the
    /// leaf only.
    pub const REGISTER: u8 = 13;
    /// CFA = rbp + offset, on whichever stack rbp points to: the function switches stacks and keeps rbp. This kind and
    /// those after it are rare, and have a separate step function.
    pub const X86_SWITCHED: u8 = 14;
    /// Go's call of C. *(rsp + offset) is the goroutine, and *(rsp + addend) is the depth of its stack pointer below
    /// the end of its stack: CFA = *(goroutine + 8) - *(rsp + addend) + detail. If the goroutine is null, the second
    /// word is the stack pointer itself: CFA = *(rsp + addend) + detail.
    pub const X86_GO_CALLS_C: u8 = 15;
    /// The function resumes at an exception handler, in the frame that catches. The CFA of that frame is register +
    /// offset, or *(rbp + offset) for rbp; `detail` names the register (rcx, rsp, rbp). [`super::Rule::ra`] says where
    /// the address of the handler is; that is not a return address. Leaf only.
    pub const X86_HANDLER: u8 = 16;
    /// CFA = *(rsp + offset) + addend: the frame keeps its CFA in rbx, and its callee saved rbx there. Callers only.
    pub const X86_SAVED_RBX: u8 = 17;
    /// Number of kinds.
    pub const COUNT: usize = 18;
}

/// Values of [`Rule::detail`] for kinds that give it no other meaning.
pub mod rule_detail {
    /// The row was derived from instructions; the compiler did not emit it.
    pub const DERIVED: u8 = 1;
}

/// Values of [`Rule::fp`].
pub mod fp_kind {
    /// The caller's fp is still in fp.
    pub const SAME: u8 = 0;
    /// The caller's fp was saved at CFA + offset.
    pub const AT_CFA: u8 = 1;
    /// The caller's rbp was saved at rbp + offset (`DW_CFA_expression`: `DW_OP_breg6 offset`).
    pub const X86_AT_FP: u8 = 2;
    /// The caller's fp is not recoverable; it is unknown from here on.
    pub const UNDEFINED: u8 = 3;
    /// The caller's rbp was saved at rsp + offset (`DW_OP_breg7 offset`).
    pub const X86_AT_SP: u8 = 4;
}

/// Values of [`Rule::ra`].
pub mod ra_kind {
    /// At CFA − 8, where the call pushed it.
    pub const X86_AT_CFA_MINUS_8: u8 = 0;
    /// In rdi (`vfork` in glibc: the child must not overwrite the parent's return address). Leaf only.
    pub const X86_IN_RDI: u8 = 1;
    /// At another offset. No builder emits it; the walk refuses it.
    pub const OTHER: u8 = 2;
    /// In the link register x30. Functions that call others save it. Leaf only.
    pub const AARCH64_IN_LR: u8 = 3;
    /// Saved at CFA + [`super::Rule::addend`].
    pub const AT_CFA: u8 = 4;
    /// In rcx, for a [`super::rule_kind::X86_HANDLER`].
    pub const X86_IN_RCX: u8 = 5;
}

/// Why a row is unsupported: [`Rule::detail`] of [`rule_kind::UNSUPPORTED`].
pub mod unsupported {
    /// A CFA register other than those above.
    pub const CFA_REGISTER: u8 = 1;
    /// A CFA expression of another form.
    pub const CFA_EXPRESSION: u8 = 2;
    /// An offset that does not fit into 32 bits.
    pub const OFFSET_RANGE: u8 = 3;
    /// The frame pointer is in another register or given by another expression.
    pub const FP_RULE: u8 = 4;
    /// The return address is given by a rule of another form.
    pub const RA_RULE: u8 = 5;
    /// The call frame program is damaged from here on.
    pub const BAD_PROGRAM: u8 = 6;
    /// Sentences, by number.
    pub const SENTENCES: [&str; 7] = [
        "supported",
        "CFA from an unusual register",
        "CFA from an unusual expression",
        "offset beyond 32 bits",
        "frame pointer by an unusual rule",
        "return address by an unusual rule",
        "damaged call frame program",
    ];
}

/// Location of the rows of one 64 KiB page of text.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// First block within the shard.
    pub first_block: u32,
    /// Shard.
    pub shard: u16,
    /// Number of blocks; 0 if the page has no rows.
    pub blocks: u16,
}

/// An executable with a loaded unwind table. Its id is the index into `EXECUTABLES`; id 0 is never used.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executable {
    /// Stated address (SVMA) of the first page, >> [`PAGE_SHIFT`].
    pub first_page: u32,
    /// Number of pages.
    pub pages: u32,
    /// Index of the first page in `PAGES`.
    pub pages_base: u32,
    /// Index of the first rule in `RULES`.
    pub rules_base: u32,
    /// Number of rules.
    pub rules: u32,
    /// Bits of [`executable_flag`] below [`EXECUTABLE_SERIAL_SHIFT`]. Above it a serial number, unique per executable,
    /// so that cached data of one is not used for its successor in the same slot.
    pub flags: u32,
}

/// Position of the serial number in [`Executable::flags`].
pub const EXECUTABLE_SERIAL_SHIFT: u32 = 8;

/// Bits of [`Executable::flags`] and of [`Mapping::flags`].
pub mod executable_flag {
    /// Code without rows is unwound by frame pointers (JIT, Go, binaries stripped of `.eh_frame`).
    pub const FRAME_POINTERS: u32 = 1;
    /// Anonymous executable memory (JIT).
    pub const ANONYMOUS: u32 = 2;
    /// The vdso.
    pub const VDSO: u32 = 4;
}

/// One executable mapping of a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address in the process (AVMA).
    pub begin: u64,
    /// One past the last address.
    pub end: u64,
    /// AVMA − SVMA: subtract it from a PC to get the stated address in the file.
    pub bias: u64,
    /// Index into `EXECUTABLES`; 0 if there is no table (yet).
    pub executable: u32,
    /// Bits of [`executable_flag`].
    pub flags: u32,
}

// SAFETY: repr(C), integers only, no padding (asserted in `layout`).
unsafe impl Plain for Rule {}
// SAFETY: as above.
unsafe impl Plain for Page {}
// SAFETY: as above.
unsafe impl Plain for Executable {}
// SAFETY: as above.
unsafe impl Plain for Mapping {}
