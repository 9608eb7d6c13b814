use std::process::{Child, Command};
use std::time::Instant;

use deepctx_symbolizer::maps::Maps;
use deepctx_symbolizer::python::NoInterpreter;

use super::super::executables::Executables;
use super::super::scan_job::ProcessReading;
use super::super::tables::Tables;
use super::*;

/// A process that has ended, so that its scan has no result, and that nobody has waited for.
fn ended_child() -> Child {
    let child = Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    child
}

#[test]
fn the_last_scan_is_counted() {
    let mut child = ended_child();
    let processes = Processes::new(Tables::default(), Executables::new(None), false);
    let (messages, received) = bounded(8);
    let (memory, stop) = (Arc::default(), Arc::default());
    let scans = Scans { processes, messages, scan_queue: None, memory, stop };
    let requests = spawn_scan(scans, &Supervisor::default()).unwrap();
    assert!(requests.request(ScanRequest::Mapped(child.id())));
    drop(requests);
    let counted = received.iter().filter_map(|message| match message {
        Message::Scans(counters) => Some(counters.scans),
        _ => None,
    });
    assert_eq!(counted.last(), Some(1));
    child.wait().unwrap();
}

#[test]
fn requests_without_a_pause_hold_up_no_unready_interpreter() {
    let mut child = ended_child();
    let pid = child.id();
    let mut processes = Processes::new(Tables::default(), Executables::new(None), false);
    let job = processes.begin(pid);
    let not_ready = || Some(Err(NoInterpreter::NotInitialised));
    let (files, interpreter) = job.files.open_beside(pid, &[], not_ready);
    let (maps, files) = (Maps::default(), Ok(files));
    let process = ProcessReading { time_ns: 0, account: 0, maps, shape: vec![], files, interpreter };
    let _ = processes.finish(ScanReading { pid, program: job.program, process: Ok(process) });
    assert_eq!(processes.unready(u64::MAX), [pid]);
    let (messages, received) = bounded(8);
    let (memory, stop) = (Arc::default(), Arc::default());
    let scans = Scans { processes, messages, scan_queue: None, memory, stop };
    let requests = spawn_scan(scans, &Supervisor::default()).unwrap();
    let is_again = |message: Message| matches!(message, Message::Scans(counters) if counters.scans > 1);
    let begin = Instant::now();
    while !received.try_iter().any(is_again) {
        assert!(begin.elapsed() < Duration::from_secs(20), "it is not scanned again");
        requests.request(ScanRequest::Exited(u32::MAX));
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait().unwrap();
}

#[test]
fn scans_of_records_seen_in_the_ring_are_requested_once() {
    let mut ahead = 5;
    assert_eq!(not_seen(&mut ahead, b""), b"");
    assert_eq!(not_seen(&mut ahead, b"old"), b"");
    assert_eq!(not_seen(&mut ahead, b"olnew"), b"new");
    assert_eq!((not_seen(&mut ahead, b"new"), ahead), (&b"new"[..], 0));
}

#[test]
fn requests_without_room_are_counted() {
    let (sender, _waiting) = bounded(1);
    let requests = ScanRequests { sender, dropped: Arc::default(), samples: Arc::default() };
    let taken = [7, 8, 9].map(|pid| requests.request(ScanRequest::Unknown(pid)));
    assert_eq!(taken, [true, false, false]);
    let processes = Processes::new(Tables::default(), Executables::new(None), false);
    let (messages, received) = bounded(1);
    let (memory, stop) = (Arc::default(), Arc::default());
    let mut scans = Scans { processes, messages, scan_queue: None, memory, stop };
    let mut rounds = ScanRounds { dropped: requests.dropped, ..ScanRounds::default() };
    scans.report(&mut rounds, Duration::ZERO);
    let sent = received.try_recv();
    assert!(matches!(sent, Ok(Message::Scans(counters)) if counters.put_off == 2), "{sent:?}");
}
