//! Finding the interpreter of a process: its version, its evaluation loop, and where threads keep their thread states.
//!
//! Owns: the order of the search, and the reasons why there is no interpreter. Because: an interpreter may be the
//! executable, a library, embedded or stripped; symbols identify it, file names do not. Does not: list mappings or
//! open files; the caller passes them, the most likely ones first.

use std::fmt;

use deepctx_common::python::{EVAL_RANGES, NO_FIELD, PythonProcess, thread_state};
use deepctx_common::reasons;
use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};
use object::ReadRef;

use super::debug_offsets::{self, DebugOffsets};
use super::elf::{Elf, Symbol};
use super::eval_ranges::eval_ranges;
use super::layout::{Layout, OLDEST_MINOR};
use super::prologue::{enters_generated_code, generated_code_returns, unset_cframe};
use super::thread_slot::{self, BoundState, Resolution, Slot};
use crate::memory::{ReadError, TargetMemory};

/// One executable mapping of a file, with the file's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Module<R> {
    /// First address of the mapping in the process.
    pub begin: u64,
    /// Offset in the file of its first byte.
    pub file_offset: u64,
    /// It is the program itself: examined even when it exports nothing.
    pub is_program: bool,
    /// The whole file; only the needed parts are read.
    pub data: R,
}

/// A CPython interpreter in a process.
#[derive(Clone, Debug)]
pub struct Interpreter {
    /// For the BPF map entry of the process.
    pub process: PythonProcess,
    /// Field offsets of this version.
    pub layout: &'static Layout,
    /// Major, minor and micro version.
    pub version: [u8; 3],
    /// How the version was determined.
    pub version_source: VersionSource,
    /// How the slot of the thread state was determined.
    pub slot_source: SlotSource,
    /// Address of `_PyRuntime` in the process.
    pub runtime: u64,
    /// Address of `PyCode_Type` in the process.
    pub code_type: u64,
    /// Parts of the evaluation loop beyond [`EVAL_RANGES`]: frames in them are missed.
    pub eval_parts_left_out: u32,
}

/// How the version was determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionSource {
    /// The constant `Py_Version` (3.11+).
    Constant,
    /// The text that `Py_GetVersion` formats.
    Text,
}

/// How the slot of the bound thread state was determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotSource {
    /// By following `PyGILState_GetThisThreadState` to a key, and `pthread_getspecific` to its slot.
    Followed,
    /// As above, with the key's offset from the version table.
    TableKey,
    /// A key, with the slot that glibc has used since 2.1, because this libc could not be followed.
    AssumedGlibc,
    /// A TLS variable.
    Variable,
}

/// Why a process has no interpreter that can be walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoInterpreter {
    /// No module has the symbols of an interpreter.
    NotPython,
    /// It is an interpreter, but required symbols are missing.
    NoSymbol(&'static str),
    /// Its version could not be determined.
    NoVersion,
    /// There is no layout for its version.
    UnsupportedVersion(u8, u8),
    /// The interpreter publishes another layout than its version has.
    LayoutDiffers {
        /// The field.
        field: &'static str,
        /// Offset in the version table.
        table: u64,
        /// Offset published by the process.
        process: u64,
    },
    /// From 3.13 on interpreters publish their layout; this one does not.
    NoDebugOffsets,
    /// The interpreter is not initialized yet: try again soon.
    NotInitialised,
    /// The slot of the thread state could not be determined.
    NoThreadState,
    /// Memory of the process could not be read.
    Memory(ReadError),
}

impl NoInterpreter {
    reasons! {
        class Unread, page "python-frames.md";
        /// Its key and its general sentence; [`Display`](fmt::Display) adds names and numbers.
        pub fn reason(self) {
            Self::NotPython => "interpreter-none", "no CPython interpreter in the process";
            Self::NoSymbol(_) => "interpreter-without-symbol", "the interpreter lacks a symbol that is needed";
            Self::NoVersion => "interpreter-version-unknown", "the version of the interpreter could not be determined";
            Self::UnsupportedVersion(..) => "interpreter-unsupported", "this version of CPython is not supported";
            Self::LayoutDiffers { .. } => "interpreter-layout-differs", "the interpreter has another layout than its version";
            Self::NoDebugOffsets => "interpreter-layout-unpublished",
                "the interpreter does not publish its layout as its version does";
            Self::NotInitialised => "interpreter-not-initialised", "the interpreter is not initialised yet",
                helps "it is tried again";
            Self::NoThreadState => "interpreter-without-thread-state", "the thread state could not be found";
        } or {
            Self::Memory(memory) => memory.reason();
        }
    }
}

impl fmt::Display for NoInterpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSymbol(name) => write!(f, "the interpreter has no symbol {name}"),
            Self::UnsupportedVersion(major, minor) => write!(f, "CPython {major}.{minor} is not supported"),
            Self::LayoutDiffers { field, table, process } => {
                write!(f, "the interpreter has {field} at {process}, not at {table} as its version does")
            }
            _ => self.reason().fmt(f),
        }
    }
}

impl std::error::Error for NoInterpreter {}

impl From<ReadError> for NoInterpreter {
    fn from(error: ReadError) -> Self {
        Self::Memory(error)
    }
}

impl NoInterpreter {
    /// Whether another attempt may succeed though the process maps the same files.
    pub const fn may_change(&self) -> bool {
        matches!(self, Self::NotInitialised | Self::Memory(ReadError::Unmapped)) || self.is_silence()
    }

    /// Whether memory did not answer: asking at once again is no use.
    pub const fn is_silence(&self) -> bool {
        matches!(self, Self::Memory(error) if error.is_silence())
    }
}

/// Most bytes of `Py_GetVersion` that are decoded.
const VERSION_GETTER_MAX: u64 = 256;

/// Finds the interpreter among `modules`, which contain each executable file once. The first module with an interpreter
/// decides: pass the program first, then files with "python" in their names (see [`likelihood`]), then the others.
/// Modules are taken one at a time, so the caller may open each when it is requested.
///
/// # Errors
/// The reason why there is none, or why its stacks cannot be walked.
pub fn locate<'a, R: ReadRef<'a>>(
    memory: &dyn TargetMemory,
    modules: impl IntoIterator<Item = Module<R>>,
) -> Result<Interpreter, NoInterpreter> {
    let mut libc: Option<(MappedElf<'a, R>, Symbol)> = None;
    let mut found: Option<(MappedElf<'a, R>, Symbols)> = None;
    for module in modules {
        let Some(elf) = Elf::parse(module.data) else { continue };
        let Some(bias) = elf.bias(module.begin, module.file_offset) else { continue };
        let symbols = if found.is_none() { Symbols::find(&elf, module.is_program) } else { None };
        let getspecific = if libc.is_none() { getspecific(&elf) } else { None };
        match (symbols, getspecific) {
            (Some(symbols), _) => found = Some((MappedElf { elf, bias }, symbols)),
            (None, Some(symbol)) => libc = Some((MappedElf { elf, bias }, symbol)),
            (None, None) => {}
        }
        if found.is_some() && libc.is_some() {
            break;
        }
    }
    let (placed, symbols) = found.ok_or(NoInterpreter::NotPython)?;
    // A static program contains its libc.
    let inside = libc.is_none().then(|| getspecific(&placed.elf)).flatten().map(|symbol| (&placed, symbol));
    let libc = libc.as_ref().map(|(placed, symbol)| (placed, *symbol)).or(inside);
    placed.interpreter(memory, &symbols, libc)
}

/// How likely a file is to contain an interpreter: the order in which to pass modules to [`locate`], most likely
/// first. `libc` comes early because its TLS slots are needed.
pub fn likelihood(file_name: &str, is_program: bool) -> u8 {
    let libc = ["libc.so", "libc-2", "libpthread", "ld-musl"];
    match () {
        () if is_program => 3,
        () if file_name.contains("python") => 2,
        () if libc.iter().any(|name| file_name.starts_with(name)) => 1,
        () => 0,
    }
}

fn getspecific<'a, R: ReadRef<'a>>(elf: &Elf<'a, R>) -> Option<Symbol> {
    elf.exported("pthread_getspecific").or_else(|| elf.exported("__pthread_getspecific"))
}

/// The symbols of an interpreter, as stated in its file.
#[derive(Clone, Copy, Default)]
struct Symbols {
    runtime: Option<Symbol>,
    eval: Option<Symbol>,
    code_type: Option<Symbol>,
    version: Option<Symbol>,
    version_text: Option<Symbol>,
    bound: Option<Symbol>,
    attached: Option<Symbol>,
    jit_entry: Option<Symbol>,
}

/// In the order of the fields of [`Symbols`].
const NAMES: [&str; 8] = [
    "_PyRuntime",
    "_PyEval_EvalFrameDefault",
    "PyCode_Type",
    "Py_Version",
    "Py_GetVersion",
    "PyGILState_GetThisThreadState",
    "_PyThreadState_GetCurrent",
    "_PyJIT_Entry",
];

impl Symbols {
    /// `None` when the file contains no interpreter.
    fn find<'a, R: ReadRef<'a>>(elf: &Elf<'a, R>, is_program: bool) -> Option<Self> {
        let exported = elf.exported(NAMES[0]).is_some();
        if !exported && !is_program {
            return None;
        }
        let found = if exported { NAMES.map(|name| elf.exported(name)) } else { elf.local(NAMES) };
        let [runtime, eval, code_type, version, version_text, bound, attached, jit_entry] = found;
        runtime.map(|_| Self { runtime, eval, code_type, version, version_text, bound, attached, jit_entry })
    }
}

/// Fields of [`PythonProcess`] for code that the interpreter generates.
struct GeneratedCode {
    entered: u16,
    resume: u32,
    resume_base: i32,
}

/// A file with the bias of its mapping.
struct MappedElf<'a, R: ReadRef<'a>> {
    elf: Elf<'a, R>,
    bias: u64,
}

impl<'a, R: ReadRef<'a>> MappedElf<'a, R> {
    fn interpreter(
        &self,
        memory: &dyn TargetMemory,
        symbols: &Symbols,
        libc: Option<(&Self, Symbol)>,
    ) -> Result<Interpreter, NoInterpreter> {
        let needed = |symbol: Option<Symbol>, name| symbol.ok_or(NoInterpreter::NoSymbol(name));
        let runtime_symbol = needed(symbols.runtime, NAMES[0])?;
        let eval = needed(symbols.eval, NAMES[1])?;
        let code_type = needed(symbols.code_type, NAMES[2])?.address.wrapping_add(self.bias);
        let runtime = runtime_symbol.address.wrapping_add(self.bias);

        let (version, version_source) = self.version(symbols).ok_or(NoInterpreter::NoVersion)?;
        let layout = layout_of(memory, runtime, version)?;
        let (bound, slot_source) = self.bound_slot(
            memory,
            symbols,
            layout,
            runtime..runtime.saturating_add(runtime_symbol.size.max(8)),
            libc,
        )?;
        let attached = self.attached_slot(memory, symbols, layout, runtime)?;
        let parts = eval_ranges(&self.elf, eval).ok_or(NoInterpreter::NoSymbol(NAMES[1]))?;
        let (unset, unset_length) = unset_cframe(&self.elf, eval, &layout.kernel);
        let generated = self.generated_code(memory, symbols, eval, runtime, layout);
        let mut ranges = [[0; 2]; EVAL_RANGES];
        for (range, [begin, end]) in ranges.iter_mut().zip(parts.ranges).filter(|(_, [begin, _])| *begin != 0)
        {
            *range = [begin.wrapping_add(self.bias), end.wrapping_add(self.bias)];
        }
        Ok(Interpreter {
            process: PythonProcess {
                eval: ranges,
                layout: layout.index(),
                bound_kind: bound.kind,
                attached_kind: attached.kind,
                entered: generated.entered,
                bound: bound.parameter,
                attached: attached.parameter,
                unset,
                unset_length,
                resume: generated.resume,
                resume_base: generated.resume_base,
            },
            layout,
            version,
            version_source,
            slot_source,
            runtime,
            code_type,
            eval_parts_left_out: parts.left_out,
        })
    }

    /// The slot of the attached thread state: a TLS variable (3.12+) or a global variable.
    fn attached_slot(
        &self,
        memory: &dyn TargetMemory,
        symbols: &Symbols,
        layout: &Layout,
        runtime: u64,
    ) -> Result<Slot, NoInterpreter> {
        match symbols.attached {
            Some(getter) if layout.minor >= 12 => {
                match thread_slot::tls_variable(&self.elf, getter, self.bias, memory) {
                    Resolution::Found(slot) => Ok(slot),
                    Resolution::NotYet => Err(NoInterpreter::NotInitialised),
                    Resolution::Unknown => Ok(Slot::NONE),
                }
            }
            _ if layout.user.runtime_running != NO_FIELD => Ok(Slot {
                kind: thread_state::GLOBAL,
                parameter: runtime.wrapping_add(u64::from(layout.user.runtime_running)).cast_signed(),
            }),
            _ => Ok(Slot::NONE),
        }
    }

    /// How the walker gets past code that the interpreter's JIT generates.
    fn generated_code(
        &self,
        memory: &dyn TargetMemory,
        symbols: &Symbols,
        eval: Symbol,
        runtime: u64,
        layout: &Layout,
    ) -> GeneratedCode {
        let (mut resume, resume_base) = match generates_code(memory, runtime, layout) {
            true => generated_code_returns(&self.elf, eval, &layout.kernel).unwrap_or((0, 0)),
            false => (0, 0),
        };
        let mut entered = 0;
        // This symbol exists only in builds of 3.15 that generate code.
        if let Some((returns, depth)) =
            symbols.jit_entry.and_then(|entry| enters_generated_code(&self.elf, entry))
        {
            let distance = i32::try_from(returns.wrapping_sub(eval.address).cast_signed());
            (entered, resume) = (depth, distance.map_or(0, i32::cast_unsigned));
        }
        GeneratedCode { entered, resume, resume_base }
    }

    /// `Py_Version` is `PY_VERSION_HEX`. Before 3.11: the text that looks like a version, among those whose addresses
    /// `Py_GetVersion` takes.
    fn version(&self, symbols: &Symbols) -> Option<([u8; 3], VersionSource)> {
        if let Some(bytes) = symbols.version.and_then(|symbol| self.elf.bytes_at(symbol.address, 4)) {
            let &[_, micro, minor, major] = <&[u8; 4]>::try_from(bytes).ok()?;
            return Some(([major, minor, micro], VersionSource::Constant));
        }
        let getter = symbols.version_text?;
        let text = self.elf.bytes_at(getter.address, getter.size.clamp(16, VERSION_GETTER_MAX))?;
        Decoder::with_ip(64, text, getter.address, DecoderOptions::NONE).iter().find_map(|i| {
            let address = address_taken(&i)?;
            Some((parse_version(self.elf.c_string_at(address, 32)?)?, VersionSource::Text))
        })
    }

    fn bound_slot(
        &self,
        memory: &dyn TargetMemory,
        symbols: &Symbols,
        layout: &Layout,
        runtime: std::ops::Range<u64>,
        libc: Option<(&Self, Symbol)>,
    ) -> Result<(Slot, SlotSource), NoInterpreter> {
        let mut source = SlotSource::Followed;
        let followed = symbols.bound.map_or(Resolution::Unknown, |getter| {
            thread_slot::bound(&self.elf, getter, self.bias, memory, runtime.clone())
        });
        let key = match followed {
            Resolution::Found(BoundState::Slot(slot)) => return Ok((slot, SlotSource::Variable)),
            Resolution::Found(BoundState::Key(key)) => key,
            Resolution::Found(BoundState::Tss(tss)) => read_key(memory, tss)?,
            Resolution::NotYet => return Err(NoInterpreter::NotInitialised),
            Resolution::Unknown => {
                let offset = layout.user.runtime_tss;
                if offset == NO_FIELD {
                    return Err(NoInterpreter::NoThreadState);
                }
                source = SlotSource::TableKey;
                read_key(memory, runtime.start.wrapping_add(u64::from(offset)))?
            }
        };
        let slot =
            libc.and_then(|(libc, getter)| thread_slot::of_key(&libc.elf, getter, libc.bias, memory, key));
        match (slot, Slot::of_glibc_key(key)) {
            (Some(slot), _) => Ok((slot, source)),
            (None, Some(slot)) => Ok((slot, SlotSource::AssumedGlibc)),
            (None, None) => Err(NoInterpreter::NoThreadState),
        }
    }
}

/// Whether the interpreter generates machine code that cannot be unwound by itself.
fn generates_code(memory: &dyn TargetMemory, runtime: u64, layout: &Layout) -> bool {
    let size = debug_offsets::interpreter_size(memory, runtime);
    if layout.user.interpreter_jit == 0 || size != Ok(u64::from(layout.user.interpreter_size)) {
        return false;
    }
    let main = memory.read_u64(runtime.wrapping_add(u64::from(layout.user.runtime_main)));
    let mut on = [0];
    main.is_ok_and(|main| {
        main != 0
            && memory.read(main.wrapping_add(u64::from(layout.user.interpreter_jit)), &mut on).is_ok()
            && on == [1]
    })
}

/// Reads a `Py_tss_t`: an int that says whether the key was created, then the key.
fn read_key(memory: &dyn TargetMemory, tss: u64) -> Result<u32, NoInterpreter> {
    let value = memory.read_u64(tss)?;
    match value as u32 {
        1 => Ok((value >> 32) as u32),
        0 => Err(NoInterpreter::NotInitialised),
        _ => Err(NoInterpreter::NoThreadState),
    }
}

fn layout_of(
    memory: &dyn TargetMemory,
    runtime: u64,
    [major, minor, _]: [u8; 3],
) -> Result<&'static Layout, NoInterpreter> {
    let unsupported = NoInterpreter::UnsupportedVersion(major, minor);
    if major != 3 || minor < OLDEST_MINOR {
        return Err(unsupported);
    }
    let known = Layout::of(minor, false).ok_or(unsupported)?;
    if minor < 13 {
        return Ok(known);
    }
    let free_threaded =
        debug_offsets::free_threaded(memory, runtime)?.ok_or(NoInterpreter::NoDebugOffsets)?;
    let layout = Layout::of(minor, free_threaded).ok_or(unsupported)?;
    match debug_offsets::compare(memory, runtime, layout)? {
        DebugOffsets::Agree => Ok(layout),
        DebugOffsets::Missing => Err(NoInterpreter::NoDebugOffsets),
        DebugOffsets::Differ { field, table, process } => {
            Err(NoInterpreter::LayoutDiffers { field, table, process })
        }
    }
}

/// The constant address that the instruction takes: relative to itself, or absolute in code that is not relocatable.
fn address_taken(instruction: &Instruction) -> Option<u64> {
    if instruction.is_ip_rel_memory_operand() {
        return Some(instruction.ip_rel_memory_address());
    }
    let immediate = matches!(instruction.op1_kind(), OpKind::Immediate32 | OpKind::Immediate32to64);
    immediate.then(|| instruction.immediate(1))
}

/// `3.8.18`, `3.9.0rc1`, `3.10.13+`.
fn parse_version(text: &[u8]) -> Option<[u8; 3]> {
    let mut numbers = str::from_utf8(text).ok()?.splitn(3, '.');
    let [major, minor, rest] = [numbers.next()?, numbers.next()?, numbers.next()?];
    let micro = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some([major.parse().ok()?, minor.parse().ok()?, micro.parse().ok()?])
}
