//! Threads that run no Python of their own: which runtime started them.
//!
//! Owns: [`WorkerKind`]. Because: the Python view shows their time as one box, and the runtime that owns them says
//! what to do about it. Does not: know which thread gave a worker its work; `--probe openmp` finds that.

/// The runtime that a thread works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerKind {
    /// Threads of libgomp, libomp or libiomp5.
    OpenMp,
    /// Threads of PyTorch's autograd engine.
    Autograd,
    /// Threads of OpenBLAS.
    Blas,
    /// Pools of PyTorch, Eigen and XLA.
    Pool,
}

impl WorkerKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OpenMp, Self::Autograd, Self::Blas, Self::Pool];

    /// Display name of its threads.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMp => "OpenMP workers",
            Self::Autograd => "autograd threads",
            Self::Blas => "BLAS workers",
            Self::Pool => "pool workers",
        }
    }

    /// The runtime of a thread whose first function has this demangled name.
    pub fn of(symbol: &str) -> Option<Self> {
        let begins = |beginnings: &[&str]| beginnings.iter().any(|begin| symbol.starts_with(begin));
        if begins(&["gomp_thread_start", "__kmp_launch_worker", "__kmp_launch_thread"]) {
            Some(Self::OpenMp)
        } else if begins(&[
            "torch::autograd::Engine::thread_init",
            "torch::autograd::python::PythonEngine::thread_init",
        ]) {
            Some(Self::Autograd)
        } else if begins(&["blas_thread_server"]) {
            Some(Self::Blas)
        } else if begins(&["c10::ThreadPool::main_loop"])
            || symbol.contains("ThreadPoolTempl") && symbol.contains("::WorkerLoop")
        {
            Some(Self::Pool)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(symbol: &str, expect: Option<WorkerKind>) {
        assert_eq!(WorkerKind::of(symbol), expect, "{symbol}");
    }

    #[test]
    fn threads_are_known_by_their_first_function() {
        check("gomp_thread_start", Some(WorkerKind::OpenMp));
        check("__kmp_launch_worker(void*)", Some(WorkerKind::OpenMp));
        check(
            "torch::autograd::Engine::thread_init(int, std::shared_ptr<…> const&)",
            Some(WorkerKind::Autograd),
        );
        check("blas_thread_server", Some(WorkerKind::Blas));
        check("c10::ThreadPool::main_loop(unsigned long)", Some(WorkerKind::Pool));
        check(
            "Eigen::ThreadPoolTempl<tsl::thread::EigenEnvironment>::WorkerLoop(int)",
            Some(WorkerKind::Pool),
        );
        check("Eigen::ThreadPoolTempl<tsl::thread::EigenEnvironment>::Schedule()", None);
        check("gomp_team_start", None);
        check("start_thread", None);
    }
}
