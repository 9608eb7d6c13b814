//! Go's own table of functions (`.gopclntab`), which `strip` leaves in place.
//!
//! Owns: the bounds and names of all functions, and the depth of the stack at each of their instructions, as Go 1.16
//! and later write them. Because: the runtime itself walks stacks by this table, so it is there, and exact, where a Go
//! program has neither symbols nor call frame information. Does not: find the table in a file ([`located`]), or know
//! what a function means.
//!
//! ```text
//! header ─▶ names, each ended by a zero
//!        ─▶ deltas of depths and addresses, as varints
//!        ─▶ (entry, offset of the function) …, end of the last ─▶ function: entry, name, …, where its depths begin
//! ```
//! The bytes are untrusted: an offset outside the table fails the lookup it was for, and functions must be in
//! ascending order. Source: `runtime/symtab.go` and `cmd/link/internal/ld/pcln.go` of Go 1.16, 1.18, 1.20 and 1.27.

mod located;

use std::ops::Range;

pub(crate) use located::PclntabSection;

/// Sections that hold the table: Go's own linker names the first, others move it.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// Most functions read: Kubernetes' largest program has 0.2 million.
const FUNCTIONS_MAX: u64 = 1 << 21;
/// Longest name: those of instantiated generic functions are the longest seen, at some thousand bytes.
const NAME_MAX: usize = 1 << 14;

/// Why a table cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPclntab {
    /// It ends within its header.
    Truncated,
    /// It is of Go before 1.16, or of an unknown release.
    UnknownVersion,
    /// Its pointers are not 8 bytes long.
    OtherMachine,
    /// It has more functions than are read, or fewer bytes than they need.
    BadFunctionCount,
    /// Addresses are relative to a text section whose address is unknown.
    NoTextAddress,
}

/// Table of the functions of a Go program.
#[derive(Clone, Copy, Debug)]
pub struct Pclntab<'b> {
    /// Stated address that entries are relative to.
    text: u64,
    /// Bytes of an address in the table of functions: 8, and absolute, before Go 1.18; then 4.
    width: usize,
    /// Instructions begin at multiples of this.
    quantum: u64,
    count: usize,
    names: &'b [u8],
    deltas: &'b [u8],
    functions: &'b [u8],
}

/// One function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function<'b> {
    /// Stated addresses.
    pub range: Range<u64>,
    /// Its name with its package: `runtime.goexit.abi0`; empty when it cannot be read.
    pub name: &'b [u8],
    depths: usize,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Whether entries are relative to the text section, whose address is in the header, as since Go 1.18. `None`: the
/// release is unknown.
fn counts_from_text(magic: u32) -> Option<bool> {
    match magic {
        0xffff_fffa => Some(false),
        0xffff_fff0 | 0xffff_fff1 => Some(true),
        _ => None,
    }
}

impl<'b> Pclntab<'b> {
    /// Reads the header of a table. `text`: the address that entries are relative to, for a table without it, as of Go
    /// 1.26 and later.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn parse(bytes: &'b [u8], text: Option<u64>) -> Result<Self, NoPclntab> {
        let magic = u32_at(bytes, 0).ok_or(NoPclntab::Truncated)?;
        let has_text = counts_from_text(magic).ok_or(NoPclntab::UnknownVersion)?;
        let [quantum, pointer] = *bytes.get(6..).and_then(<[u8]>::first_chunk).ok_or(NoPclntab::Truncated)?;
        if pointer != 8 {
            return Err(NoPclntab::OtherMachine);
        }
        let word = |number: usize| u64_at(bytes, 8 + 8 * number).ok_or(NoPclntab::Truncated);
        let part = |number: usize| {
            let at = usize::try_from(word(number)?).map_err(|_| NoPclntab::Truncated)?;
            bytes.get(at..).ok_or(NoPclntab::Truncated)
        };
        let skip = usize::from(has_text);
        let text = match has_text.then(|| word(2)).transpose()? {
            None => 0,
            Some(0) => text.ok_or(NoPclntab::NoTextAddress)?,
            Some(stated) => stated,
        };
        let (width, count) = (if has_text { 4 } else { 8 }, word(0)?);
        let functions = part(6 + skip)?;
        if count > FUNCTIONS_MAX || (count as usize * 2 + 1) * width > functions.len() {
            return Err(NoPclntab::BadFunctionCount);
        }
        Ok(Self {
            text,
            width,
            quantum: u64::from(quantum.max(1)),
            count: count as usize,
            names: part(2 + skip)?,
            deltas: part(5 + skip)?,
            functions,
        })
    }

    /// All functions at plausible addresses, ascending.
    pub fn functions(&self) -> impl Iterator<Item = Function<'b>> {
        let this = *self;
        (0..this.count).filter_map(move |number| this.function(number))
    }

    /// The function at a stated address.
    pub fn find(&self, address: u64) -> Option<Function<'b>> {
        let (mut from, mut to) = (0, self.count);
        while from < to {
            let middle = usize::midpoint(from, to);
            let begin = self.text.checked_add(self.word(middle * 2 * self.width)?)?;
            (from, to) = if begin <= address { (middle + 1, to) } else { (from, middle) };
        }
        self.function(from.checked_sub(1)?).filter(|function| function.range.contains(&address))
    }

    /// A word of an entry in the table of functions.
    fn word(&self, at: usize) -> Option<u64> {
        if self.width == 8 { u64_at(self.functions, at) } else { u32_at(self.functions, at).map(u64::from) }
    }

    fn function(&self, number: usize) -> Option<Function<'b>> {
        let at = number * 2 * self.width;
        let begin = self.text.checked_add(self.word(at)?)?;
        let end = self.text.checked_add(self.word(at + 2 * self.width)?)?;
        let function = usize::try_from(self.word(at + self.width)?).ok()?;
        // After the entry: name, size of arguments, a call of deferred functions, depths; four bytes each.
        let field = |number: usize| u32_at(self.functions, function.checked_add(self.width + 4 * number)?);
        let name = self.names.get(field(0)? as usize..).unwrap_or_default();
        let length = name.iter().take(NAME_MAX).position(|&byte| byte == 0).unwrap_or(0);
        let depths = field(3)? as usize;
        (begin < end).then(|| Function { range: begin..end, name: &name[..length], depths })
    }

    /// Stack bytes that `function` has taken at its instructions, without its return address: first address, one past
    /// the last, bytes. Ascending; ends where the table is implausible.
    pub fn depths(&self, function: &Function<'b>) -> impl Iterator<Item = (Range<u64>, u32)> {
        let mut rest = self.deltas.get(function.depths..).unwrap_or_default();
        // A function without depths has offset zero.
        if function.depths == 0 {
            rest = &[];
        }
        let (mut depth, mut at, quantum) = (-1_i64, function.range.start, self.quantum);
        let Range { start: begin_of_all, end } = function.range;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            // After the first entry, a delta of zero ends the list.
            let delta = varint(&mut rest).filter(|&delta| delta != 0 || at == begin_of_all)?;
            depth += i64::from((delta >> 1).cast_signed() ^ -(delta & 1).cast_signed());
            let begin = at;
            let length = u64::from(varint(&mut rest)?).checked_mul(quantum).filter(|&length| length > 0)?;
            at = at.checked_add(length)?;
            Some((begin..at.min(end), u32::try_from(depth).ok()?))
        })
    }
}

/// Reads a varint: groups of seven bits, lowest first.
fn varint(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
pub(crate) mod tests;
