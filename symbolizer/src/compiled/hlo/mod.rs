//! An XLA module after optimization: the operators of the program behind each instruction.
//!
//! Owns: the data model of both parsers, and looking up kernels in it. Because: compiled kernels are named after the
//! instruction that they compute, and the module contains what was fused into it and its source lines. Does not:
//! interpret shapes, operands, or the order of execution.

mod proto;
mod text;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Compiler, KernelOrigin, Operator, SourceLine};
pub use proto::{find_modules, objects};
pub use text::parse_text;

/// Most instructions of a module.
const INSTRUCTIONS_MAX: usize = 1 << 20;
/// Most computations of a module.
const COMPUTATIONS_MAX: usize = 1 << 18;
/// Most rows of each location table.
const LOCATIONS_MAX: usize = 1 << 18;
/// Longest name kept, in bytes; longer ones are truncated.
const NAME_BYTES_MAX: usize = 1024;
/// Most lines of one stack.
const STACK_MAX: usize = 48;
/// Most operators of one kernel.
const OPS_MAX: usize = 512;
/// Most instructions examined that may share a kernel.
const SHARING_MAX: usize = 64;
/// Most computations examined for one kernel.
const CALLED_MAX: usize = 64;

/// An XLA module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hlo {
    /// Name: `jit_step`.
    pub name: String,
    instructions: Vec<Instruction>,
    /// Computations by name or, in the binary form, by number; each has a range of instructions.
    computations: FxHashMap<ComputationId, (String, std::ops::Range<usize>)>,
    locations: LocationTables,
}

/// How an instruction refers to a computation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum ComputationId {
    Name(String),
    Number(u64),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Instruction {
    name: String,
    is_parameter: bool,
    metadata: Metadata,
    called: Vec<ComputationId>,
}

/// The origin of an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Metadata {
    op_name: String,
    /// In modules without a table of stacks.
    source_file: String,
    source_line: u32,
    /// Number of a stack frame, from 1; 0 for none.
    frame: u32,
}

/// The location tables; numbers count from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LocationTables {
    files: Vec<String>,
    functions: Vec<String>,
    locations: Vec<Location>,
    frames: Vec<Frame>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Location {
    file: u32,
    function: u32,
    line: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Frame {
    location: u32,
    parent: u32,
}

impl Hlo {
    /// The origin of the kernel with this name, which is an instruction, or a computation that instructions apply.
    /// `is_kernel` says whether another name is a kernel of the module: an instruction without its own kernel may
    /// share that of an instruction with the same base name (`fusion.2` that of `fusion`). `None` when the module has
    /// no such name.
    pub fn kernel(&self, name: &str, is_kernel: &dyn Fn(&str) -> bool) -> Option<KernelOrigin> {
        let of_name = self.instructions.iter().find(|i| is_same_name(&i.name, name));
        let (instruction, sharing) = match of_name {
            Some(own) => {
                let may_share = |i: &&Instruction| {
                    i.name != own.name
                        && base_name(&i.name) == base_name(&own.name)
                        && i.called.is_empty() == own.called.is_empty()
                        && !is_kernel(&i.name)
                };
                (own, self.instructions.iter().filter(may_share).collect())
            }
            None => {
                let mut callers = self.callers(name);
                (callers.next()?, callers.collect::<Vec<_>>())
            }
        };
        let ops = self.ops(instruction);
        let mut others: Vec<Operator> = Vec::new();
        for sharing in sharing.into_iter().take(SHARING_MAX) {
            // Its other operators are the same: only the line of the first one may differ.
            let other = self.ops(sharing).into_iter().next();
            others.extend(other.filter(|op| ops.first() != Some(op) && !others.contains(op)));
        }
        Some(KernelOrigin { compiler: Compiler::Xla, unit: self.name.as_str().into(), ops, others })
    }

    /// The origin of the instruction with this name; if `fused`, with the computations that it calls.
    pub fn thunk(&self, name: &str, fused: bool) -> Option<KernelOrigin> {
        let instruction = self.instructions.iter().find(|i| i.name == name)?;
        let mut ops = Vec::new();
        if fused {
            ops = self.ops(instruction);
        } else {
            self.add_ops(&instruction.metadata, &mut ops);
        }
        Some(KernelOrigin {
            compiler: Compiler::Xla,
            unit: self.name.as_str().into(),
            ops,
            others: Vec::new(),
        })
    }

    /// All names that a device kernel may have, with characters that linkers accept.
    pub fn device_names(&self) -> impl Iterator<Item = String> {
        let called = self.instructions.iter().flat_map(|i| &i.called).collect::<FxHashSet<_>>();
        let computations = self.computations.iter().filter(move |(key, _)| called.contains(key));
        let names = self.instructions.iter().filter(|i| !i.is_parameter).map(|i| &i.name);
        names.chain(computations.map(|(_, (name, _))| name)).map(|name| name.replace(['.', '-'], "_"))
    }

    /// The instructions that apply the computation with this name.
    fn callers(&self, name: &str) -> impl Iterator<Item = &Instruction> {
        let key = self.computations.iter().find(|(_, (computation, _))| is_same_name(computation, name));
        key.into_iter().flat_map(|(key, _)| self.instructions.iter().filter(|i| i.called.contains(key)))
    }

    /// The operators of an instruction: first its own, then those of the computations that it calls; each once.
    fn ops(&self, instruction: &Instruction) -> Vec<Operator> {
        let mut ops = Vec::new();
        self.add_ops(&instruction.metadata, &mut ops);
        let mut calls: Vec<&ComputationId> = instruction.called.iter().collect();
        let mut seen: FxHashSet<&ComputationId> = calls.iter().copied().collect();
        let mut next = 0;
        while let Some(called) = calls.get(next).filter(|_| next < CALLED_MAX) {
            next += 1;
            let Some((_, range)) = self.computations.get(called) else { continue };
            for instruction in self.instructions.get(range.clone()).unwrap_or_default() {
                if !instruction.is_parameter {
                    self.add_ops(&instruction.metadata, &mut ops);
                }
                calls.extend(instruction.called.iter().filter(|called| seen.insert(called)));
            }
        }
        ops
    }

    fn add_ops(&self, metadata: &Metadata, ops: &mut Vec<Operator>) {
        // Merged operators share an instruction without a line.
        for name in metadata.op_name.split(';').filter(|name| !name.is_empty()) {
            let op = Operator { name: name.into(), stack: self.stack(metadata) };
            // Helpers within a fusion (the addition of a reduction) have only the name of a primitive and no line.
            let is_relevant = !op.stack.is_empty() || name.contains('/');
            if ops.len() < OPS_MAX && is_relevant && !ops.contains(&op) {
                ops.push(op);
            }
        }
    }

    /// The lines of an instruction, outermost first.
    fn stack(&self, metadata: &Metadata) -> Vec<SourceLine> {
        let mut lines = Vec::new();
        let mut frame = metadata.frame;
        let offset = self.locations.parent_offset();
        for _ in 0..STACK_MAX {
            let Some(Frame { location, parent }) = at(&self.locations.frames, frame) else { break };
            if let Some(location) = at(&self.locations.locations, location)
                && let Some(file) = at(&self.locations.files, location.file)
            {
                let function = at(&self.locations.functions, location.function).unwrap_or_default();
                lines.push(SourceLine { file: file.into(), function: function.into(), line: location.line });
            }
            frame = parent.saturating_sub(offset);
        }
        lines.reverse();
        if lines.is_empty() && !metadata.source_file.is_empty() && metadata.source_line > 0 {
            let file = metadata.source_file.as_str().into();
            lines.push(SourceLine { file, function: "".into(), line: metadata.source_line });
        }
        lines
    }
}

impl LocationTables {
    /// The offset of parent numbers: the text of XLA since late 2025 counts parents from 2, so that a frame without
    /// parent seems to be its own parent.
    fn parent_offset(&self) -> u32 {
        u32::from(self.frames.first().is_some_and(|frame| frame.parent == 1))
    }
}

/// The row with this number, counted from 1.
fn at<T: Clone>(rows: &[T], number: u32) -> Option<T> {
    rows.get((number as usize).checked_sub(1)?).cloned()
}

/// Whether a kernel has the name of an instruction: names of GPU kernels have `_` for characters that linkers do not
/// accept.
pub(super) fn is_same_name(instruction: &str, kernel: &str) -> bool {
    let same = |(a, b): (u8, u8)| a == b || (b == b'_' && matches!(a, b'.' | b'-'));
    instruction.len() == kernel.len() && instruction.bytes().zip(kernel.bytes()).all(same)
}

/// The name without its number: `fusion` of `fusion.12`.
fn base_name(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((base, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    }
}

/// `text`, truncated to the longest name.
fn truncated(text: &str) -> String {
    let mut end = text.len().min(NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests;
