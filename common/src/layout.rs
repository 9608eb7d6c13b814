//! Sizes, offsets and relations between limits, asserted at compile time on both sides.

use core::mem::{offset_of, size_of};

use crate::activity::Activity;
use crate::call::{Call, Correlation, Fetch, Message, Return, Site};
use crate::config::Config;
use crate::device::Device;
use crate::process::{Blocked, Process, Target};
use crate::python::{CalledFunction, PythonLayout, PythonProcess};
use crate::record::{KERNEL_WORDS_MAX, ProcessEvent, RecordHeader, StackSample, USER_WORDS_MAX, Wake};
use crate::samples::{Cubin, Sample};
use crate::thread::{Thread, ThreadFields};
use crate::unwind::{
    BLOCK_SEARCH_STEPS, BLOCKS_PER_SHARD, Executable, MAPPING_SEARCH_STEPS, Mapping, PAGE_SHIFT, Page,
    ROWS_PER_BLOCK, RowBlock, Rule,
};

const _: () = {
    assert!(size_of::<RecordHeader>() == 24);
    assert!(offset_of!(RecordHeader, sequence) == 8);
    assert!(size_of::<StackSample>() == 80);
    assert!(offset_of!(StackSample, pid) == 24);
    assert!(offset_of!(StackSample, comm) == 48);
    assert!(offset_of!(StackSample, kernel_words) == 64);
    assert!(offset_of!(StackSample, generation) == 76);
    assert!(size_of::<ProcessEvent>() == 48);
    assert!(size_of::<Wake>() == 80);
    assert!(size_of::<Fetch>() == 8);
    assert!(size_of::<Site>() == 16 + 8 * crate::call::ARGUMENTS_MAX);
    assert!(size_of::<Call>() == 16);
    assert!(size_of::<Return>() == 72);
    assert!(size_of::<Correlation>() == 48);
    assert!(size_of::<Message>() == 64 && offset_of!(Message, values) == 40);
    assert!(size_of::<Activity>() == 112 && offset_of!(Activity, queued_ns) == 104);
    assert!(size_of::<Sample>() == 40 && offset_of!(Sample, context) == 36);
    assert!(size_of::<Cubin>() == 24);
    assert!(size_of::<Device>() == 168 && offset_of!(Device, memory) == 32 && offset_of!(Device, name) == 72);
    assert!(size_of::<Blocked>() == 40);
    assert!(size_of::<Thread>() == 1432 && offset_of!(Thread, switches) == 24);
    assert!(offset_of!(Thread, system_call) == 88 && offset_of!(Thread, kernel) == 416);
    assert!(size_of::<ThreadFields>() == 32);
    assert!(size_of::<Rule>() == 16);
    assert!(offset_of!(Rule, fp) == 1 && offset_of!(Rule, ra) == 2 && offset_of!(Rule, detail) == 3);
    assert!(offset_of!(Rule, cfa_offset) == 4 && offset_of!(Rule, fp_offset) == 8);
    assert!(offset_of!(Rule, addend) == 12);
    assert!(size_of::<RowBlock>() == 64);
    assert!(size_of::<Page>() == 8);
    assert!(size_of::<Executable>() == 24);
    assert!(size_of::<Mapping>() == 32);
    assert!(size_of::<PythonLayout>() == 32);
    assert!(size_of::<PythonProcess>() == 104);
    assert!(size_of::<CalledFunction>() == 16);
    assert!(size_of::<Process>() == 120);
    assert!(size_of::<Target>() == 4);
    assert!(size_of::<Config>() == 136);
    assert!(offset_of!(Config, cgroup_id) == 128);
    // The largest record fits the length field and a map value (KMALLOC_MAX_SIZE on the oldest kernel).
    assert!(size_of::<StackSample>() + 8 * (KERNEL_WORDS_MAX + USER_WORDS_MAX) < 32 * 1024);
    // A page of 64 KiB has at most 65536 rows: the block search must cover them all, and a page must fit into a shard.
    assert!((1usize << PAGE_SHIFT) / ROWS_PER_BLOCK <= 1 << (BLOCK_SEARCH_STEPS - 1));
    assert!((1u32 << PAGE_SHIFT) / ROWS_PER_BLOCK as u32 <= BLOCKS_PER_SHARD);
    assert!(MAPPING_SEARCH_STEPS < 16);
};
