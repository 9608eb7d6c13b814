//! Surroundings: what tests need of the world, fetched once.
//!
//! Owns: which group needs what. Because: it comes over a network, which takes minutes in which the compiler can have the
//! machine. Does not: know how any of it is fetched or built.

use std::path::PathBuf;

use anyhow::Result;

use super::{Outcome, check};
use crate::{interpreters, kernels, sh, validators, vendors, workloads};

/// What test programs are told of the world around them.
#[derive(Default)]
pub(super) struct Surroundings {
    /// The program that users run.
    pub(super) product: Option<PathBuf>,
    /// For the tests of Python frames.
    pub(super) interpreters: Vec<sh::Variable>,
    /// For the tests of exports.
    pub(super) validators: Vec<sh::Variable>,
    /// For the tests of probes.
    pub(super) vendors: Vec<sh::Variable>,
    /// For the tests of PyTorch, which run with each.
    pub(super) torch: Vec<workloads::Torch>,
    /// For the tests of PyTorch, too.
    pub(super) triton: Vec<sh::Variable>,
    /// For the tests of JAX.
    pub(super) jax: Vec<sh::Variable>,
}

impl Surroundings {
    /// Fetches what the wanted groups need; `named` are those that the user asked for by name.
    pub(super) fn fetch(wanted: &dyn Fn(&str) -> bool, named: &[String]) -> (Self, Vec<Outcome>) {
        let mut all = Self::default();
        let mut outcomes = Vec::new();
        if wanted("python") {
            outcomes.push(check("interpreters", || {
                all.interpreters = interpreters::fetch()?.variables()?;
                Ok(())
            }));
        }
        if ["unit", "gpu"].into_iter().any(wanted) {
            outcomes.push(check("vendors' libraries", || {
                all.vendors = vendors::fetch()?;
                Ok(())
            }));
        }
        if wanted("exports") {
            outcomes.push(check("readers of exports", || {
                all.validators = validators::fetch()?;
                Ok(())
            }));
        }
        if wanted("kernels") && kernels::not_here_because().is_none() {
            outcomes.push(check("images of other kernels", || kernels::fetch().map(drop)));
        }
        // By name only: it is half a gigabyte for each release.
        let is_named = |group: &str| named.iter().any(|name| name == group);
        if is_named("torch") {
            outcomes.push(check("torch", || {
                let releases = workloads::TORCH.into_iter().map(workloads::torch_python);
                all.torch = releases.collect::<Result<_>>()?;
                all.triton = vec![("TEST_TRITON_PYTHON", workloads::triton_python()?.into())];
                Ok(())
            }));
        }
        if is_named("jax") {
            outcomes.push(check("jax", || {
                all.jax = vec![("TEST_JAX_PYTHON", workloads::jax_python()?.into())];
                Ok(())
            }));
        }
        (all, outcomes)
    }
}
