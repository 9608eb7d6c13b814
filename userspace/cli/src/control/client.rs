//! Client: `deepctx-bpf control SOCKET REQUEST`.
//!
//! Owns: one request and its answer. Because: scripts need an exit code, and people a sentence. Does not: know what a
//! capture can do.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
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
    let path = arguments.socket.display();
    let failed = |error: std::io::Error| {
        Failure::io(&path, &error)
            .hint("give the socket that a running capture was started with (`--control`)")
    };
    let connection = UnixStream::connect(&arguments.socket).map_err(failed)?;
    connection.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    writeln!(&connection, "{request}").map_err(failed)?;
    let mut line = String::new();
    BufReader::new(&connection).take(ANSWER_MAX).read_line(&mut line).map_err(failed)?;
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
