//! Greenlets that switch between each other: no stack shows Python functions of one above native frames of the other.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use deepctx_common::end::{PythonEnd, WalkEnd};
use deepctx_common::record::word;

use crate::runtimes::installed;
use crate::support::{PythonNames, Sample, Target, capture_samples, options, workload};

/// Samples per program.
const SAMPLES: usize = 1000;
/// The chains of the workload's greenlets `a` and `b`, leaf first.
const CHAINS: [&[&str]; 4] = [&["a_inner", "a_outer"], &["a_outer"], &["b_inner", "b_outer"], &["b_outer"]];

/// The return addresses between two Python functions, if there are just two, and they stand apart.
fn between(sample: &Sample) -> Option<Vec<u64>> {
    let (mut functions, mut addresses) = (0, Vec::new());
    let mut words = sample.user.iter().copied();
    while let Some(now) = words.next() {
        match word::tag(now) {
            word::PYTHON => {
                words.next();
                functions += 1;
            }
            word::RETURN if functions == 1 => addresses.push(now),
            _ => {}
        }
    }
    (functions == 2 && !addresses.is_empty()).then_some(addresses)
}

/// Checks the Python functions of each sample; at most one in `share` may be labelled as incomplete.
fn check(python: &Path, arguments: &[&str], share: usize) {
    let input = format!("{} {arguments:?}", python.display());
    let mut target = Target::start(Command::new(python).arg(workload("greenlets.py")).args(arguments));
    target.line();
    let pid = target.pid();
    let captured = capture_samples(options(pid, 997), SAMPLES);
    let mut names = PythonNames::of(pid);
    let mut all = 0;
    let mut whole: BTreeMap<String, usize> = BTreeMap::new();
    let mut owners: BTreeMap<Vec<u64>, String> = BTreeMap::new();
    for sample in captured.of(pid) {
        all += 1;
        let functions = names.functions(sample);
        // The first letter is the greenlet's name.
        let owner = functions.first().map(|function| function[..1].to_owned()).unwrap_or_default();
        assert!(functions.iter().all(|function| function.starts_with(&owner)), "{input}: {functions:?}");
        let ends = (sample.native_end(), sample.python_end());
        if ends != (WalkEnd::Complete, PythonEnd::Complete) || functions.is_empty() {
            continue;
        }
        assert!(CHAINS.iter().any(|chain| functions == *chain), "{input}: {functions:?}");
        *whole.entry(owner.clone()).or_insert(0) += 1;
        if let Some(addresses) = between(sample) {
            let of = owners.entry(addresses).or_insert_with(|| owner.clone());
            assert_eq!(*of, owner, "{input}: the native frames are those of {of}");
        }
    }
    let complete: usize = whole.values().sum();
    assert_eq!(whole.len(), 2, "{input}: {whole:?}");
    assert!((all - complete) * share <= all, "{input}: {complete} of {all} are complete");
}

#[test]
fn functions_of_two_greenlets_are_never_mixed() {
    if cfg!(not(target_arch = "x86_64")) {
        println!("skipped: where a greenlet's stack is being restored is known on x86-64 only");
        return;
    }
    for python in installed("TEST_GREENLET_PYTHONS") {
        // A turn takes more than a hundred times as long as a switch.
        check(&python, &["functions"], 20);
        // Nothing but switches, which are labelled: any share.
        check(&python, &["functions", "switches"], 1);
    }
}
