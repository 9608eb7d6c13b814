//! The memory reader: this program, started once more by itself.
//!
//! Owns: how it is started and recognised. Because: only another process can be left behind when a read of a target's
//! memory never returns. Does not: read ([`deepctx_symbolizer::memory::reader`]).

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use deepctx_symbolizer::memory::reader;

use super::failure::COULD_NOT_RUN;

/// The argument that asks for it. No sub-command: users have no use for it.
const ARGUMENT: &str = "memory-reader";

/// Whether these are the arguments of a reader.
pub fn is_asked_for(arguments: &[OsString]) -> bool {
    matches!(arguments, [_, argument] if argument == ARGUMENT)
}

/// Serves until the profiler that started it ends.
pub fn run() -> ExitCode {
    // Nobody reads what it says. The profiler reports that it has no reader.
    if reader::serve().is_ok() { ExitCode::SUCCESS } else { ExitCode::from(COULD_NOT_RUN) }
}

/// From now on, memory of other processes is read by a process of its own.
pub fn install() {
    reader::install(|| {
        let mut command = Command::new("/proc/self/exe");
        command.arg(ARGUMENT);
        command
    });
}
