//! Chain walk: an await chain, walked by the memory reader.
//!
//! Owns: the question to the reader and its answer, both as bytes. Because: a chain takes fifty to a few hundred reads,
//! each at an address that the process chose: one request for all of them costs one round trip, has one deadline, and
//! tears no chain that changes meanwhile. Does not: read tasks ([`super::tasks`]), or trust an answer.
//!
//! The reader keeps nothing: what is known of the tasks goes along with the question, and comes back with the answer.

use deepctx_address_space::reader::WalkedMemory;

use super::layout::Layout;
use super::task_fields::PublishedOffsets;
use super::tasks::{AwaitChain, AwaitLink, NoTask, Tasks, coroutine_of};
use crate::memory::TargetMemory;

/// Most bytes of a chain; one with longer names is not shown.
const CHAIN_BYTES_MAX: usize = 64 << 10;
/// The reasons in answers, by number.
const NO_TASKS: [NoTask; 5] =
    [NoTask::Unsupported, NoTask::None, NoTask::Ended, NoTask::Unreadable, NoTask::TooMany];
/// The outcome before a chain. Others are one more than the number of a reason.
const CHAIN: u64 = 0;

/// Kinds of links.
mod link {
    pub(super) const UNNAMED_TASK: u64 = 0;
    pub(super) const NAMED_TASK: u64 = 1;
    pub(super) const COROUTINE: u64 = 2;
    pub(super) const SEVERAL_AWAITERS: u64 = 3;
    pub(super) const TOO_LONG: u64 = 4;
}

/// Answers a question for an await chain; what the memory reader does ([`deepctx_address_space::reader::Walk`]).
pub fn walk_chain(memory: &WalkedMemory<'_>, question: &[u8]) -> Vec<u8> {
    answer(memory, question).unwrap_or_default()
}

impl Tasks {
    /// The await chain of the task whose coroutine has its frame at `frame`, walked by the memory reader; on this
    /// thread if there is none. `runtime`: the address of `_PyRuntime`.
    ///
    /// # Errors
    /// The reason why there is no task, or why its chain is not known.
    pub(super) fn chain(
        &mut self,
        memory: &dyn TargetMemory,
        layout: &'static Layout,
        runtime: u64,
        frame: u64,
    ) -> Result<AwaitChain, NoTask> {
        self.find_published(memory, layout, runtime);
        let coroutine = coroutine_of(frame, layout);
        match memory.walk(&self.question(layout, runtime, frame)) {
            None => self.walk_here(memory, layout, runtime, frame),
            Some(Ok(answer)) => self.learn(coroutine, &answer).unwrap_or(Err(NoTask::Unreadable)),
            Some(Err(_)) => Err(NoTask::Unreadable),
        }
    }

    fn question(&self, layout: &'static Layout, runtime: u64, frame: u64) -> Vec<u8> {
        let task = self.known.get(&coroutine_of(frame, layout)).copied().unwrap_or(0);
        let (module, examined) = (self.module.unwrap_or(0), u64::from(self.examined));
        let mut bytes = Vec::new();
        put(&mut bytes, &[u64::from(layout.index()), runtime, frame]);
        put(&mut bytes, &[task, module, self.task_type, examined]);
        if let Some(published) = &self.published {
            put(&mut bytes, &published.numbers());
        }
        bytes
    }

    /// Takes over what the reader found; `None` if that is no answer.
    fn learn(&mut self, coroutine: u64, answer: &[u8]) -> Option<Result<AwaitChain, NoTask>> {
        let mut words = Words(answer);
        let (module, task_type, examined) = (words.word()?, words.word()?, words.word()?);
        let count = words.word()?;
        let pairs: Option<Vec<_>> = (0..count).map(|_| Some((words.word()?, words.word()?))).collect();
        let pairs = pairs?;
        let found = match words.word()? {
            CHAIN => Ok(words.chain()?),
            reason => Err(*NO_TASKS.get(usize::try_from(reason - 1).ok()?)?),
        };
        self.module = Some(module).filter(|module| *module != 0);
        self.task_type = task_type;
        self.examined = self.examined.max(u32::try_from(examined).unwrap_or(u32::MAX));
        self.known.remove(&coroutine);
        pairs.into_iter().for_each(|(coroutine, task)| self.know(coroutine, task));
        Some(found)
    }
}

/// The answer to a question; `None` if it is none.
fn answer(memory: &dyn TargetMemory, question: &[u8]) -> Option<Vec<u8>> {
    let mut words = Words(question);
    let layout = Layout::by_index(u32::try_from(words.word()?).ok()?)?;
    let (runtime, frame) = (words.word()?, words.word()?);
    let (task, module) = (words.word()?, words.word()?);
    let mut tasks = Tasks::default();
    if task != 0 {
        tasks.know(coroutine_of(frame, layout), task);
    }
    tasks.module = Some(module).filter(|module| *module != 0);
    tasks.task_type = words.word()?;
    tasks.examined = u32::try_from(words.word()?).ok()?;
    let mut numbers = [0; PublishedOffsets::NUMBERS_KEPT];
    if !words.0.is_empty() {
        for number in &mut numbers {
            *number = words.word()?;
        }
        tasks.published = Some(PublishedOffsets::of_numbers(numbers));
    }
    let found = tasks.walk_here(memory, layout, runtime, frame);
    Some(encode(&tasks, found))
}

fn encode(tasks: &Tasks, found: Result<AwaitChain, NoTask>) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, &[tasks.module.unwrap_or(0), tasks.task_type, u64::from(tasks.examined)]);
    put(&mut bytes, &[tasks.known.len() as u64]);
    tasks.known.iter().for_each(|(coroutine, task)| put(&mut bytes, &[*coroutine, *task]));
    let reason = match found.map(|chain| encode_chain(&chain)) {
        Ok(chain) if chain.len() <= CHAIN_BYTES_MAX => {
            put(&mut bytes, &[CHAIN]);
            bytes.extend_from_slice(&chain);
            return bytes;
        }
        Ok(_) => NoTask::Unreadable,
        Err(reason) => reason,
    };
    let number = NO_TASKS.iter().position(|of| *of == reason).unwrap_or(0);
    put(&mut bytes, &[number as u64 + 1]);
    bytes
}

fn encode_chain(chain: &AwaitChain) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, &[u64::from(chain.number.is_some()), chain.number.unwrap_or(0)]);
    put(&mut bytes, &[chain.links.len() as u64]);
    for part in &chain.links {
        match part {
            AwaitLink::Task(None) => put(&mut bytes, &[link::UNNAMED_TASK]),
            AwaitLink::Task(Some(name)) => {
                put(&mut bytes, &[link::NAMED_TASK, name.len() as u64]);
                bytes.extend_from_slice(name.as_bytes());
            }
            AwaitLink::Coroutine { code, checksum, instruction } => {
                let (checksum, instruction) = (u64::from(*checksum), u64::from(*instruction));
                put(&mut bytes, &[link::COROUTINE, *code, checksum, instruction]);
            }
            AwaitLink::SeveralAwaiters => put(&mut bytes, &[link::SEVERAL_AWAITERS]),
            AwaitLink::TooLong => put(&mut bytes, &[link::TOO_LONG]),
        }
    }
    bytes
}

fn put(bytes: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
}

/// Words that are still to be read.
struct Words<'b>(&'b [u8]);

impl Words<'_> {
    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn text(&mut self) -> Option<Box<str>> {
        let length = usize::try_from(self.word()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok().map(Box::from)
    }

    fn chain(&mut self) -> Option<AwaitChain> {
        let (has_number, number, count) = (self.word()?, self.word()?, self.word()?);
        let links = (0..count).map(|_| self.link()).collect::<Option<Vec<_>>>()?;
        Some(AwaitChain { links, number: (has_number != 0).then_some(number) })
    }

    fn link(&mut self) -> Option<AwaitLink> {
        Some(match self.word()? {
            link::UNNAMED_TASK => AwaitLink::Task(None),
            link::NAMED_TASK => AwaitLink::Task(Some(self.text()?)),
            link::COROUTINE => {
                let (code, checksum, instruction) = (self.word()?, self.word()?, self.word()?);
                AwaitLink::Coroutine { code, checksum: checksum as u32, instruction: instruction as u32 }
            }
            link::SEVERAL_AWAITERS => AwaitLink::SeveralAwaiters,
            link::TOO_LONG => AwaitLink::TooLong,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{ReadError, RecordedMemory};

    const RUNTIME: u64 = 0x10_0000;
    const INTERPRETER: u64 = 0x20_0000;
    const THREAD: u64 = 0x30_0000;
    const COROUTINE: u64 = 0x40_0000;
    const TASK: u64 = 0x50_0000;
    const NAME: u64 = 0x60_0000;
    /// From a type to its name.
    const TYPE_NAME: u64 = 0x400;

    /// What only the memory reader may read; it answers, or not.
    struct ReadElsewhere {
        memory: RecordedMemory,
        silent: bool,
    }

    impl TargetMemory for ReadElsewhere {
        fn read(&self, address: u64, _: &mut [u8]) -> Result<(), ReadError> {
            panic!("{address:#x} was read on a thread that others wait for");
        }

        fn walk(&self, question: &[u8]) -> Option<Result<Vec<u8>, ReadError>> {
            let found = || answer(&self.memory, question).unwrap_or_default();
            Some(if self.silent { Err(ReadError::NoAnswer) } else { Ok(found()) })
        }
    }

    fn layout() -> &'static Layout {
        Layout::of(14, false).unwrap()
    }

    fn frame() -> u64 {
        COROUTINE + (COROUTINE - coroutine_of(COROUTINE, layout()))
    }

    /// Words of an object, by their offsets.
    fn object(memory: &mut RecordedMemory, at: u64, words: &[(u64, u64)], name: &[u8]) {
        let mut bytes = vec![0; 0x4000];
        for (offset, word) in words {
            let offset = usize::try_from(*offset).unwrap();
            bytes[offset..offset + 8].copy_from_slice(&word.to_le_bytes());
        }
        let name_at = usize::try_from(TYPE_NAME).unwrap();
        bytes[name_at..name_at + name.len()].copy_from_slice(name);
        memory.insert(at, bytes);
    }

    /// A process in which a task with the default name `Task-5` runs a coroutine.
    fn memory() -> RecordedMemory {
        let (mut memory, header) = (RecordedMemory::default(), 16);
        let of_type = u64::from(layout().user.object_type);
        let mut add = |at, words: &[(u64, u64)]| object(&mut memory, at, words, b"");
        // Offsets as in `task_fields`.
        add(RUNTIME, &[(808, INTERPRETER)]);
        add(INTERPRETER, &[(7344, THREAD)]);
        add(THREAD, &[(872, TASK)]);
        add(COROUTINE, &[(of_type, COROUTINE + 0x8000)]);
        add(TASK, &[(of_type, TASK + 0x8000), (header + 112, COROUTINE), (header + 120, NAME)]);
        add(NAME, &[(of_type, NAME + 0x8000), (header, 1 << 3), (header + 8, 5)]);
        for (of, name) in [(COROUTINE, "coroutine"), (TASK, "_asyncio.Task"), (NAME, "int")] {
            let words = [(header + 8, of + 0x8000 + TYPE_NAME)];
            object(&mut memory, of + 0x8000, &words, name.as_bytes());
        }
        memory
    }

    fn chain() -> AwaitChain {
        AwaitChain { links: vec![AwaitLink::Task(None)], number: Some(5) }
    }

    #[test]
    fn a_chain_is_walked_by_the_reader_alone() {
        let here = Tasks::default().chain(&memory(), layout(), RUNTIME, frame());
        assert_eq!(here, Ok(chain()));
        let elsewhere = ReadElsewhere { memory: memory(), silent: false };
        let mut tasks = Tasks::default();
        for _ in 0..2 {
            assert_eq!(tasks.chain(&elsewhere, layout(), RUNTIME, frame()), Ok(chain()));
            assert_eq!(tasks.known.get(&COROUTINE), Some(&TASK), "the next question says so");
            assert_eq!((tasks.task_type, tasks.examined), (TASK + 0x8000, 1), "it is searched once");
        }
    }

    #[test]
    fn a_silent_chain_is_unreadable() {
        let silent = ReadElsewhere { memory: memory(), silent: true };
        let found = Tasks::default().chain(&silent, layout(), RUNTIME, frame());
        assert_eq!(found, Err(NoTask::Unreadable));
    }

    #[test]
    fn answers_are_decoded_as_encoded_and_checked() {
        let coroutine = AwaitLink::Coroutine { code: 1 << 40, checksum: u32::MAX, instruction: 7 };
        let named = AwaitLink::Task(Some("næme".into()));
        let links =
            vec![named, coroutine, AwaitLink::SeveralAwaiters, AwaitLink::TooLong, AwaitLink::Task(None)];
        let whole = Ok(AwaitChain { links, number: None });
        for found in NO_TASKS.map(Err).into_iter().chain([Ok(chain()), whole]) {
            let bytes = encode(&Tasks::default(), found.clone());
            assert_eq!(Tasks::default().learn(0, &bytes), Some(found));
            for length in 0..bytes.len() {
                assert_eq!(Tasks::default().learn(0, &bytes[..length]), None);
            }
        }
        let long = AwaitLink::Task(Some("n".repeat(CHAIN_BYTES_MAX).into()));
        let bytes = encode(&Tasks::default(), Ok(AwaitChain { links: vec![long], number: None }));
        assert_eq!(Tasks::default().learn(0, &bytes), Some(Err(NoTask::Unreadable)));
        assert_eq!(Tasks::default().learn(0, &[u8::MAX; 64]), None);
    }
}
