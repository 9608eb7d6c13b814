//! Runs the target of this name on the inputs of a fuzzer.
//!
//! Owns: only its name. Because: the fuzzer needs one program per target. Does not: check invariants;
//! `deepctx_fuzz_targets::imports` does.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| deepctx_fuzz_targets::imports::run(data));
