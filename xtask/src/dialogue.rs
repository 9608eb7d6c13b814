//! A program that accepts commands and answers each with a line.
//!
//! Owns: [`Dialogue`]. Because: measurements alternate within one process, so the program must act on request. Does
//! not: know the commands.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result};

use crate::sh;

/// The program; it is killed when this is dropped.
pub(crate) struct Dialogue {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Dialogue {
    /// Starts it. Also returns its first line.
    pub(crate) fn start(command: &mut Command) -> Result<(Self, String)> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{}`", sh::words(command)))?;
        let output = BufReader::new(child.stdout.take().context("its output is a pipe")?);
        let mut program = Self { child, output };
        let first = program.line()?;
        Ok((program, first))
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line and returns the number in the answer.
    pub(crate) fn ask<N: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(
        &mut self,
        line: &str,
    ) -> Result<N> {
        writeln!(self.child.stdin.as_mut().context("its input is a pipe")?, "{line}")?;
        let answer = self.line()?;
        answer.parse().with_context(|| format!("to {line:?} the program said {answer:?}"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
