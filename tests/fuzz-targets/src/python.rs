//! Every reader of a foreign CPython process, over memory chosen by the fuzzer: code objects, strings, line tables,
//! thread states and frame chains of every version. None may panic, hang or take unbounded memory.

use deepctx_common::python::{PythonProcess, thread_state};
use deepctx_symbolizer::memory::{ReadError, TargetMemory};
use deepctx_symbolizer::python::code::read_code;
use deepctx_symbolizer::python::modules::{CalledModule, Modules};
use deepctx_symbolizer::python::{all_layouts, debug_offsets};
use deepctx_walk::memory::Memory;
use deepctx_walk::python::{Buffers, chain, read_frame, thread_state as state_of};

/// Address of the input. About half of the addresses in it point into it.
const BEGIN: u64 = 0x1_0000;

struct Input<'a>(&'a [u8]);

impl TargetMemory for Input<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        // The 64 KiB are mirrored over the whole address space, so that wild pointers hit memory.
        let from = (address % 0x1_0000) as usize;
        let bytes = self.0.get(from..).and_then(|rest| rest.get(..into.len())).ok_or(ReadError::Unmapped)?;
        into.copy_from_slice(bytes);
        Ok(())
    }
}

impl Memory for Input<'_> {
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        let mut bytes = vec![0; words.len() * 8];
        let read = self.read(address, &mut bytes).is_ok();
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        }
        read
    }
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let Some((version, bytes)) = bytes.split_first() else { return };
    let layouts = all_layouts();
    let layout = &layouts[usize::from(*version) % layouts.len()];
    let input = Input(bytes);
    if let Ok(code) = read_code(&input, layout, BEGIN, BEGIN + 8) {
        let _ = code.lines.line_at(u32::from(*version) * 2);
    }
    let _ = debug_offsets::compare(&input, BEGIN, layout);
    let called = [(BEGIN + 64, BEGIN), (BEGIN, BEGIN + 128)];
    let called = called.map(|(object, of_type)| CalledModule { object, of_type });
    let mut modules = Modules::default();
    modules.record_calls(&input, layout, 1, &called, true);
    modules.revalidate(&input, layout, u64::MAX / 2);
    let _ = modules.layer(called[0]);
    let process = PythonProcess {
        bound_kind: thread_state::SECOND_LEVEL,
        bound: 8 << 32 | 16,
        attached_kind: thread_state::DTV,
        attached: 3 << 32 | 8,
        ..PythonProcess::default()
    };
    let state = state_of(&input, BEGIN, &process, &layout.kernel);
    let Some(chain) = chain(&input, state, &layout.kernel) else { return };
    let (mut at, mut buffers) = (chain.frame, Buffers::default());
    for _ in 0..1024 {
        match read_frame(&input, at, &layout.kernel, &mut buffers) {
            Some(frame) => at = frame.previous,
            None => break,
        }
    }
}
