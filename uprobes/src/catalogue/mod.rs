//! The catalogue: every function worth a probe, with its parameters.
//!
//! Owns: the shape of a row, and the tables of each library. Because: probes on half of the ways to launch a kernel
//! show half of the launches, so what is covered must be one list that can be read, checked against headers and
//! compared with a real file. Does not: know files, processes, or how probes are attached.

mod collectives;
mod cuda_driver;
mod cuda_runtime;
mod cupti;
mod hip;
mod openmp;
mod ranges;
mod structs;
mod torch_allocator;

use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

use deepctx_events::{ContextCall, Event, Family, GpuCall, ModuleCall, Role};

pub use crate::abi::Field;
use crate::abi::{self, Argument};
use crate::returns::Return;
use crate::types::Type;

/// A library's version, as the vendor counts it: CUDA 12.4, HIP 5.3, NCCL 2.18.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u16, pub u16);

impl Version {
    /// Parses `12.4`; for the tables, where a wrong one does not compile.
    const fn literal(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut parts = [0u16; 2];
        let (mut part, mut i) = (0, 0);
        while i < bytes.len() {
            if bytes[i] == b'.' {
                part += 1;
            } else {
                parts[part] = parts[part] * 10 + (bytes[i] - b'0') as u16;
            }
            i += 1;
        }
        Self(parts[0], parts[1])
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// One name under which a row's function is exported. `_v2` names have later parameters, `_ptsz` and `_ptds` (HIP:
/// `_spt`) names use a default stream of each thread; each is code of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The symbol.
    pub symbol: Cow<'static, str>,
    /// The first version that exports it, as far as the vendor says; of a user's row: none.
    pub since: Option<Version>,
    /// Set when the parameters hold only for this major version, whose symbols are versioned `libcudart.so.MAJOR`.
    pub major: Option<u16>,
}

/// One function: its names, what a call means, and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The library.
    pub family: Family,
    /// What a call means.
    pub event: Event,
    /// Whether its return must be seen too, and why.
    pub returns: Return,
    /// Its names; all take the same parameters.
    pub names: Cow<'static, [Name]>,
    /// Parameters in the order of the declaration.
    parameters: Cow<'static, [(Role, Type)]>,
    /// What is worth reading behind one of the pointers.
    fields: Cow<'static, [Field]>,
    /// Arguments that a user placed by hand.
    placed: Cow<'static, [Argument]>,
}

impl Row {
    /// A row of the tables.
    const fn new(
        family: Family,
        event: Event,
        returns: Return,
        names: &'static [Name],
        parameters: &'static [(Role, Type)],
        fields: &'static [Field],
    ) -> Self {
        Self {
            family,
            event,
            returns,
            names: Cow::Borrowed(names),
            parameters: Cow::Borrowed(parameters),
            fields: Cow::Borrowed(fields),
            placed: Cow::Borrowed(&[]),
        }
    }

    /// A row whose arguments were found in the code of the very file.
    pub(crate) fn calibrated(event: Event, symbols: &[&'static str], placed: Vec<Argument>) -> Self {
        let name = |symbol: &&'static str| Name { symbol: Cow::Borrowed(symbol), since: None, major: None };
        Self {
            names: symbols.iter().map(name).collect(),
            placed: Cow::Owned(placed),
            ..Self::new(Family::Torch, event, Return::NotNeeded, &[], &[], &[])
        }
    }

    /// The same for a symbol that only the file tells.
    pub(crate) fn calibrated_as(event: Event, symbol: String, placed: Vec<Argument>) -> Self {
        Self {
            names: Cow::Owned(vec![Name { symbol: symbol.into(), since: None, major: None }]),
            ..Self::calibrated(event, &[], placed)
        }
    }

    /// The same row of another library.
    pub(crate) fn of(self, family: Family) -> Self {
        Self { family, ..self }
    }

    /// A row that a user wrote.
    pub(crate) fn of_user(symbol: String, event: Event, returns: Return, placed: Vec<Argument>) -> Self {
        Self {
            names: Cow::Owned(vec![Name { symbol: symbol.into(), since: None, major: None }]),
            placed: Cow::Owned(placed),
            ..Self::new(Family::User, event, returns, &[], &[], &[])
        }
    }

    /// Parameters in the order of the declaration, those without a meaning included.
    pub fn parameters(&self) -> &[(Role, Type)] {
        &self.parameters
    }

    /// What is read behind pointers.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Every argument that has a meaning, and where it is when the function is entered.
    pub fn arguments(&self) -> Vec<Argument> {
        let mut arguments = abi::arguments(&self.parameters, &self.fields);
        arguments.extend(self.placed.iter().cloned());
        arguments
    }

    /// The lower library that the same call will be seen in again.
    pub fn seen_again_in(&self) -> Option<Family> {
        let runtime_only = matches!(
            self.event,
            Event::Gpu(
                GpuCall::Module(
                    ModuleCall::FatBinary
                        | ModuleCall::FatBinaryUnload
                        | ModuleCall::FunctionStub
                        | ModuleCall::KernelOfStub
                        | ModuleCall::FunctionOfStub
                ) | GpuCall::Context(ContextCall::Device)
            )
        );
        (self.family == Family::CudaRuntime && !runtime_only).then_some(Family::CudaDriver)
    }
}

/// The rows of PyTorch's allocators, which are watched when somebody asks for them.
pub fn allocator_rows() -> &'static [Row] {
    torch_allocator::ROWS
}

/// The rows for ranges of a library, which are watched when somebody asks for them.
pub fn range_rows(family: Family) -> Cow<'static, [Row]> {
    ranges::rows(family)
}

/// The rows of a runtime of OpenMP, which is watched when somebody asks for the work of teams.
pub fn team_rows(family: Family) -> Cow<'static, [Row]> {
    openmp::rows(family)
}

/// Every row of the catalogue, by family.
pub fn rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| {
        [cuda_driver::ROWS, cuda_runtime::ROWS, hip::ROWS, collectives::NCCL, collectives::RCCL, cupti::ROWS]
            .concat()
    })
}

/// A table of functions of one library whose events are of one family of events: `event, return => name since, …
/// (Role Type, …) with FIELDS;` for each function.
macro_rules! table {
    ($family:ident, $events:ident: $($event:expr, $returns:ident =>
        $($symbol:ident $(@ $major:literal)? $since:literal),+
        ($($role:ident $kind:ident $(($bytes:literal))?),*)
        $(with $fields:ident)?;)*) => {
        &[$($crate::catalogue::Row::new(
            deepctx_events::Family::$family,
            deepctx_events::Event::$events($event),
            $crate::returns::Return::$returns,
            &[$($crate::catalogue::Name {
                symbol: std::borrow::Cow::Borrowed(stringify!($symbol)),
                since: Some($crate::catalogue::Version::literal(stringify!($since))),
                major: $crate::catalogue::optional!($($major)?),
            }),+],
            &[$((deepctx_events::Role::$role, $crate::types::Type::$kind $(($bytes))?)),*],
            $crate::catalogue::fields!($($fields)?),
        )),*]
    };
}
macro_rules! optional {
    () => {
        None
    };
    ($value:literal) => {
        Some($value)
    };
}
macro_rules! fields {
    () => {
        &[]
    };
    ($fields:ident) => {
        $crate::catalogue::structs::$fields
    };
}
use {fields, optional, table};

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use deepctx_events::LaunchCall;

    use super::*;

    #[test]
    fn a_symbol_of_a_library_stands_in_one_row() {
        let mut seen = HashSet::new();
        for row in rows() {
            for name in row.names.iter() {
                assert!(seen.insert((row.family, &name.symbol, name.major)), "{}", name.symbol);
            }
        }
    }

    #[test]
    fn what_is_read_behind_a_pointer_has_a_pointer() {
        for row in rows() {
            for field in row.fields() {
                let pointers = row
                    .parameters()
                    .iter()
                    .filter(|(role, kind)| *role == field.through && *kind == Type::Pointer);
                assert_eq!(pointers.count(), 1, "{}: {:?}", row.names[0].symbol, field.through);
            }
        }
    }

    #[test]
    fn a_call_that_writes_its_result_behind_a_pointer_has_one() {
        for row in rows().iter().filter(|row| row.returns == Return::OutPointer) {
            let has = |wanted| row.parameters().iter().any(|(role, _)| *role == wanted);
            assert!(has(Role::Out) || has(Role::OutNode), "{}", row.names[0].symbol);
        }
    }

    #[test]
    fn every_launch_names_its_function_and_stream() {
        for row in rows() {
            let Event::Gpu(GpuCall::Launch(launch)) = row.event else { continue };
            if matches!(launch, LaunchCall::Legacy | LaunchCall::MultiDevice) {
                continue;
            }
            let arguments = row.arguments();
            let has = |role| arguments.iter().any(|argument| argument.role == role);
            assert!(has(Role::Stream) && has(Role::Function), "{}", row.names[0].symbol);
        }
    }

    #[test]
    fn events_have_numbers_of_their_own() {
        let mut numbers = HashMap::new();
        for row in rows() {
            let other = numbers.insert(row.event.number(), row.event);
            assert!(other.is_none_or(|other| other == row.event), "{:?} {other:?}", row.event);
            assert_eq!(Event::from_number(row.event.number()), Some(row.event));
        }
    }

    #[test]
    fn launches_never_need_a_probe_on_their_return() {
        assert!(rows().iter().all(|row| !row.event.is_launch() || !row.returns.is_needed()));
    }
}
