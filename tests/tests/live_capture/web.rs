//! Web services as people run them: FastAPI on asyncio, and gunicorn with greenlets.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cli_support::folded;
use crate::cli_support::recording::record_until;
use crate::runtimes::{GREENLET, check_process, end_where_they_begin, installed};
use crate::support::{LONGEST, Target, workload};

/// Requests at a time.
const CLIENTS: usize = 2;
/// Samples with the generator expression, which half of them have.
const GENERATORS: u64 = 300;

/// Asks the service once.
fn ask(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // A service that hangs fails the test instead of hanging it.
    stream.set_read_timeout(Some(LONGEST)).unwrap();
    stream.write_all(b"GET /total HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Ends the clients, also when a check fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Checks the service, by the id of the process that answers, while it is asked without end.
fn check(variable: &str, service: &str, check_stacks: impl Fn(&str, u32)) {
    for python in installed(variable) {
        let mut target = Target::start(Command::new(&python).arg(workload(service)));
        let line = target.line();
        let mut words = line.split_whitespace().skip(1);
        let pid: u32 = words.next().unwrap().parse().unwrap();
        let port: u16 = words.next().unwrap().parse().unwrap();
        // What only the first request loads is not measured.
        ask(port);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ends = Ends(&is_over);
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        ask(port);
                    }
                });
            }
            check_stacks(&python.display().to_string(), pid);
        });
    }
}

/// Stacks in which the workload's generator expression runs: the frames from the root to it, and the samples.
fn to_generator(file: &str) -> Vec<(Vec<String>, u64)> {
    let folded = folded(file, "samples", &["--view", "python", "--lines"]);
    let of_line = |line: &str| {
        let (stack, count) = line.rsplit_once(' ')?;
        let mut frames: Vec<_> = stack.split(';').map(str::to_owned).collect();
        let is_generator =
            |frame: &String| frame.starts_with("fastapi_service.py:") && frame.contains("<genexpr>");
        let at = frames.iter().position(is_generator)?;
        frames.truncate(at + 1);
        Some((frames, count.parse::<u64>().ok()?))
    };
    folded.lines().filter_map(of_line).collect()
}

#[test]
fn a_service_of_fastapi_is_whole_and_generators_await_nothing() {
    check("TEST_FASTAPI_PYTHON", "fastapi_service.py", |input, pid| {
        check_process(input, pid, 1, &[]);
        let options = ["--freq", "997", "--probe", "async"];
        let samples = |file: &str| to_generator(file).iter().map(|(_, count)| count).sum::<u64>();
        let (_folder, file) = record_until(&pid.to_string(), &options, |file| samples(file) > GENERATORS);
        for (frames, _) in to_generator(&file) {
            let caller = frames.iter().rev().nth(1).unwrap();
            assert!(!caller.starts_with("[unknown: async-"), "{input}: {frames:?}");
        }
    });
}

#[test]
fn stacks_of_a_gunicorn_worker_end_where_greenlets_begin() {
    check("TEST_GUNICORN_PYTHON", "gunicorn_service.py", |input, pid| {
        let stacks = check_process(input, pid, 1, &[GREENLET.begins]);
        let of_greenlets = end_where_they_begin(input, &stacks, GREENLET.begins);
        // Requests and the event loop have greenlets, all but the worker's own check of once a second.
        assert!(of_greenlets * 2 > stacks.len(), "{input}: {of_greenlets} of {}", stacks.len());
    });
}
