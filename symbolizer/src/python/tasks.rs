//! Tasks of asyncio: which task a coroutine belongs to, and who awaits it.
//!
//! Owns: where CPython 3.11 and later keep tasks, and the way from one to the tasks and coroutines that await it.
//! Because: a task runs on the stack of the event loop, which says nothing of whose work it does.
//! Does not: know when it is asked: what it tells is how things are now; whoever asks compares with the time of a sample.
//!
//! ```text
//!  frame of a coroutine ─▶ task ─▶ awaited_by (3.14+), or its callbacks: a task's wake-up, a gather's or a wait's
//!    (told by the kernel)            closure, a task group ─▶ task ─▶ …        each with the coroutines it waits in
//! ```

use rustc_hash::FxHashMap;

use deepctx_walk::memory::Memory;
use deepctx_walk::python::{Buffers, read_frame};

use super::layout::Layout;
use super::memory::TargetMemory;
use super::objects::{ENTRIES_MAX, Found, ObjectError, Objects};
use super::task_fields::{FRAME_STATE, Fields, Roots, STACK_TOP, Stated};

/// Most tasks between a running task and the one that nobody awaits.
const AWAITERS_MAX: usize = 64;
/// Most coroutines that one task is in, each awaiting the next.
const COROUTINES_MAX: usize = 128;
/// Times that what `_asyncio` states is sought: a coroutine may be another library's, and the module not loaded yet.
const STATED_SOUGHT_MAX: u8 = 4;
/// Most parts of a chain; the last task's coroutines may add to it.
const LINKS_MAX: usize = 512;
/// Most tasks that await one task and are looked at.
const TOGETHER_MAX: usize = 16;
/// Futures between a task and its awaiter: that of a `gather` within one of a `shield`, and so on.
const FUTURES_MAX: usize = 4;
/// Callbacks and what they carry along that are looked at to find who awaits one task.
const CARRIED_MAX: u32 = 256;
/// Most interpreters of a process that are looked at.
const INTERPRETERS_MAX: usize = 16;
/// Most threads of one that are.
const THREADS_MAX: usize = 1 << 10;
/// Tasks and threads looked at in a second while a coroutine's task is sought, at about two microseconds each.
const SOUGHT_MAX: u32 = 20_000;
/// Coroutines whose tasks are remembered; at the bound all are forgotten.
const KNOWN_MAX: usize = 1 << 13;

/// Part of a chain of awaiting tasks, root first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// A task; `None` is a name that asyncio made by counting, which says nothing and is another for each task.
    Task(Option<Box<str>>),
    /// A coroutine that waits for the next one, or for the task after it.
    Coroutine {
        /// Its code object.
        code: u64,
        /// As for frames of a stack.
        checksum: u32,
        /// As for frames of a stack.
        instruction: u32,
    },
    /// More than one task awaits the next one: the chain goes on in several ways.
    SeveralAwaiters,
    /// The chain goes on, beyond what is read of one.
    TooLong,
}

/// What was read of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Who awaits it, and the task itself; root first.
    pub links: Vec<Link>,
    /// The number that asyncio gave the task, if it has no other name. No two tasks of a process share one.
    pub number: Option<u64>,
}

/// Why there is no chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NoTask {
    /// The version is older than 3.11.
    #[error("the tasks of this version of CPython are not read")]
    Unsupported,
    /// No task has the coroutine: something else runs it, be it a generator or another library than asyncio.
    #[error("no task runs the coroutine")]
    None,
    /// The coroutine has ended.
    #[error("the task ended before it was read")]
    Ended,
    /// Memory could not be read.
    #[error("the tasks of the process could not be read")]
    Unreadable,
    /// There are more tasks than are looked at.
    #[error("the process has more tasks than are looked at")]
    TooMany,
}

/// What is remembered of one process's tasks.
#[derive(Debug, Default)]
pub struct Tasks {
    /// Coroutine → task.
    known: FxHashMap<u64, u64>,
    /// The dictionary of the module `asyncio.tasks`, once it was found (up to 3.13).
    module: Option<u64>,
    /// The type of tasks, once one was met.
    task_type: u64,
    /// Tasks looked at in this second.
    sought: u32,
    /// What `_asyncio` states of its fields (3.14+), once it was found.
    stated: Option<Stated>,
    /// How often that was sought.
    stated_sought: u8,
}

impl Tasks {
    /// A second has passed.
    pub fn rest(&mut self) {
        self.sought = 0;
    }

    /// Who awaits the task whose coroutine has its frame at `frame`, and that task itself; root first. `runtime`: the
    /// address of `_PyRuntime`.
    ///
    /// # Errors
    /// The reason why there is no task, or why it cannot be told.
    pub fn chain(
        &mut self,
        memory: &dyn TargetMemory,
        layout: &'static Layout,
        runtime: u64,
        frame: u64,
    ) -> Result<Awaited, NoTask> {
        let objects = Objects::new(memory, layout).ok_or(NoTask::Unsupported)?;
        if self.stated.is_none() && self.stated_sought < STATED_SOUGHT_MAX && layout.minor >= 14 {
            self.stated_sought += 1;
            self.stated = Stated::of_process(memory, runtime);
        }
        let (mut fields, mut roots) = (Fields::of(layout.minor), Roots::of(layout));
        if let Some(stated) = &self.stated {
            stated.apply(objects.head(), &mut fields, &mut roots);
        }
        let buffers = Buffers::default();
        let mut reader = Reader { objects, memory, layout, runtime, fields, roots, buffers, tasks: self };
        reader.chain(frame)
    }
}

/// The target's memory, as the walker of the kernel programs wants it.
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
    fields: Fields,
    roots: Roots,
    buffers: Buffers,
    tasks: &'t mut Tasks,
}

impl Reader<'_, '_> {
    fn chain(&mut self, frame: u64) -> Result<Awaited, NoTask> {
        let coroutine = frame.wrapping_sub(self.objects.head()).wrapping_sub(self.fields.frame);
        // What ended may be gone, or something else by now.
        match self.objects.is_a(coroutine, "coroutine") {
            Ok(true) => {}
            Ok(false) if self.objects.is_a(coroutine, "generator") == Ok(true) => return Err(NoTask::None),
            Ok(false) | Err(_) => return Err(NoTask::Ended),
        }
        let unreadable = |_: ObjectError| NoTask::Unreadable;
        if !self.may_run(coroutine).map_err(unreadable)? {
            return Err(NoTask::Ended);
        }
        let task = self.task_of(coroutine)?;
        let links = self.links(task).map_err(unreadable)?;
        let number = self.name(task).map_err(unreadable)?.err();
        // What was read is what was there only if it still is: a task that ends lets go of those who await it.
        let still = self.runs(task, coroutine) && self.may_run(coroutine) == Ok(true);
        if still { Ok(Awaited { links, number }) } else { Err(NoTask::Ended) }
    }

    /// Whether a coroutine has neither ended nor been cleared.
    fn may_run(&self, coroutine: u64) -> Found<bool> {
        let state = self.state(coroutine)?;
        Ok(if self.layout.minor >= 15 { state <= 4 } else { state <= 0 })
    }

    fn state(&self, coroutine: u64) -> Found<i8> {
        let frame = coroutine.wrapping_add(self.objects.head()).wrapping_add(self.fields.frame);
        Ok(self.objects.byte(frame.wrapping_sub(FRAME_STATE))?.cast_signed())
    }

    /// Whether what is at this address is a task, and this coroutine's.
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
        if self.tasks.sought >= SOUGHT_MAX {
            return Err(NoTask::TooMany);
        }
        let running = self.running().unwrap_or_default();
        self.tasks.sought += running.len() as u32;
        if let Some(task) = running.into_iter().find(|task| self.runs(*task, coroutine)) {
            self.know(coroutine, task);
            return Ok(task);
        }
        let all = self.all().unwrap_or_default();
        let mut found = Err(if all.len() as u64 >= ENTRIES_MAX { NoTask::TooMany } else { NoTask::None });
        for task in all {
            self.tasks.sought += 1;
            if !self.is_task(task) {
                continue;
            }
            let Ok(of_task) = self.objects.field(task, self.fields.coroutine) else { continue };
            self.know(of_task, task);
            if of_task == coroutine {
                found = Ok(task);
            }
        }
        found
    }

    fn know(&mut self, coroutine: u64, task: u64) {
        if self.tasks.known.len() >= KNOWN_MAX {
            self.tasks.known.clear();
        }
        self.tasks.known.insert(coroutine, task);
    }

    /// A list of structures that each point to the next.
    fn linked(&self, first: u64, next: u64, most: usize) -> Found<Vec<u64>> {
        let (mut all, mut at) = (Vec::new(), self.objects.word(first)?);
        while at != 0 && all.len() < most {
            all.push(at);
            at = self.objects.word(at.wrapping_add(next))?;
        }
        Ok(all)
    }

    fn interpreters(&self) -> Found<Vec<u64>> {
        let roots = self.roots;
        self.linked(self.runtime.wrapping_add(roots.interpreters), roots.next, INTERPRETERS_MAX)
    }

    fn threads(&self, interpreter: u64) -> Found<Vec<u64>> {
        // `PyThreadState.next` is its second word.
        self.linked(interpreter.wrapping_add(self.roots.threads), 8, THREADS_MAX)
    }

    /// Tasks that run right now.
    fn running(&mut self) -> Found<Vec<u64>> {
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
    fn all(&mut self) -> Found<Vec<u64>> {
        let mut all = Vec::new();
        if self.layout.minor >= 14 {
            let roots = self.roots;
            for interpreter in self.interpreters()? {
                for thread in self.threads(interpreter)? {
                    self.listed(thread.wrapping_add(roots.tasks), &mut all)?;
                }
            }
            return Ok(all);
        }
        let weak = if self.layout.minor == 11 { "_all_tasks" } else { "_scheduled_tasks" };
        if let Some(set) = self.global(weak)?
            && let Some(references) = self.objects.attribute(set, "data")?
        {
            for reference in self.objects.members(references)? {
                // One whose task is gone refers to None.
                all.push(self.objects.field(reference, 0)?);
            }
        }
        if let Some(eager) = self.global("_eager_tasks")? {
            all.extend(self.objects.members(eager)?);
        }
        Ok(all)
    }

    /// The tasks on a circular list.
    fn listed(&self, head: u64, all: &mut Vec<u64>) -> Found<()> {
        let mut node = self.objects.word(head)?;
        while node != head && node != 0 && (all.len() as u64) < ENTRIES_MAX {
            all.push(node.wrapping_sub(self.objects.head()).wrapping_sub(self.fields.node));
            node = self.objects.word(node)?;
        }
        Ok(())
    }

    /// A global variable of the module `asyncio.tasks`.
    fn global(&mut self, name: &str) -> Found<Option<u64>> {
        if self.tasks.module.is_none() {
            let main = self.interpreters()?;
            // The main interpreter was made first and stands last.
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

    /// The task and those who await it, root first.
    fn links(&mut self, task: u64) -> Found<Vec<Link>> {
        let (mut upwards, mut seen, mut at) = (Vec::new(), vec![task], task);
        upwards.push(Link::Task(self.name(task)?.ok()));
        loop {
            let awaiters = self.awaiters(at)?;
            match awaiters[..] {
                [] => break,
                _ if seen.len() >= AWAITERS_MAX || upwards.len() >= LINKS_MAX => {
                    upwards.push(Link::TooLong);
                    break;
                }
                [awaiter] if !seen.contains(&awaiter) => {
                    let coroutine = self.objects.field(awaiter, self.fields.coroutine)?;
                    let mut waiting = self.coroutines(coroutine)?;
                    waiting.reverse();
                    upwards.append(&mut waiting);
                    upwards.push(Link::Task(self.name(awaiter)?.ok()));
                    seen.push(awaiter);
                    at = awaiter;
                }
                // Tasks that await each other, as a deadlock has it.
                [_] => break,
                _ => {
                    upwards.push(Link::SeveralAwaiters);
                    break;
                }
            }
        }
        upwards.reverse();
        Ok(upwards)
    }

    /// The name of a task, or the number of one that asyncio counted; 3.12 and later keep that alone.
    fn name(&self, task: u64) -> Found<Result<Box<str>, u64>> {
        let name = self.objects.field(task, self.fields.name)?;
        if self.objects.is_a(name, "int")? {
            return Ok(Err(self.objects.number(name)?));
        }
        let name = self.objects.text(name)?;
        let number = name.strip_prefix("Task-").and_then(|number| number.parse().ok());
        Ok(number.map_or(Ok(name.into()), Err))
    }

    /// The coroutines that a task waits in, outermost first.
    fn coroutines(&mut self, outermost: u64) -> Found<Vec<Link>> {
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
            let frame = at.wrapping_add(self.objects.head()).wrapping_add(fields.frame);
            let read = read_frame(&Words(self.memory), frame, &self.layout.kernel, &mut self.buffers);
            let read = read.ok_or(ObjectError::Other)?;
            links.push(Link::Coroutine {
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

    /// What a coroutine awaits: it lies on top of its stack.
    fn awaited(&self, coroutine: u64, frame: u64) -> Found<Option<u64>> {
        let state = self.state(coroutine)?;
        let waits = if self.layout.minor >= 15 { state == 2 || state == 3 } else { state == -1 };
        if !waits {
            return Ok(None);
        }
        let top = self.objects.word(frame.wrapping_add(STACK_TOP))?;
        let place = if self.layout.minor >= 14 {
            top.wrapping_sub(8)
        } else {
            let locals = frame.wrapping_add(self.fields.locals);
            locals.wrapping_add(8 * u64::from(top as u32)).wrapping_sub(8)
        };
        let untagged = |word: u64| word & !u64::from(self.layout.kernel.code_tag_mask);
        let mut object = untagged(self.objects.word(place)?);
        // 3.15 keeps an index above it, which coroutines do not have.
        if object == 0 && self.layout.minor >= 15 {
            object = untagged(self.objects.word(place.wrapping_sub(8))?);
        }
        Ok(Some(object).filter(|object| *object != 0))
    }

    /// The tasks that await a task.
    fn awaiters(&mut self, task: u64) -> Found<Vec<u64>> {
        let mut awaiters = match self.fields.awaited_by {
            Some(at) => {
                let by = self.objects.field(task, at)?;
                let flag = task.wrapping_add(self.objects.head()).wrapping_add(self.fields.is_set);
                match (by, self.objects.byte(flag)?) {
                    (0, _) => Vec::new(),
                    (by, 0) => vec![by],
                    (set, _) => self.objects.members(set)?,
                }
            }
            None => {
                let (mut found, mut left) = (Vec::new(), CARRIED_MAX);
                self.called_back(task, FUTURES_MAX, &mut left, &mut found)?;
                found
            }
        };
        // A shield's future calls back to the task, too.
        awaiters.truncate(TOGETHER_MAX);
        awaiters.retain(|awaiter| *awaiter != task && self.is_task(*awaiter));
        awaiters.sort_unstable();
        awaiters.dedup();
        Ok(awaiters)
    }

    /// Adds the tasks that are woken, in whatever way, when a future is done.
    fn called_back(
        &mut self,
        future: u64,
        further: usize,
        left: &mut u32,
        found: &mut Vec<u64>,
    ) -> Found<()> {
        let fields = self.fields;
        let mut callbacks = vec![self.objects.field(future, fields.callback)?];
        let more = self.objects.field(future, fields.callbacks)?;
        if more != 0 && self.objects.is_a(more, "list")? {
            for pair in self.objects.list(more)? {
                callbacks.extend(self.objects.tuple(pair)?.first());
            }
        }
        for callback in callbacks.into_iter().filter(|callback| *callback != 0).take(TOGETHER_MAX) {
            for carried in self.objects.carried(callback)? {
                if carried == 0 || carried == future {
                    continue;
                }
                *left = left.saturating_sub(1);
                if *left == 0 || found.len() >= TOGETHER_MAX {
                    return Ok(());
                }
                if self.is_task(carried) {
                    found.push(carried);
                } else if self.objects.is_a(carried, "TaskGroup")? {
                    found.extend(self.objects.attribute(carried, "_parent_task")?);
                } else if further > 0 && self.objects.is_a(carried, "_asyncio.Future")? {
                    self.called_back(carried, further - 1, left, found)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::layout::all_layouts;
    use super::super::memory::ReadError;
    use super::*;

    /// Memory of pointers into itself: every object is of one type, whose name is `name`, and every chain goes on for ever.
    struct Loops {
        name: &'static [u8],
        salt: u64,
        reads: Cell<u64>,
    }

    impl TargetMemory for Loops {
        fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
            self.reads.set(self.reads.get() + 1);
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
    fn memory_that_leads_round_in_circles_gives_a_reason_or_a_bounded_answer() {
        let names: [&[u8]; 6] =
            [b"coroutine", b"_asyncio.Task", b"coroutine_wrapper", b"method", b"TaskGroup", b"function"];
        for layout in all_layouts() {
            for (salt, name) in (0..).zip(names) {
                let memory = Loops { name, salt, reads: Cell::new(0) };
                let mut tasks = Tasks::default();
                let _ = tasks.chain(&memory, layout, 0x5000_1000, 0x5000_2000);
                let objects = Objects::new(&memory, layout);
                if let Some(objects) = objects {
                    let buffers = Buffers::default();
                    let (memory, runtime) = (&memory, 0x5000_1000);
                    let (fields, roots) = (Fields::of(layout.minor), Roots::of(layout));
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
                assert!(memory.reads.get() < 2_000_000, "{}: {} reads", layout.minor, memory.reads.get());
            }
        }
    }
}
