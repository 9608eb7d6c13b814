//! Functions in which a thread waits without giving up its CPU.
//!
//! Owns: [`is_spinning`]. Because: their samples are CPU time but no work, and rules and views must agree on that.
//! Does not: know what a thread waits for.

/// Prefixes of names: barriers of libgomp, libomp and libiomp5, and the pool of OpenBLAS.
const BEGINNINGS: [&str; 6] = [
    "gomp_barrier_wait",
    "gomp_team_barrier_wait",
    "__kmp_hyper_barrier",
    "kmp_flag_64<",
    "blas_thread_server",
    "cpu_relax",
];

/// Whether the function of this demangled name is a loop that waits for other threads.
pub fn is_spinning(symbol: &str) -> bool {
    let begins = BEGINNINGS.iter().any(|begin| symbol.starts_with(begin));
    // The innermost loop of libgomp, where it was not inlined.
    let of_gomp = symbol == "do_spin" || symbol.starts_with("do_spin.");
    // A template: its name begins with its result type.
    let of_kmp = symbol.find("__kmp_").is_some_and(|at| symbol[at..].starts_with("__kmp_wait"));
    // The pool of XLA.
    let of_eigen = symbol.contains("ThreadPoolTempl") && symbol.contains("WaitForWork");
    begins || of_gomp || of_kmp || of_eigen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(symbol: &str, expect: bool) {
        assert_eq!(is_spinning(symbol), expect, "{symbol}");
    }

    #[test]
    fn loops_of_known_runtimes_are_recognised() {
        check("gomp_barrier_wait_end", true);
        check("gomp_team_barrier_wait_end", true);
        check("do_spin", true);
        check("do_spin.isra.0", true);
        check("__kmp_wait_4", true);
        check("bool __kmp_wait_template<kmp_flag_64<false, true>, false, true, true>(kmp_info*, int)", true);
        check("Eigen::ThreadPoolTempl<tsl::thread::EigenEnvironment>::WaitForWork(Waiter*)", true);
    }

    #[test]
    fn work_within_runtimes_is_no_spinning() {
        check("gomp_thread_start", false);
        check("GOMP_parallel", false);
        check("__kmp_invoke_microtask", false);
        check("do_spinup", false);
        check("", false);
    }
}
