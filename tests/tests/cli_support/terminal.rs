//! A program in a terminal of its own.
//!
//! Owns: that terminal, until the program has drawn something. Because: the live view draws on nothing else. Does not:
//! understand what is drawn.

use std::process::Command;

use super::stderr;

/// Runs a program in a terminal, waits until it has drawn `drawn` or has ended, closes the terminal, and prints how the
/// program ended, and what it had drawn.
const IN_A_TERMINAL: &str = "
import fcntl, os, pty, select, struct, sys, termios, time
drawn, command = sys.argv[1].encode(), sys.argv[2:]
pid, master = pty.fork()
if pid == 0:
    # Before the program looks: a terminal without a size has room for nothing.
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))
    os.environ['TERM'] = 'xterm-256color'
    os.execvp(command[0], command)
seen, end = b'', time.time() + 600
while drawn not in seen:
    assert time.time() < end, seen
    if select.select([master], [], [], 1)[0]:
        try:
            seen += os.read(master, 65536)
        except OSError:
            # Nobody has the other end any more.
            break
os.close(master)
while time.time() < end:
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended:
        print('exit', os.waitstatus_to_exitcode(status), flush=True)
        sys.stdout.buffer.write(seen)
        sys.exit(0)
    time.sleep(0.05)
os.kill(pid, 9)
sys.exit('it stayed when its terminal was gone')
";

/// What became of a program in a terminal.
#[derive(Debug)]
pub(crate) struct TerminalOutcome {
    /// Its exit code; negative when a signal ended it.
    pub(crate) code: i32,
    /// All that came to the terminal.
    pub(crate) drawn: String,
}

/// Runs a command in a terminal until it has drawn this, or has ended; then the terminal is closed.
#[track_caller]
pub(crate) fn in_a_terminal(command: &Command, drawn: &str) -> TerminalOutcome {
    let mut python = Command::new("python3");
    python.args(["-c", IN_A_TERMINAL, drawn]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => python.env(name, value),
            None => python.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        python.current_dir(folder);
    }
    let ended = python.output().unwrap();
    assert!(ended.status.success(), "{command:?}: {}", stderr(&ended));
    let said = String::from_utf8_lossy(&ended.stdout);
    let (first, drawn) = said.split_once('\n').unwrap();
    let code = first.strip_prefix("exit ").unwrap().parse().unwrap();
    TerminalOutcome { code, drawn: drawn.to_owned() }
}
