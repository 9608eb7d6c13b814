//! Text of the tables about devices: where times come from, kernels, instructions, memory.
//!
//! Owns: their columns, and the number of instructions and reasons on a page. Because: a page is read, not searched.
//! Does not: compute.

use std::io::{self, Write};

use deepctx_profile::device::device_lines;
use deepctx_profile::device::memory::Pool;
use deepctx_profile::frame::clean;
use deepctx_profile::units::{Bytes, counted_as};

use super::{NAME_WIDTH, Names, PLACE_WIDTH, counted, share, short_kernels, without_middle, without_start};
use crate::amount::percent;
use crate::tables::devices::Devices;
use crate::tables::instructions::{Instruction, Instructions, Producer};
use crate::tables::kernels::{Kernel, Kernels};
use crate::tables::memory::PeakMemory;

/// Maximum number of kernels with instructions, and of instructions of each.
const KERNELS: usize = 3;
const INSTRUCTIONS: usize = 5;
/// Maximum number of reasons per instruction.
const REASONS: usize = 2;

/// Source of device times.
pub(super) fn devices(devices: &Devices, out: &mut dyn Write) -> io::Result<()> {
    if devices.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nDevices")?;
    for process in &devices.rows {
        write!(out, "  {}: {}", process.label(), process.tier)?;
        if !process.note.is_empty() {
            write!(out, " ({})", clean(&process.note))?;
        }
        writeln!(out)?;
        for line in device_lines(process) {
            writeln!(out, "    {line}")?;
        }
    }
    match devices.left_out {
        0 => Ok(()),
        more => writeln!(out, "  … {}", counted_as(more as u64, "more process", "more processes")),
    }
}

/// Resources of a block of each kernel.
pub(super) fn kernels(kernels: &Kernels, names: Names, out: &mut dyn Write) -> io::Result<()> {
    if kernels.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nKernels launched most, and what a block of them takes")?;
    writeln!(out, "  launches  threads  registers     shared  at once on a multiprocessor")?;
    let width = names.width(2 * NAME_WIDTH);
    let names = short_kernels(kernels.rows.iter().map(|row| &row.kernel), width);
    for (row, name) in kernels.rows.iter().zip(names) {
        let registers = row.registers_per_thread.map_or_else(String::new, |of| of.to_string());
        let shared =
            row.shared_bytes_per_block.map_or_else(String::new, |bytes| Bytes(bytes.into()).to_string());
        let (launches, threads, fits) = (row.launches, row.threads_per_block, occupancy(row));
        writeln!(out, "  {launches:>8}  {threads:>7}  {registers:>9}  {shared:>9}  {fits}")?;
        writeln!(out, "            {name}")?;
    }
    Ok(())
}

pub(crate) fn occupancy(row: &Kernel) -> String {
    let Some(of) = &row.occupancy else { return "not known".to_owned() };
    let (blocks, percent) = (counted(of.blocks.into(), "block"), of.warps_percent);
    format!("{blocks}: {percent:.0}% of warps, as many as {} of sm_{} allow", of.limited_by, of.architecture)
}

/// What sampled warps waited for.
pub(super) fn instructions(instructions: &Instructions, names: Names, out: &mut dyn Write) -> io::Result<()> {
    if instructions.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nInstructions with most samples, and what their warps waited for")?;
    let rows = instructions.rows.iter().take(KERNELS);
    let names = short_kernels(rows.clone().map(|row| &row.kernel), names.width(2 * NAME_WIDTH));
    for (row, kernel) in rows.zip(names) {
        writeln!(out, "  {}  {:>8}  {kernel}", share(row.samples_percent), row.samples)?;
        for row in row.instructions.rows.iter().take(INSTRUCTIONS) {
            writeln!(out, "{}", instruction(row).trim_end())?;
            for producer in &row.waits_for {
                writeln!(out, "{:23}waits for {} (modelled)", "", producer_text(producer))?;
            }
        }
    }
    Ok(())
}

fn instruction(row: &Instruction) -> String {
    let reasons = row.reasons.iter().take(REASONS);
    let reasons = reasons.map(|of| format!("{} {}", of.reason, share(of.samples_percent).trim_start()));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    let (at, line) = (&row.at, without_start(&row.line, PLACE_WIDTH));
    format!("    {}  {at:>9}  {reasons}  {line}", share(row.samples_percent))
}

/// An instruction that another one waits for: `+0x90 (/src/gemm.cu:7)`.
pub(crate) fn producer_text(producer: &Producer) -> String {
    let Producer { at, line } = producer;
    match line.as_str() {
        "" => at.clone(),
        line => format!("{at} ({})", without_start(line, PLACE_WIDTH)),
    }
}

/// Who held memory at its peak.
pub(super) fn memory(memory: &PeakMemory, out: &mut dyn Write) -> io::Result<()> {
    if memory.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nMemory at its peak")?;
    for row in &memory.rows {
        writeln!(out, "  process {}, {}", row.pool.pid, clean(&row.pool.device))?;
        for line in pool_lines(&row.pool) {
            writeln!(out, "    {line}")?;
        }
        for holder in &row.holders.rows {
            let (share, bytes) = (share(holder.bytes_percent), Bytes(holder.bytes).to_string());
            writeln!(out, "    {share}  {bytes:>9}  {}", without_middle(&holder.place, 2 * NAME_WIDTH))?;
        }
        if row.holders.left_out > 0 {
            writeln!(out, "    … {}", counted(row.holders.left_out as u64, "more place"))?;
        }
    }
    match memory.left_out {
        0 => Ok(()),
        more => writeln!(out, "  … {}", counted(more as u64, "more device")),
    }
}

/// Figures of a pool.
pub(crate) fn pool_lines(pool: &Pool) -> Vec<String> {
    let part = |part: u64, whole: u64| share(percent(part, whole)).trim().to_owned();
    let held = match pool.peak_reserved_bytes {
        None => "most at a time".to_owned(),
        Some(reserved) => format!(
            "most at a time, of {} that the allocator held ({} unused)",
            Bytes(reserved),
            part(reserved.saturating_sub(pool.peak_bytes), reserved)
        ),
    };
    let (allocations, allocated) = (counted(pool.allocations, "allocation"), Bytes(pool.allocated_bytes));
    let (peak, at) = (Bytes(pool.peak_bytes), pool.peak_at);
    let mut lines = vec![format!("{peak} at {at}: {held}; {allocations} of {allocated} in all")];
    if let (Some(reserved), Some(unused)) = (pool.most_reserved_bytes, pool.most_unused_bytes) {
        lines.push(format!(
            "the allocator held {} at most; {} of it were unused at {}",
            Bytes(reserved),
            Bytes(unused),
            pool.most_unused_at
        ));
    }
    if pool.given_bytes > pool.asked_bytes && pool.asked_bytes > 0 {
        let more = pool.given_bytes - pool.asked_bytes;
        lines.push(format!("{} more were given out than asked for", part(more, pool.asked_bytes)));
    }
    if pool.peak_unseen_bytes > 0 {
        lines
            .push(format!("{} of the most were allocated before the capture", Bytes(pool.peak_unseen_bytes)));
    }
    lines
}
