//! Field offsets of asyncio tasks: a row per version, and the offsets that `_asyncio` publishes.
//!
//! Owns: these offsets. Because: from 3.14 on `_asyncio` publishes its offsets for external readers, which hold for
//! builds and releases that no table has. Does not: read tasks (see [`super::tasks`]).

use super::debug_offsets;
use super::layout::Layout;
use crate::memory::TargetMemory;

/// Offsets in tasks and coroutines, from the end of the object header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskFields {
    /// `FutureObj.fut_callback0`
    pub(super) callback: u64,
    /// `FutureObj.fut_callbacks`
    pub(super) callbacks: u64,
    /// `FutureObj.fut_awaited_by` (3.14+).
    pub(super) awaited_by: Option<u64>,
    /// `FutureObj.fut_awaited_by_is_set`.
    pub(super) is_set: u64,
    /// `TaskObj.task_coro`
    pub(super) coroutine: u64,
    /// `TaskObj.task_name`
    pub(super) name: u64,
    /// `TaskObj.task_node` (3.14+).
    pub(super) node: u64,
    /// `PyCoroObject.cr_iframe`; `cr_frame_state` is the fifth byte before it.
    pub(super) frame: u64,
    /// `_PyInterpreterFrame.localsplus`
    pub(super) locals: u64,
}

/// `cr_iframe` − `cr_frame_state`
pub(super) const FRAME_STATE: u64 = 5;
/// `_PyInterpreterFrame.stacktop` (an int, up to 3.13) or `stackpointer`
pub(super) const STACK_TOP: u64 = 64;

impl TaskFields {
    pub(super) fn of(minor: u8) -> Self {
        let fields = Self {
            callback: 8,
            callbacks: 24,
            awaited_by: None,
            is_set: 0,
            coroutine: 120,
            name: 128,
            node: 0,
            frame: 56,
            locals: 72,
        };
        match minor {
            11 => Self { frame: 64, ..fields },
            12 => fields,
            13 => Self { coroutine: 104, name: 112, ..fields },
            _ => Self {
                awaited_by: Some(80),
                is_set: 93,
                coroutine: 112,
                name: 120,
                node: 136,
                locals: 80,
                ..fields
            },
        }
    }
}

/// Offsets by which the tasks of an interpreter are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Roots {
    /// `_PyRuntime.interpreters.head`
    pub(super) interpreters: u64,
    /// `PyInterpreterState.next`
    pub(super) next: u64,
    /// `PyInterpreterState.threads.head`
    pub(super) threads: u64,
    /// `PyInterpreterState.imports.modules`
    pub(super) modules: u64,
    /// `_PyThreadStateImpl.asyncio_running_task` (3.14+)
    pub(super) running: u64,
    /// `_PyThreadStateImpl.asyncio_tasks_head` (3.14+). Tasks of threads that ended move to a list of the
    /// interpreter, and never run again.
    pub(super) tasks: u64,
}

impl Roots {
    pub(super) fn of(layout: &Layout) -> Self {
        let of = |interpreters, next, threads, modules, running, tasks| Self {
            interpreters,
            next,
            threads,
            modules,
            running,
            tasks,
        };
        match (layout.minor, layout.free_threaded) {
            (11, _) => of(40, 0, 16, 888, 0, 0),
            (12, _) => of(40, 0, 72, 944, 0, 0),
            (13, false) => of(632, 7264, 7344, 7656, 0, 0),
            (13, true) => of(632, 7264, 7344, 7664, 0, 0),
            (14, false) => of(808, 7272, 7344, 7688, 872, 880),
            (14, true) => of(808, 7272, 7344, 7712, 872, 880),
            (_, _) => of(936, 7264, 7336, 7592, 1032, 1048),
        }
    }
}

/// Section of the file that contains `_asyncio`: an extension module, libpython or the program.
pub(super) const SECTION: &str = ".AsyncioDebug";
/// Number of u64 values in it: offsets in tasks, interpreter states and thread states, each group after the size.
const NUMBERS: usize = 13;
/// Largest plausible size of those structures; a thread state has 2 to 3 thousand bytes, an interpreter state two
/// hundred thousand.
const SIZE_MAX: u64 = 1 << 24;

/// The offsets that `_asyncio` publishes (3.14+), from the start of each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedOffsets {
    name: u64,
    awaited_by: u64,
    is_set: u64,
    coroutine: u64,
    node: u64,
    interpreter_size: u64,
    running: u64,
    tasks: u64,
}

impl PublishedOffsets {
    /// The offsets of the module in a process; `None` when it is not loaded, its values are implausible, or it
    /// belongs to another interpreter than the one whose `_PyRuntime` is at `runtime`.
    pub fn of_process(memory: &dyn TargetMemory, runtime: u64) -> Option<Self> {
        let published = Self::parse(&memory.section(SECTION)?)?;
        let size = debug_offsets::interpreter_size(memory, runtime).ok()?;
        (published.interpreter_size == size).then_some(published)
    }

    /// `None` when a field is outside its structure, or a pointer is misaligned.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut numbers = [0; NUMBERS];
        for (number, bytes) in numbers.iter_mut().zip(bytes.get(..8 * NUMBERS)?.chunks_exact(8)) {
            *number = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        let [
            task,
            name,
            awaited_by,
            _,
            is_set,
            coroutine,
            node,
            interpreter_size,
            _,
            thread,
            _,
            running,
            tasks,
        ] = numbers;
        let pointer =
            |at: u64, size: u64| at.is_multiple_of(8) && at.checked_add(8).is_some_and(|end| end <= size);
        let within = [task, interpreter_size, thread].iter().all(|size| *size <= SIZE_MAX)
            && [name, awaited_by, coroutine, node].iter().all(|at| pointer(*at, task))
            && is_set < task
            && [running, tasks].iter().all(|at| pointer(*at, thread));
        within.then_some(Self { name, awaited_by, is_set, coroutine, node, interpreter_size, running, tasks })
    }

    /// How many offsets are kept.
    pub(super) const NUMBERS_KEPT: usize = 8;

    /// They, for [`Self::of_numbers`].
    pub(super) fn numbers(&self) -> [u64; Self::NUMBERS_KEPT] {
        let Self { name, awaited_by, is_set, coroutine, node, interpreter_size, running, tasks } = *self;
        [name, awaited_by, is_set, coroutine, node, interpreter_size, running, tasks]
    }

    pub(super) fn of_numbers(numbers: [u64; Self::NUMBERS_KEPT]) -> Self {
        let [name, awaited_by, is_set, coroutine, node, interpreter_size, running, tasks] = numbers;
        Self { name, awaited_by, is_set, coroutine, node, interpreter_size, running, tasks }
    }

    /// Replaces the offsets of the table. `header`: size of the object header.
    pub(super) fn apply(&self, header: u64, fields: &mut TaskFields, roots: &mut Roots) {
        // A field within the header is invalid.
        let after_header = [self.name, self.awaited_by, self.is_set, self.coroutine, self.node]
            .map(|at| at.checked_sub(header));
        if let [Some(name), Some(awaited_by), Some(is_set), Some(coroutine), Some(node)] = after_header {
            *fields = TaskFields { name, awaited_by: Some(awaited_by), is_set, coroutine, node, ..*fields };
            *roots = Roots { running: self.running, tasks: self.tasks, ..*roots };
        }
    }

    /// Whether the table has the same offsets for this version. `None` for a version whose tasks are not supported.
    pub fn matches_table(&self, memory: &dyn TargetMemory, layout: &'static Layout) -> Option<bool> {
        let header = super::objects::Objects::new(memory, layout)?.header_size();
        let (fields, roots) = (TaskFields::of(layout.minor), Roots::of(layout));
        let (mut published_fields, mut published_roots) = (fields, roots);
        self.apply(header, &mut published_fields, &mut published_roots);
        Some((published_fields, published_roots) == (fields, roots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As published by 3.14.7 with a GIL.
    const PUBLISHED: [u64; NUMBERS] =
        [168, 136, 96, 107, 109, 128, 152, 225_864, 7_280, 2_904, 864, 872, 880];

    fn parse(numbers: [u64; NUMBERS]) -> Option<PublishedOffsets> {
        PublishedOffsets::parse(&numbers.map(u64::to_le_bytes).concat())
    }

    #[test]
    fn published_offsets_replace_the_table() {
        let layout = Layout::of(14, false).unwrap();
        let (mut fields, mut roots) = (TaskFields::of(14), Roots::of(layout));
        let table = (fields, roots);
        parse(PUBLISHED).unwrap().apply(16, &mut fields, &mut roots);
        assert_eq!((fields, roots), table);
        let mut moved = PUBLISHED;
        moved[1] = 112;
        moved[12] = 2_000;
        parse(moved).unwrap().apply(16, &mut fields, &mut roots);
        assert_eq!((fields.name, roots.tasks, fields.coroutine), (96, 2_000, table.0.coroutine));
    }

    #[test]
    fn implausible_offsets_are_refused() {
        for (at, value) in [
            (1, 161),
            (1, 168),
            (2, u64::MAX),
            (4, 168),
            (5, 129),
            (6, 1 << 40),
            (11, 2_904),
            (0, 0),
            (7, 1 << 30),
        ] {
            let mut numbers = PUBLISHED;
            numbers[at] = value;
            assert_eq!(parse(numbers), None, "{value} at {at}");
        }
        assert_eq!(PublishedOffsets::parse(&PUBLISHED.map(u64::to_le_bytes).concat()[..103]), None);
        // Within the object header.
        let mut numbers = PUBLISHED;
        numbers[5] = 8;
        let (mut fields, mut roots) = (TaskFields::of(14), Roots::of(Layout::of(14, false).unwrap()));
        let table = (fields, roots);
        parse(numbers).unwrap().apply(16, &mut fields, &mut roots);
        assert_eq!((fields, roots), table);
    }
}
