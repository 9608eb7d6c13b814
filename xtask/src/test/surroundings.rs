//! Surroundings: external requirements of tests, fetched once.
//!
//! Owns: the requirements of each group. Because: downloads take minutes, in which the compiler can use the machine.
//! Does not: know how any of it is fetched or built.

use super::outcome::{Outcome, check};
use super::{KERNELS_OF_GROUPS, Options, PYTHON_OPTIMIZED, TORCH_OLDER};
use crate::{ebpf, interpreters, kernels, sh, toolchain, validators, vendors, workloads};

/// An environment of a group's programs, if they run more than once.
#[derive(Default)]
pub(super) struct Variant {
    /// Suffix of the program's name; empty for the default.
    pub(super) name: String,
    pub(super) variables: Vec<sh::Variable>,
}

/// Environments of test programs.
#[derive(Default)]
pub(super) struct TestEnvironment {
    /// For the Python frame tests, which run once with each.
    python: Vec<Variant>,
    /// For the live stack tests.
    pub(super) live: Vec<sh::Variable>,
    /// For the export tests.
    pub(super) validators: Vec<sh::Variable>,
    /// For the probe tests.
    pub(super) vendors: Vec<sh::Variable>,
    /// For the PyTorch tests, which run once with each.
    torch: Vec<Variant>,
    /// Also for the PyTorch tests.
    pub(super) triton: Vec<sh::Variable>,
    /// For the JAX tests.
    pub(super) jax: Vec<sh::Variable>,
}

impl TestEnvironment {
    /// Fetches the requirements of the wanted groups.
    pub(super) fn fetch(options: &Options) -> (Self, Vec<Outcome>) {
        let mut all = Self::default();
        let mut outcomes = Vec::new();
        // First, because readers of exports read its exports.
        if options.wants_any(&["torch", "exports"]) {
            outcomes.push(all.fetch_torch(None));
        }
        if options.wants(TORCH_OLDER) {
            outcomes.push(all.fetch_torch(Some(workloads::TORCH_OLDER)));
        }
        if options.wants_any(&["torch", TORCH_OLDER]) {
            outcomes.push(check("triton", || {
                all.triton = vec![("TEST_TRITON_PYTHON", workloads::triton_python()?.into())];
                Ok(())
            }));
        }
        if options.wants("jax") {
            outcomes.push(check("jax", || {
                all.jax = vec![("TEST_JAX_PYTHON", workloads::jax_python()?.into())];
                Ok(())
            }));
        }
        outcomes.extend(all.fetch_interpreters(options));
        if options.wants("live") {
            outcomes.extend(all.fetch_for_live());
        }
        if options.wants_any(&["unit", "gpu"]) {
            outcomes.push(check("vendors' libraries", || {
                all.vendors = vendors::fetch()?;
                Ok(())
            }));
        }
        if options.wants("exports") {
            outcomes.push(check("readers of exports", || {
                all.validators = validators::fetch()?;
                Ok(())
            }));
        }
        if options.wants("ebpf") && sh::in_ci() && ebpf::no_check_because().is_none() {
            // It compiles for minutes on a new machine: beside the tests, it would take the CPU that they expect.
            outcomes.push(check("BPF toolchain", || {
                toolchain::install_rust_src()?;
                toolchain::install_linker().map(drop)
            }));
        }
        for (group, kernels) in KERNELS_OF_GROUPS {
            if options.wants(group) && kernels::not_here_because().is_none() {
                outcomes.push(check("images of other kernels", || kernels::fetch(kernels).map(drop)));
            }
        }
        (all, outcomes)
    }

    fn fetch_for_live(&mut self) -> [Outcome; 4] {
        let greenlets = check("greenlets", || {
            let pythons = workloads::greenlet_pythons()?;
            self.live.push(("TEST_GREENLET_PYTHONS", std::env::join_paths(pythons)?));
            Ok(())
        });
        let numba = check("numba", || {
            self.live.push(("TEST_NUMBA_PYTHON", workloads::numba_python()?.into()));
            Ok(())
        });
        let go = check("Go", || {
            self.live.push(("TEST_GO", workloads::go()?.into()));
            Ok(())
        });
        let services = check("web services", || {
            self.live.push(("TEST_FASTAPI_PYTHON", workloads::fastapi_python()?.into()));
            self.live.push(("TEST_GUNICORN_PYTHON", workloads::gunicorn_python()?.into()));
            Ok(())
        });
        [greenlets, numba, go, services]
    }

    fn fetch_interpreters(&mut self, options: &Options) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        if options.wants("python") {
            outcomes.push(check("interpreters", || {
                let variables = interpreters::fetch()?.variables()?;
                self.python.push(Variant { variables, ..Variant::default() });
                Ok(())
            }));
        }
        if options.wants(PYTHON_OPTIMIZED) {
            outcomes.push(check("optimized interpreters", || {
                let variables = interpreters::fetch_optimized()?.alone()?;
                self.python.push(Variant { name: "optimized".to_owned(), variables });
                Ok(())
            }));
        }
        outcomes
    }

    fn fetch_torch(&mut self, release: Option<&str>) -> Outcome {
        let name = release.map_or_else(|| "torch".to_owned(), |release| format!("torch {release}"));
        check(&name, || {
            let torch = workloads::torch_python(release)?;
            let name = format!("torch {}", torch.release);
            self.torch.push(Variant { name, variables: torch.variables().into() });
            Ok(())
        })
    }

    /// The environments of a group's programs; empty for most.
    pub(super) fn variants(&self, group: &str) -> &[Variant] {
        match group {
            "torch" => &self.torch,
            "python" => &self.python,
            _ => &[],
        }
    }
}
