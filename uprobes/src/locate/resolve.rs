//! Resolves rows of the catalogue to functions in one file, or the reason why not.
//!
//! Owns: which definition of a symbol matches which row, and the meaning of its absence. Because: "missing" must say
//! whether the library is too old, stripped, or of another version. Does not: find files.

use deepctx_address_space::{FileOffset, NoSymbol, Svma};
use deepctx_events::Family;

use super::elf::{ByteSource, Image, SAME_NAME_MAX, Symbol, SymbolKind};
use super::instruction::{self, FUNCTION_BYTES_MAX, Kernel, NoProbePoint, ProbePoint};
use super::reason::NoProbe;
use super::thread_local;
use crate::abi::{Argument, Location};
use crate::row::{Name, Row, Version};

/// Bytes of code read if the symbol has no size.
const UNSIZED_BYTES: u64 = 512;

/// A function in a file, and where to probe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedFunction {
    /// Stated address of the function.
    pub svma: Svma,
    /// File offset of the function.
    pub entry: FileOffset,
    /// Version of the symbol, if it has one.
    pub version: Option<Box<str>>,
    /// The symbol is exported; otherwise it was found in the static table.
    pub exported: bool,
    /// The instruction to probe.
    pub point: ProbePoint,
}

impl LocatedFunction {
    /// File offset of the probe.
    pub fn probe(&self) -> FileOffset {
        FileOffset(self.entry.0 + u64::from(self.point.offset))
    }
}

/// Result for one name of a row in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution<'r> {
    /// The row.
    pub row: &'r Row,
    /// The name.
    pub name: &'r Name,
    /// One function for each definition, at least one; or the reason why there is none.
    pub functions: Result<Vec<LocatedFunction>, NoProbe>,
}

/// Resolves every name of `rows` in a file.
pub fn resolve<'r, S: ByteSource + ?Sized>(
    image: &Image<'_, S>,
    rows: impl IntoIterator<Item = &'r Row>,
    kernel: Kernel,
) -> Vec<Resolution<'r>> {
    let named: Vec<(&Row, &Name)> =
        rows.into_iter().flat_map(|row| row.names.iter().map(move |name| (row, name))).collect();
    let wanted: Vec<&str> = named.iter().map(|(_, name)| &*name.symbol).collect();
    let found = match image.find(&wanted) {
        Ok(found) => found,
        Err(reason) => {
            let because =
                if reason == NoSymbol::NoSymbolTable { NoProbe::Stripped } else { NoProbe::File(reason) };
            let missing = |(row, name)| Resolution { row, name, functions: Err(because) };
            return named.into_iter().map(missing).collect();
        }
    };
    let newest = newest(&named, &found);
    named
        .into_iter()
        .zip(found)
        .map(|((row, name), symbols)| {
            let functions = functions(image, row, name, symbols, kernel, &newest);
            Resolution { row, name, functions }
        })
        .collect()
}

/// For each family, the newest version that an export has: a lower bound of the library's version.
fn newest(named: &[(&Row, &Name)], found: &[Vec<Symbol>]) -> Vec<(Family, Version)> {
    let mut newest: Vec<(Family, Version)> = Vec::new();
    for ((row, name), symbols) in named.iter().zip(found) {
        let Some(since) = name.since.filter(|_| symbols.iter().any(|symbol| is_of(name, symbol))) else {
            continue;
        };
        match newest.iter_mut().find(|(family, _)| *family == row.family) {
            Some((_, version)) => *version = since.max(*version),
            None => newest.push((row.family, since)),
        }
    }
    newest
}

/// True if a symbol has the parameters of a row that applies to one major version only.
fn is_of(name: &Name, symbol: &Symbol) -> bool {
    name.major.is_none_or(|major| {
        let version = symbol.version.as_deref().and_then(|version| version.rsplit_once('.'));
        version.is_some_and(|(_, number)| number.parse() == Ok(major))
    })
}

/// One function for each symbol of a row's name, or the reason why there is none.
fn functions<S: ByteSource + ?Sized>(
    image: &Image<'_, S>,
    row: &Row,
    name: &Name,
    symbols: Vec<Symbol>,
    kernel: Kernel,
    newest: &[(Family, Version)],
) -> Result<Vec<LocatedFunction>, NoProbe> {
    if symbols.is_empty() {
        let library = newest.iter().find(|(family, _)| *family == row.family).map(|(_, version)| *version);
        return Err(match (name.since, library) {
            (Some(since), Some(library)) if since > library => NoProbe::NewerThanLibrary { library },
            _ => NoProbe::NotExported,
        });
    }
    if symbols.len() > SAME_NAME_MAX {
        return Err(NoProbe::TooMany);
    }
    let versioned = symbols.iter().any(|symbol| symbol.version.is_some());
    let arguments = row.arguments();
    let mut because = if versioned { NoProbe::OtherMajor } else { NoProbe::VersionUnknown };
    let mut functions = Vec::new();
    for symbol in symbols.into_iter().filter(|symbol| is_of(name, symbol)) {
        match function(image, symbol, &arguments, kernel) {
            Ok(function) => functions.push(function),
            Err(reason) => because = reason,
        }
    }
    if functions.is_empty() { Err(because) } else { Ok(functions) }
}

/// The function of one symbol, and the instruction to probe.
fn function<S: ByteSource + ?Sized>(
    image: &Image<'_, S>,
    symbol: Symbol,
    arguments: &[Argument],
    kernel: Kernel,
) -> Result<LocatedFunction, NoProbe> {
    match symbol.kind {
        SymbolKind::Code => {}
        SymbolKind::Indirect => return Err(NoProbe::Indirect),
        SymbolKind::Data => return Err(NoProbe::NotCode),
    }
    let sized = symbol.size > 0;
    let length = if sized { symbol.size.min(FUNCTION_BYTES_MAX) } else { UNSIZED_BYTES };
    let (entry, code) = image.code(symbol.svma, length).ok_or(NoProbe::NotCode)?;
    let is_of_thread = |argument: &Argument| matches!(argument.location, Location::ThreadLocal(_));
    let point = if arguments.iter().any(is_of_thread) {
        thread_local::probe_point(&code).ok_or(NoProbePoint::NotAnInstruction)
    } else {
        instruction::choose(&code, sized, arguments, kernel)
    };
    let Symbol { svma, version, exported, .. } = symbol;
    Ok(LocatedFunction { svma, entry, version, exported, point: point? })
}

/// Whether the runtime is linked into another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkedRuntime {
    /// It is, and its symbols are present.
    Present,
    /// The file has device code and no separate runtime, so it must be inside; its symbols were stripped.
    Stripped,
    /// It is not.
    Absent,
}

/// Looks for a runtime linked into the file.
pub fn linked_runtime<S: ByteSource + ?Sized>(image: &Image<'_, S>) -> LinkedRuntime {
    // Every program with device code registers it; one without may still copy and allocate.
    const SYMBOLS: [&str; 3] = ["__cudaRegisterFatBinary", "cudaLaunchKernel", "cudaMalloc"];
    let found = image.find(&SYMBOLS).is_ok_and(|found| found.iter().any(|symbols| !symbols.is_empty()));
    if found {
        return LinkedRuntime::Present;
    }
    let linked_beside = || image.needed().iter().any(|library| library.starts_with("libcudart"));
    if image.has_section(".nv_fatbin") && !linked_beside() && !image.imports(SYMBOLS[0]) {
        return LinkedRuntime::Stripped;
    }
    LinkedRuntime::Absent
}
