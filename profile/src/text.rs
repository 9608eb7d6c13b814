//! The text form of a tree, for tests, examples and debuggers.
//!
//! Owns: [`tree`] and [`parse`]. Because: a golden file must be readable in a review, and an example must fit beside
//! the code it explains. Does not: promise programs a stable layout; that is what exports are for.

use std::fmt::Write as _;
use std::num::NonZeroU32;

use crate::frame::{Frame, Origin, Role};
use crate::intern::{FrameId, StrId};
use crate::metric::Metric;
use crate::profile::{Limits, Meta, Profile};
use crate::tree::NodeId;

/// One line per node, two spaces deeper than its parent, children sorted by label (with lines), and after the label
/// the node's own figures: `metric=sum` and, when there is more than one value, `/count[min..max]`.
///
/// ```text
/// python3-7
///   train.py:main:12
///     train.py:step:30  cpu-time=30/3[10..10]
/// ```
pub fn tree(profile: &Profile) -> String {
    let mut children: Vec<Vec<(String, NodeId)>> = vec![Vec::new(); profile.tree.len()];
    for (number, node) in (0u32..).zip(profile.tree.nodes()).skip(1) {
        let label = profile.frames.get(node.frame).label(&profile.strings, true);
        children[node.parent.index()].push((label, NodeId::from_number(number)));
    }
    children.iter_mut().for_each(|list| list.sort());

    let metrics: Vec<Metric> = profile.tree.metrics().collect();
    let mut text = String::new();
    let mut to_write: Vec<(usize, &str, NodeId)> = vec![(0, "all", NodeId::ROOT)];
    while let Some((depth, label, node)) = to_write.pop() {
        let mut line = format!("{:width$}{label} ", "", width = 2 * depth);
        for &metric in &metrics {
            let cell = profile.tree.exclusive(node, metric);
            match cell.count {
                0 => continue,
                1 => _ = write!(line, " {metric}={}", cell.sum),
                n => _ = write!(line, " {metric}={}/{n}[{}..{}]", cell.sum, cell.min, cell.max),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
        let below = children[node.index()].iter().rev();
        to_write.extend(below.map(|(label, child)| (depth + 1, label.as_str(), *child)));
    }
    text
}

/// A line that [`parse`] cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a stack of frames with a value: `{0}`")]
pub struct BadLine(pub String);

/// A profile from one line per stack: frames from the outermost in, each a letter for its kind and its text, and a
/// value of `cpu-time` at the end.
///
/// | frame | is |
/// |---|---|
/// | `P python3-7` | process 7 |
/// | `T main/8` | thread 8 |
/// | `y a.py:f:12` | the Python function `f` in line 12; the line may be absent |
/// | `n add@libm.so` | the native function `add`; the module may be absent |
/// | `i eval@python3` | the same, as the interpreter's own frame |
/// | `u libm.so+0x1f3a` | native code without a name |
/// | `k vfs_read` | a kernel function |
/// | `o aten::mm`, `r step 1` | an operator, a range |
/// | `l h.0 (Block)` | a layer of a model |
/// | `a cuLaunchKernel` | a call of a GPU library |
/// | `s 0/7`, `g gemm` | stream 7 of device 0, a GPU kernel |
/// | `m cpu 3` | a part of the machine |
/// | `? no-row` | a frame without a name, with the reason |
///
/// ```
/// let profile = deepctx_profile::text::parse("P python3-7 / y train.py:step:30 / n gemm@libmkl.so 500")?;
/// assert_eq!(profile.tree.len(), 4);
/// # Ok::<(), deepctx_profile::text::BadLine>(())
/// ```
///
/// # Errors
/// The first line that is something else.
pub fn parse(lines: &str) -> Result<Profile, BadLine> {
    let meta = Meta { target: "python train.py (pid 7)".to_owned(), frequency_hz: 99, ..Meta::default() };
    let mut profile = Profile::new(meta, Limits::default());
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let bad = || BadLine(line.to_owned());
        let (path, value) = line.rsplit_once(' ').ok_or_else(bad)?;
        let value = value.parse().map_err(|_| bad())?;
        let frames = path.split(" / ").map(|part| parse_frame(&mut profile, part));
        let stack = frames.collect::<Result<Vec<FrameId>, BadLine>>()?;
        profile.add(&stack, Metric::CpuTime, value);
    }
    Ok(profile)
}

/// One frame as [`parse`] reads it.
///
/// # Errors
/// It is no frame.
pub fn parse_frame(profile: &mut Profile, text: &str) -> Result<FrameId, BadLine> {
    let frame = frame(profile, text).ok_or_else(|| BadLine(text.to_owned()))?;
    Ok(profile.frame(frame))
}

fn frame(profile: &mut Profile, part: &str) -> Option<Frame> {
    let (kind, text) = part.trim().split_once(' ')?;
    let (name, module) = text.split_once('@').unwrap_or((text, ""));
    let (name, module) = (profile.text(name), profile.text(module));
    Some(match kind {
        "P" => {
            let (comm, pid) = text.rsplit_once('-')?;
            Frame::Process { comm: profile.text(comm), pid: pid.parse().ok()? }
        }
        "T" => {
            let (name, tid) = text.rsplit_once('/')?;
            Frame::Thread { name: profile.text(name), tid: tid.parse().ok()? }
        }
        "y" => {
            let mut parts = text.split(':');
            let file = profile.text(parts.next()?);
            let function = profile.text(parts.next()?);
            let line = match parts.next() {
                Some(line) => NonZeroU32::new(line.parse().ok()?),
                None => None,
            };
            Frame::Python { function, file, line, first_line: NonZeroU32::new(1), role: Role::Code }
        }
        "n" | "i" => {
            let role = if kind == "i" { Role::Interpreter } else { Role::Code };
            Frame::Native { symbol: name, module, file: StrId::EMPTY, line: None, inlined: false, role }
        }
        "u" => {
            let (module, offset) = text.rsplit_once("+0x")?;
            let (offset, reason) = (u64::from_str_radix(offset, 16).ok()?, profile.text("stripped"));
            Frame::NativeUnnamed { module: profile.text(module), offset, reason, role: Role::Code }
        }
        "k" => Frame::Kernel { symbol: name },
        "o" => Frame::Operator { name },
        "r" => Frame::Range { name },
        "l" => {
            let (path, class) = text.strip_suffix(')')?.split_once(" (")?;
            Frame::Layer { path: profile.text(path), class: profile.text(class) }
        }
        "a" => Frame::GpuApi { name },
        "s" => {
            let (device, stream) = text.split_once('/')?;
            let stream = Some(stream.parse().ok()?);
            Frame::Stream { device: device.parse().ok()?, stream, name: StrId::EMPTY }
        }
        "g" => Frame::GpuKernel { name },
        "m" => Frame::Resource { name },
        "?" => Frame::Unresolved { reason: name, origin: Origin::Native },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_become_a_tree_and_bad_lines_are_named() {
        let lines = "P a-1 / T w/2 / y m.py:f:7 / l h.0 (Block) / s 0/7 / g gemm 5\n\n P a-1 3\n P a-1 / u /l/m.so+0x1f 4";
        let profile = parse(lines).unwrap();
        let text = "all\n  a-1  cpu-time=3\n    m.so+0x1f  cpu-time=4\n    w/2\n      m.py:f:7\n        h.0 (Block)\n          [device 0, stream 7]\n            [gpu] gemm  cpu-time=5\n";
        assert_eq!(tree(&profile), text);
        for (line, bad) in [
            ("P a-1", "P a-1"),
            ("P a-1 x", "P a-1 x"),
            ("P a 1", "P a"),
            ("z a 1", "z a"),
            ("s 0 1", "s 0"),
            ("u m 1", "u m"),
        ] {
            assert_eq!(parse(line).unwrap_err(), BadLine(bad.to_owned()));
        }
    }
}
