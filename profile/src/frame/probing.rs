//! Functions by which the kernel enters probes and the programs behind them.
//!
//! Owns: [`is_probe`]. Because: their samples are the cost of profiling, not work of the program, and rules and views
//! must agree on that. Does not: know whose probe it is.

/// Prefixes of names: uprobes, kprobes, tracepoints and trampolines of programs that trace. Programs that filter
/// packets, or calls of a cgroup, are entered otherwise.
pub const PROBE_BEGINNINGS: [&str; 14] = [
    "__uprobe_",
    "uprobe_",
    "uretprobe_",
    "arch_uprobe_",
    "__x64_sys_uretprobe",
    "__x64_sys_uprobe",
    "kprobe_",
    "kretprobe_",
    "trace_call_bpf",
    "__bpf_trace_",
    "bpf_trace_run",
    "bpf_overflow_handler",
    "bpf_trampoline_",
    "asm_exc_int3",
];

/// Whether the kernel function of this name enters a probe.
pub fn is_probe(symbol: &str) -> bool {
    PROBE_BEGINNINGS.iter().any(|begin| symbol.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_probes_are_recognised() {
        let check = |symbol: &str, expect: bool| assert_eq!(is_probe(symbol), expect, "{symbol}");
        check("asm_exc_int3", true);
        check("uprobe_notify_resume", true);
        check("__x64_sys_uretprobe", true);
        check("bpf_trace_run4", true);
        // Other exceptions, and a program that filters packets.
        check("asm_exc_page_fault", false);
        check("bpf_prog_6deef7357e7b4530_sd_fw_egress", false);
        check("do_syscall_64", false);
    }
}
