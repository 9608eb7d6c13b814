//! Protocol: the messages between the profiler and its GPU reader.
//!
//! Owns: the bytes of a request and of an answer. Because: both sides must agree, and the reader's answer may have
//! been written by the library that it loaded. Does not: send, wait, or judge what a figure means.
//!
//! ```text
//! request  one byte
//! answer   u32 status, u32 code, u32 GPUs that follow, u32 GPUs that were left out; then of each GPU
//!          u32 index, u32 code, u32 set of figures, 96 bytes of UUID, u64 for each figure
//! ```

use deepctx_symbolizer::elf::u32_at;

use super::code::Code;

/// A request for the readings of all GPUs.
pub(super) const REQUEST: [u8; 1] = *b"g";
/// Most GPUs that are read. The largest machines have 16; each takes some milliseconds of every interval.
pub(super) const GPUS_MAX: usize = 64;
/// Bytes before the first GPU.
pub(super) const HEAD_BYTES: usize = 16;
/// Room for a UUID: `NVML_DEVICE_UUID_V2_BUFFER_SIZE`.
const UUID_BYTES: usize = 96;
/// Bytes of one GPU before its UUID.
const NUMBERS_BYTES: usize = 12;
const GPU_BYTES: usize = NUMBERS_BYTES + UUID_BYTES + 8 * Figure::ALL.len();

/// A figure of the library for a GPU; its number is its place in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// Share of the library's last period, of a sixth of a second to a second, in which a kernel ran.
    BusyPercent,
    /// The same for reads or writes of the GPU's memory.
    MemoryBusyPercent,
    MemoryUsedBytes,
    MemoryTotalBytes,
    PowerMilliwatts,
    TemperatureCelsius,
    ClockMegahertz,
    MemoryClockMegahertz,
    /// Bits of reasons why clocks are below their maximum.
    ClockReasons,
}

impl Figure {
    pub(super) const ALL: [Self; 9] = [
        Self::BusyPercent,
        Self::MemoryBusyPercent,
        Self::MemoryUsedBytes,
        Self::MemoryTotalBytes,
        Self::PowerMilliwatts,
        Self::TemperatureCelsius,
        Self::ClockMegahertz,
        Self::MemoryClockMegahertz,
        Self::ClockReasons,
    ];
}

/// The reading of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GpuReading {
    /// Its number in the library.
    pub(super) index: u32,
    /// `GPU-…`; empty if the library did not return one.
    pub(super) uuid: String,
    /// The first call that failed, unless the GPU does not have the figure.
    pub(super) failed: Option<Code>,
    /// By the numbers of [`Figure`].
    pub(super) figures: [Option<u64>; Figure::ALL.len()],
}

impl GpuReading {
    pub(super) fn get(&self, figure: Figure) -> Option<u64> {
        self.figures[figure as usize]
    }

    pub(super) fn set(&mut self, figure: Figure, value: u64) {
        self.figures[figure as usize] = Some(value);
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        let has = |(n, value): (usize, &Option<u64>)| u32::from(value.is_some()) << n;
        let set: u32 = self.figures.iter().enumerate().map(has).sum();
        for number in [self.index, self.failed.map_or(0, |code| code.0), set] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let mut uuid = [0; UUID_BYTES];
        let length = self.uuid.len().min(UUID_BYTES);
        uuid[..length].copy_from_slice(&self.uuid.as_bytes()[..length]);
        bytes.extend_from_slice(&uuid);
        for value in self.figures {
            bytes.extend_from_slice(&value.unwrap_or(0).to_le_bytes());
        }
    }

    fn decode(bytes: &[u8; GPU_BYTES]) -> Self {
        let number = |at: usize| u32_at(bytes, at);
        let (uuid, values) = bytes[NUMBERS_BYTES..].split_at(UUID_BYTES);
        let mut reading = Self {
            index: number(0),
            uuid: uuid_of(uuid),
            failed: Some(Code(number(4))).filter(|code| *code != Code::SUCCESS),
            figures: [None; Figure::ALL.len()],
        };
        for (n, value) in values.as_chunks::<8>().0.iter().enumerate() {
            let is_there = (number(8) >> n) & 1 != 0;
            reading.figures[n] = is_there.then(|| u64::from_le_bytes(*value));
        }
        reading
    }
}

/// Letters, digits and dashes up to the first other byte: it becomes part of a name.
pub(super) fn uuid_of(bytes: &[u8]) -> String {
    let good = bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-');
    good.take(UUID_BYTES).map(|byte| char::from(*byte)).collect()
}

/// All GPUs at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Readings {
    /// At most [`GPUS_MAX`].
    pub(super) gpus: Vec<GpuReading>,
    /// Number of further GPUs.
    pub(super) left_out: u32,
}

/// Why a reader reads nothing, now and later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It could not drop the right to run programs and open sockets.
    Unconfined,
    /// The library is missing.
    NoLibrary,
    /// It may not open the driver's device.
    NoAccess,
    /// The library could not be initialized.
    NoInit(Code),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply(pub(super) Result<Readings, Refusal>);

impl Reply {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (status, code) = match &self.0 {
            Ok(_) => (0, Code::SUCCESS),
            Err(Refusal::Unconfined) => (1, Code::SUCCESS),
            Err(Refusal::NoLibrary) => (2, Code::SUCCESS),
            Err(Refusal::NoAccess) => (3, Code::SUCCESS),
            Err(Refusal::NoInit(code)) => (4, *code),
        };
        let none = Readings::default();
        let Readings { gpus, left_out } = self.0.as_ref().unwrap_or(&none);
        let gpus = &gpus[..gpus.len().min(GPUS_MAX)];
        let head = [status, code.0, gpus.len() as u32, *left_out];
        let mut bytes: Vec<u8> = head.iter().flat_map(|number| number.to_le_bytes()).collect();
        gpus.iter().for_each(|gpu| gpu.encode(&mut bytes));
        bytes
    }

    /// Number of bytes after the head; `None`: invalid.
    pub(super) fn length(head: &[u8; HEAD_BYTES]) -> Option<usize> {
        let gpus = u32_at(head, 8) as usize;
        (gpus <= GPUS_MAX).then_some(gpus * GPU_BYTES)
    }

    /// `None`: not a valid answer.
    pub(super) fn decode(head: &[u8; HEAD_BYTES], rest: &[u8]) -> Option<Self> {
        Some(Self(match u32_at(head, 0) {
            0 => {
                let (gpus, over) = rest.as_chunks::<GPU_BYTES>();
                if !over.is_empty() {
                    return None;
                }
                let gpus = gpus.iter().map(GpuReading::decode).collect();
                Ok(Readings { gpus, left_out: u32_at(head, 12) })
            }
            1 => Err(Refusal::Unconfined),
            2 => Err(Refusal::NoLibrary),
            3 => Err(Refusal::NoAccess),
            4 => Err(Refusal::NoInit(Code(u32_at(head, 4)))),
            _ => return None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(reply: &Reply) -> Option<Reply> {
        let bytes = reply.encode();
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        assert_eq!(Reply::length(head), Some(rest.len()));
        Reply::decode(head, rest)
    }

    fn reading(index: u32) -> GpuReading {
        let mut reading = GpuReading { index, uuid: format!("GPU-{index:08x}-aa"), ..GpuReading::default() };
        reading.set(Figure::BusyPercent, 0);
        reading.set(Figure::ClockReasons, u64::MAX);
        reading.failed = (index % 2 == 1).then_some(Code::GPU_IS_LOST);
        reading
    }

    #[test]
    fn an_answer_is_decoded_as_it_was_encoded() {
        let gpus = |count| Readings { gpus: (0..count).map(reading).collect(), left_out: 3 };
        let replies = [Ok(gpus(0)), Ok(gpus(2)), Ok(gpus(64))].into_iter().chain(
            [Refusal::Unconfined, Refusal::NoLibrary, Refusal::NoAccess, Refusal::NoInit(Code(9))].map(Err),
        );
        for reply in replies.map(Reply) {
            assert_eq!(round_trip(&reply), Some(reply));
        }
    }

    #[test]
    fn figures_have_the_numbers_of_their_places() {
        for (n, figure) in Figure::ALL.into_iter().enumerate() {
            assert_eq!(figure as usize, n);
        }
    }

    #[test]
    fn more_gpus_than_are_read_are_no_answer() {
        let mut head = [0; HEAD_BYTES];
        head[8] = GPUS_MAX as u8 + 1;
        assert_eq!(Reply::length(&head), None);
        head[0] = 5;
        assert_eq!(Reply::decode(&head, &[]), None);
        assert_eq!(Reply::decode(&[0; HEAD_BYTES], &[0; GPU_BYTES - 1]), None);
    }

    #[test]
    fn a_uuid_ends_at_what_is_none() {
        let check = |bytes: &[u8], expect: &str| assert_eq!(uuid_of(bytes), expect);
        check(b"GPU-12ab\0rest", "GPU-12ab");
        check(b"GPU 1\x1b[31m", "GPU");
        check(b"\0", "");
        check(b"", "");
        check(&[b'a'; 200], &"a".repeat(UUID_BYTES));
    }

    proptest! {
        #[test]
        fn no_bytes_end_the_decoder(
            head in prop::array::uniform16(any::<u8>()),
            rest in prop::collection::vec(any::<u8>(), 0..3 * GPU_BYTES),
        ) {
            let _ = Reply::length(&head);
            for status in 0..6 {
                let mut head = head;
                head[..4].copy_from_slice(&u32::to_le_bytes(status));
                let _ = Reply::decode(&head, &rest);
            }
        }
    }
}
