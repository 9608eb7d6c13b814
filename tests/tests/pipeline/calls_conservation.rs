//! For any input in any order: each launch and its device time are counted once, or a reason is.

use crate::pipeline_support::{NamesInAddresses, config, feed_damaged};
use deepctx_pipeline::{Config, Pipeline};
use deepctx_profile::device::activity::GpuProcess;
use deepctx_profile::ledger::{CheckTime, Stage};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use proptest::prelude::*;

/// An event of a process.
#[derive(Clone, Debug)]
enum InputEvent {
    /// A call, its optional return, its id and its activity, with delays; in this process and thread.
    Launch {
        pid: u32,
        tid: u32,
        handle: u8,
        stack: u8,
        id: Option<u8>,
        after: [u8; 3],
        took: u16,
    },
    /// The same for a copy.
    Copy {
        pid: u32,
        id: Option<u8>,
        after: [u8; 3],
        took: u16,
    },
    /// An activity without a launch.
    Stray {
        pid: u32,
        id: u8,
        took: u16,
    },
    Name {
        pid: u32,
        handle: u8,
        name: u8,
    },
    Wait {
        pid: u32,
        lasts: Option<u8>,
    },
    Collect {
        pid: u32,
        on: bool,
    },
    Exit {
        pid: u32,
    },
    /// Another tool begins to collect, and receives a record.
    Borrow {
        pid: u32,
    },
    Record {
        pid: u32,
        id: u8,
        took: u16,
        grid: u8,
    },
    Line(&'static str),
    Advance,
}

/// The same with another tool's collection, whose records are joined by order.
fn input_event_with_another_tool() -> impl Strategy<Value = InputEvent> {
    let pid = 1u32..4;
    prop_oneof![
        6 => input_event(),
        1 => pid.clone().prop_map(|pid| InputEvent::Borrow { pid }),
        3 => (pid, 0u8..30, 0u16..1000, 0u8..2).prop_map(|(pid, id, took, grid)| InputEvent::Record { pid, id, took, grid }),
    ]
}

fn input_event() -> impl Strategy<Value = InputEvent> {
    let (pid, id, after) = (1u32..4, prop::option::weighted(0.9, 0u8..30), any::<[u8; 3]>());
    let took = 0u16..1000;
    prop_oneof![
        12 => (pid.clone(), 0u32..3, 1u8..5, 0u8..4, id.clone(), after, took.clone()).prop_map(
            |(pid, tid, handle, stack, id, after, took)| InputEvent::Launch { pid, tid, handle, stack, id, after, took },
        ),
        3 => (pid.clone(), id, after, took.clone()).prop_map(|(pid, id, after, took)| InputEvent::Copy { pid, id, after, took }),
        1 => (pid.clone(), 0u8..30, took).prop_map(|(pid, id, took)| InputEvent::Stray { pid, id, took }),
        2 => (pid.clone(), 1u8..5, 0u8..3).prop_map(|(pid, handle, name)| InputEvent::Name { pid, handle, name }),
        2 => (pid.clone(), prop::option::of(any::<u8>())).prop_map(|(pid, lasts)| InputEvent::Wait { pid, lasts }),
        3 => (pid.clone(), prop::bool::weighted(0.8)).prop_map(|(pid, on)| InputEvent::Collect { pid, on }),
        1 => pid.prop_map(|pid| InputEvent::Exit { pid }),
        1 => prop::sample::select(vec!["batch", "lose 0 2", "garbage 30"]).prop_map(InputEvent::Line),
        1 => Just(InputEvent::Advance),
    ]
}

/// The timed lines of the events, and the untimed ones.
#[expect(clippy::too_many_lines, reason = "one match with an arm for each kind of input")]
fn lines(all: &[InputEvent]) -> Vec<(u64, String)> {
    let mut lines = Vec::new();
    let stacks = [": ! f main", ": ! g main", "flags=limited", ""];
    for (n, one) in (1u64..).zip(all) {
        let at = n * 20;
        let mut put = |time: u64, line: String| lines.push((time, line));
        let timed = |after: &[u8; 3]| {
            let returned = at + 1 + u64::from(after[0]);
            let correlated = at + 1 + u64::from(after[1]) % 20;
            (returned, correlated, correlated + u64::from(after[2]) * 4)
        };
        match one {
            InputEvent::Launch { pid, tid, handle, stack, id, after, took } => {
                let stack = stacks[usize::from(*stack)];
                put(
                    at,
                    format!(
                        "{at} call {n} cuLaunchKernel {pid}/{tid} app function={handle} stream={tid} {stack}"
                    ),
                );
                if let Some(id) = id {
                    let (_, correlated, active) = timed(after);
                    put(correlated, format!("{correlated} correlate {n} {id}"));
                    put(
                        active,
                        format!(
                            "{active} kernel {pid} id={id} start={at} end={} name={handle}",
                            at + u64::from(*took)
                        ),
                    );
                }
            }
            InputEvent::Copy { pid, id, after, took } => {
                put(at, format!("{at} call {n} cuMemcpyHtoD_v2 {pid}/{pid} app bytes=8 : ! f main"));
                let (returned, correlated, active) = timed(after);
                put(returned, format!("{returned} return {n} entered={at}"));
                if let Some(id) = id {
                    put(correlated, format!("{correlated} correlate {n} {id}"));
                    put(
                        active,
                        format!("{active} copy {pid} id={id} start={at} end={}", at + u64::from(*took)),
                    );
                }
            }
            InputEvent::Stray { pid, id, took } => {
                put(at, format!("{at} kernel {pid} id={id} start={at} end={} name=1", at + u64::from(*took)));
            }
            InputEvent::Name { pid, handle, name } => {
                put(at, format!("{at} call {n} cuModuleGetFunction {pid}/{pid} app text=k{name}"));
                put(at + 1, format!("{} return {n} out={handle} entered={at}", at + 1));
                put(at + 1, format!("{} name {pid} {handle} k{name}", at + 1));
            }
            InputEvent::Wait { pid, lasts } => {
                put(at, format!("{at} call {n} cuCtxSynchronize {pid}/{pid} app : ! main"));
                if let Some(lasts) = lasts {
                    let end = at + u64::from(*lasts);
                    put(end, format!("{end} return {n} entered={at}"));
                }
            }
            InputEvent::Collect { pid, on } => {
                put(at, format!("{at} state {pid} {} 26", if *on { "collecting" } else { "idle" }));
                put(at, format!("{at} clock {pid} {at} {at} {}", at + 2));
            }
            InputEvent::Exit { pid } => put(at, format!("{at} exit {pid}")),
            InputEvent::Borrow { pid } => {
                put(at, format!("{at} call {n} cuptiActivityEnable {pid}/{pid} app kind=10"))
            }
            InputEvent::Record { pid, id, took, grid } => {
                let (end, name) = (at + u64::from(*took), grid);
                put(at, format!("{at} borrow {pid} api id={id} start={at} end={end}"));
                put(
                    at,
                    format!("{at} borrow {pid} kernel id={id} start={at} end={end} grid={grid} name=k{name}"),
                );
            }
            InputEvent::Line(line) => put(at, (*line).to_owned()),
            InputEvent::Advance => put(at, format!("advance {at}")),
        }
    }
    lines
}

fn sum(profile: &Profile, of: fn(&GpuProcess) -> u64) -> u64 {
    profile.gpu.processes.iter().map(of).sum()
}

/// Invariants at the end, for any input.
fn check(profile: &Profile) {
    profile.ledger.check(CheckTime::Finished).unwrap();
    let gap = |key| profile.ledger.stage(Stage::Correlate).gaps.count(key);
    let total = |metric| profile.tree.total(metric).sum;
    let (kernels, joined) = (sum(profile, |p| p.kernels), sum(profile, |p| p.joined));
    // A launch is counted at its call; a kernel without a launch, at its report.
    assert_eq!(total(Metric::Kernels), sum(profile, |p| p.launches) + kernels - joined);
    let without = gap("launch-without-activity") + gap("launch-without-correlation") + gap("expired");
    let collected = profile.tree.total(Metric::GpuTime).count + profile.tree.total(Metric::CopyTime).count;
    let reported = collected - gap("activity-without-launch");
    let bounded = profile.tree.total(Metric::GpuTimeBound).count + gap("bound-unknown");
    let launches = sum(profile, |p| p.launches);
    assert_eq!(launches, sum(profile, |p| p.launches_collected) + bounded);
    let waited = sum(profile, |p| p.launches_collected) + sum(profile, |p| p.transfers_collected);
    assert_eq!(waited, reported + without);
}

fn run(lines: &[(u64, String)], config: Config) -> Pipeline<NamesInAddresses> {
    let page: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
    let mut pipeline = Pipeline::new(NamesInAddresses::default(), Default::default(), config);
    feed_damaged(&mut pipeline, &page.join("\n"), &[]);
    pipeline.finish();
    pipeline
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// In any order of arrival, with lost, late and damaged records, and a very small waiting limit.
    #[test]
    fn every_launch_and_its_time_is_attributed_or_explained(
        all in prop::collection::vec(input_event(), 0..120),
        arrival in prop::collection::vec(any::<u16>(), 1..60),
        launches in prop_oneof![1usize..8, Just(1 << 10)],
        waiting_records in prop_oneof![1usize..30, Just(1 << 12)],
        dropped in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut lines = lines(&all);
        lines.sort_by_key(|(time, _)| *time);
        for index in dropped {
            if !lines.is_empty() {
                lines.remove(index.index(lines.len()));
            }
        }
        let mut late = arrival.iter().cycle();
        lines.sort_by_cached_key(|(time, _)| time + u64::from(late.next().unwrap() % 300));
        let mut pipeline = run(&lines, Config { launches, waiting_records, ..config() });
        prop_assert_eq!(pipeline.waiting_bytes(), 0);
        check(pipeline.profile());
    }

    /// Without losses, every reported nanosecond is in the tree, in any order of arrival.
    #[test]
    fn every_nanosecond_that_is_told_lands_once(
        all in prop::collection::vec(input_event(), 0..120),
        arrival in prop::collection::vec(any::<u16>(), 1..60),
    ) {
        let all: Vec<_> = all.into_iter().filter(|one| !matches!(one, InputEvent::Line(_) | InputEvent::Advance)).collect();
        let in_order = {
            let mut lines = lines(&all);
            lines.sort_by_key(|(time, _)| *time);
            lines
        };
        let mut reported = [0, 0];
        for one in &all {
            match one {
                InputEvent::Launch { id: Some(_), took, .. } | InputEvent::Stray { took, .. } => reported[0] += u64::from(*took),
                InputEvent::Copy { id: Some(_), took, .. } => reported[1] += u64::from(*took),
                _ => {}
            }
        }
        let mut shuffled = in_order.clone();
        let mut late = arrival.iter().cycle();
        shuffled.sort_by_cached_key(|_| *late.next().unwrap());
        let mut pipeline = run(&shuffled, config());
        let profile = pipeline.profile();
        check(profile);
        prop_assert_eq!([Metric::GpuTime, Metric::CopyTime].map(|metric| profile.tree.total(metric).sum), reported);
        let launches = all.iter().filter(|one| matches!(one, InputEvent::Launch { .. })).count() as u64;
        prop_assert_eq!(sum(profile, |p| p.launches), launches);
    }

    /// Bytes from another process are untrusted: each record is accounted for, and sums never overflow.
    #[test]
    fn damaged_records_of_calls_are_accounted_for(
        all in prop::collection::vec(input_event_with_another_tool(), 0..80),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
    ) {
        let mut lines = lines(&all);
        lines.sort_by_key(|(time, _)| *time);
        let page: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
        let config = Config { launches: 16, ..config() };
        let mut pipeline = Pipeline::new(NamesInAddresses::default(), Default::default(), config);
        feed_damaged(&mut pipeline, &page.join("\n"), &damage);
        pipeline.finish();
        prop_assert_eq!(pipeline.waiting_bytes(), 0);
        let profile = pipeline.profile();
        profile.ledger.check(CheckTime::Finished).unwrap();
        let joined: u64 = profile.gpu.processes.iter().map(|process| process.joined).sum();
        let reported: u64 = profile.gpu.processes.iter().map(|process| process.kernels + process.graph_kernels).sum();
        prop_assert!(joined <= reported);
    }
}
