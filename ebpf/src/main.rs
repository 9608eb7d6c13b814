//! Kernel programs of deepctx-bpf: the list of programs, nothing else.
//!
//! `stack` makes records with stacks, `walk` walks them, `arch` is what they must know of the machine, `emit` the only
//! way out, `filter` decides who is sampled.
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
    // Unreachable in a verified program: the verifier refuses any path on which a panic could be reached.
    loop {}
}

/// The kernel offers some helpers to GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
