//! For any input, each record is in the tree, merged into the state of processes, or dropped for a reason.

use crate::pipeline_support::{NamesInAddresses, feed_damaged};
use deepctx_pipeline::{Config, Pipeline};
use deepctx_profile::ledger::{CheckTime, Stage};
use deepctx_profile::metric::Metric;
use proptest::prelude::*;

/// A line of the notation.
fn line() -> impl Strategy<Value = String> {
    let frame = prop::sample::select(vec![
        "f!",
        "g",
        "main",
        "a+b",
        "?jit",
        "py:fn@3",
        "k:sys",
        "gap:no-row",
        "raw:9000000000000000",
    ]);
    let stack = prop::collection::vec(frame, 0..8).prop_map(|frames| frames.join(" "));
    let time = 0u64..1000;
    let pid = 1u32..5;
    prop_oneof![
        8 => (time.clone(), pid.clone(), 0u16..3, 0u8..20, stack)
            .prop_map(|(time, pid, cpu, end, stack)| format!("{time} sample {pid}/{pid} app {stack} cpu={cpu} native={end}")),
        1 => (time.clone(), pid.clone(), pid.clone()).prop_map(|(time, child, parent)| format!("{time} fork {child} of {parent} app")),
        1 => (time.clone(), pid.clone()).prop_map(|(time, pid)| format!("{time} exec {pid} tool")),
        1 => (time.clone(), pid.clone()).prop_map(|(time, pid)| format!("{time} exit {pid}")),
        1 => (time.clone(), pid).prop_map(|(time, pid)| format!("{time} space {pid} app v")),
        1 => (0u16..3, 1u64..5).prop_map(|(cpu, n)| format!("lose {cpu} {n}")),
        1 => Just("batch".to_owned()),
        1 => time.prop_map(|time| format!("advance {time}")),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    (1usize..40, 200usize..10_000, 0u64..300, 0usize..2_000).prop_map(
        |(waiting_records, waiting_bytes, mapping_lookahead_ns, stack_bytes)| Config {
            waiting_records,
            waiting_bytes,
            mapping_lookahead_ns,
            stack_bytes,
            ..Config::default()
        },
    )
}

proptest! {
    // A failure prints its input, which belongs into a separate test.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_record_is_kept_merged_or_dropped_for_a_reason(
        lines in prop::collection::vec(line(), 0..80),
        config in config(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let mut pipeline = Pipeline::new(NamesInAddresses::default(), Default::default(), config);
        feed_damaged(&mut pipeline, &lines.join("\n"), &damage);
        pipeline.finish();
        prop_assert_eq!(pipeline.waiting_bytes(), 0);
        let profile = pipeline.profile();
        profile.ledger.check(CheckTime::Finished).unwrap();
        let in_tree = profile.tree.total(Metric::Samples).sum;
        let kept = profile.ledger.stage(Stage::Attribute).kept;
        // A damaged record may become the start of a wait instead of a sample: it is kept, and adds no sample.
        prop_assert!(in_tree == kept || (in_tree < kept && !damage.is_empty()), "{} of {}", in_tree, kept);
        let accounted = kept + profile.ledger.stage(Stage::Resolve).merged + profile.ledger.lost();
        prop_assert_eq!(accounted, profile.ledger.received());
    }

    /// Batch sizes of the input, and the frequency of advancing the pipeline, change nothing as long as nothing is
    /// late.
    #[test]
    fn batches_do_not_matter(
        times in prop::collection::vec((1u64..20, 0u16..3, prop::sample::select(vec!["f! main", "g main", "k:sys f main", "py:fn@3 eval"])), 1..60),
        cuts in prop::collection::vec(any::<bool>(), 60),
    ) {
        let mut time = 0;
        let records: Vec<String> = times.iter().map(|(gap, cpu, stack)| {
            time += gap;
            format!("{time} sample 1/1 app {stack} cpu={cpu}")
        }).collect();
        let whole = crate::pipeline_support::run(&records.join("\n"));
        let cut: Vec<String> = records.iter().zip(&cuts).map(|(record, cut)| {
            let now: u64 = record.split(' ').next().unwrap().parse().unwrap();
            if *cut { format!("{record}\nbatch\nadvance {now}") } else { record.clone() }
        }).collect();
        let cut = crate::pipeline_support::run(&cut.join("\n"));
        let (mut whole, mut cut) = (whole, cut);
        prop_assert_eq!(crate::pipeline_support::folded(whole.profile()), crate::pipeline_support::folded(cut.profile()));
    }
}
