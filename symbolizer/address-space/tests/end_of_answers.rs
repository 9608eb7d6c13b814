//! A program that exits while its workers are still busy. It is a separate test program because it can exit only
//! once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use deepctx_address_space::worker::{Author, Deadline, NoAnswer, Pool, Terms, end_answers, work_in_progress};

const TERMS: Terms =
    Terms { workers_max: 2, answer_max: Duration::from_millis(100), wait_max: Duration::from_secs(1) };

/// Never answers, and is busy with it.
fn busy() -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "printf ! >&0; while :; do :; done"]);
    command
}

#[test]
fn no_answer_is_waited_for_after_the_end() {
    let pool = Pool::new(busy, TERMS);
    let ask = || {
        pool.ask(Author::user(0), |worker| {
            worker.socket().write_all(b"?").unwrap();
            let deadline =
                Deadline::new(Instant::now(), Duration::from_millis(10), Duration::from_secs(3600));
            worker.read_within(&mut [0], deadline)
        })
    };
    let last = Instant::now() + Duration::from_millis(500);
    end_answers(last);
    let before = work_in_progress();
    assert_eq!(ask(), Err(NoAnswer::Silent));
    assert!(Instant::now() >= last, "a worker that is busy may take until then");
    assert!(work_in_progress() > before, "who watches sees that it is");

    let began = work_in_progress();
    assert_eq!(ask(), Err(NoAnswer::Silent));
    assert_eq!(work_in_progress(), began, "nothing is asked after that");
    end_answers(Instant::now() + Duration::from_secs(3600));
    assert_eq!(ask(), Err(NoAnswer::Silent), "the first end counts");
}
