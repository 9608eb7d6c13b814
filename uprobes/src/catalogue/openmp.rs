//! GNU's runtime of OpenMP: where a thread hands work to others.
//!
//! Owns: the row for it. Because: half of what PyTorch, oneDNN and OpenBLAS do on a CPU is done by threads whose stacks begin in
//! this library and say nothing of who asked. Does not: say when the work is over: the thread that hands it out takes part and
//! waits for the others, so its next call comes after it.
//!
//! Declaration: libgomp/libgomp_g.h of GCC. What compilers make of `#pragma omp parallel` calls this one function, loops included.

use super::{Row, table};
use crate::event::Event;

pub(super) const ROWS: &[Row] = table! { OpenMp:
    Event::TeamBegins, NotNeeded => GOMP_parallel 4.0 (HostFunction Pointer, UserData Pointer, Count U32, Flags U32);
};
