//! CPython from outside the process: where its frames are, and the names of their functions.
//!
//! Owns: version tables, finding the interpreter in a process, and reading names and lines of code objects. Because:
//! the kernel program walks frames by the offsets prepared here, and reports addresses of code objects to be named
//! here. Does not: walk stacks (`deepctx_walk::python` does), load BPF maps, or know the profile.
//!
//! ```text
//! mappings + ELF bytes ─▶ locate ─▶ Interpreter { process: for the kernel, layout, code_type }
//!                                        │
//!            sampled (code, checksum, instruction) ─▶ names ─▶ PythonFrame | NoPythonName
//! ```

mod chain_walk;
pub mod code;
pub mod debug_offsets;
mod elf;
mod eval_ranges;
pub mod layout;
pub mod lines;
pub mod locate;
pub mod modules;
pub mod names;
pub mod objects;
mod opcode_functions;
pub mod process;
mod prologue;
pub mod task_fields;
pub mod tasks;
pub mod text;
mod thread_slot;
mod trace;

pub use chain_walk::walk_chain;
pub use layout::{Layout, all_layouts};
pub use locate::{Interpreter, Module, NoInterpreter, locate};
pub use modules::{CalledModule, Layer};
pub use names::{NoPythonName, PythonFrame, PythonSymbols};
pub(crate) use opcode_functions::opcode_functions;
pub use process::{InterpreterMemory, locate_process};
pub use tasks::{AwaitChain, AwaitLink, NoTask};
