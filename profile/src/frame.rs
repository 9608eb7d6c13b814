//! Frames: one step of a calling context, whatever language it is written in.
//!
//! Owns: what a frame is, its kind, and its text. Because: every view and every export must call the same thing by
//! the same name. Does not: decide what to show; that is `view`.
//!
//! | frame | text |
//! |---|---|
//! | process | `comm-pid` |
//! | thread | `name/tid` |
//! | Python | `module.py:function`, with lines `module.py:function:line` |
//! | native | `symbol`, with lines `symbol (file.c:line)` |
//! | native without a name | `library+0xoffset`, or `[unknown: reason]` when the library is unknown too |
//! | kernel | `symbol_[k]`, or `[unknown: reason]_[k]` |
//! | operator, GPU API | its name |
//! | layer | `path (Class)`; `Class` for the outermost, `(Class)` where the path is not known |
//! | GPU kernel | `[gpu] name` |
//! | instruction | `kernel+0xoffset`, with lines `kernel+0xoffset (file.cu:line)` |
//! | stream | `[device 0, stream 7]`, or `[device 0]`; where the device was told, `[device 0 H200 GPU-1234abcd, stream 7]` |
//! | wait | `[off-cpu: reason]` |
//! | unresolved | `[unknown: reason]` |
//!
//! `;` separates frames in folded output, so it becomes `:` in every text; control characters become `?`, since a
//! name from another process may hold terminal sequences.

use std::num::NonZeroU32;

pub use crate::snapshot::FrameKind;
use crate::strings::{StrId, Strings};

/// A source line, counted from 1; `None` when unknown.
pub type Line = Option<NonZeroU32>;

/// One step of a calling context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// The root of every tree.
    Root,
    /// All contexts below one node that came after the tree was full.
    TreeFull,
    /// A frame that came after the frame table was full.
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
        /// What the function does for the stack: a framework's own way to what it calls is [`Role::Dispatch`].
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
        /// What the code does for the stack.
        role: Role,
    },
    /// Native code without a name.
    NativeUnnamed {
        /// Path of the executable or library; empty when unknown.
        module: StrId,
        /// Address as the file of `module` counts them, or the plain address when the module is unknown.
        offset: u64,
        /// Key of the reason.
        reason: StrId,
        /// What the code does for the stack.
        role: Role,
    },
    /// Kernel code with a name.
    Kernel {
        /// Symbol.
        symbol: StrId,
    },
    /// Kernel code without a name. Its address is not kept: it would give the kernel's layout away.
    KernelUnnamed {
        /// Key of the reason.
        reason: StrId,
    },
    /// A framework operator (`aten::addmm`).
    Operator {
        /// Its name.
        name: StrId,
    },
    /// A named range of the program (`record_function("…")`), behind the function that entered it.
    Range {
        /// Its name.
        name: StrId,
    },
    /// A layer of a model: the call of a module object (`GPT.h.3.attn (Attention)`).
    Layer {
        /// Qualified name, from the outermost module on, which stands with its class; empty when unknown.
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
        /// Line that it was made of.
        line: Line,
    },
    /// The stream of a device that ran what is below, between the call and the kernel. Only grouping by device or stream
    /// shows it, and not there but below the process.
    Stream {
        /// Number of the device.
        device: u32,
        /// Number of the stream; `None` for all of the device's.
        stream: Option<u32>,
        /// Which device that is: [`crate::device::Device::label`]; empty when it was not told.
        name: StrId,
    },
    /// What a thread waited for, at the leaf of its stack.
    Wait {
        /// In a few words.
        reason: StrId,
    },
    /// A place in the stack that could not be resolved.
    Unresolved {
        /// Key of the reason.
        reason: StrId,
        /// What kind of code stood there.
        origin: Origin,
    },
}

/// What code does for the stack it stands in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Ordinary code.
    #[default]
    Code,
    /// An interpreter's own frame (its evaluation loop), whose meaning the Python frames beside it already tell.
    /// To be set only where such a Python frame stands, so that hiding it hides nothing.
    Interpreter,
    /// A framework's way from an operator or a layer to the code that does its work, whose meaning the frame above it
    /// tells.
    Dispatch,
}

/// What kind of code an unresolved frame stands for.
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
    /// Kind of frame: its colour and its letter.
    pub fn kind(&self) -> FrameKind {
        match self {
            Frame::Root => FrameKind::Root,
            Frame::Process { .. } => FrameKind::Process,
            Frame::Thread { .. } => FrameKind::Thread,
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

    /// What code does for its stack; any other frame is ordinary code.
    pub fn role(&self) -> Role {
        match self {
            Frame::Python { role, .. } | Frame::Native { role, .. } | Frame::NativeUnnamed { role, .. } => {
                *role
            }
            _ => Role::Code,
        }
    }

    /// Whether this is an interpreter's own frame, which views may fold into the Python frame beside it.
    pub fn is_interpreter(&self) -> bool {
        self.role() == Role::Interpreter
    }

    /// Source file and line, when both are known. Without `lines`, a Python function is where it is defined.
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

    /// Source file, and the line that runs if it is known; `None` for what has no source.
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

    /// The text of the frame (see the module), with the current line where `lines` asks for it and it is known.
    pub fn label(&self, strings: &Strings, lines: bool) -> String {
        let mut text = String::new();
        self.write_label(strings, lines, &mut text);
        text
    }

    /// Appends [`Frame::label`] to `out`.
    pub fn write_label(&self, strings: &Strings, lines: bool, out: &mut String) {
        let name = |id| match strings.get(id) {
            blank if blank.trim().is_empty() => "[unknown: no-name]",
            name => name,
        };
        let mut put = |part: &str| push_clean(out, part);
        match *self {
            Frame::Root => put("all"),
            Frame::TreeFull => put("[tree full]"),
            Frame::TableFull => put("[frames full]"),
            Frame::Process { comm, pid } => {
                put(name(comm));
                put(&format!("-{pid}"));
            }
            Frame::Thread { name: comm, tid } => {
                put(name(comm));
                put(&format!("/{tid}"));
            }
            Frame::Python { function, file, line, .. } => {
                let file = module_file(strings.get(file));
                if !file.is_empty() {
                    put(file);
                    put(":");
                }
                put(name(function));
                if let (true, Some(line)) = (lines, line) {
                    put(&format!(":{line}"));
                }
            }
            Frame::Native { symbol, file, line, .. } => {
                put(name(symbol));
                let file = base_name(strings.get(file));
                if let (true, Some(line), false) = (lines, line, file.is_empty()) {
                    put(&format!(" ({file}:{line})"));
                }
            }
            Frame::NativeUnnamed { module, offset, reason, .. } => {
                let module = base_name(strings.get(module));
                if module.is_empty() {
                    put_unknown(&mut put, strings.get(reason));
                } else {
                    put(module);
                    put(&format!("+{offset:#x}"));
                }
            }
            Frame::Kernel { symbol } => {
                put(name(symbol));
                put("_[k]");
            }
            Frame::KernelUnnamed { reason } | Frame::Unresolved { reason, origin: Origin::Kernel } => {
                put_unknown(&mut put, strings.get(reason));
                put("_[k]");
            }
            Frame::Wait { reason } => {
                put("[off-cpu: ");
                put(name(reason));
                put("]");
            }
            Frame::Operator { name: id } | Frame::GpuApi { name: id } => put(name(id)),
            Frame::Range { name: id } => {
                put("[range] ");
                put(name(id));
            }
            Frame::Layer { path, class } => {
                let (path, class) = (strings.get(path), strings.get(class));
                if !path.is_empty() || class.is_empty() {
                    put(if path.is_empty() { "[unknown: no-name]" } else { path });
                }
                // One of several outermost modules of a class is `GPT#2`.
                let says_class = path
                    .strip_prefix(class)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('#') && !rest.contains('.'));
                if !class.is_empty() && !says_class {
                    put(if path.is_empty() { "(" } else { " (" });
                    put(class);
                    put(")");
                }
            }
            Frame::GpuKernel { name: id } => {
                put("[gpu] ");
                put(name(id));
            }
            Frame::Instruction { kernel, offset, file, line } => {
                put(name(kernel));
                put(&format!("+{offset:#x}"));
                let file = base_name(strings.get(file));
                if let (true, Some(line), false) = (lines, line, file.is_empty()) {
                    put(&format!(" ({file}:{line})"));
                }
            }
            Frame::Stream { device, stream, name: which } => {
                put(&format!("[device {device}"));
                if which != StrId::EMPTY {
                    put(" ");
                    put(name(which));
                }
                if let Some(stream) = stream {
                    put(&format!(", stream {stream}"));
                }
                put("]");
            }
            Frame::Unresolved { reason, .. } => put_unknown(&mut put, strings.get(reason)),
        }
    }

    /// Where the frame is: file and line for source, else the module, else the reason; empty when there is none.
    ///
    /// Without `lines` a Python function is where it is defined, so that it is one place whatever line runs.
    pub fn detail(&self, strings: &Strings, lines: bool) -> String {
        let mut text = String::new();
        let (place, line) = match *self {
            Frame::Python { file, line, first_line, .. } => {
                (file, if lines { line.or(first_line) } else { first_line })
            }
            Frame::Native { file, line: line @ Some(_), .. } if lines && file != StrId::EMPTY => (file, line),
            // An instruction is of one line, whatever else is shown without lines.
            Frame::Instruction { file, line, .. } => (file, line),
            Frame::Native { module, .. } => (module, None),
            Frame::NativeUnnamed { module, offset, .. } if module == StrId::EMPTY => {
                return format!("{offset:#x}");
            }
            Frame::NativeUnnamed { module, .. } => (module, None),
            _ => (StrId::EMPTY, None),
        };
        push_clean(&mut text, strings.get(place));
        if let (Some(line), false) = (line, text.is_empty()) {
            text.push_str(&format!(":{line}"));
        }
        text
    }
}

fn put_unknown(put: &mut impl FnMut(&str), reason: &str) {
    put("[unknown: ");
    put(if reason.is_empty() { "no-reason" } else { reason });
    put("]");
}

/// `text` without control characters and `;`, which are replaced as in frames.
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push_clean(&mut out, text);
    out
}

/// Appends `part` with `;` and control characters replaced.
fn push_clean(out: &mut String, part: &str) {
    if part.bytes().all(|b| b != b';' && matches!(b, b' '..=b'~')) {
        out.push_str(part);
        return;
    }
    out.extend(part.chars().map(|c| match c {
        ';' => ':',
        c if c.is_control() => '?',
        c => c,
    }));
}

/// Last part of a path, without the kernel's ` (deleted)`.
fn base_name(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

/// Last part of a Python file's path; with its folder where the name alone says nothing (`json/__init__.py`).
fn module_file(path: &str) -> &str {
    let name = base_name(path);
    if !matches!(name, "__init__.py" | "__main__.py") {
        return name;
    }
    let folder = path[..path.len() - name.len()].trim_end_matches('/');
    &path[folder.rfind('/').map_or(0, |slash| slash + 1)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_has_the_text_that_the_table_promises() {
        let mut strings = Strings::new(usize::MAX);
        let mut s = |text: &str| strings.intern(text);
        let line = NonZeroU32::new;
        let python = |function, file| Frame::Python {
            function,
            file,
            line: line(7),
            first_line: line(3),
            role: Role::Code,
        };
        let native = |symbol, module, file, line| Frame::Native {
            symbol,
            module,
            file,
            line,
            inlined: false,
            role: Role::Code,
        };
        let unnamed =
            |module, reason| Frame::NativeUnnamed { module, offset: 0x1f3a, reason, role: Role::Code };
        // Frame, text, text with lines, place, place with lines.
        let cases = [
            (Frame::Root, "all", "all", "", ""),
            (Frame::Process { comm: s("python3"), pid: 4711 }, "python3-4711", "python3-4711", "", ""),
            (Frame::Thread { name: s("pt_data;1"), tid: 9 }, "pt_data:1/9", "pt_data:1/9", "", ""),
            (
                python(s("Model.forward"), s("/srv/app/model.py")),
                "model.py:Model.forward",
                "model.py:Model.forward:7",
                "/srv/app/model.py:3",
                "/srv/app/model.py:7",
            ),
            (
                python(s("loads"), s("/usr/lib/python3.11/json/__init__.py")),
                "json/__init__.py:loads",
                "json/__init__.py:loads:7",
                "/usr/lib/python3.11/json/__init__.py:3",
                "/usr/lib/python3.11/json/__init__.py:7",
            ),
            (
                python(s("f"), s("__main__.py")),
                "__main__.py:f",
                "__main__.py:f:7",
                "__main__.py:3",
                "__main__.py:7",
            ),
            (python(s("f"), s("")), "f", "f:7", "", ""),
            (
                native(
                    s("at::native::add(at::Tensor const&)"),
                    s("/l/libtorch_cpu.so"),
                    s("/src/Add.cpp"),
                    line(12),
                ),
                "at::native::add(at::Tensor const&)",
                "at::native::add(at::Tensor const&) (Add.cpp:12)",
                "/l/libtorch_cpu.so",
                "/src/Add.cpp:12",
            ),
            (
                native(s("memcpy"), s("/lib/libc.so.6"), s(""), None),
                "memcpy",
                "memcpy",
                "/lib/libc.so.6",
                "/lib/libc.so.6",
            ),
            (
                unnamed(s("/opt/x/libz.so (deleted)"), s("stripped")),
                "libz.so+0x1f3a",
                "libz.so+0x1f3a",
                "/opt/x/libz.so (deleted)",
                "/opt/x/libz.so (deleted)",
            ),
            (
                unnamed(s(""), s("no-mapping")),
                "[unknown: no-mapping]",
                "[unknown: no-mapping]",
                "0x1f3a",
                "0x1f3a",
            ),
            (unnamed(s(""), s("")), "[unknown: no-reason]", "[unknown: no-reason]", "0x1f3a", "0x1f3a"),
            (Frame::Kernel { symbol: s("do_syscall_64") }, "do_syscall_64_[k]", "do_syscall_64_[k]", "", ""),
            (
                Frame::KernelUnnamed { reason: s("no-kallsyms") },
                "[unknown: no-kallsyms]_[k]",
                "[unknown: no-kallsyms]_[k]",
                "",
                "",
            ),
            (Frame::Kernel { symbol: s("") }, "[unknown: no-name]_[k]", "[unknown: no-name]_[k]", "", ""),
            (Frame::Operator { name: s(" ") }, "[unknown: no-name]", "[unknown: no-name]", "", ""),
            (Frame::Operator { name: s("aten::addmm") }, "aten::addmm", "aten::addmm", "", ""),
            (Frame::Range { name: s("epoch 1") }, "[range] epoch 1", "[range] epoch 1", "", ""),
            (
                Frame::Layer { path: s("GPT.h.0"), class: s("Block") },
                "GPT.h.0 (Block)",
                "GPT.h.0 (Block)",
                "",
                "",
            ),
            (Frame::Layer { path: s("GPT"), class: s("GPT") }, "GPT", "GPT", "", ""),
            (Frame::Layer { path: s("GPT#2"), class: s("GPT") }, "GPT#2", "GPT#2", "", ""),
            (Frame::Layer { path: s("GPT#2.h"), class: s("GPT") }, "GPT#2.h (GPT)", "GPT#2.h (GPT)", "", ""),
            (Frame::Layer { path: s(""), class: s("ReLU") }, "(ReLU)", "(ReLU)", "", ""),
            (Frame::Layer { path: s("GPT.h"), class: s("") }, "GPT.h", "GPT.h", "", ""),
            (Frame::Layer { path: s(""), class: s("") }, "[unknown: no-name]", "[unknown: no-name]", "", ""),
            (Frame::GpuApi { name: s("cuLaunchKernel") }, "cuLaunchKernel", "cuLaunchKernel", "", ""),
            (Frame::GpuKernel { name: s("gemm<float>") }, "[gpu] gemm<float>", "[gpu] gemm<float>", "", ""),
            (
                Frame::Instruction {
                    kernel: s("gemm"),
                    offset: 0x120,
                    file: s("/src/gemm.cu"),
                    line: line(57),
                },
                "gemm+0x120",
                "gemm+0x120 (gemm.cu:57)",
                "/src/gemm.cu:57",
                "/src/gemm.cu:57",
            ),
            (
                Frame::Instruction { kernel: s("gemm"), offset: 0x120, file: StrId::EMPTY, line: None },
                "gemm+0x120",
                "gemm+0x120",
                "",
                "",
            ),
            (
                Frame::Unresolved { reason: s("code-changed"), origin: Origin::Python },
                "[unknown: code-changed]",
                "[unknown: code-changed]",
                "",
                "",
            ),
            (
                Frame::Operator { name: s("evil\x1b[2J;\nname\u{9b}é") },
                "evil?[2J:?name?é",
                "evil?[2J:?name?é",
                "",
                "",
            ),
        ];
        for (frame, text, text_lines, place, place_lines) in cases {
            assert_eq!(frame.label(&strings, false), text);
            assert_eq!(frame.label(&strings, true), text_lines);
            assert_eq!(frame.detail(&strings, false), place);
            assert_eq!(frame.detail(&strings, true), place_lines);
        }
    }

    #[test]
    fn frames_stay_small_since_there_are_millions() {
        assert!(size_of::<Frame>() <= 24);
    }
}
