use proptest::prelude::*;

use super::*;

fn id(tid: u32, began_ns: u64) -> WaitId {
    WaitId { tid, began_ns }
}

const ROOT: Context = Context { node: NodeId::ROOT, thread: NodeId::ROOT };

fn profile() -> Profile {
    Profile::new(Default::default(), Default::default())
}

/// The sum in the tree; the timeline has the same.
fn off_cpu(profile: &Profile) -> u64 {
    let in_tree = profile.tree.total(Metric::OffCpuTime).sum;
    let lanes = profile.timeline.lanes().iter().filter(|lane| lane.metric == Metric::OffCpuTime);
    assert_eq!(lanes.flat_map(|lane| &lane.values).sum::<u64>(), in_tree);
    in_tree
}

#[test]
fn either_half_may_be_known_first() {
    let mut profile = profile();
    let mut waits = OffCpu::default();
    waits.on_begin(id(1, 100), 7);
    waits.resolved(id(1, 100), ROOT, &mut profile);
    assert!(waits.on_end(id(1, 100), WaitEnd::at(150), &mut profile));
    assert_eq!(off_cpu(&profile), 50);

    waits.on_begin(id(1, 200), 7);
    assert!(waits.on_end(id(1, 200), WaitEnd::at(230), &mut profile));
    assert_eq!(off_cpu(&profile), 50, "no context yet");
    waits.resolved(id(1, 200), ROOT, &mut profile);
    assert_eq!(off_cpu(&profile), 80);
    assert!(!waits.on_end(id(1, 200), WaitEnd::at(230), &mut profile), "a wait ends once");
    assert_eq!(profile.tree.total(Metric::WallTime).sum, 80);
}

#[test]
fn ongoing_wait_is_recorded_in_pieces_without_double_counting() {
    let mut profile = profile();
    let mut waits = OffCpu::default();
    waits.on_begin(id(1, 100), 7);
    waits.resolved(id(1, 100), ROOT, &mut profile);
    waits.enter_until(140, 50, &mut profile);
    assert_eq!(off_cpu(&profile), 0, "too short a piece");
    waits.enter_until(160, 50, &mut profile);
    assert_eq!(off_cpu(&profile), 60);
    assert!(waits.on_end(id(1, 100), WaitEnd::at(175), &mut profile));
    assert_eq!(off_cpu(&profile), 75);
}

#[test]
fn a_thread_that_runs_does_not_wait_any_more() {
    let mut profile = profile();
    let mut waits = OffCpu::default();
    for began_ns in [100, 200] {
        waits.on_begin(id(1, began_ns), 7);
        waits.resolved(id(1, began_ns), ROOT, &mut profile);
    }
    assert_eq!(waits.wait_gaps().end_lost, 1, "the first wait is over when the second begins");
    waits.runs(1, 150);
    waits.runs(2, 500);
    assert!(
        waits.on_end(id(1, 200), WaitEnd::at(230), &mut profile),
        "neither an earlier moment nor another thread ends it"
    );
    waits.on_begin(id(1, 300), 7);
    waits.resolved(id(1, 300), ROOT, &mut profile);
    waits.runs(1, 350);
    waits.enter_until(1_000, 1, &mut profile);
    assert_eq!(off_cpu(&profile), 30);
    assert_eq!(waits.wait_gaps().end_lost, 2);
}

#[test]
fn time_of_waits_given_up_is_not_entered_again() {
    let (mut profile, mut waits) = (profile(), OffCpu::default());
    waits.spans.want();
    waits.on_begin(id(0, 100), 7);
    waits.resolved(id(0, 100), ROOT, &mut profile);
    waits.enter_until(160, 1, &mut profile);
    (1..=WAITS_MAX as u32).for_each(|tid| waits.on_begin(id(tid, 200 + u64::from(tid)), 7));
    let newest = id(WAITS_MAX as u32, 200 + WAITS_MAX as u64);
    assert_eq!((waits.waits.len(), waits.wait_gaps().end_lost), (1, WAITS_MAX as u64));
    let lost: Vec<_> = waits.spans.take().map(|span| (span.of.tid, span.end)).collect();
    assert_eq!(lost, [(0, SpanEnd::Lost)], "the others had no context yet");
    // Their ends come later. The wait without a stack was never among those that are followed.
    assert!(!waits.on_end(id(0, 100), WaitEnd::at(100_000), &mut profile));
    let dropped = |id, stack| waits.was_given_up(id, stack);
    assert!(dropped(id(0, 100), wake_stack::SENT) && !dropped(newest, wake_stack::SENT));
    assert!(!dropped(id(0, 100), wake_stack::RATE_LIMITED));
}

#[test]
fn a_wait_open_at_the_end_is_one_event() {
    let (mut profile, mut waits) = (profile(), OffCpu::default());
    waits.spans.want();
    waits.on_begin(id(1, 100), 7);
    waits.resolved(id(1, 100), ROOT, &mut profile);
    (0..2).for_each(|_| waits.finish(150, &mut profile));
    assert_eq!(off_cpu(&profile), 50);
    assert_eq!(waits.spans.take().map(|span| span.end).collect::<Vec<_>>(), [SpanEnd::Open]);
}

#[test]
fn our_own_program_is_no_part_of_the_wait() {
    let mut profile = Profile::new(Default::default(), Default::default());
    let mut frame = |symbol: &str| {
        let symbol = profile.text(symbol);
        profile.frame(Frame::Kernel { symbol })
    };
    let frames = ["bpf_prog_of_someone", "schedule", "__schedule", "bpf_trace_run4", "bpf_prog_1_off_cpu"];
    let frames: Vec<_> = frames.iter().map(|symbol| frame(symbol)).collect();
    assert_eq!(without_observer(&profile, &frames), &frames[..3]);
    assert_eq!(without_observer(&profile, &frames[..1]), &[]);
    assert_eq!(without_observer(&profile, &[]), &[]);
}

#[test]
fn process_exit_ends_only_its_own_waits() {
    let mut profile = profile();
    let mut waits = OffCpu::default();
    for (tid, pid) in [(1, 7), (2, 7), (3, 8)] {
        waits.on_begin(id(tid, 100), pid);
    }
    waits.resolved(id(1, 100), ROOT, &mut profile);
    waits.resolved(id(3, 100), ROOT, &mut profile);
    let change = |kind| ProcessChange { pid: 7, time_ns: 110, kind };
    waits.on_process(change(ProcessChangeKind::Begins), &mut profile);
    assert_eq!(off_cpu(&profile), 0, "a new program is no end");
    waits.on_process(change(ProcessChangeKind::Ends), &mut profile);
    assert_eq!(off_cpu(&profile), 10, "thread 1");
    waits.resolved(id(2, 100), ROOT, &mut profile);
    assert_eq!(off_cpu(&profile), 20, "thread 2, whose stack came later");
    assert!(waits.on_end(id(3, 100), WaitEnd::at(105), &mut profile), "thread 3 waits on");
}

#[test]
fn a_wait_without_a_stack_says_why() {
    let check = |stack: u32, expect: &str, gaps: WaitGaps| {
        let (mut profile, mut waits) =
            (Profile::new(Default::default(), Default::default()), OffCpu::default());
        let frame = waits.without_stack(stack, &mut profile);
        assert_eq!(profile.frames.get(frame).label(&profile.strings, false), expect);
        assert_eq!(waits.wait_gaps(), gaps);
    };
    let none = WaitGaps::default();
    let limited = WaitGaps { rate_limited: 1, ..none };
    check(wake_stack::RATE_LIMITED, "[off-cpu: stack not taken: rate limit]", limited);
    let busy = WaitGaps { scratch_busy: 1, ..none };
    check(wake_stack::SCRATCH_BUSY, "[off-cpu: stack not taken: scratch busy]", busy);
    check(wake_stack::SENT, "[off-cpu: stack lost]", WaitGaps { stack_lost: 1, ..none });
}

#[test]
fn time_after_a_wake_up_is_waiting_for_a_cpu() {
    let check = |woken_after: u64, entered_ns: Option<u64>, expect: (u64, u64)| {
        let mut profile = profile();
        let mut waits = OffCpu::default();
        let futex = profile.text("futex");
        let futex = profile.frame(Frame::Wait { reason: futex });
        let node = profile.tree.child(NodeId::ROOT, futex);
        waits.on_begin(id(1, 100), 7);
        waits.resolved(id(1, 100), Context { node, thread: NodeId::ROOT }, &mut profile);
        if let Some(entered_ns) = entered_ns {
            waits.enter_until(entered_ns, 0, &mut profile);
        }
        let wake_up = WakeUp { after: Nanos(woken_after), by: WakeSource::Interrupt };
        assert!(waits.on_end(id(1, 100), WaitEnd { at_ns: 150, wake_up: Some(wake_up) }, &mut profile));
        let waited = profile
            .tree
            .cells(Metric::OffCpuTime)
            .filter(|(of, _)| *of == node)
            .map(|(_, cell)| cell.sum)
            .sum::<u64>();
        assert_eq!((waited, off_cpu(&profile) - waited), expect, "{woken_after} {entered_ns:?}");
    };
    check(30, None, (30, 20));
    check(0, None, (0, 50));
    check(50, None, (50, 0));
    // The wake-up is earlier than what the profile already has, or its clock is wrong: nothing counts twice.
    check(30, Some(140), (40, 10));
    check(1_000, None, (50, 0));
}

#[test]
fn innermost_known_kernel_frame_determines_the_wait_reason() {
    let check = |kernel: &[&str], expect: &str| {
        let mut profile = Profile::new(Default::default(), Default::default());
        let main = profile.text("futex_is_a_user_function_here");
        let main = profile.frame(Frame::Operator { name: main });
        let mut frames = vec![main];
        for symbol in kernel {
            let symbol = profile.text(symbol);
            frames.push(profile.frame(Frame::Kernel { symbol }));
        }
        assert_eq!(reason(&profile, &frames, false), expect, "{kernel:?}");
        assert_eq!(reason(&profile, &frames, true), "waiting for a CPU");
    };
    check(&["do_syscall_64", "__x64_sys_futex", "do_futex", "futex_wait", "schedule"], "futex");
    check(&["do_syscall_64", "hrtimer_nanosleep", "do_nanosleep", "schedule"], "sleep");
    check(&["do_syscall_64", "do_epoll_wait", "ep_poll", "schedule"], "poll");
    check(&["ksys_read", "vfs_read", "anon_pipe_read", "schedule"], "pipe");
    check(&["asm_exc_page_fault", "handle_mm_fault", "folio_wait_bit_common", "io_schedule"], "disk");
    check(&["do_syscall_64", "nvidia_ioctl", "down_read", "schedule"], "kernel lock");
    check(&["do_syscall_64", "nvidia_unlocked_ioctl", "schedule"], "gpu driver");
    check(&["do_syscall_64", "something_new", "schedule"], "blocked");
    check(&[], "blocked");
}

proptest! {
    /// Whatever the order of resolving, ending and entering, each wait is in the tree from its beginning to its end.
    #[test]
    fn the_time_of_waits_adds_up(
        lengths in prop::collection::vec(0u64..1_000_000, 1..40),
        resolve_last in prop::collection::vec(any::<bool>(), 40),
        pieces in prop::collection::vec(0u64..1_000_000, 0..5),
    ) {
        let mut profile = profile();
        let mut waits = OffCpu::default();
        for (n, &length) in lengths.iter().enumerate() {
            let id = id(n as u32, 1_000);
            waits.on_begin(id, 7);
            if !resolve_last[n] {
                waits.resolved(id, ROOT, &mut profile);
                for piece in &pieces {
                    waits.enter_until(1_000 + piece.min(&length), 1, &mut profile);
                }
            }
            prop_assert!(waits.on_end(id, WaitEnd::at(1_000 + length), &mut profile));
            if resolve_last[n] {
                waits.resolved(id, ROOT, &mut profile);
            }
        }
        prop_assert_eq!(off_cpu(&profile), lengths.iter().sum::<u64>());
        prop_assert!(waits.waits.is_empty());
    }
}
