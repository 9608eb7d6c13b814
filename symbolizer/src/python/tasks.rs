//! Await chains of asyncio tasks: the task of a coroutine, and the tasks that await it.
//!
//! Owns: where CPython 3.11 and later keep tasks, and finding the tasks and coroutines that await one. Because: a
//! task runs on the stack of the event loop, which does not show which task awaits it. Does not: know the time of a
//! sample: a chain is the current one, and the caller compares times.
//!
//! ```text
//!  frame of a coroutine ─▶ task ─▶ awaited_by (3.14+), or its callbacks: a task's wake-up, the closure of a gather or
//!  (from the kernel program)         a wait, a task group ─▶ task ─▶ …       each with the coroutines it is suspended in
//! ```

use rustc_hash::FxHashMap;

use deepctx_common::reasons;
use deepctx_walk::memory::Memory;
use deepctx_walk::python::{Buffers, read_frame};

use super::layout::Layout;
use super::objects::{ENTRIES_MAX, ObjectError, Objects, ReadResult, header_size};
use super::task_fields::{FRAME_STATE, PublishedOffsets, Roots, STACK_TOP, TaskFields};
use crate::memory::TargetMemory;

/// Most tasks from a running task to the one that no task awaits.
const AWAITERS_MAX: usize = 64;
/// Most coroutines of one task, each waiting for the next.
const COROUTINES_MAX: usize = 128;
/// Most searches for the `.AsyncioDebug` section: the coroutine may belong to another library, and `_asyncio` not be
/// loaded yet.
const SECTION_SEARCHES_MAX: u8 = 4;
/// Most links of a chain; the coroutines of the last task may exceed it.
const LINKS_MAX: usize = 512;
/// Most awaiters examined of one task.
const AWAITERS_OF_ONE_MAX: usize = 16;
/// Most futures between a task and its awaiter: that of a `gather` within a `shield`, and so on.
const FUTURES_MAX: usize = 4;
/// Most captured objects of callbacks examined to find the awaiters of one task.
const CAPTURED_MAX: u32 = 256;
/// Most interpreters of a process.
const INTERPRETERS_MAX: usize = 16;
/// Most threads of an interpreter.
const THREADS_MAX: usize = 1 << 10;
/// Most tasks and threads examined per second to find the task of a coroutine, at about two microseconds each.
const EXAMINED_MAX: u32 = 20_000;
/// Most coroutines whose task is remembered; at the bound all are dropped.
const KNOWN_MAX: usize = 1 << 13;

/// A link of an await chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AwaitLink {
    /// A task; `None` if asyncio gave it a numbered default name, which differs for each task.
    Task(Option<Box<str>>),
    /// A coroutine that awaits the next link.
    Coroutine {
        /// Address of its code object.
        code: u64,
        /// Checksum of the code object, as in sampled frames.
        checksum: u32,
        /// Instruction, as in sampled frames.
        instruction: u32,
    },
    /// More than one task awaits the next one: the chain branches here.
    SeveralAwaiters,
    /// The chain continues beyond the bound.
    TooLong,
}

/// The await chain of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitChain {
    /// The tasks and coroutines that await it, then the task itself; root first.
    pub links: Vec<AwaitLink>,
    /// The number in the task's default name, if it has no other name. Unique in a process.
    pub number: Option<u64>,
}

/// Why there is no await chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoTask {
    /// The version is older than 3.11.
    Unsupported,
    /// No task runs the coroutine: it is a generator, or belongs to another library than asyncio.
    None,
    /// The coroutine has ended.
    Ended,
    /// Memory could not be read.
    Unreadable,
    /// There are more tasks than are examined.
    TooMany,
}

impl NoTask {
    reasons! {
        class Gap, page "python-frames.md";
        /// Its key and sentence, as a stack shows it.
        pub fn reason(self) {
            Self::Ended => "async-task-ended", "the task ended before it was read";
            Self::TooMany => "async-too-many-tasks", "the process has more tasks than are read";
            Self::None | Self::Unsupported | Self::Unreadable =>
                "async-unreadable", "the tasks of the process could not be read";
        }
    }
}

/// The known tasks of one process.
#[derive(Debug, Default)]
pub struct Tasks {
    /// Coroutine → task.
    pub(super) known: FxHashMap<u64, u64>,
    /// The dictionary of the module `asyncio.tasks`, once found (up to 3.13).
    pub(super) module: Option<u64>,
    /// The type of tasks, once known.
    pub(super) task_type: u64,
    /// Tasks examined in this second.
    pub(super) examined: u32,
    /// The offsets that `_asyncio` publishes (3.14+), once found.
    pub(super) published: Option<PublishedOffsets>,
    /// Searches for them so far.
    section_searches: u8,
}

impl Tasks {
    /// Allows another second of searching.
    pub fn reset_budget(&mut self) {
        self.examined = 0;
    }

    /// Looks for the offsets that `_asyncio` publishes.
    pub(super) fn find_published(
        &mut self,
        memory: &dyn TargetMemory,
        layout: &'static Layout,
        runtime: u64,
    ) {
        if self.published.is_none() && self.section_searches < SECTION_SEARCHES_MAX && layout.minor >= 14 {
            self.section_searches += 1;
            self.published = PublishedOffsets::of_process(memory, runtime);
        }
    }

    /// As [`Self::chain`], on this thread, with the offsets found so far.
    pub(super) fn walk_here(
        &mut self,
        memory: &dyn TargetMemory,
        layout: &'static Layout,
        runtime: u64,
        frame: u64,
    ) -> Result<AwaitChain, NoTask> {
        let objects = Objects::new(memory, layout).ok_or(NoTask::Unsupported)?;
        let (mut fields, mut roots) = (TaskFields::of(layout.minor), Roots::of(layout));
        if let Some(published) = &self.published {
            published.apply(objects.header_size(), &mut fields, &mut roots);
        }
        let buffers = Buffers::default();
        let mut reader = Reader { objects, memory, layout, runtime, fields, roots, buffers, tasks: self };
        reader.chain(frame)
    }

    pub(super) fn know(&mut self, coroutine: u64, task: u64) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(coroutine, task);
    }
}

/// The coroutine whose frame is at `frame`.
pub(super) fn coroutine_of(frame: u64, layout: &Layout) -> u64 {
    frame.wrapping_sub(header_size(layout)).wrapping_sub(TaskFields::of(layout.minor).frame)
}

/// The target's memory, for the walker of the kernel programs.
struct Words<'m>(&'m dyn TargetMemory);

impl Memory for Words<'_> {
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        words.iter_mut().enumerate().all(|(n, word)| {
            let read = self.0.read_u64(address.wrapping_add(8 * n as u64));
            *word = read.unwrap_or(0);
            read.is_ok()
        })
    }
}

struct Reader<'m, 't> {
    objects: Objects<'m>,
    memory: &'m dyn TargetMemory,
    layout: &'static Layout,
    runtime: u64,
    fields: TaskFields,
    roots: Roots,
    buffers: Buffers,
    tasks: &'t mut Tasks,
}

impl Reader<'_, '_> {
    fn chain(&mut self, frame: u64) -> Result<AwaitChain, NoTask> {
        let coroutine = coroutine_of(frame, self.layout);
        // A coroutine that ended may be freed, or replaced by another object.
        match self.objects.is_a(coroutine, "coroutine") {
            Ok(true) => {}
            Ok(false) if self.objects.is_a(coroutine, "generator") == Ok(true) => return Err(NoTask::None),
            Ok(false) | Err(_) => return Err(NoTask::Ended),
        }
        let unreadable = |_: ObjectError| NoTask::Unreadable;
        if !self.is_live(coroutine).map_err(unreadable)? {
            return Err(NoTask::Ended);
        }
        let task = self.task_of(coroutine)?;
        let links = self.links(task).map_err(unreadable)?;
        let number = self.name(task).map_err(unreadable)?.err();
        // The chain is valid only if the task is still there: a task that ends drops its awaiters.
        let still = self.runs(task, coroutine) && self.is_live(coroutine) == Ok(true);
        if still { Ok(AwaitChain { links, number }) } else { Err(NoTask::Ended) }
    }

    /// Whether a coroutine has neither ended nor been cleared.
    fn is_live(&self, coroutine: u64) -> ReadResult<bool> {
        let state = self.state(coroutine)?;
        Ok(if self.layout.minor >= 15 { state <= 4 } else { state <= 0 })
    }

    fn state(&self, coroutine: u64) -> ReadResult<i8> {
        let frame = coroutine.wrapping_add(self.objects.header_size()).wrapping_add(self.fields.frame);
        Ok(self.objects.byte(frame.wrapping_sub(FRAME_STATE))?.cast_signed())
    }

    /// Whether the object is a task that runs this coroutine.
    fn runs(&mut self, task: u64, coroutine: u64) -> bool {
        self.is_task(task) && self.objects.field(task, self.fields.coroutine) == Ok(coroutine)
    }

    fn is_task(&mut self, object: u64) -> bool {
        let Ok(of_type) = self.objects.type_of(object) else { return false };
        if of_type == self.tasks.task_type && of_type != 0 {
            return true;
        }
        let is = self.objects.is_a(object, "_asyncio.Task") == Ok(true);
        if is {
            self.tasks.task_type = of_type;
        }
        is
    }

    fn task_of(&mut self, coroutine: u64) -> Result<u64, NoTask> {
        if let Some(task) = self.tasks.known.get(&coroutine).copied() {
            if self.runs(task, coroutine) {
                return Ok(task);
            }
            self.tasks.known.remove(&coroutine);
        }
        if self.tasks.examined >= EXAMINED_MAX {
            return Err(NoTask::TooMany);
        }
        let running = self.running().unwrap_or_default();
        self.tasks.examined += running.len() as u32;
        if let Some(task) = running.into_iter().find(|task| self.runs(*task, coroutine)) {
            self.tasks.know(coroutine, task);
            return Ok(task);
        }
        let all = self.all().unwrap_or_default();
        let mut found = Err(if all.len() as u64 >= ENTRIES_MAX { NoTask::TooMany } else { NoTask::None });
        for task in all {
            self.tasks.examined += 1;
            if !self.is_task(task) {
                continue;
            }
            let Ok(of_task) = self.objects.field(task, self.fields.coroutine) else { continue };
            self.tasks.know(of_task, task);
            if of_task == coroutine {
                found = Ok(task);
            }
        }
        found
    }

    /// The addresses on a singly linked list.
    fn linked(&self, first: u64, next: u64, most: usize) -> ReadResult<Vec<u64>> {
        let (mut all, mut at) = (Vec::new(), self.objects.word(first)?);
        while at != 0 && all.len() < most {
            all.push(at);
            at = self.objects.word(at.wrapping_add(next))?;
        }
        Ok(all)
    }

    fn interpreters(&self) -> ReadResult<Vec<u64>> {
        let roots = self.roots;
        self.linked(self.runtime.wrapping_add(roots.interpreters), roots.next, INTERPRETERS_MAX)
    }

    fn threads(&self, interpreter: u64) -> ReadResult<Vec<u64>> {
        // `PyThreadState.next` is its second word.
        self.linked(interpreter.wrapping_add(self.roots.threads), 8, THREADS_MAX)
    }

    /// The tasks that are running now.
    fn running(&mut self) -> ReadResult<Vec<u64>> {
        if self.layout.minor < 14 {
            let Some(current) = self.global("_current_tasks")? else { return Ok(Vec::new()) };
            return Ok(self.objects.entries(current)?.into_iter().map(|(_, task)| task).collect());
        }
        let (mut running, at) = (Vec::new(), self.roots.running);
        for interpreter in self.interpreters()? {
            for thread in self.threads(interpreter)? {
                running.push(self.objects.word(thread.wrapping_add(at))?);
            }
        }
        Ok(running)
    }

    /// All tasks, up to [`ENTRIES_MAX`].
    fn all(&mut self) -> ReadResult<Vec<u64>> {
        let mut all = Vec::new();
        if self.layout.minor >= 14 {
            let roots = self.roots;
            for interpreter in self.interpreters()? {
                for thread in self.threads(interpreter)? {
                    self.add_listed(thread.wrapping_add(roots.tasks), &mut all)?;
                }
            }
            return Ok(all);
        }
        let weak = if self.layout.minor == 11 { "_all_tasks" } else { "_scheduled_tasks" };
        if let Some(set) = self.global(weak)?
            && let Some(references) = self.objects.attribute(set, "data")?
        {
            for reference in self.objects.members(references)? {
                // A weak reference to a freed task refers to None.
                all.push(self.objects.field(reference, 0)?);
            }
        }
        if let Some(eager) = self.global("_eager_tasks")? {
            all.extend(self.objects.members(eager)?);
        }
        Ok(all)
    }

    /// Adds the tasks on a circular list.
    fn add_listed(&self, head: u64, all: &mut Vec<u64>) -> ReadResult<()> {
        let mut node = self.objects.word(head)?;
        while node != head && node != 0 && (all.len() as u64) < ENTRIES_MAX {
            all.push(node.wrapping_sub(self.objects.header_size()).wrapping_sub(self.fields.node));
            node = self.objects.word(node)?;
        }
        Ok(())
    }

    /// A global variable of the module `asyncio.tasks`.
    fn global(&mut self, name: &str) -> ReadResult<Option<u64>> {
        if self.tasks.module.is_none() {
            let main = self.interpreters()?;
            // The main interpreter was created first and is last in the list.
            for interpreter in main.into_iter().rev() {
                let modules = self.objects.word(interpreter.wrapping_add(self.roots.modules))?;
                if let Some(module) = self.objects.get(modules, "asyncio.tasks")? {
                    self.tasks.module = Some(self.objects.field(module, 0)?);
                    break;
                }
            }
        }
        match self.tasks.module {
            Some(globals) => self.objects.get(globals, name),
            None => Ok(None),
        }
    }

    /// The task and its awaiters, root first.
    fn links(&mut self, task: u64) -> ReadResult<Vec<AwaitLink>> {
        let (mut upwards, mut seen, mut at) = (Vec::new(), vec![task], task);
        upwards.push(AwaitLink::Task(self.name(task)?.ok()));
        loop {
            let awaiters = self.awaiters(at)?;
            match awaiters[..] {
                [] => break,
                _ if seen.len() >= AWAITERS_MAX || upwards.len() >= LINKS_MAX => {
                    upwards.push(AwaitLink::TooLong);
                    break;
                }
                [awaiter] if !seen.contains(&awaiter) => {
                    let coroutine = self.objects.field(awaiter, self.fields.coroutine)?;
                    let mut suspended = self.coroutines(coroutine)?;
                    suspended.reverse();
                    upwards.append(&mut suspended);
                    upwards.push(AwaitLink::Task(self.name(awaiter)?.ok()));
                    seen.push(awaiter);
                    at = awaiter;
                }
                // Tasks that await each other: a deadlock.
                [_] => break,
                _ => {
                    upwards.push(AwaitLink::SeveralAwaiters);
                    break;
                }
            }
        }
        upwards.reverse();
        Ok(upwards)
    }

    /// The name of a task, or the number of a default name; 3.12 and later store only the number.
    fn name(&self, task: u64) -> ReadResult<Result<Box<str>, u64>> {
        let name = self.objects.field(task, self.fields.name)?;
        if self.objects.is_a(name, "int")? {
            return Ok(Err(self.objects.number(name)?));
        }
        let name = self.objects.text(name)?;
        let number = name.strip_prefix("Task-").and_then(|number| number.parse().ok());
        Ok(number.map_or(Ok(name.into()), Err))
    }

    /// The coroutines that a task is suspended in, outermost first.
    fn coroutines(&mut self, outermost: u64) -> ReadResult<Vec<AwaitLink>> {
        let (mut links, mut at) = (Vec::new(), outermost);
        let fields = self.fields;
        for _ in 0..COROUTINES_MAX {
            let runnable = self.objects.is_a(at, "coroutine")? || self.objects.is_a(at, "generator")?;
            if !runnable {
                match self.objects.is_a(at, "coroutine_wrapper")? {
                    true => at = self.objects.field(at, 0)?,
                    false => break,
                }
                continue;
            }
            let frame = at.wrapping_add(self.objects.header_size()).wrapping_add(fields.frame);
            let read = read_frame(&Words(self.memory), frame, &self.layout.kernel, &mut self.buffers);
            let read = read.ok_or(ObjectError::WrongKind)?;
            links.push(AwaitLink::Coroutine {
                code: read.code,
                checksum: read.checksum,
                instruction: read.instruction,
            });
            match self.awaited(at, frame)? {
                Some(next) => at = next,
                None => break,
            }
        }
        Ok(links)
    }

    /// The object that a coroutine awaits, which is on top of its stack.
    fn awaited(&self, coroutine: u64, frame: u64) -> ReadResult<Option<u64>> {
        let state = self.state(coroutine)?;
        let is_suspended = if self.layout.minor >= 15 { state == 2 || state == 3 } else { state == -1 };
        if !is_suspended {
            return Ok(None);
        }
        let top = self.objects.word(frame.wrapping_add(STACK_TOP))?;
        let slot = if self.layout.minor >= 14 {
            top.wrapping_sub(8)
        } else {
            let locals = frame.wrapping_add(self.fields.locals);
            locals.wrapping_add(8 * u64::from(top as u32)).wrapping_sub(8)
        };
        let untagged = |word: u64| word & !u64::from(self.layout.kernel.code_tag_mask);
        let mut object = untagged(self.objects.word(slot)?);
        // 3.15 keeps an index above it, which is 0 for coroutines.
        if object == 0 && self.layout.minor >= 15 {
            object = untagged(self.objects.word(slot.wrapping_sub(8))?);
        }
        Ok(Some(object).filter(|object| *object != 0))
    }

    /// The tasks that await a task.
    fn awaiters(&mut self, task: u64) -> ReadResult<Vec<u64>> {
        let mut awaiters = match self.fields.awaited_by {
            Some(at) => {
                let by = self.objects.field(task, at)?;
                let flag = task.wrapping_add(self.objects.header_size()).wrapping_add(self.fields.is_set);
                match (by, self.objects.byte(flag)?) {
                    (0, _) => Vec::new(),
                    (by, 0) => vec![by],
                    (set, _) => self.objects.members(set)?,
                }
            }
            None => {
                let (mut found, mut left) = (Vec::new(), CAPTURED_MAX);
                self.add_woken(task, FUTURES_MAX, &mut left, &mut found)?;
                found
            }
        };
        // The future of a shield also calls back to the task.
        awaiters.truncate(AWAITERS_OF_ONE_MAX);
        awaiters.retain(|awaiter| *awaiter != task && self.is_task(*awaiter));
        awaiters.sort_unstable();
        awaiters.dedup();
        Ok(awaiters)
    }

    /// Adds the tasks that the callbacks of a future wake.
    fn add_woken(
        &mut self,
        future: u64,
        depth: usize,
        left: &mut u32,
        found: &mut Vec<u64>,
    ) -> ReadResult<()> {
        let fields = self.fields;
        let mut callbacks = vec![self.objects.field(future, fields.callback)?];
        let more = self.objects.field(future, fields.callbacks)?;
        if more != 0 && self.objects.is_a(more, "list")? {
            for pair in self.objects.list(more)? {
                callbacks.extend(self.objects.tuple(pair)?.first());
            }
        }
        for callback in callbacks.into_iter().filter(|callback| *callback != 0).take(AWAITERS_OF_ONE_MAX) {
            for captured in self.objects.captured(callback)? {
                if captured == 0 || captured == future {
                    continue;
                }
                *left = left.saturating_sub(1);
                if *left == 0 || found.len() >= AWAITERS_OF_ONE_MAX {
                    return Ok(());
                }
                if self.is_task(captured) {
                    found.push(captured);
                } else if self.objects.is_a(captured, "TaskGroup")? {
                    found.extend(self.objects.attribute(captured, "_parent_task")?);
                } else if depth > 0 && self.objects.is_a(captured, "_asyncio.Future")? {
                    self.add_woken(captured, depth - 1, left, found)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::layout::all_layouts;
    use super::*;
    use crate::memory::ReadError;

    /// Memory of pointers into itself: every object is of one type, named `name`, and every chain is endless.
    struct CyclicMemory {
        name: &'static [u8],
        salt: u64,
        reads: AtomicU64,
    }

    impl TargetMemory for CyclicMemory {
        fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            for (n, byte) in into.iter_mut().enumerate() {
                let at = address.wrapping_add(n as u64);
                // The low half of the addresses holds pointers, the high half the name.
                *byte = if at & 1 << 20 != 0 {
                    self.name.get(at as usize & 63).copied().unwrap_or(0)
                } else {
                    let word = (at >> 3).wrapping_add(self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let pointer = 0x5000_0000 | word >> 40 & 0xf_fff8 | (at >> 3 & 1) << 20;
                    pointer.to_le_bytes()[at as usize & 7]
                };
            }
            Ok(())
        }
    }

    #[test]
    fn cyclic_memory_gives_a_bounded_result() {
        let names: [&[u8]; 6] =
            [b"coroutine", b"_asyncio.Task", b"coroutine_wrapper", b"method", b"TaskGroup", b"function"];
        for layout in all_layouts() {
            for (salt, name) in (0..).zip(names) {
                let memory = CyclicMemory { name, salt, reads: AtomicU64::new(0) };
                let mut tasks = Tasks::default();
                let _ = tasks.chain(&memory, layout, 0x5000_1000, 0x5000_2000);
                let objects = Objects::new(&memory, layout);
                if let Some(objects) = objects {
                    let buffers = Buffers::default();
                    let (memory, runtime) = (&memory, 0x5000_1000);
                    let (fields, roots) = (TaskFields::of(layout.minor), Roots::of(layout));
                    let mut reader = Reader {
                        objects,
                        memory,
                        layout,
                        runtime,
                        fields,
                        roots,
                        buffers,
                        tasks: &mut tasks,
                    };
                    let _ = reader.links(0x5000_3000);
                    let _ = reader.all();
                    let _ = reader.coroutines(0x5000_4000);
                }
                let reads = memory.reads.into_inner();
                assert!(reads < 2_000_000, "{}: {reads} reads", layout.minor);
            }
        }
    }
}
