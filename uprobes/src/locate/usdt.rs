//! USDT: instructions that the authors of a file marked for probes, with the arguments available there.
//!
//! Owns: the section `.note.stapsdt`, and the notation for argument locations. Because: such a probe may be in the
//! middle of a function, and one name may have several probes with arguments in different places. Does not: know what a
//! probe means.
//!
//! Form: <https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation>, and `sys/sdt.h`.
//!
//! ```text
//!  note   │ size of name, size of body, 3 │ "stapsdt" │ place, base, semaphore │ provider │ name │ "-8@%rbp -1@%al" │
//! ```

use std::collections::HashSet;

use deepctx_address_space::Svma;

use super::elf::{ByteSource, Image};
use crate::abi::Scalar;
use crate::abi::{Location, Register};

/// Maximum bytes of the section: interpreters and databases have tens of kilobytes.
const SECTION_BYTES_MAX: u64 = 1 << 20;
/// Maximum probes of a file.
pub const PROBES_MAX: usize = 4096;
/// Maximum arguments of a probe: the macros that create notes allow no more.
const ARGUMENTS_MAX: usize = 12;
const OWNER: &[u8] = b"stapsdt\0";
const TYPE: u32 = 3;

/// One instruction of a USDT probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsdtProbe {
    /// Definer of the probe.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// Stated address of the instruction.
    pub at: Svma,
    /// Stated address of the counter that must be above zero for the instruction to be reached; `None` if there is
    /// none.
    pub semaphore: Option<Svma>,
    /// Location of each argument there; `None` if a probe cannot read it (a constant, a sum of registers, a vector
    /// register).
    pub arguments: Vec<Option<(Scalar, Location)>>,
    /// Address of the section `.stapsdt.base` when the note was made.
    base: u64,
}

/// The USDT probes of a file.
pub fn probes<S: ByteSource + ?Sized>(image: &Image<'_, S>) -> Vec<UsdtProbe> {
    let Some((_, section)) = image.section(".note.stapsdt", SECTION_BYTES_MAX) else { return Vec::new() };
    let mut probes = parse(&section);
    // Tools that move a file's segments do not update these notes: the section shows the distance.
    if let Some((base, _)) = image.section(".stapsdt.base", SECTION_BYTES_MAX) {
        for probe in probes.iter_mut().filter(|probe| probe.base != 0) {
            let moved = base.0.wrapping_sub(probe.base);
            probe.at.0 = probe.at.0.wrapping_add(moved);
            probe.semaphore = probe.semaphore.map(|at| Svma(at.0.wrapping_add(moved)));
        }
    }
    probes
}

/// The probes in the bytes of a section; everything after a damaged note is left out, and so are duplicates.
pub fn parse(section: &[u8]) -> Vec<UsdtProbe> {
    let mut probes: Vec<UsdtProbe> = Vec::new();
    let mut seen = HashSet::new();
    let mut rest = section;
    while probes.len() < PROBES_MAX {
        let Some(note) = Note::first(rest) else { break };
        rest = note.after;
        if note.owner == OWNER
            && note.kind == TYPE
            && let Some(probe) = probe(note.body)
            && seen.insert((probe.at, probe.provider.clone(), probe.name.clone()))
        {
            probes.push(probe);
        }
    }
    probes
}

/// A note of an ELF file, and the bytes after it.
struct Note<'a> {
    owner: &'a [u8],
    kind: u32,
    body: &'a [u8],
    after: &'a [u8],
}

impl<'a> Note<'a> {
    fn first(bytes: &'a [u8]) -> Option<Self> {
        let (sizes, rest) = bytes.split_first_chunk::<12>()?;
        let word = |at: usize| sizes[at..].first_chunk().map_or(0, |four| u32::from_le_bytes(*four));
        let (owner, body) = (word(0) as usize, word(4) as usize);
        let body_at = owner.checked_next_multiple_of(4)?;
        let end = body_at.checked_add(body)?;
        // The padding of the last one may be missing.
        let after = end.checked_next_multiple_of(4)?.min(rest.len());
        Some(Self {
            owner: rest.get(..owner)?,
            kind: word(8),
            body: rest.get(body_at..end)?,
            after: &rest[after..],
        })
    }
}

fn probe(body: &[u8]) -> Option<UsdtProbe> {
    let (numbers, texts) = body.split_first_chunk::<24>()?;
    let number = |at: usize| numbers[at..].first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight));
    let mut texts = texts.split(|byte| *byte == 0).map(str::from_utf8);
    let mut text = || texts.next()?.ok();
    let (provider, name, arguments) = (text()?, text()?, text()?);
    Some(UsdtProbe {
        provider: provider.to_owned(),
        name: name.to_owned(),
        at: Svma(number(0)),
        semaphore: Some(number(16)).filter(|at| *at != 0).map(Svma),
        arguments: arguments.split_ascii_whitespace().take(ARGUMENTS_MAX).map(argument).collect(),
        base: number(8),
    })
}

/// Location of an argument in assembler notation: `-8@%rbp`, `4@16(%rsp)`.
pub fn argument(text: &str) -> Option<(Scalar, Location)> {
    let (size, operand) = text.split_once('@')?;
    let (signed, size) = size.strip_prefix('-').map_or((false, size), |size| (true, size));
    let bytes = match size {
        "1" => 1,
        "2" => 2,
        "4" => 4,
        "8" => 8,
        _ => return None,
    };
    let scalar = Scalar { bytes, signed, pointer: false };
    if let Some(name) = operand.strip_prefix('%') {
        let (register, shift) = part(name)?;
        return Some((scalar, Location::Register { register, shift }));
    }
    let (offset, register) = operand.strip_suffix(')')?.split_once("(%")?;
    let offset = match offset {
        "" => 0,
        offset => number(offset)?,
    };
    Some((scalar, Location::BehindRegister { register: Register::named(register)?, offset }))
}

fn number(text: &str) -> Option<i32> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse(),
        None => return None,
    };
    let value = i32::try_from(value.ok()?).ok()?;
    Some(if negative { -value } else { value })
}

/// The register that a part belongs to, and the shift of the part within it.
fn part(name: &str) -> Option<(Register, u8)> {
    if let Some(register) = Register::named(name) {
        return Some((register, 0));
    }
    let of = |full: String| Some((Register::named(&full)?, 0));
    let bytes = name.as_bytes();
    match bytes {
        // r8d, r8w, r8b
        [b'r', number @ .., b'd' | b'w' | b'b'] if number.iter().all(u8::is_ascii_digit) => {
            of(name.get(..name.len() - 1)?.to_owned())
        }
        [b'e', _, _] => of(format!("r{}", name.get(1..)?)),
        [a @ b'a'..=b'd', b'l'] => of(format!("r{}x", char::from(*a))),
        [a @ b'a'..=b'd', b'h'] => Some((Register::named(&format!("r{}x", char::from(*a)))?, 8)),
        [_, b'i' | b'p', b'l'] => of(format!("r{}", name.get(..2)?)),
        [_, b'x' | b'i' | b'p'] => of(format!("r{name}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_argument_is_in_a_register_or_behind_one() {
        let check = |text: &str, expect: Option<(u8, bool, &str)>| {
            let found = argument(text);
            let found = found.map(|(scalar, place)| (scalar.bytes, scalar.signed, place.to_string()));
            let expect = expect.map(|(bytes, signed, place)| (bytes, signed, place.to_owned()));
            assert_eq!(found, expect, "{text}");
        };
        // From libc10_cuda.so of PyTorch 2.15.
        check("-8@%rbp", Some((8, true, "rbp")));
        check("-1@%al", Some((1, true, "rax")));
        check("-8@56(%rsp)", Some((8, true, "[rsp+56]")));
        check("-8@-56(%rbp)", Some((8, true, "[rbp-56]")));
        check("-1@%dl", Some((1, true, "rdx")));
        check("-8@%r12", Some((8, true, "r12")));
        // Other forms.
        check("4@%r10d", Some((4, false, "r10")));
        check("2@%r9w", Some((2, false, "r9")));
        check("1@%r8b", Some((1, false, "r8")));
        check("4@%eax", Some((4, false, "rax")));
        check("2@%si", Some((2, false, "rsi")));
        check("1@%sil", Some((1, false, "rsi")));
        check("1@%bpl", Some((1, false, "rbp")));
        check("1@%ch", Some((1, false, "rcx>>8")));
        check("8@(%rax)", Some((8, false, "[rax+0]")));
        check("4@0x10(%rdi)", Some((4, false, "[rdi+16]")));
        for none in [
            "8@$5",
            "8@(%rax,%rbx,8)",
            "8@name+4(%rip)",
            "8f@%xmm0",
            "16@%rax",
            "8@%xmm0",
            "8@%rip",
            "8@",
            "@%rax",
            "8@4294967296(%rax)",
            "8@-4+8(%rax)",
            "8@%r16",
            "8@%",
            "8@%é",
            "",
        ] {
            check(none, None);
        }
    }

    fn a_note(owner: &[u8], kind: u32, numbers: [u64; 3], texts: &[u8]) -> Vec<u8> {
        let body: Vec<u8> =
            numbers.iter().flat_map(|n| n.to_le_bytes()).chain(texts.iter().copied()).collect();
        let mut note = Vec::new();
        for word in [owner.len() as u32, body.len() as u32, kind] {
            note.extend(word.to_le_bytes());
        }
        for part in [owner, &body] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn notes_of_others_and_duplicates_are_skipped() {
        let one = a_note(OWNER, 3, [0x171d5, 0, 0x867c8], b"pytorch\0free\0-8@%rdi\0");
        let bytes = [
            a_note(b"GNU\0", 3, [1, 2, 3], b"a\0b\0c\0"),
            one.clone(),
            a_note(OWNER, 4, [1, 2, 3], b"a\0b\0c\0"),
            a_note(OWNER, 3, [5, 0, 0], b"pytorch\0malloc\0\0"),
            one,
            a_note(OWNER, 3, [6, 0, 0], b"cut"),
        ]
        .concat();
        let probes = parse(&bytes);
        let found: Vec<_> = probes.iter().map(|probe| (&*probe.name, probe.at.0, probe.semaphore)).collect();
        assert_eq!(found, [("free", 0x171d5, Some(Svma(0x867c8))), ("malloc", 5, None)]);
        assert_eq!(probes[0].arguments.len(), 1);
        // The padding of the last note may be missing.
        let last = a_note(OWNER, 3, [7, 0, 0], b"p\0n\0\0");
        assert_eq!(parse(&last[..last.len() - 3]).len(), 1);
        assert_eq!(parse(&last[..last.len() - 4]).len(), 0);
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_nothing_breaks(bytes in prop::collection::vec(any::<u8>(), 0..300), text in ".{0,20}") {
            let probes = parse(&bytes);
            prop_assert!(probes.len() * 12 <= bytes.len());
            argument(&text);
        }

        #[test]
        fn damaged_notes_do_not_break_anything(
            at in 0usize..400, value: u8, arguments in "(-?[1248]@[-0-9%a-z()]{1,12} ?){0,14}",
        ) {
            let texts = format!("pytorch\0malloc\0{arguments}\0");
            let mut bytes = a_note(OWNER, 3, [1, 2, 3], texts.as_bytes());
            prop_assert_eq!(parse(&bytes).len(), 1);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            for probe in parse(&bytes) {
                prop_assert!(probe.arguments.len() <= ARGUMENTS_MAX);
            }
        }
    }
}
