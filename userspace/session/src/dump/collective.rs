//! Collectives: the operation with other ranks that a thread is in.
//!
//! Owns: the functions by which PyTorch, NCCL, RCCL, Gloo and MPI do such operations. Because: a rank in a collective
//! waits for the others, whatever its futex, socket or device is; the rank that is in none, or in another, is the one
//! to look at. Does not: know the communicator: it is an argument, and arguments are not kept in stacks.

use super::frame::DumpedFrame;

/// The file of PyTorch's own collectives. Wrappers of them have other files.
const PYTORCH: &str = "torch/distributed/distributed_c10d.py";

/// Functions of [`PYTORCH`] that wait for other ranks, or may do so.
const OF_PYTORCH: &[&str] = &[
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "gather",
    "irecv",
    "isend",
    "monitored_barrier",
    "new_group",
    "recv",
    "reduce",
    "scatter",
    "send",
];

/// Prefixes of native functions with the operation behind them.
const NATIVE: &[&str] = &["nccl", "gloo::", "MPI_", "PMPI_"];

/// Operations of [`NATIVE`], in lower case, and beginnings of longer names (`allgatherv`, `ReduceScatter`).
const OPERATIONS: &[&str] = &[
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "bcast",
    "broadcast",
    "commfinalize",
    "comminitrank",
    "commsplit",
    "gather",
    "recv",
    "reduce",
    "scan",
    "scatter",
    "send",
];

/// The name of the operation that these frames, leaf first, are in: that of PyTorch if there is one, else that of the
/// library.
pub(super) fn of(frames: &[DumpedFrame]) -> Option<String> {
    let of_pytorch = frames.iter().find(|frame| is_of_pytorch(frame)).map(|frame| frame.function.as_str());
    let native = frames.iter().rev().filter(|frame| frame.kind == "native");
    let mut of_library = native.map(|frame| bare(&frame.function)).filter(|name| is_of_library(name));
    of_pytorch.or_else(|| of_library.next()).map(str::to_owned)
}

fn is_of_pytorch(frame: &DumpedFrame) -> bool {
    let is_operation = |name: &&str| frame.function.strip_prefix(*name).is_some_and(is_rest);
    frame.kind == "python" && frame.file.ends_with(PYTORCH) && OF_PYTORCH.iter().any(is_operation)
}

/// `all_gather` stands for `all_gather_into_tensor`, too, and `reduce` for `reduce_scatter_tensor`, but not for another
/// word (`sender`).
fn is_rest(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('_')
}

fn is_of_library(name: &str) -> bool {
    let operation = NATIVE.iter().find_map(|prefix| name.strip_prefix(prefix));
    let lower = operation.map(str::to_ascii_lowercase);
    lower.is_some_and(|lower| OPERATIONS.iter().any(|known| lower.starts_with(known)))
}

/// A C++ name without its arguments.
fn bare(name: &str) -> &str {
    name.split(['(', '<']).next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::super::frame::FrameRole;
    use super::*;

    /// `native`, or `python@file`.
    fn frames(text: &str) -> Vec<DumpedFrame> {
        let frame = |word: &str| {
            let (kind, function, file) = match word.split_once('@') {
                Some((function, file)) => ("python", function, file),
                None => ("native", word, ""),
            };
            DumpedFrame {
                kind,
                function: function.to_owned(),
                file: file.to_owned(),
                line: None,
                role: FrameRole::Code,
                source: None,
            }
        };
        text.split(' ').map(frame).collect()
    }

    #[test]
    fn a_collective_is_named_by_the_outermost_that_is_known() {
        let check =
            |text: &str, expect: Option<&str>| assert_eq!(of(&frames(text)).as_deref(), expect, "{text}");
        let c10d = "/v/site-packages/torch/distributed/distributed_c10d.py";
        check(
            &format!(
                "poll gloo::allreduce(gloo::Options) all_reduce@{c10d} wrapper@{c10d} step@/srv/train.py"
            ),
            Some("all_reduce"),
        );
        check(
            &format!("poll all_gather_into_tensor@{c10d} step@/srv/train.py"),
            Some("all_gather_into_tensor"),
        );
        check(
            "poll gloo::allreduce(gloo::detail::AllreduceOptionsImpl) runLoop clone",
            Some("gloo::allreduce"),
        );
        check("poll ncclSendProxy ncclAllReduce c10d::ProcessGroupNCCL::allreduce", Some("ncclAllReduce"));
        check("poll bootstrapInit ncclCommInitRankConfig main", Some("ncclCommInitRankConfig"));
        check("opal_progress PMPI_Allreduce main", Some("PMPI_Allreduce"));
    }

    #[test]
    fn helpers_of_such_libraries_are_in_no_collective() {
        let check = |text: &str| assert_eq!(of(&frames(text)), None, "{text}");
        let c10d = "/v/site-packages/torch/distributed/distributed_c10d.py";
        check("futex_wait c10d::ProcessGroupNCCL::ncclCommWatchdog clone");
        check("futex_wait c10d::ProcessGroupGloo::runLoop clone");
        check("poll ncclProxyProgress clone");
        check(&format!("wait sender@{c10d}"));
        check(&format!("read init_process_group@{c10d}"));
        check("read all_reduce@/srv/train.py");
        check("MPI_Init main");
    }
}
