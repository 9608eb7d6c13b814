//! Applicable features: those for libraries that processes have mapped.
//!
//! Owns: for which libraries each probe feature is chosen without being named. Because: whoever does not know the names
//! of features has a program, and its mapped files tell what it runs. Does not: request features, or know their cost.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use deepctx_events::Family;
use deepctx_uprobes::Library;
use deepctx_uprobes::locate::libraries;

use super::config::ProbeFeature;

/// Libraries with their features. Left out: backward passes and memory, which show little in short duty windows, and
/// awaiting tasks, whose cost has no budget.
const FEATURES: [(Family, &[ProbeFeature]); 9] = [
    (Family::Torch, &[ProbeFeature::Operators, ProbeFeature::Modules, ProbeFeature::Ranges]),
    (Family::Jax, &[ProbeFeature::Operators]),
    (Family::XlaExtension, &[ProbeFeature::Operators]),
    (Family::Nvtx, &[ProbeFeature::Ranges]),
    (Family::Roctx, &[ProbeFeature::Ranges]),
    (Family::RoctxSdk, &[ProbeFeature::Ranges]),
    (Family::GnuOpenMp, &[ProbeFeature::Openmp]),
    (Family::LlvmOpenMp, &[ProbeFeature::Openmp]),
    (Family::IntelOpenMp, &[ProbeFeature::Openmp]),
];

/// A feature, and the library that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applicable {
    /// The feature.
    pub feature: ProbeFeature,
    /// File name of the library, without its version.
    pub library: &'static str,
}

/// The features for files with these paths, each once; those of one library are neighbors.
pub fn of_paths<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Vec<Applicable> {
    let family = |path: &'p Path| {
        let name = path.file_name()?.as_bytes();
        Family::ALL.into_iter().find(|family| family.is_named(name))
    };
    of_families(&paths.into_iter().filter_map(family).collect())
}

/// The features for what these processes have mapped, and the number of processes that could not be read.
pub fn of_processes(pids: &[u32]) -> (Vec<Applicable>, usize) {
    let (mut mapped, mut unread) = (BTreeSet::new(), 0);
    for pid in pids {
        match libraries::of_process(*pid) {
            Ok(libraries) => mapped.extend(libraries.iter().filter_map(Library::family)),
            // Some end meanwhile, and most cannot be read without privileges.
            Err(_) => unread += 1,
        }
    }
    (of_families(&mapped), unread)
}

/// The features for all libraries.
pub fn of_all_libraries() -> Vec<Applicable> {
    of_families(&Family::ALL.into_iter().collect())
}

fn of_families(mapped: &BTreeSet<Family>) -> Vec<Applicable> {
    let mut found: Vec<Applicable> = Vec::new();
    for (family, features) in FEATURES {
        for &feature in features.iter().filter(|_| mapped.contains(&family)) {
            if found.iter().all(|it| it.feature != feature) {
                found.push(Applicable { feature, library: family.library() });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::ProbeFeature::{Modules, Openmp, Operators, Ranges};
    use super::*;

    #[test]
    fn mapped_libraries_choose_their_features_once() {
        let check = |paths: &[&str], expect: &[(ProbeFeature, &str)]| {
            let found = of_paths(paths.iter().map(Path::new));
            let found: Vec<_> = found.iter().map(|it| (it.feature, it.library)).collect();
            assert_eq!(found, expect, "{paths:?}");
        };
        let torch = "libtorch_cpu.so";
        let of_torch = [(Operators, torch), (Modules, torch), (Ranges, torch)];
        check(&[], &[]);
        check(&["/usr/bin/python3.12", "/lib/libc.so.6", "/lib/libcuda.so.1", "/"], &[]);
        check(&["/v/torch/lib/libtorch_cpu.so", "/v/libc10.so", "/l/libnvToolsExt.so.1"], &of_torch);
        check(
            &["/v/torch/lib/libgomp-a34b3233.so.1", "/v/libtorch_cpu.so", "/l/libiomp5.so"],
            &[&of_torch[..], &[(Openmp, "libgomp.so")]].concat(),
        );
        check(&["/v/jaxlib/libjax_common.so"], &[(Operators, "libjax_common.so")]);
        check(&["/v/jaxlib/xla_extension.so"], &[(Operators, "xla_extension.so")]);
        check(&["/opt/rocm/lib/libroctx64.so.4"], &[(Ranges, "libroctx64.so")]);
    }

    #[test]
    fn features_of_all_libraries_need_no_paths() {
        let all: Vec<ProbeFeature> = of_all_libraries().iter().map(|it| it.feature).collect();
        assert_eq!(all, [Operators, Modules, Ranges, Openmp]);
    }

    #[test]
    fn processes_that_cannot_be_read_are_counted() {
        // This process has none of the libraries.
        assert_eq!(of_processes(&[std::process::id(), u32::MAX]), (Vec::new(), 1));
    }
}
