//! Tasks: what was read of asyncio's tasks → a chain of names.
//!
//! Owns: naming the coroutines of a chain. Because: the reader of tasks knows code objects, and the pipeline wants functions.
//! Does not: read tasks, or remember chains: see [`crate::awaiting`].

use deepctx_symbolizer::python::{Awaited, Link, NoTask, PythonSymbols};

use crate::awaiting::{Chain, Part};
use crate::reason::{CHAIN_TOO_LONG, SEVERAL_AWAITERS, no_python, no_task};

/// What was read of tasks, with names. Whatever has no task is no part of a chain.
pub(crate) fn chain(pid: u32, awaited: Result<Awaited, NoTask>, python: &mut PythonSymbols) -> Chain {
    let links = match awaited {
        Ok(awaited) => awaited.links,
        Err(NoTask::None | NoTask::Unsupported) => return Chain::new(),
        Err(reason) => return vec![Part::Unknown(no_task(reason))],
    };
    let mut part = |link| match link {
        Link::Task(name) => Some(Part::Task(name)),
        Link::SeveralAwaiters => Some(Part::Unknown(SEVERAL_AWAITERS)),
        Link::TooLong => Some(Part::Unknown(CHAIN_TOO_LONG)),
        Link::Coroutine { code, checksum, instruction } => {
            match python.frame(pid, code, checksum, instruction) {
                Ok(frame) if frame.incomplete => None,
                Ok(frame) => Some(Part::Function {
                    function: frame.qualname,
                    file: frame.file,
                    line: frame.line.unwrap_or(0),
                    first_line: frame.first_line,
                }),
                Err(reason) => Some(Part::Unknown(no_python(reason))),
            }
        }
    };
    links.into_iter().filter_map(&mut part).collect()
}
