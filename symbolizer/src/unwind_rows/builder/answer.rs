//! Answer: a builder's reply for one file.
//!
//! Owns: the byte layout of a request and of an answer. Because: both sides must agree, and an answer may come from a
//! compromised builder. Does not: send or wait.
//!
//! ```text
//! request  one byte, with the ELF file and the file for its table
//! answer   u32: 0, the table is written; 1 + number of a `NoSymbol`; 256 + index of a `NoTable`
//! ```

use std::mem::discriminant;

use deepctx_address_space::{Arch, NoSymbol};

use super::NotBuilt;
use crate::unwind_rows::{Limits, NoTable};

/// A request for a table.
pub(super) const REQUEST: [u8; 1] = *b"t";
/// Bytes of an answer.
pub(super) const ANSWER_BYTES: usize = 4;
/// The first number of a [`NoTable`].
const TABLE: u32 = 256;

/// Whether the table was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BuildReply(pub(super) Result<(), NotBuilt>);

impl BuildReply {
    pub(super) fn encode(self) -> [u8; ANSWER_BYTES] {
        let number = match self.0 {
            Ok(()) => 0,
            Err(NotBuilt::File(reason)) => 1 + reason as u32,
            Err(NotBuilt::Table(reason)) => {
                let of = |other: &NoTable| discriminant(other) == discriminant(&reason);
                TABLE + reasons().iter().position(of).unwrap_or_default() as u32
            }
        };
        number.to_le_bytes()
    }

    /// `None`: invalid.
    pub(super) fn decode(bytes: [u8; ANSWER_BYTES]) -> Option<Self> {
        let number = u32::from_le_bytes(bytes);
        let answer = match (number.checked_sub(TABLE), number.checked_sub(1)) {
            (Some(index), _) => Err(NotBuilt::Table(*reasons().get(index as usize)?)),
            (None, Some(index)) => Err(NotBuilt::File(*NoSymbol::ALL.get(index as usize)?)),
            (None, None) => Ok(()),
        };
        Some(Self(answer))
    }
}

/// Possible failures of building a table. Limits are the same on both sides; append only.
fn reasons() -> [NoTable; 11] {
    let limits = Limits::default();
    let found = Arch::ALL.into_iter().find(|arch| *arch != Arch::NATIVE).unwrap_or(Arch::NATIVE);
    [
        NoTable::NotElf,
        NoTable::UnknownMachine,
        NoTable::OtherMachine { found, wanted: Arch::NATIVE },
        NoTable::NoText,
        NoTable::NoFrames,
        NoTable::SectionTooLarge(limits.section_bytes),
        NoTable::TooManyFrames(limits.frames),
        NoTable::TooManyRows(limits.rows),
        NoTable::TooManyPages(limits.pages),
        NoTable::TooManyRules(limits.rules),
        NoTable::BuilderEnded,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_decoded_as_it_was_encoded() {
        let tables = reasons().map(|reason| Err(NotBuilt::Table(reason)));
        let files = NoSymbol::ALL.iter().map(|reason| Err(NotBuilt::File(*reason)));
        for answer in tables.into_iter().chain(files).chain([Ok(())]) {
            assert_eq!(BuildReply::decode(BuildReply(answer).encode()), Some(BuildReply(answer)));
        }
        for number in [1 + NoSymbol::ALL.len() as u32, TABLE - 1, TABLE + reasons().len() as u32, u32::MAX] {
            assert_eq!(BuildReply::decode(number.to_le_bytes()), None, "{number}");
        }
    }
}
