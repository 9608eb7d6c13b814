//! The catalogue: every function worth a probe, with its parameters.
//!
//! Owns: the tables of each library, and the code that reads offsets from libraries whose structures differ between
//! versions. Because: probes on half of the ways to launch a kernel show half of the launches, so coverage must be one
//! list that can be read, checked against headers and compared with a real file. Does not: know processes, or how
//! probes are attached.
//!
//! Accelerators are covered by tables alone ([`rows`]). PyTorch and XLA are here too, although they need code: readers
//! look for a library in one place, and each of their files still produces rows. Users' rows have the same form, from a
//! file.

mod cuda;
mod cupti;
mod hip;
mod nccl;
mod nvtx;
mod openmp;
mod structs;
mod table;
pub(crate) mod torch;
pub mod user;
pub(crate) mod xla;

use std::borrow::Cow;
use std::sync::OnceLock;

use deepctx_events::Family;

use crate::row::Row;

/// The rows of PyTorch's allocators, probed on request.
pub(crate) fn allocator_rows() -> &'static [Row] {
    torch::allocator::ROWS
}

/// The rows for a library's ranges, probed on request.
pub(crate) fn range_rows(family: Family) -> Cow<'static, [Row]> {
    nvtx::rows(family)
}

/// The rows of an OpenMP runtime, probed on request.
pub(crate) fn openmp_rows(family: Family) -> Cow<'static, [Row]> {
    openmp::rows(family)
}

/// Every row of accelerator libraries, by family.
pub fn rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| {
        [cuda::DRIVER, cuda::RUNTIME, hip::ROWS, nccl::NCCL, nccl::RCCL, cupti::ROWS].concat()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::fs;

    use deepctx_events::{Event, GpuCall, LaunchCall, Role};

    use super::*;
    use crate::abi::Type;
    use crate::row::{Name, ReturnProbe, Version};

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
    fn what_is_read_through_a_pointer_has_a_pointer() {
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
    fn calls_with_a_result_pointer_have_one() {
        for row in rows().iter().filter(|row| row.returns == ReturnProbe::OutPointer) {
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

    /// The driver of the sample is of CUDA 12.4, and each of its names has its own code, hence its own probe.
    #[test]
    fn the_sample_in_the_documentation_counts_all_names() {
        let of_driver = rows().iter().filter(|row| row.family == Family::CudaDriver);
        let names = of_driver.flat_map(|row| row.names.iter());
        let (missing, probes): (Vec<&Name>, Vec<&Name>) =
            names.partition(|name| name.since > Some(Version(12, 4)));
        let heading = format!("(libcuda.so; {} probes, {} missing)", probes.len(), missing.len());
        let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/probes.md")).unwrap();
        assert!(page.contains(&heading), "docs/probes.md lacks {heading}");
    }
}
