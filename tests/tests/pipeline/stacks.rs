//! Stacks by themselves: the same frames as in a profile, without one.

use deepctx_common::record::{StackSample, word};
use deepctx_pipeline::encode;
use deepctx_pipeline::stacks::Stacks;

use crate::pipeline_support::{NamesInAddresses, address};

/// A record of a stack; names leaf first.
fn record(kernel: &[&str], user: &[&str]) -> Vec<u8> {
    let kernel: Vec<u64> = kernel.iter().map(|name| address(name)).collect();
    let user: Vec<u64> = user.iter().map(|name| word::tagged(word::RETURN, address(name))).collect();
    let (mut bytes, fixed) = (Vec::new(), StackSample { pid: 7, tid: 8, ..StackSample::default() });
    encode::sample(&mut bytes, &fixed, &kernel, &user);
    bytes
}

#[test]
fn each_record_gives_its_frames_and_others_none() {
    let mut stacks = Stacks::new(NamesInAddresses::default());
    let records = [record(&["futex_w"], &["leaf", "main"]), Vec::new(), record(&[], &["main"])];
    let bytes = || records.iter().map(Vec::as_slice);
    stacks.note(bytes());
    let resolved = stacks.resolve(bytes(), 10);
    let labels: Vec<Option<Vec<String>>> = resolved
        .iter()
        .map(|stack| {
            let profile = stacks.profile();
            let label = |id| profile.frames.get(id).label(&profile.strings, false);
            stack.as_ref().map(|stack| stack.frames.iter().map(|id| label(*id)).collect())
        })
        .collect();
    let expect = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(labels, [expect(&["main", "leaf", "futex_w_[k]"]), None, expect(&["main"])]);
    assert_eq!(resolved[0].as_ref().unwrap().waits_for, "futex");
    // Cached names are not requested again.
    assert_eq!(stacks.symbols().asked["user"], (1, 2));
}
