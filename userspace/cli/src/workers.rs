//! Workers: separate processes of this same program.
//!
//! Owns: how workers are started and recognized. Because: only a separate process can be abandoned when it hangs, or
//! drop privileges that the main one needs. Does not: the work ([`deepctx_symbolizer::memory::reader`],
//! [`deepctx_symbolizer::unwind_rows::builder`], [`deepctx_symbolizer::native::symbols`],
//! [`deepctx_symbolizer::cubin::reader`], [`deepctx_capture::gpus`]).

use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitCode};

use deepctx_capture::gpus;
use deepctx_symbolizer::cubin::reader as device_code;
use deepctx_symbolizer::memory::reader;
use deepctx_symbolizer::native::symbols;
use deepctx_symbolizer::python::walk_chain;
use deepctx_symbolizer::unwind_rows::builder;

use super::failure::COULD_NOT_RUN;

/// Arguments that start workers. No sub-commands: users have no use for them.
const MEMORY_READER: &str = "memory-reader";
const TABLE_BUILDER: &str = "table-builder";
const SYMBOL_READER: &str = "symbol-reader";
const DEVICE_CODE_READER: &str = "device-code-reader";
const GPU_READER: &str = "gpu-reader";
/// Library path of the dynamic loader. The loader removes it from the environment of programs with privileges
/// (set-user-id, capabilities), whose caller must not choose it.
const LIBRARY_FOLDERS: &str = "LD_LIBRARY_PATH";

/// A worker's function, which runs until the profiler that started it ends.
pub(crate) type ServeFn = fn() -> io::Result<()>;

/// The worker that these arguments request.
pub(crate) fn asked_for(arguments: &[OsString]) -> Option<ServeFn> {
    let [_, argument] = arguments else { return None };
    match argument.to_str()? {
        MEMORY_READER => Some(read_memory),
        TABLE_BUILDER => Some(builder::serve),
        SYMBOL_READER => Some(symbols::serve),
        DEVICE_CODE_READER => Some(device_code::serve),
        GPU_READER => Some(gpus::serve),
        _ => None,
    }
}

fn read_memory() -> io::Result<()> {
    reader::serve(walk_chain)
}

/// Serves until the profiler that started it ends.
pub(crate) fn run(serve: ServeFn) -> ExitCode {
    // Output would go nowhere. The profiler reports the missing worker.
    if serve().is_ok() { ExitCode::SUCCESS } else { ExitCode::from(COULD_NOT_RUN) }
}

/// From now on, separate processes read other processes' memory, build unwind tables, read symbols
/// and device code, and query GPUs.
pub(crate) fn install() {
    reader::install(|| worker(MEMORY_READER));
    builder::install(|| worker(TABLE_BUILDER));
    symbols::install(|| worker(SYMBOL_READER));
    device_code::install(|| worker(DEVICE_CODE_READER));
    gpus::install(gpu_reader);
}

/// The one worker that loads a library, which it finds as this process would.
fn gpu_reader() -> Command {
    let mut command = worker(GPU_READER);
    command.envs(std::env::var_os(LIBRARY_FOLDERS).map(|folders| (LIBRARY_FOLDERS, folders)));
    command
}

fn worker(argument: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(argument);
    command
}
