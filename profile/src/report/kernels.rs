//! Kernels: what a block of them takes, and how many of their blocks that lets run at once.
//!
//! Owns: the table of those that were launched most. Because: what limits a kernel's parallelism is known before it is
//! measured. Does not: say how many did run at once.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::{Extent, NAME_WIDTH, counted, without_middle};
use crate::activity::Shape;
use crate::frame::{Frame, clean};
use crate::metric::Metric;
use crate::profile::Profile;
use crate::units::Bytes;

/// The table.
pub(super) fn write(profile: &Profile, extent: Extent, out: &mut dyn Write) -> io::Result<()> {
    let mut known: FxHashMap<&str, (u64, Shape)> = FxHashMap::default();
    for (node, shape) in profile.gpu.shapes().filter(|(_, shape)| shape.registers.is_some()) {
        let Frame::GpuKernel { name } = profile.frames.get(profile.tree.node(node).frame) else { continue };
        let launches = profile.tree.exclusive(node, Metric::Kernels).sum;
        let known = known.entry(profile.strings.get(name)).or_insert((0, *shape));
        if launches > known.0 {
            known.1 = *shape;
        }
        known.0 += launches;
    }
    if known.is_empty() {
        return Ok(());
    }
    let mut known: Vec<_> = known.into_iter().collect();
    known.sort_by(|(name, (n, _)), (other, (m, _))| m.cmp(n).then_with(|| name.cmp(other)));
    writeln!(out, "\nKernels launched most, and what a block of them takes")?;
    writeln!(out, "  launches  threads  registers     shared  at once on a multiprocessor")?;
    for (name, (launches, shape)) in known.into_iter().take(extent.rows) {
        let threads = shape.threads();
        let registers = shape.registers.map_or_else(String::new, |of| of.last.to_string());
        let shared = shape.shared().map_or_else(String::new, |bytes| Bytes(bytes.into()).to_string());
        let fits = match (shape.occupancy(), shape.runs_on()) {
            (Some(fits), Some(arch)) => format!(
                "{}: {:.0}% of warps, as many as {} of sm_{} allow",
                counted(fits.blocks.into(), "block"),
                f64::from(fits.warps) * 100.0 / f64::from(fits.warps_max),
                fits.limit,
                arch
            ),
            _ => "not known".to_owned(),
        };
        writeln!(out, "  {launches:>8}  {threads:>7}  {registers:>9}  {shared:>9}  {fits}")?;
        writeln!(out, "            {}", without_middle(&clean(name), 2 * NAME_WIDTH))?;
    }
    Ok(())
}
