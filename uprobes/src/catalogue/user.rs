//! Users' rows: probes on libraries that the catalogue does not list.
//!
//! Owns: the TOML form, its checks, and the glob that names libraries. Because: every new accelerator has its own
//! library, and its users should not wait for a release. Does not: find the symbols ([`crate::locate::resolve`]).
//!
//! ```toml
//! [[probe]]
//! library = "libxyz.so*"         # glob on the file name; on the whole path, when it has a slash
//! symbol = "xyzEnqueueKernel"
//! event = "launch"               # launch, copy, fill, alloc, free, sync, collective, range-push, range-pop, step, user
//! return = "not-needed"          # or blocking, out-pointer, returned, status
//! arguments = [
//!   { name = "function", type = "pointer" },               # in the order of the declaration
//!   { name = "_", type = "u32" },                          # has no meaning, but takes a register
//!   { name = "stream", type = "pointer" },
//!   { name = "elements", type = "u64", at = "[rdi+16]" },  # behind a pointer; also "rcx", "[rsp+8]", "[[rsp+8]+4]"
//! ]
//! ```

use std::borrow::Cow;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use deepctx_events::{
    CollectiveCall, CollectiveOperation, Direction, Event, Family, GpuCall, LaunchCall, MemoryCall,
    MemoryKind, RangeEvent, Role, SyncScope, Timing, TransferCall,
};
use serde::Deserialize;
use toml::Spanned;

use crate::abi::{self, Argument, Location, Register, Scalar, Type};
use crate::row::{ReturnProbe, Row};

/// Maximum bytes of a file of rows.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Maximum rows of one file: each is searched for in every library that its glob matches.
const ROWS_MAX: usize = 1024;
/// Maximum arguments of one row: a record has room for no more.
const ARGUMENTS_MAX: usize = 16;
/// Maximum symbol length; template names are long.
const SYMBOL_BYTES_MAX: usize = 4096;

/// A row that a user wrote.
#[derive(Clone, Debug, PartialEq)]
pub struct UserRow {
    /// Glob of its libraries.
    pub library: String,
    /// The line where it begins, from 1; 0 if it is from no file.
    pub line: usize,
    /// The row.
    pub row: Row,
}

impl UserRow {
    /// True if the row applies to this file.
    pub fn is_in(&self, path: &Path) -> bool {
        let text = if self.library.contains('/') {
            path.as_os_str().as_bytes()
        } else {
            path.file_name().map_or(&b""[..], |name| name.as_bytes())
        };
        glob(self.library.as_bytes(), text)
    }

    /// A function that a program calls once for each training step.
    pub fn step_marker(library: String, symbol: String) -> Self {
        let row = Row::placed(Family::User, Event::Range(RangeEvent::TrainingStep), symbol, Vec::new());
        Self { library, line: 0, row }
    }
}

/// The error in a file of rows, and its line, from 1.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum UserRowError {
    /// The file is too large.
    #[error("line 1: expected at most {FILE_BYTES_MAX} bytes, found {bytes}")]
    TooLarge {
        /// Its size, bytes.
        bytes: usize,
    },
    /// The file is not valid TOML, or has unknown keys.
    #[error("line {line}: {}", one_line(source.message()))]
    Syntax {
        /// The line.
        line: usize,
        /// The parser's error.
        source: toml::de::Error,
    },
    /// More rows than one file may have.
    #[error("line {line}: expected at most {ROWS_MAX} rows")]
    TooManyRows {
        /// The line of the first row too many.
        line: usize,
    },
    /// More arguments than one row may have.
    #[error("line {line}: arguments: expected at most {ARGUMENTS_MAX}")]
    TooManyArguments {
        /// The line of the first argument too many.
        line: usize,
    },
    /// A value is invalid for its key.
    #[error("line {line}: {key}: expected {expected}{}", found_text(found))]
    Value {
        /// The line.
        line: usize,
        /// The key.
        key: &'static str,
        /// The valid values.
        expected: Cow<'static, str>,
        /// The value found, if that helps.
        found: Option<String>,
    },
}

impl UserRowError {
    /// The line, from 1.
    pub fn line(&self) -> usize {
        match self {
            Self::TooLarge { .. } => 1,
            Self::Syntax { line, .. }
            | Self::TooManyRows { line }
            | Self::TooManyArguments { line }
            | Self::Value { line, .. } => *line,
        }
    }
}

fn found_text(found: &Option<String>) -> String {
    found.as_ref().map_or_else(String::new, |found| format!(", found {found}"))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    probe: Vec<Spanned<RawRow>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    library: Spanned<String>,
    symbol: Spanned<String>,
    event: Option<Spanned<String>>,
    #[serde(rename = "return")]
    returns: Option<Spanned<String>>,
    #[serde(default)]
    arguments: Vec<Spanned<RawArgument>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawArgument {
    name: Spanned<String>,
    #[serde(rename = "type")]
    kind: Spanned<String>,
    at: Option<Spanned<String>>,
}

/// Reads rows.
///
/// # Errors
/// The first error, and its line.
pub fn parse(text: &str) -> Result<Vec<UserRow>, UserRowError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(UserRowError::TooLarge { bytes: text.len() });
    }
    let file: RawFile = toml::from_str(text).map_err(|source| UserRowError::Syntax {
        line: line_of(text, source.span().map_or(0, |span| span.start)),
        source,
    })?;
    if let Some(row) = file.probe.get(ROWS_MAX) {
        return Err(UserRowError::TooManyRows { line: line_of(text, row.span().start) });
    }
    file.probe
        .into_iter()
        .map(|raw| {
            let line = line_of(text, raw.span().start);
            let (library, row) = row_of(raw.into_inner()).map_err(|wrong| wrong.in_text(text))?;
            Ok(UserRow { library, line, row })
        })
        .collect()
}

/// An invalid value, by its position in the text.
struct ValueError {
    span: Range<usize>,
    key: &'static str,
    /// `None` if there are too many of them.
    expected: Option<Cow<'static, str>>,
    found: Option<String>,
}

impl ValueError {
    fn value(span: Range<usize>, key: &'static str, expected: impl Into<Cow<'static, str>>) -> Self {
        Self { span, key, expected: Some(expected.into()), found: None }
    }

    fn found(self, found: String) -> Self {
        Self { found: Some(found), ..self }
    }

    fn in_text(self, text: &str) -> UserRowError {
        let line = line_of(text, self.span.start);
        match self.expected {
            Some(expected) => UserRowError::Value { line, key: self.key, expected, found: self.found },
            None => UserRowError::TooManyArguments { line },
        }
    }
}

/// The glob of its libraries, and the row.
fn row_of(raw: RawRow) -> Result<(String, Row), ValueError> {
    let library = raw.library.get_ref();
    if library.is_empty() || library.len() > SYMBOL_BYTES_MAX {
        return Err(ValueError::value(raw.library.span(), "library", "a glob of file names"));
    }
    let symbol = raw.symbol.get_ref();
    if symbol.is_empty()
        || symbol.len() > SYMBOL_BYTES_MAX
        || symbol.contains(|c: char| c.is_control() || c == ' ')
    {
        return Err(ValueError::value(raw.symbol.span(), "symbol", "the name of a symbol, without spaces"));
    }
    let event = match &raw.event {
        None => Event::User,
        Some(word) => one_of("event", word, &EVENTS)?,
    };
    let returns = match &raw.returns {
        None => ReturnProbe::NotNeeded,
        Some(word) => one_of("return", word, &RETURNS)?,
    };
    if let Some(argument) = raw.arguments.get(ARGUMENTS_MAX) {
        return Err(ValueError { span: argument.span(), key: "arguments", expected: None, found: None });
    }
    let placed = arguments(&raw.arguments)?;
    let row = Row::placed(Family::User, event, raw.symbol.into_inner(), placed);
    Ok((raw.library.into_inner(), row.with_returns(returns)))
}

/// The arguments of a row that have a meaning.
fn arguments(raw: &[Spanned<RawArgument>]) -> Result<Vec<Argument>, ValueError> {
    let mut convention = Convention::default();
    let mut placed: Vec<Argument> = Vec::new();
    for argument in raw {
        let argument = argument.get_ref();
        let name = argument.name.get_ref();
        let (kind, scalar) = type_of(&argument.kind)?;
        let location = match &argument.at {
            Some(at) => location_of(at)?,
            None => convention.next(kind),
        };
        if name == "_" {
            continue;
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            let expected = "letters, digits, '-' and '_'; or '_' alone for what has no meaning";
            return Err(ValueError::value(argument.name.span(), "name", expected));
        }
        if placed.iter().any(|other| other.name == *name) {
            let wrong = ValueError::value(argument.name.span(), "name", "each once");
            return Err(wrong.found(format!("'{name}' again")));
        }
        let role = Role::ALL.iter().copied().find(|role| role.name() == name).unwrap_or(Role::User);
        placed.push(Argument { role, name: Cow::Owned(name.clone()), scalar, location });
    }
    Ok(placed)
}

/// Places parameters by the calling convention, in the order of the declaration.
#[derive(Debug, Default)]
struct Convention {
    parameters: Vec<(Role, Type)>,
}

impl Convention {
    fn next(&mut self, kind: Type) -> Location {
        self.parameters.push((Role::User, kind));
        let last = abi::arguments(&self.parameters, &[]).pop();
        last.map_or(Location::Unreadable, |argument| argument.location)
    }
}

const EVENTS: [(&str, Event); 11] = [
    ("launch", Event::Gpu(GpuCall::Launch(LaunchCall::Kernel))),
    ("copy", Event::Gpu(GpuCall::Transfer(TransferCall::Copy(Direction::ByPointers, Timing::Async)))),
    ("fill", Event::Gpu(GpuCall::Transfer(TransferCall::Fill(1, Timing::Async)))),
    ("alloc", Event::Gpu(GpuCall::Memory(MemoryCall::Alloc(MemoryKind::Device)))),
    ("free", Event::Gpu(GpuCall::Memory(MemoryCall::Free(MemoryKind::Device)))),
    ("sync", Event::Gpu(GpuCall::Sync(SyncScope::Device))),
    (
        "collective",
        Event::Gpu(GpuCall::Collective(CollectiveCall::Operation(CollectiveOperation::AllReduce))),
    ),
    ("range-push", Event::Range(RangeEvent::Pushed)),
    ("range-pop", Event::Range(RangeEvent::Popped)),
    ("step", Event::Range(RangeEvent::TrainingStep)),
    ("user", Event::User),
];

const RETURNS: [(&str, ReturnProbe); 5] = [
    ("not-needed", ReturnProbe::NotNeeded),
    ("blocking", ReturnProbe::Blocking),
    ("out-pointer", ReturnProbe::OutPointer),
    ("returned", ReturnProbe::Returned),
    ("status", ReturnProbe::Status),
];

const TYPES: [(&str, Type); 7] = [
    ("pointer", Type::Pointer),
    ("u64", Type::U64),
    ("i64", Type::I64),
    ("u32", Type::U32),
    ("i32", Type::I32),
    ("u16", Type::U16),
    ("u8", Type::U8),
];

fn one_of<T: Copy>(key: &'static str, word: &Spanned<String>, known: &[(&str, T)]) -> Result<T, ValueError> {
    let found = known.iter().find(|(name, _)| name == word.get_ref());
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        ValueError::value(word.span(), key, names.join(", ")).found(format!("'{}'", one_line(word.get_ref())))
    })
}

fn type_of(word: &Spanned<String>) -> Result<(Type, Scalar), ValueError> {
    let kind = one_of("type", word, &TYPES)?;
    let scalar = kind.scalar().ok_or_else(|| ValueError::value(word.span(), "type", "a number"))?;
    Ok((kind, scalar))
}

/// `rdi`, `[rsp+8]`, `[rdi+16]`, `[[rsp+8]+4]`.
fn location_of(word: &Spanned<String>) -> Result<Location, ValueError> {
    let text: String = word.get_ref().chars().filter(|c| *c != ' ').collect();
    let wrong = || {
        let expected =
            "a register (rdi), a place on the stack ([rsp+8]) or behind a pointer ([rdi+16], [[rsp+8]+4])";
        ValueError::value(word.span(), "at", expected).found(format!("'{}'", one_line(word.get_ref())))
    };
    if let Some(register) = Register::named(&text) {
        return Ok(Location::in_register(register));
    }
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).ok_or_else(wrong)?;
    if let Some(nested) = inner.strip_prefix('[') {
        let (stack, offset) = nested.split_once(']').ok_or_else(wrong)?;
        let (register, stack) = base_and_offset(stack).ok_or_else(wrong)?;
        let offset = offset_of(offset).ok_or_else(wrong)?;
        let stack = u16::try_from(stack).ok().filter(|_| register == Register::Rsp).ok_or_else(wrong)?;
        return Ok(Location::BehindStack { stack, offset });
    }
    let (register, offset) = base_and_offset(inner).ok_or_else(wrong)?;
    if register == Register::Rsp {
        return u16::try_from(offset).map(Location::Stack).map_err(|_| wrong());
    }
    Ok(Location::BehindRegister { register, offset })
}

fn base_and_offset(text: &str) -> Option<(Register, i32)> {
    let end = text.find(['+', '-']).unwrap_or(text.len());
    Some((Register::named(&text[..end])?, offset_of(&text[end..])?))
}

/// `+16`, `-0x10` or nothing.
fn offset_of(text: &str) -> Option<i32> {
    let (sign, digits) = match text.split_at_checked(1) {
        None => return Some(0),
        Some(("+", digits)) => (1, digits),
        Some(("-", digits)) => (-1, digits),
        Some(_) => return None,
    };
    let number = match digits.strip_prefix("0x") {
        Some(hex) => i32::from_str_radix(hex, 16).ok()?,
        None => digits.parse::<i32>().ok()?,
    };
    (number >= 0 && digits.starts_with(|c: char| c.is_ascii_digit())).then_some(sign * number)
}

/// `*` matches any bytes and `?` matches one. The time is at most proportional to the product of the lengths.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(b'?') => (p, t) = (p + 1, t + 1),
            Some(byte) if *byte == text[t] => (p, t) = (p + 1, t + 1),
            _ => {
                let Some((after, from)) = retry else { return false };
                retry = Some((after, from + 1));
                (p, t) = (after, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

fn one_line(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = r#"
[[probe]]
library = "libxyz.so*"
symbol = "xyzEnqueueKernel"
event = "launch"
arguments = [
  { name = "function", type = "pointer" },
  { name = "_", type = "u32" },
  { name = "queue", type = "pointer" },
  { name = "elements", type = "u64", at = "[rdi+0x10]" },
  { name = "last", type = "i32", at = "[[rsp+8]-4]" },
]
"#;

    #[test]
    fn arguments_are_placed_by_the_calling_convention_or_by_hand() {
        let rows = parse(GOOD).unwrap();
        assert_eq!((rows.len(), rows[0].line), (1, 2));
        let row = &rows[0].row;
        assert_eq!(
            (row.event, row.returns),
            (Event::Gpu(GpuCall::Launch(LaunchCall::Kernel)), ReturnProbe::NotNeeded)
        );
        let arguments: Vec<_> =
            row.arguments().iter().map(|a| (a.name.to_string(), a.role, a.location.to_string())).collect();
        let expect = [
            ("function", Role::Function, "rdi"),
            ("queue", Role::User, "rdx"),
            ("elements", Role::User, "[rdi+16]"),
            ("last", Role::User, "[[rsp+8]-4]"),
        ];
        assert_eq!(arguments, expect.map(|(name, role, place)| (name.to_owned(), role, place.to_owned())));
    }

    fn check(from: &str, to: &str, expect: &str) {
        assert!(GOOD.contains(from), "{from}");
        let error = parse(&GOOD.replace(from, to)).unwrap_err().to_string();
        assert!(error.starts_with(expect), "{error}");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        check("\"launch\"", "\"lunch\"", "line 5: event: expected launch, copy, ");
        check("[rdi+0x10]", "[rdi*2]", "line 10: at: expected a register");
        check("[rdi+0x10]", "[rsp-8]", "line 10: at: expected a register");
        check("[[rsp+8]-4]", "[[rdi+8]-4]", "line 11: at: expected a register");
        check("\"u32\"", "\"dim3\"", "line 8: type: expected pointer, u64");
        check("\"queue\"", "\"function\"", "line 9: name: expected each once");
        check("\"queue\"", "\"the queue\"", "line 9: name: expected letters");
        check("symbol = \"xyzEnqueueKernel\"", "symbol = \"\"", "line 4: symbol: expected");
        check("symbol =", "simbol =", "line 4: unknown field `simbol`");
        check("library = \"libxyz.so*\"", "", "line 2: missing field `library`");
        check("]\n", "", "line ");
    }

    #[test]
    fn a_glob_names_files_or_paths() {
        for (library, path, expect) in [
            ("libxyz.so*", "/opt/lib/libxyz.so.1", true),
            ("libxyz.so*", "/opt/libxyz.so.d/other", false),
            ("/opt/*/libxyz.so.?", "/opt/a/b/libxyz.so.1", true),
            ("/opt/*/libxyz.so.?", "/usr/libxyz.so.1", false),
            ("*", "/anything", true),
            ("*a*a*a*a*b", "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            let row = UserRow { library: library.into(), ..parse(GOOD).unwrap().remove(0) };
            assert_eq!(row.is_in(Path::new(path)), expect, "{library} {path}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_or_gives_an_error_with_a_line(text in ".{0,300}") {
            if let Err(error) = parse(&text) {
                prop_assert!((1..=text.lines().count() + 1).contains(&error.line()));
            }
        }

        #[test]
        fn a_good_file_with_any_bytes_in_it_never_panics(at in 0..GOOD.len(), piece in ".{0,12}") {
            let _ = parse(&format!("{}{piece}{}", &GOOD[..at], &GOOD[at..]));
        }
    }
}
