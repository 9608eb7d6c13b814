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

pub use crate::abi::Field;
use crate::abi::{self, Argument};
use crate::event::{Event, Return};
use crate::role::{Role, Type};

/// Which library a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// NVIDIA's driver, `libcuda.so.1`.
    CudaDriver,
    /// NVIDIA's runtime, `libcudart.so`, also linked into other files as an archive.
    CudaRuntime,
    /// AMD's runtime, `libamdhip64.so`.
    Hip,
    /// NVIDIA's collectives, `libnccl.so`.
    Nccl,
    /// AMD's collectives, `librccl.so`.
    Rccl,
    /// NVIDIA's profiling interface, `libcupti.so`: read, never called.
    Cupti,
    /// PyTorch's `libtorch_cpu.so`, for what it tells of itself ([`crate::torch`]).
    Torch,
    /// PyTorch's `libc10.so`: memory of tensors on the host, and what allocators of devices say.
    C10,
    /// PyTorch's `libc10_cuda.so`: memory of tensors on NVIDIA's devices.
    C10Cuda,
    /// NVIDIA's ranges, `libnvToolsExt.so`.
    Nvtx,
    /// PyTorch's `libtorch_python.so`, with NVTX compiled into it.
    TorchPython,
    /// AMD's ranges, `libroctx64.so`.
    Roctx,
    /// The same of ROCm's newer tools, `librocprofiler-sdk-roctx.so`.
    RoctxSdk,
    /// GNU's runtime of OpenMP, `libgomp.so`: teams of threads.
    GnuOpenMp,
    /// LLVM's, `libomp.so`.
    LlvmOpenMp,
    /// Intel's, `libiomp5.so`, which is LLVM's by another name.
    IntelOpenMp,
    /// JAX's `libjax_common.so`, with XLA's runtime for CPUs in it, for what that tells of itself ([`crate::xla`]).
    Jax,
    /// The same up to jaxlib 0.5, `xla_extension.so`.
    XlaExtension,
    /// A library that a user names.
    User,
}

impl Family {
    /// The families of the catalogue, in the order in which they are shown.
    pub const ALL: [Self; 18] = [
        Self::CudaDriver,
        Self::CudaRuntime,
        Self::Hip,
        Self::Nccl,
        Self::Rccl,
        Self::Cupti,
        Self::Torch,
        Self::C10,
        Self::C10Cuda,
        Self::Nvtx,
        Self::TorchPython,
        Self::Roctx,
        Self::RoctxSdk,
        Self::GnuOpenMp,
        Self::LlvmOpenMp,
        Self::IntelOpenMp,
        Self::Jax,
        Self::XlaExtension,
    ];

    /// True of the runtimes of OpenMP.
    pub fn is_openmp(self) -> bool {
        matches!(self, Self::GnuOpenMp | Self::LlvmOpenMp | Self::IntelOpenMp)
    }

    /// The library's name up to the version.
    pub const fn library(self) -> &'static str {
        match self {
            Self::CudaDriver => "libcuda.so",
            Self::CudaRuntime => "libcudart.so",
            Self::Hip => "libamdhip64.so",
            Self::Nccl => "libnccl.so",
            Self::Rccl => "librccl.so",
            Self::Cupti => "libcupti.so",
            Self::Torch => "libtorch_cpu.so",
            Self::C10 => "libc10.so",
            Self::C10Cuda => "libc10_cuda.so",
            Self::Nvtx => "libnvToolsExt.so",
            Self::TorchPython => "libtorch_python.so",
            Self::Roctx => "libroctx64.so",
            Self::RoctxSdk => "librocprofiler-sdk-roctx.so",
            Self::GnuOpenMp => "libgomp.so",
            Self::LlvmOpenMp => "libomp.so",
            Self::IntelOpenMp => "libiomp5.so",
            Self::Jax => "libjax_common.so",
            Self::XlaExtension => "xla_extension.so",
            Self::User => "user",
        }
    }

    /// True when a file of this name is this library: `libcuda.so.1`, `libcuda.so.550.163.01`, and the names that wheels
    /// give to bundled copies (`libcudart-9335f6a2.so.12.9.79`).
    pub fn is_named(self, file_name: &[u8]) -> bool {
        if self == Self::User {
            return false;
        }
        let stem = self.library().trim_end_matches(".so").as_bytes();
        let Some(rest) = file_name.strip_prefix(stem) else { return false };
        let rest = match rest.strip_prefix(b"-") {
            // The hash that auditwheel puts before the extension.
            Some(tagged) => {
                let hash = tagged.iter().take_while(|b| b.is_ascii_hexdigit()).count();
                if hash < 8 {
                    return false;
                }
                &tagged[hash..]
            }
            None => rest,
        };
        rest.strip_prefix(b".so").is_some_and(|version| {
            version.is_empty()
                || version[0] == b'.' && version.iter().all(|b| b.is_ascii_digit() || *b == b'.')
        })
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.library())
    }
}

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
            Event::FatBinary
                | Event::FatBinaryUnload
                | Event::FunctionStub
                | Event::KernelOfStub
                | Event::FunctionOfStub
                | Event::DeviceCurrent
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

/// A table: `event, return => name since, … (Role Type, …) with FIELDS;` for each function.
macro_rules! table {
    ($family:ident: $($event:expr, $returns:ident =>
        $($symbol:ident $(@ $major:literal)? $since:literal),+
        ($($role:ident $kind:ident $(($bytes:literal))?),*)
        $(with $fields:ident)?;)*) => {
        &[$($crate::catalogue::Row::new(
            $crate::catalogue::Family::$family,
            $event,
            $crate::event::Return::$returns,
            &[$($crate::catalogue::Name {
                symbol: std::borrow::Cow::Borrowed(stringify!($symbol)),
                since: Some($crate::catalogue::Version::literal(stringify!($since))),
                major: $crate::catalogue::optional!($($major)?),
            }),+],
            &[$(($crate::role::Role::$role, $crate::role::Type::$kind $(($bytes))?)),*],
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
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_library_is_known_by_its_file_name() {
        for (name, family) in [
            ("libcuda.so.1", Some(Family::CudaDriver)),
            ("libcuda.so.550.163.01", Some(Family::CudaDriver)),
            ("libcudart.so.12", Some(Family::CudaRuntime)),
            ("libcudart-9335f6a2.so.12.9.79", Some(Family::CudaRuntime)),
            ("libamdhip64.so", Some(Family::Hip)),
            ("libnccl.so.2", Some(Family::Nccl)),
            ("librccl.so.1.0", Some(Family::Rccl)),
            ("libcupti.so.13", Some(Family::Cupti)),
            ("libtorch_cpu.so", Some(Family::Torch)),
            ("libtorch.so", None),
            ("libc10.so", Some(Family::C10)),
            ("libc10_cuda.so", Some(Family::C10Cuda)),
            ("libnvToolsExt.so.1", Some(Family::Nvtx)),
            ("libtorch_python.so", Some(Family::TorchPython)),
            ("libroctx64.so.4", Some(Family::Roctx)),
            ("librocprofiler-sdk-roctx.so.1", Some(Family::RoctxSdk)),
            ("libjax_common.so", Some(Family::Jax)),
            ("xla_extension.so", Some(Family::XlaExtension)),
            ("libcudadebugger.so.1", None),
            ("libcuda-notahash.so.1", None),
            ("libcuda.so.1.backup", None),
            ("libcuda.so1", None),
            ("cuda.so", None),
            ("", None),
        ] {
            let found = Family::ALL.into_iter().find(|f| f.is_named(name.as_bytes()));
            assert_eq!(found, family, "{name}");
        }
    }

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
        for row in rows().iter().filter(|row| row.event.is_launch() && row.event != Event::LaunchLegacy) {
            let arguments = row.arguments();
            let has = |role| arguments.iter().any(|argument| argument.role == role);
            let stream = has(Role::Stream) || row.event == Event::LaunchMultiDevice;
            let function = has(Role::Function) || row.event == Event::LaunchMultiDevice;
            assert!(stream && function, "{}", row.names[0].symbol);
        }
    }
}
