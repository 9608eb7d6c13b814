//! Kernels of devices: what they were compiled from, by their names and by who launches them.
//!
//! Owns: what a generated file launches, and what it means when compilers disagree. Because: the code of such a kernel is nowhere
//! that is looked at, names come again in every program, and only the line that launches a kernel, or what was loaded
//! with it, tells which one it is. Does not: choose where that does not tell either: then it says among which.

use std::sync::Arc;

use super::{Answer, Compiler, Kernel, Line, NoKernel, Op};

/// Most units that are listed of a kernel that may be any of theirs.
const LISTED_MAX: usize = 4;

/// A kernel that a generated file launches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// What the device calls it.
    pub name: String,
    /// The line of the file that launches it, from 1; 0 when it is not known.
    pub line: u32,
    /// What that launch was made from.
    pub kernel: Arc<Kernel>,
}

/// What a generated file launches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launches {
    /// By kernel and line.
    pub launched: Vec<Launched>,
    /// Whether the files beside it that tell lines were found, too.
    pub complete: bool,
}

/// What is known of a kernel that either compiler may have made, and whether more may be known later.
pub(super) fn either(xla: Answer, triton: Answer) -> (Answer, bool) {
    let later = |answer: &Answer| matches!(answer, Err(NoKernel::NotThere | NoKernel::Ambiguous));
    let again = later(&xla) || xla.as_ref().is_ok_and(|kernel| kernel.ops.is_empty());
    match (xla, triton) {
        (Ok(_), Ok(_)) => (Err(NoKernel::Ambiguous), true),
        (Ok(kernel), Err(_)) => (Ok(kernel), again),
        (Err(_), Ok(kernel)) => (Ok(kernel), false),
        (Err(NoKernel::NoFiles), Err(why)) => (Err(why), later(&Err(why))),
        (Err(why), Err(_)) => (Err(why), true),
    }
}

/// Of several units that have a kernel of one name: what they all say, or else among which it is.
pub(super) fn among(compiler: Compiler, kernels: &[Arc<Kernel>]) -> Answer {
    let (first, rest) = kernels.split_first().ok_or(NoKernel::NotThere)?;
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
    Ok(Arc::new(Kernel { compiler, unit: unit.into(), ops: Vec::new(), others: Vec::new() }))
}

/// A kernel of which only its own line is known.
pub(super) fn written_at(unit: &str, line: Line) -> Kernel {
    let op = Op { name: "".into(), stack: vec![line] };
    Kernel { compiler: Compiler::Triton, unit: unit.into(), ops: vec![op], others: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(unit: &str, line: u32) -> Arc<Kernel> {
        let line = Line { file: "/srv/net.py".into(), function: "f".into(), line };
        let op = Op { name: "aten::add".into(), stack: vec![line] };
        Arc::new(Kernel {
            compiler: Compiler::Inductor,
            unit: unit.into(),
            ops: vec![op],
            others: Vec::new(),
        })
    }

    #[test]
    fn units_that_disagree_are_named_and_nothing_else_is_said() {
        let same = among(Compiler::Xla, &[kernel("jit_f", 1), kernel("jit_f", 1)]).unwrap();
        assert_eq!(same.stack().len(), 1);
        let several = among(Compiler::Xla, &[kernel("jit_g", 1), kernel("jit_f", 2)]).unwrap();
        assert_eq!((several.unit_label().as_str(), several.stack().len()), ("[xla jit_f or jit_g]", 0));
        let many: Vec<_> = (0..9).map(|n| kernel(&format!("u{n}"), n + 1)).collect();
        assert_eq!(&*among(Compiler::Xla, &many).unwrap().unit, "u0 or u1 or u2 or u3 or 5 more");
        assert_eq!(among(Compiler::Xla, &[]), Err(NoKernel::NotThere));
    }

    #[test]
    fn a_kernel_that_two_compilers_may_have_made_is_none_of_either() {
        let both = either(Ok(kernel("jit_f", 1)), Ok(kernel("f", 2)));
        assert_eq!(both, (Err(NoKernel::Ambiguous), true));
        assert_eq!(either(Err(NoKernel::NoFiles), Err(NoKernel::NoFiles)), (Err(NoKernel::NoFiles), false));
        assert!(either(Err(NoKernel::NotThere), Err(NoKernel::NoFiles)).1);
        assert_eq!(either(Err(NoKernel::NotThere), Ok(kernel("f", 2))), (Ok(kernel("f", 2)), false));
    }
}
