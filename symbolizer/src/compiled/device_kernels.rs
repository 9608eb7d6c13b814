//! The origin of device kernels, from their names and launch sites.
//!
//! Owns: the launches of a generated file, and how results of several compilers are combined. Because: the code of
//! such a kernel is not available, names recur in every program, and only the line that launches a kernel, or the
//! kernels loaded with it, identify it. Does not: choose between several units: the origin then names all of them.

use std::sync::Arc;

use super::{Compiler, KernelOrigin, NoOrigin, Operator, OriginResult, SourceLine};

/// Most units listed for an ambiguous kernel.
const LISTED_MAX: usize = 4;

/// A kernel launch of a generated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Name of the kernel on the device.
    pub name: String,
    /// Line of the launch, from 1; 0 when not known.
    pub line: u32,
    /// Origin of this launch.
    pub kernel: Arc<KernelOrigin>,
}

/// The kernel launches of a generated file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLaunches {
    /// The launches, by kernel and line.
    pub launches: Vec<Launch>,
    /// Whether the graph with the source lines was found, too.
    pub complete: bool,
}

/// The origin of a kernel that either compiler may have compiled, and whether more may be known later.
pub(super) fn either(xla: OriginResult, triton: OriginResult) -> (OriginResult, bool) {
    let later = |result: &OriginResult| matches!(result, Err(NoOrigin::NotFound | NoOrigin::Ambiguous));
    let again = later(&xla) || xla.as_ref().is_ok_and(|kernel| kernel.ops.is_empty());
    match (xla, triton) {
        (Ok(_), Ok(_)) => (Err(NoOrigin::Ambiguous), true),
        (Ok(kernel), Err(_)) => (Ok(kernel), again),
        (Err(_), Ok(kernel)) => (Ok(kernel), false),
        (Err(NoOrigin::NoFiles), Err(reason)) => (Err(reason), later(&Err(reason))),
        (Err(reason), Err(_)) => (Err(reason), true),
    }
}

/// The origin of a kernel that several units have: their common origin, or else one that lists the units.
pub(super) fn among(compiler: Compiler, kernels: &[Arc<KernelOrigin>]) -> OriginResult {
    let (first, rest) = kernels.split_first().ok_or(NoOrigin::NotFound)?;
    if rest.iter().all(|other| other == first) {
        return Ok(Arc::clone(first));
    }
    let mut units: Vec<&str> = kernels.iter().map(|kernel| &*kernel.unit).collect();
    units.sort_unstable();
    units.dedup();
    let more = units.len().saturating_sub(LISTED_MAX);
    units.truncate(LISTED_MAX);
    let mut unit = units.join(" or ");
    if more > 0 {
        unit.push_str(&format!(" or {more} more"));
    }
    Ok(Arc::new(KernelOrigin { compiler, unit: unit.into(), ops: Vec::new(), others: Vec::new() }))
}

/// A Triton kernel: only the line of its definition is known.
pub(super) fn defined_at(unit: &str, line: SourceLine) -> KernelOrigin {
    let op = Operator { name: "".into(), stack: vec![line] };
    KernelOrigin { compiler: Compiler::Triton, unit: unit.into(), ops: vec![op], others: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(unit: &str, line: u32) -> Arc<KernelOrigin> {
        let line = SourceLine { file: "/srv/net.py".into(), function: "f".into(), line };
        let op = Operator { name: "aten::add".into(), stack: vec![line] };
        Arc::new(KernelOrigin {
            compiler: Compiler::Inductor,
            unit: unit.into(),
            ops: vec![op],
            others: Vec::new(),
        })
    }

    #[test]
    fn differing_units_are_listed_without_operators() {
        let same = among(Compiler::Xla, &[kernel("jit_f", 1), kernel("jit_f", 1)]).unwrap();
        assert_eq!(same.stack().len(), 1);
        let several = among(Compiler::Xla, &[kernel("jit_g", 1), kernel("jit_f", 2)]).unwrap();
        assert_eq!((several.unit_label().as_str(), several.stack().len()), ("[xla jit_f or jit_g]", 0));
        let many: Vec<_> = (0..9).map(|n| kernel(&format!("u{n}"), n + 1)).collect();
        assert_eq!(&*among(Compiler::Xla, &many).unwrap().unit, "u0 or u1 or u2 or u3 or 5 more");
        assert_eq!(among(Compiler::Xla, &[]), Err(NoOrigin::NotFound));
    }

    #[test]
    fn a_kernel_of_two_compilers_is_ambiguous() {
        let both = either(Ok(kernel("jit_f", 1)), Ok(kernel("f", 2)));
        assert_eq!(both, (Err(NoOrigin::Ambiguous), true));
        assert_eq!(either(Err(NoOrigin::NoFiles), Err(NoOrigin::NoFiles)), (Err(NoOrigin::NoFiles), false));
        assert!(either(Err(NoOrigin::NotFound), Err(NoOrigin::NoFiles)).1);
        assert_eq!(either(Err(NoOrigin::NotFound), Ok(kernel("f", 2))), (Ok(kernel("f", 2)), false));
    }
}
