//! Hands a fuzzer's inputs to the target of this name.
//!
//! Owns: nothing but its name. Because: the fuzzer wants a program for each target. Does not: say what must hold;
//! `deepctx_fuzz_targets::figures` does.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| deepctx_fuzz_targets::figures::run(data));
