//! Client: `deepctx-bpf control SOCKET REQUEST`.
//!
//! Owns: one request and its answer, and what to do if there is none. Because: scripts need an exit code, and people a
//! sentence. Does not: know what a capture can do.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::super::control_args::ControlArgs;
use super::super::failure::{Completion, Failure};
use super::super::output;
use super::ControlRequest;

/// Timeout; a capture answers within ten seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum bytes of an answer.
const ANSWER_MAX: u64 = 64 << 10;

/// Runs the command.
///
/// # Errors
/// Nothing listens, or the capture refuses.
pub(crate) fn run(arguments: &ControlArgs) -> Result<Completion, Failure> {
    let request = arguments.request.join(" ");
    ControlRequest::parse(&request).map_err(Failure::new)?;
    let failed = |error: io::Error| unanswered(&arguments.socket, &error);
    let connection = UnixStream::connect(&arguments.socket).map_err(failed)?;
    connection.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    writeln!(&connection, "{request}").map_err(failed)?;
    let mut line = String::new();
    BufReader::new(&connection).take(ANSWER_MAX).read_line(&mut line).map_err(failed)?;
    if line.is_empty() {
        return Err(failed(ErrorKind::UnexpectedEof.into()));
    }
    let path = arguments.socket.display();
    let answer: Value = serde_json::from_str(&line)
        .map_err(|_| Failure::new(format_args!("{path}: expected a capture, found something else")))?;
    if let Some(sentence) = answer["error"].as_str() {
        return Err(Failure::new(deepctx_profile::frame::clean(sentence)));
    }
    output::write(Path::new("-"), false, |out| match answer["done"].as_str() {
        Some(sentence) => writeln!(out, "{}", deepctx_profile::frame::clean(sentence)),
        None => writeln!(out, "{:#}", answer["status"]),
    })?;
    Ok(Completion::Fully)
}

/// Why there is no answer. A closed socket is a failure, unlike a closed standard output: nothing was done.
fn unanswered(socket: &Path, error: &io::Error) -> Failure {
    let path = socket.display();
    let failed = Failure::new(format_args!("{path}: {error}"));
    match error.kind() {
        ErrorKind::PermissionDenied => {
            failed.hint("run it with sudo, or as the user who started the capture: only those may control it")
        }
        ErrorKind::ConnectionRefused => {
            failed.hint("no capture listens there: one that was killed left its socket, which you can remove")
        }
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => {
            Failure::new(format_args!("{path}: the capture ended before it answered"))
        }
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Failure::new(format_args!("{path}: no answer within {} s", PATIENCE.as_secs()))
                .hint("the capture may be busy or suspended: try again")
        }
        _ => failed.hint("give the socket that a running capture was started with (`--control`)"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::super::super::common_args::CommonArgs;
    use super::*;

    #[test]
    fn a_capture_that_ends_meanwhile_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        // Closed without a word, before or after the request is there.
        let server = thread::spawn(move || drop(listener.accept().unwrap()));
        let arguments = ControlArgs { socket, request: vec!["stop".into()], common: CommonArgs::default() };
        let failure = run(&arguments).unwrap_err().to_string();
        server.join().unwrap();
        assert!(failure.contains("the capture ended before it answered"), "{failure}");
    }

    #[test]
    fn each_way_to_fail_has_advice_of_its_own() {
        let check = |kind: ErrorKind, expect: &str| {
            let failure = unanswered(Path::new("/run/x.sock"), &kind.into()).to_string();
            assert!(failure.contains("/run/x.sock: ") && failure.contains(expect), "{failure}");
        };
        check(ErrorKind::PermissionDenied, "hint: run it with sudo");
        check(ErrorKind::ConnectionRefused, "hint: no capture listens there");
        check(ErrorKind::WouldBlock, "no answer within 20 s");
        check(ErrorKind::NotFound, "hint: give the socket");
    }
}
