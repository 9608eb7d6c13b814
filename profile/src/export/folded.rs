//! Folded stacks: `comm-pid;caller;callee 123`, one line per calling context, as flame graph tools read them.
//!
//! Owns: [`write()`]. Because: it is the one profile format that every tool and every shell pipeline reads. Does not:
//! define the text of frames; see [`crate::frame`].
//!
//! Lines are sorted frame by frame from the root, every context stands once, and lines of value zero are left out.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::profile::Profile;
use crate::view::{Merged, SameBy, Selection};

/// Writes the folded stacks of a selection.
pub fn write(profile: &Profile, selection: &Selection, out: &mut dyn Write) -> io::Result<()> {
    let mut merged = Merged::new(*selection, SameBy::Text);
    merged.refresh(profile);
    each_line(&merged, |line| out.write_all(line.as_bytes()))?;
    out.flush()
}

/// Calls `take` with each line, its newline included.
pub(crate) fn each_line<E>(merged: &Merged, mut take: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
    let mut line = String::new();
    // Length of the line up to and with the frame at each depth.
    let mut ends: Vec<usize> = vec![0];
    for (node, depth) in merged.walk(1) {
        let depth = depth as usize;
        if depth > 0 {
            ends.truncate(depth);
            line.truncate(ends[depth - 1]);
            if depth > 1 {
                line.push(';');
            }
            line.push_str(&merged.label(node).text);
            ends.push(line.len());
        }
        let value = merged.exclusive[node as usize];
        if value > 0 {
            let end = line.len();
            if depth == 0 {
                line.push_str(&merged.label(node).text);
            }
            line.push(' ');
            _ = write!(line, "{value}");
            line.push('\n');
            take(&line)?;
            line.truncate(end);
        }
    }
    Ok(())
}
