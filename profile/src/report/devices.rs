//! Devices: from where their times come, and whether both sides saw the same.
//!
//! Owns: the lines for each process. Because: a time that is only bounded must not look like one that was measured. Does not:
//! compute anything.

use std::io::{self, Write};

use super::Extent;
use crate::device_lines::device_lines;
use crate::frame::clean;
use crate::profile::Profile;

/// The table.
pub(super) fn write(profile: &Profile, extent: Extent, out: &mut dyn Write) -> io::Result<()> {
    let processes = &profile.gpu.processes;
    if processes.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nDevices")?;
    for process in processes.iter().take(extent.rows) {
        write!(out, "  process {}: {}", process.pid, process.tier)?;
        if !process.note.is_empty() {
            write!(out, " ({})", clean(&process.note))?;
        }
        writeln!(out)?;
        for line in device_lines(process) {
            writeln!(out, "    {line}")?;
        }
    }
    match processes.len().saturating_sub(extent.rows) {
        0 => Ok(()),
        more => writeln!(
            out,
            "  … {}",
            if more == 1 { "1 more process".to_owned() } else { format!("{more} more processes") }
        ),
    }
}
