//! Our own collector inside a process, as a file to attach to.
//!
//! Owns: knowing it by its name and its symbols. Because: it tells what the device did by calling functions that do
//! nothing, and works only while its counter of listeners is above zero, which the kernel sees to if it is told where
//! that counter is. Does not: know what is said.

use deepctx_address_space::{FileOffset, NoSymbol};
use deepctx_common::activity::{LISTENERS, probe};
use deepctx_common::samples;
use deepctx_events::Role;

use crate::abi::{Argument, Place, Register};
use crate::entry::{self, FUNCTION_BYTES_MAX, Kernel};
use crate::image::{Image, Kind, Source};
use crate::reason::NoProbe;
use crate::types::Scalar;

/// How the file's name begins.
const NAME: &[u8] = b"libdeepctx_collector";

/// What to attach to in a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Where the counter of listeners is in the file.
    pub listeners: FileOffset,
    /// Its messages.
    pub messages: Vec<MessageSite>,
    /// Where the counter of those who want samples of instructions is in the file, and the message that carries them.
    pub samples: (FileOffset, MessageSite),
}

/// A function that carries a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageSite {
    /// Which message: of [`probe`].
    pub what: u16,
    /// The symbol.
    pub symbol: &'static str,
    /// Where the probe goes in the file.
    pub offset: FileOffset,
}

/// True when a file of this name is a collector.
pub fn is_named(file_name: &[u8]) -> bool {
    file_name.starts_with(NAME)
}

/// Looks for the functions and the counter. All must be there: a collector that tells only half is of another version.
///
/// # Errors
/// Why it is none.
pub fn find<S: Source + ?Sized>(image: &Image<'_, S>, kernel: Kernel) -> Result<Collector, NoProbe> {
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
    let counter = |i| image.variable(one(i, Kind::Data)?.svma, 2).ok_or(NoProbe::File(NoSymbol::CorruptElf));
    let (listeners, samplers) = (counter(0)?, counter(1)?);
    let arguments = [Register::Rdi, Register::Rsi, Register::Rdx].map(|register| Argument {
        role: Role::Other,
        name: Role::Other.key().into(),
        scalar: Scalar::U64,
        place: Place::Register { register, shift: 0 },
    });
    let mut messages = Vec::new();
    for (i, (what, symbol)) in functions.enumerate() {
        let function = one(i + 2, Kind::Code)?;
        let sized = function.size > 0;
        let length = if sized { function.size.min(FUNCTION_BYTES_MAX) } else { 512 };
        let (offset, code) = image.code(function.svma, length).ok_or(NoProbe::NotCode)?;
        let point = entry::choose(&code, sized, &arguments, kernel).map_err(|_| NoProbe::Refused)?;
        messages.push(MessageSite { what, symbol, offset: FileOffset(offset.0 + u64::from(point.offset)) });
    }
    let samples = messages.pop().ok_or(NoProbe::NotExported)?;
    Ok(Collector { listeners, messages, samples: (samplers, samples) })
}
