//! Labels: the text of a frame, and where it is.
//!
//! Owns: [`Frame::label`], [`Frame::detail`]. Because: every view and every export must call the same thing by the
//! same name. Does not: shorten texts to fit a screen.
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
//! | stream | `[device 0, stream 7]`, or `[device 0]`; where the device is known, `[device 0 H200 GPU-1234abcd, stream 7]` |
//! | wait | `[off-cpu: reason]` |
//! | unresolved | `[unknown: reason]` |
//!
//! `;` separates frames in folded output, so it becomes `:` in every text; control characters become `?`, since a
//! name from another process may hold terminal sequences.

use std::fmt::{self, Write as _};

use super::{Frame, Line, Origin};
use crate::intern::{StrId, Strings};

impl Frame {
    /// The text of the frame (see the module), with the current line if `lines` is set and it is known.
    pub fn label(&self, strings: &Strings, lines: bool) -> String {
        let mut text = String::new();
        self.write_label(strings, lines, &mut text);
        text
    }

    /// Appends [`Frame::label`] to `out`.
    pub fn write_label(&self, strings: &Strings, lines: bool, out: &mut String) {
        let mut label = Label { strings, lines, out };
        match *self {
            Frame::Root => label.put("all"),
            Frame::TreeFull => label.put("[tree full]"),
            Frame::TableFull => label.put("[frames full]"),
            Frame::Process { comm, pid: Frame::OTHERS } => label.with(comm, format_args!("-[others]")),
            Frame::Process { comm, pid } => label.with(comm, format_args!("-{pid}")),
            Frame::Thread { name, tid: Frame::OTHERS } => label.with(name, format_args!("/[others]")),
            Frame::Thread { name, tid } => label.with(name, format_args!("/{tid}")),
            Frame::Python { function, file, line, .. } => label.python(function, file, line),
            Frame::Native { symbol, file, line, .. } => {
                label.name(symbol);
                label.place(file, line);
            }
            Frame::NativeUnnamed { module, offset, reason, .. } => label.offset(module, offset, reason),
            Frame::Kernel { symbol } => label.with(symbol, format_args!("_[k]")),
            Frame::KernelUnnamed { reason } | Frame::Unresolved { reason, origin: Origin::Kernel } => {
                label.unknown(reason);
                label.put("_[k]");
            }
            Frame::Unresolved { reason, .. } => label.unknown(reason),
            Frame::Resource { name } => label.between("[", name, "]"),
            Frame::Wait { reason } => label.between("[off-cpu: ", reason, "]"),
            Frame::Operator { name } | Frame::GpuApi { name } => label.name(name),
            Frame::Range { name } => label.between("[range] ", name, ""),
            Frame::Layer { path, class } => label.layer(path, class),
            Frame::GpuKernel { name } => label.between("[gpu] ", name, ""),
            Frame::Instruction { kernel, offset, file, line } => {
                label.with(kernel, format_args!("+{offset:#x}"));
                label.place(file, line);
            }
            Frame::Stream { device, stream, name } => label.stream(device, stream, name),
        }
    }

    /// Where the frame is: file and line for source, else the module, else the reason; empty if there is none.
    ///
    /// Without `lines` a Python function is located at its definition, so that it is one place whatever line runs.
    pub fn detail(&self, strings: &Strings, lines: bool) -> String {
        let mut text = String::new();
        let (place, line) = match *self {
            Frame::Python { file, line, first_line, .. } => {
                (file, if lines { line.or(first_line) } else { first_line })
            }
            Frame::Native { file, line: line @ Some(_), .. } if lines && file != StrId::EMPTY => (file, line),
            // An instruction belongs to one line, even without `lines`.
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

/// Text of a blank name.
const NO_NAME: &str = "[unknown: no-name]";

/// Writes the label of a frame, part by part.
struct Label<'a> {
    strings: &'a Strings,
    lines: bool,
    out: &'a mut String,
}

impl Label<'_> {
    fn put(&mut self, part: &str) {
        push_clean(self.out, part);
    }

    /// Numbers and signs of our own, which need no cleaning.
    fn put_number(&mut self, number: fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(number);
    }

    fn name(&mut self, name: StrId) {
        match self.strings.get(name) {
            blank if blank.trim().is_empty() => self.put(NO_NAME),
            name => push_clean(self.out, name),
        }
    }

    fn with(&mut self, name: StrId, suffix: fmt::Arguments<'_>) {
        self.name(name);
        self.put_number(suffix);
    }

    fn between(&mut self, before: &str, name: StrId, after: &str) {
        self.put(before);
        self.name(name);
        self.put(after);
    }

    fn unknown(&mut self, reason: StrId) {
        self.put("[unknown: ");
        match self.strings.get(reason) {
            "" => self.put("no-reason"),
            reason => push_clean(self.out, reason),
        }
        self.put("]");
    }

    fn python(&mut self, function: StrId, file: StrId, line: Line) {
        let file = module_file(self.strings.get(file));
        if !file.is_empty() {
            push_clean(self.out, file);
            self.put(":");
        }
        self.name(function);
        if let (true, Some(line)) = (self.lines, line) {
            self.put_number(format_args!(":{line}"));
        }
    }

    /// The source line in brackets, if requested and known.
    fn place(&mut self, file: StrId, line: Line) {
        let file = base_name(self.strings.get(file));
        if let (true, Some(line), false) = (self.lines, line, file.is_empty()) {
            self.put(" (");
            push_clean(self.out, file);
            self.put_number(format_args!(":{line})"));
        }
    }

    fn offset(&mut self, module: StrId, offset: u64, reason: StrId) {
        let module = base_name(self.strings.get(module));
        if module.is_empty() {
            return self.unknown(reason);
        }
        push_clean(self.out, module);
        self.put_number(format_args!("+{offset:#x}"));
    }

    fn layer(&mut self, path: StrId, class: StrId) {
        let (path, class) = (self.strings.get(path), self.strings.get(class));
        if !path.is_empty() || class.is_empty() {
            push_clean(self.out, if path.is_empty() { NO_NAME } else { path });
        }
        // One of several outermost modules of a class is `GPT#2`.
        let says_class = path
            .strip_prefix(class)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('#') && !rest.contains('.'));
        if !class.is_empty() && !says_class {
            self.put(if path.is_empty() { "(" } else { " (" });
            push_clean(self.out, class);
            self.put(")");
        }
    }

    fn stream(&mut self, device: u32, stream: Option<u32>, name: StrId) {
        self.put_number(format_args!("[device {device}"));
        if name != StrId::EMPTY {
            self.put(" ");
            self.name(name);
        }
        if let Some(stream) = stream {
            self.put_number(format_args!(", stream {stream}"));
        }
        self.put("]");
    }
}

/// `text` without control characters and `;`, which are replaced as in frames.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push_clean(&mut out, text);
    out
}

/// Whether a character of a foreign text may be printed: neither a control character nor one that reorders text.
pub fn is_printable(c: char) -> bool {
    !c.is_control() && !is_reordering(c)
}

/// Whether a character can reorder or break the line that it is printed in: `Bidi_Control` of Unicode (UAX #9), and its
/// line and paragraph separators.
fn is_reordering(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Appends `part` with `;`, control characters and those that reorder text replaced.
fn push_clean(out: &mut String, part: &str) {
    if part.bytes().all(|b| b != b';' && matches!(b, b' '..=b'~')) {
        out.push_str(part);
        return;
    }
    out.extend(part.chars().map(|c| match c {
        ';' => ':',
        c if is_printable(c) => c,
        _ => '?',
    }));
}

/// Last part of a path, without the kernel's ` (deleted)`.
fn base_name(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

/// Last part of a Python file's path; with its folder where the name alone is not specific (`json/__init__.py`).
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
    use std::num::NonZeroU32;

    use super::*;
    use crate::frame::Role;

    #[test]
    fn text_that_harms_its_reader_is_replaced() {
        let check = |text: &str, expect: &str| assert_eq!(clean(text), expect, "{text:?}");
        check("gemm<float>(int)", "gemm<float>(int)");
        check("größe 張", "größe 張");
        check("a;b", "a:b");
        check("\u{1b}[2Jgone\n", "?[2Jgone?");
        check("pay\u{202e}gpj.exe\u{2069}", "pay?gpj.exe?");
        check("two\u{2028}lines \u{200f}\u{61c}", "two?lines ??");
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of inputs and what is expected of them")]
    fn frames_have_the_texts_of_the_table() {
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
            (Frame::Process { comm: s("cc1"), pid: Frame::OTHERS }, "cc1-[others]", "cc1-[others]", "", ""),
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
}
