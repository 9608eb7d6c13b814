//! Streams, engines and graphs against a clock that stands still until it is moved.

use std::sync::Mutex;

use super::engine::{DEFAULT, State};
use super::timing::LAUNCH_NS;
use super::work::{Copy, HostCall, Kernel, MemoryKind, Region, Size, Work};
use super::{Tags, Ticket};

fn kernel(name: &'static std::ffi::CStr) -> Work {
    Work::Kernel(Kernel {
        name,
        grid: [1; 3],
        block: [1; 3],
        registers: 32,
        code: super::work::Code::default(),
        static_shared: 0,
        dynamic_shared: 0,
    })
}

fn copy(from_place: MemoryKind, to_place: MemoryKind) -> Work {
    let region = Region::flat(0);
    Work::Copy(Copy {
        from: region,
        to: region,
        size: Size(0, 1, 1),
        from_place,
        to_place,
        is_async: true,
        peer: None,
    })
}

fn ends(tickets: &[&Ticket]) -> Vec<Option<u64>> {
    tickets.iter().map(|ticket| ticket.end_ns()).collect()
}

const TEN: &std::ffi::CStr = c"k_10us";

#[test]
fn work_is_ordered_within_a_stream_and_concurrent_across_streams() {
    let mut state = State::new();
    let (a, b) = (state.open(false), state.open(false));
    let first = state.submit(a, kernel(TEN), Tags::default(), 0);
    let second = state.submit(a, kernel(TEN), Tags::default(), 0);
    let beside = state.submit(b, kernel(TEN), Tags::default(), 0);
    let end = LAUNCH_NS + 10_000;
    assert_eq!(ends(&[&first, &second, &beside]), [Some(end), Some(end + 10_000), Some(end)]);
}

#[test]
fn default_stream_and_blocking_streams_wait_for_each_other() {
    let mut state = State::new();
    let (blocking, free) = (state.open(true), state.open(false));
    let first = state.submit(blocking, kernel(TEN), Tags::default(), 0);
    let by_default = state.submit(DEFAULT, kernel(TEN), Tags::default(), 0);
    let after = state.submit(blocking, kernel(TEN), Tags::default(), 0);
    let unbound = state.submit(free, kernel(TEN), Tags::default(), 0);
    let end = LAUNCH_NS + 10_000;
    let expect = [end, end + 10_000, end + 20_000, end].map(Some);
    assert_eq!(ends(&[&first, &by_default, &after, &unbound]), expect);
}

#[test]
fn copies_in_and_out_have_an_engine_each() {
    let mut state = State::new();
    let lanes = [(); 3].map(|()| state.open(false));
    let first_in = state.submit(lanes[0], copy(MemoryKind::Pinned, MemoryKind::Device), Tags::default(), 0);
    let second_in = state.submit(lanes[1], copy(MemoryKind::Pinned, MemoryKind::Device), Tags::default(), 0);
    let out = state.submit(lanes[2], copy(MemoryKind::Device, MemoryKind::Pinned), Tags::default(), 0);
    let end = LAUNCH_NS + 1_000;
    assert_eq!(ends(&[&first_in, &second_in, &out]), [end, end + 1_000, end].map(Some));
}

#[test]
fn stream_waiting_for_an_event_starts_after_it() {
    let mut state = State::new();
    let (a, b) = (state.open(false), state.open(false));
    state.submit(a, kernel(TEN), Tags::default(), 0);
    let event = state.submit(a, Work::Marker, Tags::default(), 0);
    state.wait_for(b, event.clone());
    let after = state.submit(b, kernel(TEN), Tags::default(), 0);
    assert_eq!(after.end_ns(), event.end_ns().map(|at| at + 10_000));
}

#[test]
fn work_after_a_host_function_waits_until_it_returns() {
    extern "C" fn nothing(_: *mut std::ffi::c_void) {}
    let mut state = State::new();
    let (a, b) = (state.open(false), state.open(false));
    let host = state.submit(a, Work::Host(HostCall::Plain(nothing, 0)), Tags::default(), 100);
    let held = state.submit(a, kernel(TEN), Tags::default(), 100);
    state.wait_for(b, held.clone());
    let held_too = state.submit(b, kernel(TEN), Tags::default(), 100);
    let free = state.submit(b, kernel(TEN), Tags::default(), 100);
    assert_eq!(ends(&[&host, &held, &held_too, &free]), [None; 4]);
    let mut due = Vec::new();
    state.take_due(100, &mut due);
    assert!(matches!(due[0].op.work, Work::Host(_)));
    state.resolve(&host, 50_000);
    assert_eq!(ends(&[&host, &held, &held_too, &free]), [50_000, 60_000, 70_000, 80_000].map(Some));
    assert_eq!(state.outstanding, 3);
}

#[test]
fn graph_runs_in_the_order_of_its_edges_and_stream() {
    let mut state = State::new();
    let lane = state.open(false);
    let before = state.submit(lane, kernel(TEN), Tags::default(), 0);
    let node = |after: &[usize]| (kernel(TEN), Tags::default(), after.to_vec());
    let end =
        state.submit_graph(lane, vec![node(&[]), node(&[0]), node(&[0]), node(&[1, 2])], Tags::default(), 0);
    let after = state.submit(lane, kernel(TEN), Tags::default(), 0);
    let begin = before.end_ns().unwrap();
    assert_eq!(ends(&[&end, &after]), [Some(begin + 30_000), Some(begin + 40_000)]);
}

#[test]
fn everything_that_is_submitted_is_done_once() {
    static DONE: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let device = super::Device::running(0, |done| DONE.lock().unwrap().push(done.tags.correlation));
    let lanes = [(); 4].map(|()| device.open(true));
    std::thread::scope(|scope| {
        for (i, lane) in (0..).zip(lanes) {
            let device = &device;
            scope.spawn(move || {
                for j in 0..5_000 {
                    let tags = Tags { correlation: i * 5_000 + j, ..Tags::default() };
                    device.submit(lane, kernel(c"k_100ns"), tags);
                }
            });
        }
    });
    for tail in device.tails() {
        device.wait(&tail);
    }
    let mut done = DONE.lock().unwrap().clone();
    done.sort_unstable();
    assert!(done.into_iter().eq(0..20_000));
}
