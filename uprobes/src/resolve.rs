//! From rows of the catalogue to places in one file, or the reason why not.
//!
//! Owns: which definition of a symbol answers for which row, and what its absence means. Because: "missing" must say
//! whether the library is too old, stripped, or of another version. Does not: find files.

use deepctx_address_space::{FileOffset, NoSymbol, Svma};
use deepctx_events::{AutogradEvent, Event, Family};

use crate::catalogue::{Name, Row, Version};
use crate::entry::{self, FUNCTION_BYTES_MAX, Kernel, NoPoint, Point};
use crate::image::{Image, Kind, SAME_NAME_MAX, Source, Symbol};
use crate::reason::NoProbe;
use crate::torch;

/// A function in a file, and where to probe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Stated address of the function.
    pub svma: Svma,
    /// Where the function begins in the file.
    pub entry: FileOffset,
    /// Version of the symbol, if it has one.
    pub version: Option<Box<str>>,
    /// The symbol is exported; else it was found in the static table.
    pub exported: bool,
    /// The instruction to probe.
    pub point: Point,
}

impl Place {
    /// Where the probe goes in the file.
    pub fn probe(&self) -> FileOffset {
        FileOffset(self.entry.0 + u64::from(self.point.offset))
    }
}

/// What was found of one name of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution<'r> {
    /// The row.
    pub row: &'r Row,
    /// The name.
    pub name: &'r Name,
    /// One place for each definition, at least one; or why there is none.
    pub places: Result<Vec<Place>, NoProbe>,
}

/// Looks for every name of `rows` in a file.
pub fn resolve<'r, S: Source + ?Sized>(
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
            let why =
                if reason == NoSymbol::NoSymbolTable { NoProbe::Stripped } else { NoProbe::File(reason) };
            return named.into_iter().map(|(row, name)| Resolution { row, name, places: Err(why) }).collect();
        }
    };
    let newest = newest(&named, &found);
    named
        .into_iter()
        .zip(found)
        .map(|((row, name), symbols)| {
            let places = places(image, row, name, symbols, kernel, &newest);
            Resolution { row, name, places }
        })
        .collect()
}

/// The newest version of which something is there, for each family: what tells a library's age by evidence.
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

/// True when a symbol has the parameters of a row that holds for one major version only.
fn is_of(name: &Name, symbol: &Symbol) -> bool {
    name.major.is_none_or(|major| {
        let version = symbol.version.as_deref().and_then(|version| version.rsplit_once('.'));
        version.is_some_and(|(_, number)| number.parse() == Ok(major))
    })
}

fn places<S: Source + ?Sized>(
    image: &Image<'_, S>,
    row: &Row,
    name: &Name,
    symbols: Vec<Symbol>,
    kernel: Kernel,
    newest: &[(Family, Version)],
) -> Result<Vec<Place>, NoProbe> {
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
    let mut reason = if versioned { NoProbe::OtherMajor } else { NoProbe::VersionUnknown };
    let mut places = Vec::new();
    for symbol in symbols.into_iter().filter(|symbol| is_of(name, symbol)) {
        match symbol.kind {
            Kind::Code => {}
            Kind::Indirect => {
                reason = NoProbe::Indirect;
                continue;
            }
            Kind::Data => {
                reason = NoProbe::NotCode;
                continue;
            }
        }
        let sized = symbol.size > 0;
        let length = if sized { symbol.size.min(FUNCTION_BYTES_MAX) } else { 512 };
        let Some((entry, code)) = image.code(symbol.svma, length) else {
            reason = NoProbe::NotCode;
            continue;
        };
        let chosen = match row.event {
            Event::Autograd(AutogradEvent::NodeCreated) => {
                torch::thread_local_point(&code).ok_or(NoPoint::NotAnInstruction)
            }
            _ => entry::choose(&code, sized, &arguments, kernel),
        };
        match chosen {
            Ok(point) => {
                let Symbol { svma, version, exported, .. } = symbol;
                places.push(Place { svma, entry, version, exported, point });
            }
            Err(NoPoint::NotAnInstruction) => reason = NoProbe::NotAnInstruction,
            Err(NoPoint::Refused) => reason = NoProbe::Refused,
        }
    }
    if places.is_empty() { Err(reason) } else { Ok(places) }
}

/// Whether the runtime is linked into a file that is not the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// It is, and its symbols are there.
    Found,
    /// The file has device code and no runtime beside it, so it must be inside; its symbols were stripped.
    Stripped,
    /// It is not.
    No,
}

/// Looks for a runtime linked into the file.
pub fn runtime_inside<S: Source + ?Sized>(image: &Image<'_, S>) -> Inside {
    // Every program with device code announces it; one without may still copy and allocate.
    const MARKS: [&str; 3] = ["__cudaRegisterFatBinary", "cudaLaunchKernel", "cudaMalloc"];
    let found = image.find(&MARKS).is_ok_and(|found| found.iter().any(|symbols| !symbols.is_empty()));
    if found {
        return Inside::Found;
    }
    let linked_beside = || image.needed().iter().any(|library| library.starts_with("libcudart"));
    if image.has_section(".nv_fatbin") && !linked_beside() && !image.imports(MARKS[0]) {
        return Inside::Stripped;
    }
    Inside::No
}
