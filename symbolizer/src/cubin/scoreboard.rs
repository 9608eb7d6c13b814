//! Scoreboards: the instructions that other instructions of a kernel wait for.
//!
//! Owns: decoding the control words of instructions, and following scoreboards within basic blocks. Because: a stall
//! reason names the instruction that waits, and what can be changed is the load that it waits for. Does not: know
//! operands, so the result is a model: all instructions that share a scoreboard are candidates.
//!
//! NVIDIA does not publish the encoding. Others found it out (maxas, CuAssembler); what is used here was checked with
//! `nvdisasm` for `sm_80` to `sm_120`. An instruction is 128 bits:
//!
//! | bits | what |
//! |---|---|
//! | 0–8 | operation; the form of its operands is in bits 9–11 |
//! | 110–112 | scoreboard that is taken until the result is written; 7: none |
//! | 113–115 | scoreboard that is taken until the operands are read; 7: none |
//! | 116–121 | scoreboards that must be free before the instruction is issued, a bit for each of the six |
//!
//! A scoreboard counts: it is free when all instructions that took it are done. So the candidates are those that took
//! it since an instruction of the block last waited for it. A block begins at the target of a branch and after each
//! instruction of the control family. Targets are decoded in both known forms (fixtures and published listings show
//! them), of which at most one is right: a wrong one only makes a block shorter, so that more producers are unknown.

use std::cmp::Reverse;

use deepctx_common::samples::NoProducer;
use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, SectionHeader as _};
use rustc_hash::FxHashMap;

use super::{CubinTable, EM_CUDA, NAME_MAX, NoCubin, architecture};

/// Most waiting instructions of an image. A kernel of 6,000 instructions has 1,500.
pub const WAITS_MAX: usize = 1 << 18;
/// Most producers of an instruction, the nearest ones.
pub const PRODUCERS_MAX: usize = 3;
/// Architectures whose encoding is known.
const ARCHITECTURES: std::ops::RangeInclusive<u32> = 70..=121;
/// Bytes of an instruction.
const BYTES: usize = 16;
/// Scoreboards of a warp.
const SCOREBOARDS: usize = 6;
/// Operations of the control family: branches, calls, returns, exits, and what makes warps converge.
const CONTROL: std::ops::RangeInclusive<u16> = 0x141..=0x15f;

/// An instruction that waits for scoreboards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Bytes from the start of the function.
    pub offset: u32,
    /// Offsets of the instructions that took the scoreboards, the nearest one first; at most [`PRODUCERS_MAX`].
    pub producers: Vec<u32>,
    /// Why there are none, or why there may be others.
    pub unknown: Option<NoProducer>,
}

/// The waiting instructions of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// By function, ascending by offset.
    pub functions: FxHashMap<String, Vec<Wait>>,
    /// Instructions beyond [`WAITS_MAX`].
    pub left_out: u64,
}

/// Reads which instructions of a cubin wait for which. An image of another architecture has none.
///
/// # Errors
/// [`NoCubin`].
pub fn read(bytes: &[u8]) -> Result<Waits, NoCubin> {
    let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(|_| NoCubin::NotElf)?;
    let endian = header.endian().map_err(|_| NoCubin::NotElf)?;
    let machine = header.e_machine.get(endian).0;
    if machine != EM_CUDA {
        return Err(NoCubin::OtherMachine(machine));
    }
    let mut waits = Waits::default();
    if !ARCHITECTURES.contains(&architecture(header.e_ident.abi_version, header.e_flags.get(endian).0)) {
        return Ok(waits);
    }
    let sections = header.sections(endian, bytes).map_err(|_| NoCubin::Corrupt(CubinTable::Sections))?;
    let (mut room, mut read) = (WAITS_MAX, 0);
    for section in sections.iter() {
        let Ok(name) = sections.section_name(endian, section) else { continue };
        let Some(function) = name.strip_prefix(b".text.") else { continue };
        let Ok(code) = section.data(endian, bytes) else { continue };
        // Hostile sections may overlap: all of them together are no larger than the image.
        read += code.len();
        if function.is_empty() || function.len() > NAME_MAX || read > bytes.len() {
            continue;
        }
        let (of_function, left_out) = of_code(code, room);
        room -= of_function.len();
        waits.left_out += left_out;
        if !of_function.is_empty() {
            waits.functions.insert(String::from_utf8_lossy(function).into_owned(), of_function);
        }
    }
    Ok(waits)
}

/// The waiting instructions of a function, at most `room`, and how many there are beyond. None if the code is no whole
/// number of instructions.
fn of_code(code: &[u8], room: usize) -> (Vec<Wait>, u64) {
    let (words, []) = code.as_chunks::<BYTES>() else { return (Vec::new(), 0) };
    let words: Vec<Word> = words.iter().map(|bytes| Word(u128::from_le_bytes(*bytes))).collect();
    let begins = block_begins(&words);
    let (mut waits, mut left_out) = (Vec::new(), 0);
    let mut boards: [Scoreboard; SCOREBOARDS] = Default::default();
    for (place, word) in words.iter().enumerate() {
        let Ok(offset) = u32::try_from(place * BYTES) else { break };
        if begins.as_ref().is_some_and(|begins| begins[place]) {
            boards = Default::default();
        }
        let open = begins.is_none().then_some(NoProducer::UnknownTargets);
        match wait(offset, *word, &boards, open) {
            Some(wait) if waits.len() < room => waits.push(wait),
            Some(_) => left_out += 1,
            None => {}
        }
        for (number, board) in boards.iter_mut().enumerate() {
            if word.waits_for(number) {
                *board = Scoreboard { taken_by: Vec::new(), was_free: true };
            }
            if word.takes(number) {
                board.taken_by.truncate(PRODUCERS_MAX - 1);
                board.taken_by.insert(0, offset);
            }
        }
    }
    (waits, left_out)
}

/// What is known of a scoreboard within a block.
#[derive(Clone, Debug, Default)]
struct Scoreboard {
    /// The last instructions that took it, the nearest one first.
    taken_by: Vec<u32>,
    /// Whether an instruction of this block waited until it was free.
    was_free: bool,
}

/// What an instruction waits for; `None` if it waits for nothing. `open`: why the blocks are not known.
fn wait(
    offset: u32,
    word: Word,
    boards: &[Scoreboard; SCOREBOARDS],
    open: Option<NoProducer>,
) -> Option<Wait> {
    let waited = || waited_for(word, boards);
    waited().next()?;
    if open.is_some() {
        return Some(Wait { offset, producers: Vec::new(), unknown: open });
    }
    let mut producers: Vec<u32> = waited().flat_map(|board| &board.taken_by).copied().collect();
    producers.sort_unstable_by_key(|offset| Reverse(*offset));
    // An instruction may take two scoreboards.
    producers.dedup();
    producers.truncate(PRODUCERS_MAX);
    let taken_before = waited().any(|board| board.taken_by.is_empty() && !board.was_free);
    let unknown = taken_before.then_some(NoProducer::BeforeBlock);
    // Scoreboards that the block has seen free, and not taken since, hold nothing up.
    (taken_before || !producers.is_empty()).then_some(Wait { offset, producers, unknown })
}

/// The scoreboards that must be free before an instruction is issued.
fn waited_for(word: Word, boards: &[Scoreboard; SCOREBOARDS]) -> impl Iterator<Item = &Scoreboard> {
    boards.iter().enumerate().filter(move |(number, _)| word.waits_for(*number)).map(|(_, board)| board)
}

/// By instruction, whether a block begins there; `None` if the code does not say where its branches go.
fn block_begins(words: &[Word]) -> Option<Vec<bool>> {
    let mut begins = vec![false; words.len()];
    if let Some(first) = begins.first_mut() {
        *first = true;
    }
    for (place, word) in words.iter().enumerate() {
        match word.flow() {
            Flow::On => continue,
            Flow::Anywhere => return None,
            Flow::Exit => {}
            Flow::Target => {
                for target in word.targets(place).into_iter().flatten() {
                    if let Some(begin) = begins.get_mut(target) {
                        *begin = true;
                    }
                }
            }
        }
        if let Some(next) = begins.get_mut(place + 1) {
            *next = true;
        }
    }
    Some(begins)
}

/// Where an instruction leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// To the next one.
    On,
    /// Out of the kernel, or to the next one.
    Exit,
    /// To a place that it states, or to the next one.
    Target,
    /// To a place that it does not state.
    Anywhere,
}

/// An instruction.
#[derive(Clone, Copy, Debug)]
struct Word(u128);

impl Word {
    fn bits(self, from: u32, count: u32) -> u64 {
        (self.0 >> from) as u64 & ((1 << count) - 1)
    }

    /// Whether it is issued only when this scoreboard is free.
    fn waits_for(self, number: usize) -> bool {
        self.bits(116, 6) >> number & 1 == 1
    }

    /// Whether it takes this scoreboard, until its result is written or its operands are read.
    fn takes(self, number: usize) -> bool {
        [110, 113].iter().any(|from| self.bits(*from, 3) == number as u64)
    }

    fn flow(self) -> Flow {
        match self.bits(0, 9) as u16 {
            0x14d => Flow::Exit,
            // BSYNC, BREAK, CALL, BSSY, YIELD, BRA, WARPSYNC; LEPC; RET; RPCMOV; BMOV; KILL, BPT, NANOSLEEP.
            0x141..=0x148 | 0x14e | 0x150 | 0x152 | 0x153 | 0x155..=0x157 | 0x15b..=0x15d => Flow::Target,
            // BRX, JMP, JMX, BRXU, JMXU, and those that are not known.
            other if CONTROL.contains(&other) => Flow::Anywhere,
            _ => Flow::On,
        }
    }

    /// The instructions that it may lead to, at this place: of numbers in both known forms, those that are places.
    /// In words of four bytes from the next instruction, the number is in bits 34–81; from `sm_100` on, bits 16–23 are
    /// its lower end. What is no target, because the instruction states none, does no harm.
    fn targets(self, place: usize) -> [Option<usize>; 2] {
        let high = (self.bits(34, 48) << 16) as i64 >> 16;
        let split = (high << 8) | self.bits(16, 8) as i64;
        [high, split].map(|words| {
            let bytes = (place as i64 + 1) * BYTES as i64 + words * 4;
            let target = usize::try_from(bytes).ok().filter(|bytes| bytes.is_multiple_of(BYTES))?;
            Some(target / BYTES)
        })
    }
}

#[cfg(test)]
mod tests;
