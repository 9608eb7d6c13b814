//! `deepctx-bpf`: a calling-context profiler for running processes. All of it is in the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: deepctx_cli::Allocator = deepctx_cli::Allocator;

fn main() -> ExitCode {
    deepctx_cli::main(std::env::args_os().collect())
}
