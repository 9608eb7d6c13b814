//! Names as Nsight Systems writes them, as other traces have them.
//!
//! Owns: versions behind names of calls, what PyTorch writes into its ranges, directions of copies. Because: analyses
//! and comparisons go by names, and those of two tools must be the same. Does not: look anything up.

use deepctx_profile::trace::HostKind;

/// `cudaLaunchKernel_v7000` is `cudaLaunchKernel`: the number is CUPTI's version of the API. The `_v2` of a driver call
/// belongs to its name.
pub(super) fn call(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((call, version)) if version.len() >= 4 && version.bytes().all(|byte| byte.is_ascii_digit()) => {
            call
        }
        _ => name,
    }
}

/// Whether a call is of the runtime or the driver. A row also states it, by numbers that differ between versions.
pub(super) fn kind_of_call(name: &str) -> HostKind {
    if name.starts_with("cu") && !name.starts_with("cuda") {
        HostKind::DriverCall
    } else {
        HostKind::RuntimeCall
    }
}

/// Kind and name of a range. PyTorch (`emit_nvtx`) writes operators as `aten::mm, seq = 3, op_id = 9, sizes = …`: each
/// would have its own name.
pub(super) fn range(text: &str) -> (HostKind, &str) {
    if text.starts_with("ProfilerStep") {
        return (HostKind::Step, text);
    }
    let parts = [", seq = ", ", op_id = "];
    match parts.into_iter().filter_map(|part| text.find(part)).min() {
        Some(end) if end > 0 => (HostKind::Operator, &text[..end]),
        _ => (HostKind::Annotation, text),
    }
}

/// `Memcpy HtoD (Pageable -> Device)`, in Kineto's notation. The direction is the end of CUPTI's name
/// (`CUDA_MEMCPY_KIND_HTOD`).
pub(super) fn copy(direction: &str, from: Option<&str>, to: Option<&str>) -> String {
    let direction = direction.strip_prefix("CUDA_MEMCPY_KIND_").unwrap_or(direction);
    let (managed, ends) = match direction.strip_prefix("UVM_") {
        Some(ends) => ("Unified ", ends),
        None => ("", direction),
    };
    let ends = match ends.split_once("TO") {
        Some((from, to)) if from.len() == 1 && to.len() == 1 => format!("{from}to{to}"),
        _ => "Unknown".to_owned(),
    };
    match (from, to) {
        (Some(from), Some(to)) => format!("Memcpy {managed}{ends} ({from} -> {to})"),
        _ => format!("Memcpy {managed}{ends}"),
    }
}

/// Copy directions by CUPTI's numbers (`CUpti_ActivityMemcpyKind`), for files without their names.
pub(super) const COPIES: [&str; 14] = [
    "UNKNOWN", "HTOD", "DTOH", "HTOA", "ATOH", "ATOA", "ATOD", "DTOA", "DTOD", "HTOH", "PTOP", "UVM_HTOD",
    "UVM_DTOH", "UVM_DTOD",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_behind_calls_are_no_part_of_their_names() {
        let check = |name: &str, kind, expect: &str| {
            assert_eq!((kind_of_call(name), call(name)), (kind, expect), "{name}");
        };
        check("cudaLaunchKernel_v7000", HostKind::RuntimeCall, "cudaLaunchKernel");
        check("cudaGraphLaunch_ptsz_v10000", HostKind::RuntimeCall, "cudaGraphLaunch_ptsz");
        check("cuMemcpyHtoDAsync_v2", HostKind::DriverCall, "cuMemcpyHtoDAsync_v2");
        check("cuLaunchKernel", HostKind::DriverCall, "cuLaunchKernel");
        check("a_vast", HostKind::RuntimeCall, "a_vast");
    }

    #[test]
    fn ranges_of_pytorch_are_operators() {
        let check = |text: &str, expect| assert_eq!(range(text), expect, "{text}");
        check("aten::view, op_id = 314290", (HostKind::Operator, "aten::view"));
        check("aten::mm, seq = 7, op_id = 3, sizes = [[2, 2]]", (HostKind::Operator, "aten::mm"));
        check("ProfilerStep#7", (HostKind::Step, "ProfilerStep#7"));
        check("forward, then backward", (HostKind::Annotation, "forward, then backward"));
        check(", seq = 1", (HostKind::Annotation, ", seq = 1"));
    }

    #[test]
    fn copies_are_named_as_kineto_names_them() {
        let check = |direction: &str, kinds: Option<(&str, &str)>, expect: &str| {
            assert_eq!(copy(direction, kinds.map(|kinds| kinds.0), kinds.map(|kinds| kinds.1)), expect);
        };
        check("CUDA_MEMCPY_KIND_HTOD", Some(("Pageable", "Device")), "Memcpy HtoD (Pageable -> Device)");
        check("DTOH", None, "Memcpy DtoH");
        check("CUDA_MEMCPY_KIND_UVM_HTOD", None, "Memcpy Unified HtoD");
        check("anything", None, "Memcpy Unknown");
    }
}
