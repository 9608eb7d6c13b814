//! Frames: one level of a calling context, whatever language it is written in.
//!
//! Owns: what a frame is, its kind and its role; its text is in [`label`]. Because: every view and every export must
//! call the same thing by the same name. Does not: decide what to show; that is [`crate::context::selection`].

mod label;
mod probing;
mod short;
mod spinning;
mod worker;

use std::num::NonZeroU32;

pub use label::{clean, is_printable};
pub use probing::{PROBE_BEGINNINGS, is_probe};
pub use short::{layer_within, short_labels};
pub use spinning::{SpinPart, SpinState, is_spinning};
pub use worker::WorkerKind;

use crate::intern::StrId;

/// Name of the operator frame between an operator and its backward pass.
pub const BACKWARD: &str = "[backward]";

/// Label of the box with threads that spin while no call waits for them.
pub const SPINNING: &str = "[spinning]";

/// Name of the frame that stands for the stacks of the profiler's own processes.
pub const OWN_WORK: &str = "[profiler's own work]";

/// Label of the box with the kernel frames of a probe.
pub const PROBES: &str = "[probes]";

/// A source line, counted from 1; `None` when unknown.
pub type Line = Option<NonZeroU32>;

/// One level of a calling context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// The root of every tree.
    Root,
    /// Contexts below one node that were refused because the tree was full.
    TreeFull,
    /// A frame that was refused because the table was full.
    TableFull,
    /// A process.
    Process {
        /// Its name (`comm`).
        comm: StrId,
        /// Its id, as the profiler sees it.
        pid: u32,
    },
    /// A thread.
    Thread {
        /// Its name (`comm`).
        name: StrId,
        /// Its id, as the profiler sees it.
        tid: u32,
    },
    /// A Python function.
    Python {
        /// Qualified name (`Model.forward`).
        function: StrId,
        /// Path of the source file as the code object has it.
        file: StrId,
        /// Line being executed.
        line: Line,
        /// Line of the definition.
        first_line: Line,
        /// Its role in its stack.
        role: Role,
    },
    /// Native code with a name.
    Native {
        /// Demangled symbol.
        symbol: StrId,
        /// Path of the executable or library; empty when unknown.
        module: StrId,
        /// Path of the source file; empty when unknown.
        file: StrId,
        /// Line being executed.
        line: Line,
        /// Whether the compiler inlined it into the frame above.
        inlined: bool,
        /// Its role in the stack.
        role: Role,
    },
    /// Native code without a name.
    NativeUnnamed {
        /// Path of the executable or library; empty when unknown.
        module: StrId,
        /// Address in the file `module`, or in the process if the module is unknown.
        offset: u64,
        /// Key of the reason.
        reason: StrId,
        /// Its role in the stack.
        role: Role,
    },
    /// Kernel code with a name.
    Kernel {
        /// Symbol.
        symbol: StrId,
    },
    /// Kernel code without a name. Its address is not kept: it would reveal the layout of the kernel.
    KernelUnnamed {
        /// Key of the reason.
        reason: StrId,
    },
    /// A framework operator (`aten::addmm`).
    Operator {
        /// Its name.
        name: StrId,
    },
    /// A named range of the program (`record_function("…")`), below the function that entered it.
    Range {
        /// Its name.
        name: StrId,
    },
    /// A layer of a model: the call of a module object (`GPT.h.3.attn (Attention)`).
    Layer {
        /// Qualified name, starting with the outermost module, which is named by its class; empty if unknown.
        path: StrId,
        /// Name of the class; empty when unknown.
        class: StrId,
    },
    /// A call of a GPU API (`cuLaunchKernel`).
    GpuApi {
        /// Its name.
        name: StrId,
    },
    /// A kernel on a GPU.
    GpuKernel {
        /// Demangled name.
        name: StrId,
    },
    /// An instruction of a kernel, below the kernel.
    Instruction {
        /// Demangled name of the kernel, or of the function that it called.
        kernel: StrId,
        /// Bytes from the begin of the function.
        offset: u64,
        /// Path of the source file; empty when unknown.
        file: StrId,
        /// Its source line.
        line: Line,
    },
    /// The stream of a device that ran the work below it, between the call and the kernel. Shown only when grouping by
    /// device or stream, and then below the process.
    Stream {
        /// Number of the device.
        device: u32,
        /// Number of the stream; `None` for all of the device's.
        stream: Option<u32>,
        /// Which device that is: [`crate::device::Device::label`]; empty when unknown.
        name: StrId,
    },
    /// A part of the machine (`cpu 3`, `disk sda`), below the machine itself: its use by all programs.
    Resource {
        /// Its name.
        name: StrId,
    },
    /// The wait reason of a thread, at the leaf of its stack.
    Wait {
        /// A short text.
        reason: StrId,
    },
    /// A place in the stack that could not be resolved.
    Unresolved {
        /// Key of the reason.
        reason: StrId,
        /// Kind of code at that place.
        origin: Origin,
    },
}

/// Kind of code of a frame: determines its color and its letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKind {
    /// The root of the tree.
    #[default]
    Root,
    /// A process (`comm-pid`).
    Process,
    /// A thread, or a part of the machine.
    Thread,
    /// A Python function.
    Python,
    /// A framework operator (`aten::addmm`).
    Operator,
    /// A layer of a model (`GPT.h.0 (Block)`).
    Layer,
    /// Native code in user space.
    Native,
    /// Kernel code.
    Kernel,
    /// A GPU API call.
    GpuApi,
    /// A GPU kernel.
    GpuKernel,
    /// Could not be resolved; the label is the reason.
    Unresolved,
}

impl FrameKind {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Process => "process",
            Self::Thread => "thread",
            Self::Python => "python",
            Self::Operator => "operator",
            Self::Layer => "layer",
            Self::Native => "native",
            Self::Kernel => "kernel",
            Self::GpuApi => "gpu-api",
            Self::GpuKernel => "gpu-kernel",
            Self::Unresolved => "unresolved",
        }
    }

    /// Background of its boxes, as red, green and blue: light enough for dark text, and equally distinct for
    /// color-blind readers.
    pub const fn color(self) -> [u8; 3] {
        match self {
            Self::Root => [222, 220, 214],
            Self::Process => [214, 210, 198],
            Self::Thread => [204, 202, 186],
            Self::Python => [205, 213, 255],
            Self::Operator => [203, 171, 255],
            Self::Layer => [255, 255, 104],
            Self::Native => [255, 168, 33],
            Self::Kernel => [255, 175, 160],
            Self::GpuApi => [255, 255, 238],
            Self::GpuKernel => [160, 196, 89],
            Self::Unresolved => [190, 190, 190],
        }
    }

    /// Whether such a frame is, or may be, a call of the program that its callees run for: Python code, a layer or an
    /// operator.
    pub(crate) fn names_a_caller(self) -> bool {
        matches!(self, Self::Python | Self::Layer | Self::Operator | Self::GpuApi | Self::Unresolved)
    }

    /// Every kind, from the root of a stack towards its leaf: the order of legends, and of numbers in files.
    pub const ALL: [FrameKind; 11] = [
        FrameKind::Root,
        FrameKind::Process,
        FrameKind::Thread,
        FrameKind::Python,
        FrameKind::Layer,
        FrameKind::Operator,
        FrameKind::Native,
        FrameKind::Kernel,
        FrameKind::GpuApi,
        FrameKind::GpuKernel,
        FrameKind::Unresolved,
    ];
}

/// The role of a frame in its stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Ordinary code.
    #[default]
    Code,
    /// An interpreter's internal frame (its evaluation loop), which the Python frames beside it already represent. Set
    /// only next to such a Python frame, so that hiding it hides nothing.
    Interpreter,
    /// A framework's dispatch from an operator or a layer to the code that does its work, which the frame above it
    /// already represents.
    Dispatch,
}

/// Kind of code of an unresolved frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// User-space native code.
    #[default]
    Native,
    /// Python code.
    Python,
    /// Kernel code.
    Kernel,
    /// Code on a GPU.
    Gpu,
}

impl Frame {
    /// In place of an id: all processes, or threads, of that name without their own context.
    pub const OTHERS: u32 = u32::MAX;

    /// Kind of frame: its color and its letter.
    pub fn kind(&self) -> FrameKind {
        match self {
            Frame::Root => FrameKind::Root,
            Frame::Process { .. } => FrameKind::Process,
            Frame::Thread { .. } | Frame::Resource { .. } => FrameKind::Thread,
            Frame::Python { .. } => FrameKind::Python,
            Frame::Native { .. } | Frame::NativeUnnamed { .. } => FrameKind::Native,
            Frame::Kernel { .. } | Frame::KernelUnnamed { .. } | Frame::Wait { .. } => FrameKind::Kernel,
            Frame::Operator { .. } | Frame::Range { .. } => FrameKind::Operator,
            Frame::Layer { .. } => FrameKind::Layer,
            Frame::GpuApi { .. } | Frame::Stream { .. } => FrameKind::GpuApi,
            Frame::GpuKernel { .. } | Frame::Instruction { .. } => FrameKind::GpuKernel,
            Frame::TreeFull | Frame::TableFull | Frame::Unresolved { .. } => FrameKind::Unresolved,
        }
    }

    /// The role of code in its stack; other frames are ordinary code.
    pub fn role(&self) -> Role {
        match self {
            Frame::Python { role, .. } | Frame::Native { role, .. } | Frame::NativeUnnamed { role, .. } => {
                *role
            }
            _ => Role::Code,
        }
    }

    /// Whether this is an interpreter's internal frame, which views may fold into the Python frame beside it.
    pub fn is_interpreter(&self) -> bool {
        self.role() == Role::Interpreter
    }

    /// Source file and line, if both are known. Without `lines`, a Python function is located at its definition.
    pub fn source(&self, lines: bool) -> Option<(StrId, u32)> {
        let (file, line) = match *self {
            Frame::Python { file, line, first_line, .. } => {
                (file, if lines { line.or(first_line) } else { first_line.or(line) })
            }
            Frame::Native { file, line, .. } | Frame::Instruction { file, line, .. } => (file, line),
            _ => return None,
        };
        line.filter(|_| file != StrId::EMPTY).map(|line| (file, line.get()))
    }

    /// Source file, and the current line if known; `None` without source.
    pub fn source_file(&self) -> Option<(StrId, Line)> {
        match *self {
            Frame::Python { file, line, .. }
            | Frame::Native { file, line, .. }
            | Frame::Instruction { file, line, .. }
                if file != StrId::EMPTY =>
            {
                Some((file, line))
            }
            _ => None,
        }
    }

    /// The same frame with its texts in another table.
    #[must_use]
    pub fn map_texts(mut self, mut map: impl FnMut(StrId) -> StrId) -> Frame {
        match &mut self {
            Frame::Root | Frame::TreeFull | Frame::TableFull => {}
            Frame::Stream { name: text, .. } => *text = map(*text),
            Frame::Process { comm: text, .. }
            | Frame::Thread { name: text, .. }
            | Frame::Kernel { symbol: text }
            | Frame::KernelUnnamed { reason: text }
            | Frame::Operator { name: text }
            | Frame::Range { name: text }
            | Frame::GpuApi { name: text }
            | Frame::GpuKernel { name: text }
            | Frame::Resource { name: text }
            | Frame::Wait { reason: text }
            | Frame::Unresolved { reason: text, .. } => *text = map(*text),
            Frame::Python { function: a, file: b, .. }
            | Frame::Layer { path: a, class: b }
            | Frame::NativeUnnamed { module: a, reason: b, .. } => {
                (*a, *b) = (map(*a), map(*b));
            }
            Frame::Native { symbol, module, file, .. } => {
                (*symbol, *module, *file) = (map(*symbol), map(*module), map(*file));
            }
            Frame::Instruction { kernel, file, .. } => (*kernel, *file) = (map(*kernel), map(*file)),
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_takes_at_most_24_bytes() {
        assert!(size_of::<Frame>() <= 24);
    }
}
