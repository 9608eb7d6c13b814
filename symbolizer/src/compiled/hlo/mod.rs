//! A module of XLA after optimization: which operators of the program each instruction stands for.
//!
//! Owns: the form that both readers fill, and the question of a kernel. Because: compiled kernels are named by the instruction
//! that they compute, and the module says what was fused into it and which lines asked for it. Does not: understand shapes,
//! operands, or the order of execution.

mod proto;
mod text;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Compiler, Kernel, Line, Op};
pub use proto::{find_modules, objects};
pub use text::parse_text;

/// Most instructions of a module.
const INSTRUCTIONS_MAX: usize = 1 << 20;
/// Most computations of a module.
const COMPUTATIONS_MAX: usize = 1 << 18;
/// Most rows of each table of places.
const PLACES_MAX: usize = 1 << 18;
/// Longest name that is kept, bytes; longer ones are cut.
const NAME_BYTES_MAX: usize = 1024;
/// Most lines of one stack.
const STACK_MAX: usize = 48;
/// Most operators of one kernel.
const OPS_MAX: usize = 512;
/// Most instructions that are looked at which may share a kernel.
const SHARING_MAX: usize = 64;
/// Most computations that are looked into for one kernel.
const CALLED_MAX: usize = 64;

/// A module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hlo {
    /// Its name: `jit_step`.
    pub name: String,
    instructions: Vec<Instruction>,
    /// Computations by name or, in the binary form, by number; each has a run of instructions.
    computations: FxHashMap<Called, (String, std::ops::Range<usize>)>,
    places: Places,
}

/// How a computation is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Called {
    Name(String),
    Number(u64),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Instruction {
    name: String,
    is_parameter: bool,
    metadata: Metadata,
    called: Vec<Called>,
}

/// Where an instruction comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Metadata {
    op_name: String,
    /// Of modules without a table of stacks.
    source_file: String,
    source_line: u32,
    /// Number of a stack, from 1; 0 for none.
    frame: u32,
}

/// Tables of places; numbers count from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Places {
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
    /// What the kernel of this name computes: an instruction, or a computation that instructions apply. `is_kernel` tells
    /// which other names kernels of the module have: an instruction without a kernel of its own may share that of its
    /// namesake (`fusion.2` that of `fusion`). `None` when the module has no such thing.
    pub fn kernel(&self, name: &str, is_kernel: &dyn Fn(&str) -> bool) -> Option<Kernel> {
        let of_name = self.instructions.iter().find(|i| is_same_name(&i.name, name));
        let (instruction, sharing) = match of_name {
            Some(own) => {
                let namesake = |i: &&Instruction| {
                    i.name != own.name
                        && base_name(&i.name) == base_name(&own.name)
                        && i.called.is_empty() == own.called.is_empty()
                        && !is_kernel(&i.name)
                };
                (own, self.instructions.iter().filter(namesake).collect())
            }
            None => {
                let mut callers = self.callers(name);
                (callers.next()?, callers.collect::<Vec<_>>())
            }
        };
        let ops = self.ops(instruction);
        let mut others: Vec<Op> = Vec::new();
        for sharing in sharing.into_iter().take(SHARING_MAX) {
            // What else it would be fused of is the same: only the first one's line may differ.
            let other = self.ops(sharing).into_iter().next();
            others.extend(other.filter(|op| ops.first() != Some(op) && !others.contains(op)));
        }
        Some(Kernel { compiler: Compiler::Xla, unit: self.name.as_str().into(), ops, others })
    }

    /// What the instruction of this name computes, with the computations that it calls if others are `fused` into it.
    pub fn step(&self, name: &str, fused: bool) -> Option<Kernel> {
        let instruction = self.instructions.iter().find(|i| i.name == name)?;
        let mut ops = Vec::new();
        if fused {
            ops = self.ops(instruction);
        } else {
            self.add_ops(&instruction.metadata, &mut ops);
        }
        Some(Kernel { compiler: Compiler::Xla, unit: self.name.as_str().into(), ops, others: Vec::new() })
    }

    /// All names that a kernel of a device may have, as linkers take them.
    pub fn device_names(&self) -> impl Iterator<Item = String> {
        let called = self.instructions.iter().flat_map(|i| &i.called).collect::<FxHashSet<_>>();
        let computations = self.computations.iter().filter(move |(key, _)| called.contains(key));
        let names = self.instructions.iter().filter(|i| !i.is_parameter).map(|i| &i.name);
        names.chain(computations.map(|(_, (name, _))| name)).map(|name| name.replace(['.', '-'], "_"))
    }

    /// The instructions that apply the computation of this name.
    fn callers(&self, name: &str) -> impl Iterator<Item = &Instruction> {
        let key = self.computations.iter().find(|(_, (computation, _))| is_same_name(computation, name));
        key.into_iter().flat_map(|(key, _)| self.instructions.iter().filter(|i| i.called.contains(key)))
    }

    /// The operators of an instruction, its own first, then those of the computations that it calls; each once.
    fn ops(&self, instruction: &Instruction) -> Vec<Op> {
        let mut ops = Vec::new();
        self.add_ops(&instruction.metadata, &mut ops);
        let mut calls: Vec<&Called> = instruction.called.iter().collect();
        let mut seen: FxHashSet<&Called> = calls.iter().copied().collect();
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

    fn add_ops(&self, metadata: &Metadata, ops: &mut Vec<Op>) {
        // Operators that were merged share an instruction, and no line is said of them.
        for name in metadata.op_name.split(';').filter(|name| !name.is_empty()) {
            let op = Op { name: name.into(), stack: self.stack(metadata) };
            // Helpers within a fusion (the addition of a reduction) have the bare name of a primitive and no line.
            let says_something = !op.stack.is_empty() || name.contains('/');
            if ops.len() < OPS_MAX && says_something && !ops.contains(&op) {
                ops.push(op);
            }
        }
    }

    /// The lines of an instruction, outermost first.
    fn stack(&self, metadata: &Metadata) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut frame = metadata.frame;
        let steps = self.places.parent_step();
        for _ in 0..STACK_MAX {
            let Some(Frame { location, parent }) = at(&self.places.frames, frame) else { break };
            if let Some(place) = at(&self.places.locations, location)
                && let Some(file) = at(&self.places.files, place.file)
            {
                let function = at(&self.places.functions, place.function).unwrap_or_default();
                lines.push(Line { file: file.into(), function: function.into(), line: place.line });
            }
            frame = parent.saturating_sub(steps);
        }
        lines.reverse();
        if lines.is_empty() && !metadata.source_file.is_empty() && metadata.source_line > 0 {
            let file = metadata.source_file.as_str().into();
            lines.push(Line { file, function: "".into(), line: metadata.source_line });
        }
        lines
    }
}

impl Places {
    /// What is to be subtracted from the number of a parent: text of XLA since late 2025 counts parents from 2, and then a
    /// frame without parent seems to be its own.
    fn parent_step(&self) -> u32 {
        u32::from(self.frames.first().is_some_and(|frame| frame.parent == 1))
    }
}

/// The row of this number, counted from 1.
fn at<T: Clone>(rows: &[T], number: u32) -> Option<T> {
    rows.get((number as usize).checked_sub(1)?).cloned()
}

/// Whether a kernel has the name of an instruction: names of GPU kernels have `_` for what linkers do not take.
pub(super) fn is_same_name(instruction: &str, kernel: &str) -> bool {
    let same = |(a, b): (u8, u8)| a == b || (b == b'_' && matches!(a, b'.' | b'-'));
    instruction.len() == kernel.len() && instruction.bytes().zip(kernel.bytes()).all(same)
}

/// The name without the number that tells it from others: `fusion` of `fusion.12`.
fn base_name(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((base, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    }
}

/// `text`, no longer than names may be.
fn cut(text: &str) -> String {
    let mut end = text.len().min(NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests;
