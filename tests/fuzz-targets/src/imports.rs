//! Files of other tools, as arbitrary bytes: pprof, Kineto, perf script, folded stacks, and gzip around them.
//!
//! Beyond "no panic, no hang, bounded memory": an imported profile is not empty, and can be exported again with the
//! same total.

use deepctx_profile::Selection;
use deepctx_storage::export::{Format, Source};
use deepctx_storage::import;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Ok(imported) = import::read(data, "fuzz") else { return };
    let tree = &imported.profile.tree;
    let metric = tree.metrics().find(|&metric| tree.total(metric).sum > 0).expect("something to show");
    let (profile, elapsed) = (&imported.profile, imported.elapsed);
    let source = Source { profile, selection: Selection::of(metric), elapsed, folds: true };
    let mut folded = Vec::new();
    Format::Folded.write(&source, &mut folded).expect("memory takes everything");
    let values = folded.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(|line| {
        let value = line.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
        String::from_utf8_lossy(value).parse::<u64>().expect("a line ends in its value")
    });
    let sum = values.fold(0u64, u64::saturating_add);
    // Only saturated sums may differ.
    assert!(sum == tree.total(metric).sum || tree.total(metric).sum == u64::MAX || sum == u64::MAX);
}
