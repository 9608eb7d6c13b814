//! Kernel programs of deepctx-bpf: the list of modules.
//!
//! `stack` builds records with stacks, `walk` unwinds them, `arch` holds what depends on the machine, `emit` is the
//! single exit, `filter` selects the tasks.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![allow(internal_features, reason = "atomic exchange: see `walk::claim`")]

mod arch;
mod emit;
mod filter;
mod maps;
mod programs;
mod stack;
mod task;
mod walk;
mod words;

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // Unreachable in a verified program: the verifier rejects every path that can reach a panic.
    loop {}
}

/// The kernel offers some helpers to GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
