//! Tasks: names the parts of an await chain that was read from asyncio's tasks.
//!
//! Owns: naming the coroutines of a chain. Because: the reader of tasks knows code objects, and the pipeline wants
//! functions. Does not: read tasks, or keep chains; see [`super::await_chains`].

use deepctx_symbolizer::python::{AwaitChain, AwaitLink, NoTask, PythonSymbols};

use super::await_chains::{Chain, Part};
use super::reason::{CHAIN_TOO_LONG, SEVERAL_AWAITERS};

/// A reading of tasks, with names. Without a task, an empty chain.
pub(super) fn chain(pid: u32, awaited: Result<AwaitChain, NoTask>, python: &mut PythonSymbols) -> Chain {
    let links = match awaited {
        Ok(awaited) => awaited.links,
        Err(NoTask::None | NoTask::Unsupported) => return Chain::new(),
        Err(reason) => return vec![Part::Unknown(reason.reason())],
    };
    let mut part = |link| match link {
        AwaitLink::Task(name) => Some(Part::Task(name)),
        AwaitLink::SeveralAwaiters => Some(Part::Unknown(SEVERAL_AWAITERS)),
        AwaitLink::TooLong => Some(Part::Unknown(CHAIN_TOO_LONG)),
        AwaitLink::Coroutine { code, checksum, instruction } => {
            match python.frame(pid, code, checksum, instruction) {
                Ok(frame) if frame.incomplete => None,
                Ok(frame) => Some(Part::Function {
                    function: frame.qualname,
                    file: frame.file,
                    line: frame.line.unwrap_or(0),
                    first_line: frame.first_line,
                }),
                Err(reason) => Some(Part::Unknown(reason.reason())),
            }
        }
    };
    links.into_iter().filter_map(&mut part).collect()
}
