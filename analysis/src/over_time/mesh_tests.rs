//! Ranks of a mesh: groups of which few have the first rank, on clocks of several hosts.

use deepctx_profile::trace::{CollectiveNote, CollectiveNotes, CommunicatorGroup, Job, Trace, text};

use super::*;

const HOUR_US: u64 = 3_600_000_000;

/// A rank with one collective in each of these groups: name, begin and end in µs.
fn in_groups(groups: &[(&str, u64, u64)]) -> Trace {
    let line =
        |(_, begin, end): &(&str, u64, u64)| format!("kernel 0/9 {begin}..{end} ncclKernel_AllReduce\n");
    let mut trace = text::parse(&groups.iter().map(line).collect::<String>()).unwrap();
    let ops: Vec<_> = trace.device.iter().map(|(id, _)| id).collect();
    for (op, (group, ..)) in ops.into_iter().zip(groups) {
        let (operation, communicator, element) = (trace.text("allreduce"), trace.text(group), trace.text(""));
        let note = CollectiveNote {
            op,
            operation,
            communicator,
            group_size: 2,
            elements_in: 0,
            element,
            ordinal: None,
            peer: None,
        };
        trace.collectives.push(note).unwrap();
    }
    trace
}

fn job(ranks: impl IntoIterator<Item = Trace>) -> Job {
    let files = (0..).zip(ranks).map(|(n, trace)| (format!("rank{n}.json"), trace)).collect();
    Job::new(files).unwrap()
}

fn stragglers(ranks: impl IntoIterator<Item = Trace>) -> Stragglers {
    OverTime::compute(&job(ranks), Steps::default()).stragglers
}

#[test]
fn clocks_are_aligned_through_ranks_in_between() {
    // Two hosts an hour apart: no group has rank 0 and rank 3.
    let found = stragglers([
        in_groups(&[("tp0", 10, 20), ("dp0", 30, 40)]),
        in_groups(&[("tp0", 10, 20), ("dp1", 30, 40)]),
        in_groups(&[("tp1", HOUR_US + 10, HOUR_US + 20), ("dp0", HOUR_US + 30, HOUR_US + 40)]),
        in_groups(&[("tp1", HOUR_US + 12, HOUR_US + 20), ("dp1", HOUR_US + 30, HOUR_US + 40)]),
    ]);
    let offsets: Vec<_> = found.ranks.iter().map(|row| (row.clock, row.clock_offset_ns)).collect();
    let by_ends = (ClockBasis::CollectiveEnds, 3_600_000_000_000);
    assert_eq!(offsets, [(ClockBasis::Reference, 0), (ClockBasis::AsTraced, 0), by_ends, by_ends]);
    let of_group = found.collectives.iter().find(|row| row.communicator == "group tp1").unwrap();
    assert_eq!((of_group.latest_rank, of_group.skew_ns, of_group.waited_ns), (3, 2_000, 2_000));
}

#[test]
fn ranks_apart_from_the_first_are_aligned_among_themselves() {
    let job = job([
        in_groups(&[("a", 10, 20)]),
        in_groups(&[("a", 10, 20)]),
        in_groups(&[("b", 10, 20)]),
        in_groups(&[("b", HOUR_US + 13, HOUR_US + 20)]),
        in_groups(&[("c", 10, 20)]),
    ]);
    let clocks = JobClocks::of(&job);
    assert_eq!(clocks.unaligned, [2, 3, 4]);
    assert_eq!([0, 3, 9].map(|rank| clocks.offset_ns(rank)), [0, 3_600_000_000_000, 0]);
    let found = OverTime::compute(&job, Steps::default()).stragglers;
    let of_group = found.collectives.iter().find(|row| row.communicator == "group b").unwrap();
    assert_eq!((of_group.latest_rank, of_group.skew_ns, of_group.end_spread_ns), (3, 3_000, 0));
    let clocks: Vec<String> = found
        .ranks
        .iter()
        .map(|row| {
            let error = row.clock_uncertainty_ns.map_or_else(|| "?".to_owned(), |ns| ns.to_string());
            format!("{} to {}: ± {error} {:?}", row.rank, row.clock_reference, row.clock)
        })
        .collect();
    let expect = [
        "0 to 0: ± 0 Reference",
        "1 to 0: ± 0 AsTraced",
        "2 to 2: ± 0 Reference",
        "3 to 2: ± 0 CollectiveEnds",
        "4 to 4: ± ? Unchecked",
    ];
    assert_eq!(clocks, expect);
}

#[test]
fn waits_may_be_wrong_by_the_error_of_clocks() {
    // Ends that differ by 0, 1 and 4 µs: no offset explains them.
    let first = [("g", 10, 20), ("g", 30, 40), ("g", 50, 60)];
    let found = stragglers([in_groups(&first), in_groups(&[("g", 18, 20), ("g", 38, 41), ("g", 58, 64)])]);
    let errors: Vec<_> = found.collectives.iter().map(|row| (row.waited_ns, row.clock_error_ns)).collect();
    assert_eq!(errors, [(8_000, 0), (8_000, 1_000), (8_000, 4_000)]);
    // One clock has no error, however the ends differ.
    let mut ranks = [in_groups(&first), in_groups(&[("g", 18, 28), ("g", 38, 48), ("g", 58, 68)])];
    ranks.iter_mut().for_each(|trace| trace.clock.domain = Some(0));
    let found = stragglers(ranks);
    assert!(found.collectives.iter().all(|row| (row.end_spread_ns, row.clock_error_ns) == (8_000, 0)));
}

#[test]
fn siblings_of_one_name_are_not_matched_with_each_other() {
    let rank = |ranks: &str, groups: &[(&str, u64, u64)]| {
        let mut trace = in_groups(groups);
        let [communicator, ranks] = ["3 mesh_tp", ranks].map(|word| trace.text(word));
        trace.communicator_groups.push(CommunicatorGroup { communicator, ranks }).unwrap();
        trace
    };
    let (low, high) = ([("3 mesh_tp", 10, 20)], [("3 mesh_tp", 30, 60), ("3 mesh_tp", 70, 80)]);
    let late = [("3 mesh_tp", 45, 60), ("3 mesh_tp", 75, 80)];
    let job = job([rank("0,1", &low), rank("0,1", &low), rank("2,3", &high), rank("2,3", &late)]);
    let found = OverTime::compute(&job, Steps::default());
    assert_eq!(found.stragglers.not_matched, []);
    let row = |row: &CommunicatorSum| (row.communicator.clone(), row.collectives, row.ranks, row.waited_ns);
    let rows: Vec<_> = found.communicators.iter().map(row).collect();
    let name = |ranks: &str| format!("group 3 mesh_tp (ranks {ranks})");
    assert_eq!(rows, [(name("2,3"), 2, 2, 20_000), (name("0,1"), 1, 2, 0)]);
    let groups: Vec<_> = found.parallelism.groups.iter().map(|row| (row.ranks.clone(), &row.kinds)).collect();
    let tensor = vec![ParallelKind::Tensor];
    assert_eq!(groups, [(vec![2, 3], &tensor), (vec![0, 1], &tensor)]);
}

/// A rank with this work of one group of three ranks: operation, begin and end in µs.
fn in_pipeline(work: &[(&str, u64, u64)]) -> Trace {
    let of_group: Vec<_> = work.iter().map(|(_, begin, end)| ("pp", *begin, *end)).collect();
    let mut trace = in_groups(&of_group);
    let notes: Vec<CollectiveNote> = trace.collectives.iter().map(|(_, note)| note).collect();
    trace.collectives = CollectiveNotes::default();
    for (note, (operation, ..)) in notes.into_iter().zip(work) {
        let operation = trace.text(operation);
        trace.collectives.push(CollectiveNote { operation, group_size: 3, ..note }).unwrap();
    }
    trace
}

#[test]
fn messages_of_a_pipeline_are_no_collectives() {
    let found = stragglers([
        in_pipeline(&[("send", 0, 10), ("allreduce", 50, 60)]),
        in_pipeline(&[("recv", 5, 10), ("send", 20, 30), ("allreduce", 40, 60)]),
        in_pipeline(&[("recv", 22, 30), ("allreduce", 45, 60)]),
    ]);
    assert_eq!(found.not_matched, []);
    let [collective] = &found.collectives[..] else { panic!("{:?}", found.collectives) };
    assert_eq!((collective.latest_rank, collective.ranks, collective.waited_ns), (0, 3, 15_000));
}
