//! Our own collector in a process, as a file to attach to.
//!
//! Owns: recognizing it by its name and its symbols. Because: it reports device activity by calling empty functions,
//! and works only while its counter of listeners is above zero; the kernel raises that counter for a probe that gives
//! its offset. Does not: read messages.

use deepctx_address_space::{FileOffset, NoSymbol};
use deepctx_common::activity::{LISTENERS, probe};
use deepctx_common::samples;
use deepctx_events::Role;

use super::elf::{ByteSource, Image, SymbolKind};
use super::instruction::{self, FUNCTION_BYTES_MAX, Kernel};
use super::reason::NoProbe;
use crate::abi::Scalar;
use crate::abi::{Argument, Location, Register};

/// Prefix of its file name.
const NAME: &[u8] = b"libdeepctx_collector";

/// What to attach to in a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// File offset of the counter of listeners.
    pub listeners: FileOffset,
    /// Its messages.
    pub messages: Vec<MessageProbe>,
    /// File offset of the counter of listeners to instruction samples.
    pub sample_listeners: FileOffset,
    /// The message that carries instruction samples.
    pub sample_message: MessageProbe,
}

/// A function that carries a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageProbe {
    /// Number of the message, of [`probe`].
    pub what: u16,
    /// The symbol.
    pub symbol: &'static str,
    /// File offset of the probe.
    pub offset: FileOffset,
}

/// True if a file of this name is a collector.
pub fn is_named(file_name: &[u8]) -> bool {
    file_name.starts_with(NAME)
}

/// Finds the functions and the counter. All must exist: a collector with only some is of another version.
///
/// # Errors
/// Why the file is not a collector of this version.
pub fn find<S: ByteSource + ?Sized>(image: &Image<'_, S>, kernel: Kernel) -> Result<Collector, NoProbe> {
    let functions = probe::SYMBOLS.into_iter().chain([(probe::SAMPLES, samples::SYMBOL)]);
    let names: Vec<&str> = [LISTENERS, samples::LISTENERS]
        .into_iter()
        .chain(functions.clone().map(|(_, symbol)| symbol))
        .collect();
    let found = image.find(&names).map_err(NoProbe::File)?;
    let one = |i: usize, kind| {
        let symbol = found.get(i).and_then(|same| same.first()).ok_or(NoProbe::NotExported)?;
        if symbol.kind == kind { Ok(symbol) } else { Err(NoProbe::NotCode) }
    };
    let counter =
        |i| image.variable(one(i, SymbolKind::Data)?.svma, 2).ok_or(NoProbe::File(NoSymbol::CorruptElf));
    let (listeners, sample_listeners) = (counter(0)?, counter(1)?);
    let arguments = [Register::Rdi, Register::Rsi, Register::Rdx]
        .map(|register| Argument::new(Role::Other, Scalar::U64, Location::Register { register, shift: 0 }));
    let mut messages = Vec::new();
    for (i, (what, symbol)) in functions.enumerate() {
        let function = one(i + 2, SymbolKind::Code)?;
        let sized = function.size > 0;
        let length = if sized { function.size.min(FUNCTION_BYTES_MAX) } else { 512 };
        let (offset, code) = image.code(function.svma, length).ok_or(NoProbe::NotCode)?;
        let point = instruction::choose(&code, sized, &arguments, kernel).map_err(|_| NoProbe::Refused)?;
        messages.push(MessageProbe { what, symbol, offset: FileOffset(offset.0 + u64::from(point.offset)) });
    }
    let sample_message = messages.pop().ok_or(NoProbe::NotExported)?;
    Ok(Collector { listeners, messages, sample_listeners, sample_message })
}
