//! Runtimes of OpenMP: where a parallel region begins.
//!
//! Owns: the rows for it. Because: half of the CPU work of PyTorch, oneDNN and OpenBLAS runs on threads whose stacks
//! begin in such a library and do not show which thread started the region. Does not: show when a region ends: the
//! thread that starts it takes part and waits for the others, so its next call comes after it.
//!
//! Declarations: libgomp/libgomp_g.h of GCC, openmp/runtime/src/kmp.h of LLVM. For `#pragma omp parallel`, loops
//! included, GCC emits calls of `GOMP_parallel` and Clang of `__kmpc_fork_call`; LLVM's runtime has both.

use std::borrow::Cow;

use deepctx_events::{Family, OpenMpEvent};

use super::table::table;
use crate::row::Row;

const GNU: &[Row] = table! { GnuOpenMp, OpenMp:
    OpenMpEvent::ParallelBegins, NotNeeded => GOMP_parallel 4.0 (HostFunction Pointer, UserData Pointer, Count U32, Flags U32);
};

const LLVM: &[Row] = table! { LlvmOpenMp, OpenMp:
    OpenMpEvent::ParallelBegins, NotNeeded => GOMP_parallel 4.0 (HostFunction Pointer, UserData Pointer, Count U32, Flags U32);
    // The function's own arguments follow; the second states their number.
    OpenMpEvent::ParallelBegins, NotNeeded => __kmpc_fork_call 3.0 (Config Pointer, Other I32, HostFunction Pointer);
};

/// The rows of a runtime.
pub(super) fn rows(family: Family) -> Cow<'static, [Row]> {
    match family {
        Family::GnuOpenMp => GNU.into(),
        Family::LlvmOpenMp => LLVM.into(),
        Family::IntelOpenMp => LLVM.iter().map(|row| row.in_family(family)).collect(),
        _ => Cow::Borrowed(&[]),
    }
}
