//! Decode: bytes → [`Event`], or the reason why they are not a valid one.
//!
//! Owns: the reading side of `deepctx_common::record`, and the per-CPU count of records that never arrived. Because:
//! the bytes come from the kernel, a file or a fuzzer, and this is the one place where they are not yet trusted. Does
//! not: allocate, copy stacks, panic, or know what an address means.

use deepctx_common::Plain;
use deepctx_common::call::{ARGUMENTS_MAX, Call, Correlation, MESSAGE_BYTES_MAX, Message, Return, TEXT_MAX};
use deepctx_common::end::{KernelEnd, PythonEnd, WalkEnd};
use deepctx_common::reasons;
use deepctx_common::record::{
    KERNEL_WORDS_MAX, ProcessEvent, RecordHeader, StackSample, USER_WORDS_MAX, Wake, kind,
};
use thiserror::Error;

/// A decoded record. Stacks are borrowed from the bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// A timer sample.
    Sample(Sample<'a>),
    /// A thread left its CPU.
    Block(Sample<'a>),
    /// It runs again.
    Wake(Wake),
    /// A process was forked; `parent` is set.
    Fork(ProcessEvent),
    /// A process replaced its image.
    Exec(ProcessEvent),
    /// A process ended.
    Exit(ProcessEvent),
    /// A process mapped code from a file; its mappings follow.
    Map(ProcessEvent),
    /// A probed function was called: its stack and its arguments.
    Call(Sample<'a>, Arguments<'a>),
    /// It returned.
    Return(Return),
    /// A call was given a correlation id.
    Correlation(Correlation),
    /// A message of a collector, or a record of another tool's collection, with its bytes.
    Message(Message, &'a [u8]),
}

impl Event<'_> {
    /// The header that every record has.
    pub fn header(&self) -> &RecordHeader {
        match self {
            Event::Sample(sample) | Event::Block(sample) | Event::Call(sample, _) => &sample.fixed.header,
            Event::Return(record) => &record.header,
            Event::Correlation(record) => &record.header,
            Event::Message(record, _) => &record.header,
            Event::Wake(wake) => &wake.header,
            Event::Fork(event) | Event::Exec(event) | Event::Exit(event) | Event::Map(event) => &event.header,
        }
    }
}

/// The arguments of a probed call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arguments<'a> {
    /// The fixed part.
    pub call: Call,
    /// The arguments, in the order in which the site fetches them; 0 for one that could not be read.
    pub values: Words<'a>,
    /// The text that one of them points to; empty if none does.
    pub text: &'a [u8],
}

/// A timer sample, the beginning of a wait, or a call, with its two stacks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The fixed part of the record.
    pub fixed: StackSample,
    /// The bytes of both stacks, kernel first.
    pub words: &'a [u8],
    /// Kernel addresses, leaf first.
    pub kernel: Words<'a>,
    /// Tagged user words, leaf first (`deepctx_common::record::word`).
    pub user: Words<'a>,
}

impl Sample<'_> {
    /// How the native walk ended; `None` if a newer kernel program wrote a number unknown here.
    pub fn native_end(&self) -> Option<WalkEnd> {
        WalkEnd::from_number(self.fixed.native_end)
    }

    /// How the Python walk ended; `None` as above.
    pub fn python_end(&self) -> Option<PythonEnd> {
        PythonEnd::from_number(self.fixed.python_end)
    }

    /// How the kernel walk ended; `None` as above.
    pub fn kernel_end(&self) -> Option<KernelEnd> {
        KernelEnd::from_number(self.fixed.kernel_end)
    }
}

/// Words of a stack, still in the bytes of their record (which need not be aligned).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// The words in these bytes; an incomplete word at the end is left out.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Their bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The first word, as a slice.
    pub fn first(self) -> Option<Self> {
        self.0.get(..8).map(Self)
    }

    /// Number of words.
    pub fn len(self) -> usize {
        self.0.len() / 8
    }

    /// True if there are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The words, leaf first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + Clone + 'a {
        self.0.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("chunks of 8 bytes")))
    }
}

/// Why bytes could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes end before the record does.
    #[error("the record has {have} bytes of {need}")]
    ShortRecord {
        /// Bytes present.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// An unknown kind of record: a newer kernel program, or damaged bytes.
    #[error("record kind {0} is not known")]
    UnknownKind(u16),
    /// The parts of the record do not add up to its size.
    #[error("the record says {stated} bytes and its parts take {parts}")]
    BadLength {
        /// Size in the header.
        stated: usize,
        /// Size of the parts.
        parts: usize,
    },
}

impl DecodeError {
    reasons! {
        class Loss, page "loss.md";
        /// The reason for the ledger.
        pub fn reason(self) {
            Self::ShortRecord { .. } => "short-record", "records ended too early",
                helps "only damaged or foreign captures show this";
            Self::UnknownKind(_) => "unknown-kind", "records were of an unknown kind",
                helps "only damaged or foreign captures show this";
            Self::BadLength { .. } => "bad-length", "the parts of records did not add up to their size",
                helps "only damaged or foreign captures show this";
        }
    }
}

/// Decodes one record; `bytes` must be exactly that record.
pub fn decode(bytes: &[u8]) -> Result<Event<'_>, DecodeError> {
    let short = |need| DecodeError::ShortRecord { have: bytes.len(), need };
    let header = RecordHeader::read_from(bytes).ok_or_else(|| short(size_of::<RecordHeader>()))?;
    let stated = header.size as usize;
    if bytes.len() < stated {
        return Err(short(stated));
    }
    let record = &bytes[..stated];
    let sized = |parts: usize| {
        if parts == stated && bytes.len() == stated {
            Ok(())
        } else {
            Err(DecodeError::BadLength { stated, parts })
        }
    };
    let process_event = || {
        sized(size_of::<ProcessEvent>())?;
        ProcessEvent::read_from(record).ok_or_else(|| short(size_of::<ProcessEvent>()))
    };
    let bad = |parts| DecodeError::BadLength { stated, parts };
    match header.kind {
        kind::SAMPLE | kind::BLOCK => {
            let (sample, rest) = sample(record, bad)?;
            sized(stated - rest.len())?;
            Ok(if header.kind == kind::BLOCK { Event::Block(sample) } else { Event::Sample(sample) })
        }
        kind::CALL => call(record, bad, sized),
        kind::RETURN => {
            sized(size_of::<Return>())?;
            Ok(Event::Return(Return::read_from(record).ok_or_else(|| short(size_of::<Return>()))?))
        }
        kind::CORRELATION => {
            sized(size_of::<Correlation>())?;
            let record = Correlation::read_from(record).ok_or_else(|| short(size_of::<Correlation>()))?;
            Ok(Event::Correlation(record))
        }
        kind::MESSAGE => message(record, bad, sized),
        kind::WAKE => {
            sized(size_of::<Wake>())?;
            Ok(Event::Wake(Wake::read_from(record).ok_or_else(|| short(size_of::<Wake>()))?))
        }
        kind::FORK => Ok(Event::Fork(process_event()?)),
        kind::EXEC => Ok(Event::Exec(process_event()?)),
        kind::EXIT => Ok(Event::Exit(process_event()?)),
        kind::MAP => Ok(Event::Map(process_event()?)),
        unknown => Err(DecodeError::UnknownKind(unknown)),
    }
}

/// The stacks at the beginning of a record, and the bytes after them.
fn sample<'a>(
    record: &'a [u8],
    bad: impl Fn(usize) -> DecodeError,
) -> Result<(Sample<'a>, &'a [u8]), DecodeError> {
    let fixed = StackSample::read_from(record).ok_or(bad(size_of::<StackSample>()))?;
    let (kernel, user) = (usize::from(fixed.kernel_words), usize::from(fixed.user_words));
    let parts = size_of::<StackSample>() + 8 * (kernel + user);
    if parts > record.len() || kernel > KERNEL_WORDS_MAX || user > USER_WORDS_MAX {
        return Err(bad(parts));
    }
    let (words, rest) = record[size_of::<StackSample>()..].split_at(8 * (kernel + user));
    let (kernel, user) = words.split_at(8 * kernel);
    Ok((Sample { fixed, words, kernel: Words(kernel), user: Words(user) }, rest))
}

/// A call. `sized`: whether parts of this many bytes fill the record.
fn call(
    record: &[u8],
    bad: impl Fn(usize) -> DecodeError,
    sized: impl Fn(usize) -> Result<(), DecodeError>,
) -> Result<Event<'_>, DecodeError> {
    let (sample, rest) = sample(record, &bad)?;
    let before = record.len() - rest.len();
    let call = Call::read_from(rest).ok_or(bad(before + size_of::<Call>()))?;
    let (values, text) = (8 * usize::from(call.arguments), usize::from(call.text_bytes));
    let parts = before + size_of::<Call>() + values + text.next_multiple_of(8);
    sized(parts)?;
    if usize::from(call.arguments) > ARGUMENTS_MAX || text > TEXT_MAX {
        return Err(bad(parts));
    }
    let (values, rest) = rest[size_of::<Call>()..].split_at(values);
    Ok(Event::Call(sample, Arguments { call, values: Words(values), text: &rest[..text] }))
}

/// A message. `sized`: as for a call.
fn message(
    record: &[u8],
    bad: impl Fn(usize) -> DecodeError,
    sized: impl Fn(usize) -> Result<(), DecodeError>,
) -> Result<Event<'_>, DecodeError> {
    let message = Message::read_from(record).ok_or(bad(size_of::<Message>()))?;
    let bytes = message.bytes as usize;
    // Checked before it is used in a sum.
    if bytes > MESSAGE_BYTES_MAX {
        return Err(bad(bytes));
    }
    sized(size_of::<Message>() + bytes.next_multiple_of(8))?;
    Ok(Event::Message(message, &record[size_of::<Message>()..][..bytes]))
}

/// A record within a batch, or why it could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot<'a> {
    /// Where it begins in the batch.
    pub offset: usize,
    /// Bytes it takes. If the size is implausible, the rest of the batch.
    pub size: usize,
    /// The decoded record.
    pub event: Result<Event<'a>, DecodeError>,
}

/// Splits a batch into its records. Terminates for any bytes: each step consumes at least one.
pub fn records(batch: &[u8]) -> impl Iterator<Item = Slot<'_>> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let rest = batch.get(offset..).filter(|rest| !rest.is_empty())?;
        let believable = RecordHeader::read_from(rest)
            .map(|header| header.size as usize)
            .filter(|size| (size_of::<RecordHeader>()..=rest.len()).contains(size));
        // Without a plausible size the next record cannot be found: the rest is one slot.
        let size = believable.unwrap_or(rest.len());
        let slot = Slot { offset, size, event: decode(&rest[..size]) };
        offset += size;
        Some(slot)
    })
}

/// Largest plausible gap between two records of a CPU: a CPU cannot lose more in a day.
pub(crate) const GAP_MAX: u64 = 1 << 36;

/// Counts, per CPU, the sequence numbers that never came.
///
/// A dropped record uses up its number too (`RecordHeader::sequence`), so a number missing below the highest one is a
/// loss. Two records of a CPU may swap places (one program interrupts another), so only the sums count.
#[derive(Clone, Debug, Default)]
pub struct Sequences {
    cpus: Vec<Numbers>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    highest: u64,
    seen: u64,
}

impl Sequences {
    /// Records a sequence number.
    pub fn record(&mut self, cpu: u16, sequence: u64) {
        let cpu = usize::from(cpu);
        if cpu >= self.cpus.len() {
            self.cpus.resize(cpu + 1, Numbers::default());
        }
        let numbers = &mut self.cpus[cpu];
        // One damaged number must not count as millions of millions of losses.
        if sequence <= numbers.highest.saturating_add(GAP_MAX) {
            numbers.highest = numbers.highest.max(sequence);
        }
        numbers.seen += 1;
    }

    /// Records missing so far, over all CPUs. Losses after the last record of a CPU are not visible here.
    pub fn missing(&self) -> u64 {
        self.cpus
            .iter()
            .map(|numbers| numbers.highest.saturating_sub(numbers.seen))
            .fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests;
