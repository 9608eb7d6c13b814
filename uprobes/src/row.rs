//! Rows: one row per function worth a probe.
//!
//! Owns: [`Row`], its names and versions, and why its return is probed. Because: the tables of the catalogue, code that
//! reads offsets from a library, and users' files all describe functions in this form. Does not: list functions
//! ([`crate::catalogue`]), or search for them ([`crate::locate`]).

use std::borrow::Cow;
use std::fmt;

use deepctx_events::{ContextCall, Event, Family, GpuCall, ModuleCall, Role};

use crate::abi::{self, Argument, Field, Type};

/// A library's version, in the vendor's numbering: CUDA 12.4, HIP 5.3, NCCL 2.18.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u16, pub u16);

impl Version {
    /// Parses `12.4`; for the tables, where an invalid one does not compile.
    pub(crate) const fn literal(text: &str) -> Self {
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

/// One exported name of a row's function. `_v2` names have later parameters; `_ptsz` and `_ptds` (HIP: `_spt`) names
/// use per-thread default streams. Each has its own code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The symbol.
    pub symbol: Cow<'static, str>,
    /// The first version that exports it, as stated by the vendor; `None` for a user's row.
    pub since: Option<Version>,
    /// Set if the parameters apply only to this major version, whose symbols are versioned `libcudart.so.MAJOR`.
    pub major: Option<u16>,
}

/// One function: its names, the meaning of a call, and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The library.
    pub family: Family,
    /// The meaning of a call.
    pub event: Event,
    /// Whether its return must be probed too, and why.
    pub returns: ReturnProbe,
    /// Its names; all take the same parameters.
    pub names: Cow<'static, [Name]>,
    /// Parameters in the order of the declaration.
    parameters: Cow<'static, [(Role, Type)]>,
    /// Fields to read through one of the pointers.
    fields: Cow<'static, [Field]>,
    /// Arguments whose locations do not follow from a declaration.
    placed: Cow<'static, [Argument]>,
}

impl Row {
    /// A row of the tables.
    pub(crate) const fn new(
        family: Family,
        event: Event,
        returns: ReturnProbe,
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

    /// A row whose argument locations were found in the code of the file itself.
    pub(crate) fn placed(
        family: Family,
        event: Event,
        symbol: impl Into<Cow<'static, str>>,
        arguments: Vec<Argument>,
    ) -> Self {
        Self {
            names: Cow::Owned(vec![Name { symbol: symbol.into(), since: None, major: None }]),
            placed: Cow::Owned(arguments),
            ..Self::new(family, event, ReturnProbe::NotNeeded, &[], &[], &[])
        }
    }

    /// The same functions in another library.
    pub(crate) fn in_family(&self, family: Family) -> Self {
        Self { family, ..self.clone() }
    }

    /// The same row with a probe on its return, or without one.
    pub(crate) fn with_returns(self, returns: ReturnProbe) -> Self {
        Self { returns, ..self }
    }

    /// Parameters in the order of the declaration, including those without a meaning.
    pub fn parameters(&self) -> &[(Role, Type)] {
        &self.parameters
    }

    /// Fields read through pointers.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Every argument with a meaning, and its location when the function is entered.
    pub fn arguments(&self) -> Vec<Argument> {
        let mut arguments = abi::arguments(&self.parameters, &self.fields);
        arguments.extend(self.placed.iter().cloned());
        arguments
    }

    /// The lower library in which the same call appears again.
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

macro_rules! returns {
    ($($variant:ident, $label:literal, $sentence:literal;)*) => {
        /// Whether the return of a call must be probed too, and why.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ReturnProbe { $(#[doc = $sentence] $variant,)* }

        impl ReturnProbe {
            /// Stable machine-readable name, kebab-case.
            pub const fn name(self) -> &'static str {
                match self { $(ReturnProbe::$variant => $label,)* }
            }

            /// One sentence for people.
            pub const fn sentence(self) -> &'static str {
                match self { $(ReturnProbe::$variant => $sentence,)* }
            }
        }
    };
}

returns! {
    NotNeeded, "not-needed", "everything is known when the function is entered";
    Blocking, "blocking", "the host waits inside: the time until the return is wanted";
    OutPointer, "out-pointer", "the result is written through a pointer, and is there when the function returns";
    Returned, "returned", "the result is what the function returns";
    Status, "status", "only the status that it returns says whether it was done";
}

impl ReturnProbe {
    /// True if a probe on the return is needed.
    pub const fn is_needed(self) -> bool {
        !matches!(self, Self::NotNeeded)
    }
}
