//! Where CPython keeps the fields of asyncio's tasks: a row per version, and what the module itself states.
//!
//! Owns: those offsets. Because: from 3.14 on `_asyncio` states its own for readers like this one, which hold for builds and
//! later releases that no table knows. Does not: read tasks (see [`super::tasks`]).

use super::debug_offsets;
use super::layout::Layout;
use super::memory::TargetMemory;

/// Offsets in tasks and coroutines, from the end of the object's head on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
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

impl Fields {
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

/// Where the interpreter keeps its tasks, or what leads to them.
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
    /// `_PyThreadStateImpl.asyncio_tasks_head` (3.14+). Tasks of threads that ended move to a list of the interpreter, which
    /// nothing runs any more.
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

/// Section of the file that holds `_asyncio`, be it an extension module, libpython or the program.
pub(super) const SECTION: &str = ".AsyncioDebug";
/// Numbers in it: of a task, of an interpreter's state and of a thread's, each after its size.
const NUMBERS: usize = 13;
/// Largest size of any of those structures that is believed; a thread's state has 2 to 3 thousand bytes, an interpreter's
/// two hundred thousand.
const SIZE_MAX: u64 = 1 << 24;

/// What `_asyncio` states of its fields (3.14+), from the beginning of each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    name: u64,
    awaited_by: u64,
    is_set: u64,
    coroutine: u64,
    node: u64,
    interpreter_size: u64,
    running: u64,
    tasks: u64,
}

impl Stated {
    /// What the module in a process states; `None` when none is loaded, or what it states cannot be so, or is of another
    /// interpreter than the one whose `_PyRuntime` is at `runtime`.
    pub fn of_process(memory: &dyn TargetMemory, runtime: u64) -> Option<Self> {
        let stated = Self::parse(&memory.section(SECTION)?)?;
        let size = debug_offsets::interpreter_size(memory, runtime).ok()?;
        (stated.interpreter_size == size).then_some(stated)
    }

    /// `None` when a field lies outside of its structure, or a pointer where none can.
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

    /// Puts what is stated in the place of what a table says. `head`: size of the head of an object.
    pub(super) fn apply(&self, head: u64, fields: &mut Fields, roots: &mut Roots) {
        // A field within the head is none.
        let behind = [self.name, self.awaited_by, self.is_set, self.coroutine, self.node]
            .map(|at| at.checked_sub(head));
        if let [Some(name), Some(awaited_by), Some(is_set), Some(coroutine), Some(node)] = behind {
            *fields = Fields { name, awaited_by: Some(awaited_by), is_set, coroutine, node, ..*fields };
            *roots = Roots { running: self.running, tasks: self.tasks, ..*roots };
        }
    }

    /// Whether a table says the same for this version. `None` for a version whose tasks are not read.
    pub fn is_as_in_table(&self, memory: &dyn TargetMemory, layout: &'static Layout) -> Option<bool> {
        let head = super::objects::Objects::new(memory, layout)?.head();
        let (fields, roots) = (Fields::of(layout.minor), Roots::of(layout));
        let (mut stated_fields, mut stated_roots) = (fields, roots);
        self.apply(head, &mut stated_fields, &mut stated_roots);
        Some((stated_fields, stated_roots) == (fields, roots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 3.14.7 with a GIL states it.
    const STATED: [u64; NUMBERS] = [168, 136, 96, 107, 109, 128, 152, 225_864, 7_280, 2_904, 864, 872, 880];

    fn parse(numbers: [u64; NUMBERS]) -> Option<Stated> {
        Stated::parse(&numbers.map(u64::to_le_bytes).concat())
    }

    #[test]
    fn what_the_module_states_takes_the_place_of_the_table() {
        let layout = Layout::of(14, false).unwrap();
        let (mut fields, mut roots) = (Fields::of(14), Roots::of(layout));
        let table = (fields, roots);
        parse(STATED).unwrap().apply(16, &mut fields, &mut roots);
        assert_eq!((fields, roots), table);
        let mut moved = STATED;
        moved[1] = 112;
        moved[12] = 2_000;
        parse(moved).unwrap().apply(16, &mut fields, &mut roots);
        assert_eq!((fields.name, roots.tasks, fields.coroutine), (96, 2_000, table.0.coroutine));
    }

    #[test]
    fn what_cannot_be_so_is_not_believed() {
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
            let mut numbers = STATED;
            numbers[at] = value;
            assert_eq!(parse(numbers), None, "{value} at {at}");
        }
        assert_eq!(Stated::parse(&STATED.map(u64::to_le_bytes).concat()[..103]), None);
        // Within the head of an object.
        let mut numbers = STATED;
        numbers[5] = 8;
        let (mut fields, mut roots) = (Fields::of(14), Roots::of(Layout::of(14, false).unwrap()));
        let table = (fields, roots);
        parse(numbers).unwrap().apply(16, &mut fields, &mut roots);
        assert_eq!((fields, roots), table);
    }
}
