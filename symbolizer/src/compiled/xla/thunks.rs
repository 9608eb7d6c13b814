//! The origin of thunks of running modules.
//!
//! Owns: finding the module by the number and name that the runtime reports. Because: a thunk that calls a library
//! has no code of its own by which it could be found. Does not: choose between modules of the cache that have the
//! same name and a different origin for the thunk.

use std::sync::Arc;

use super::{BINARIES, Process, TEXTS};
use crate::compiled::device_kernels::among;
use crate::compiled::{Compiler, KernelOrigin, NoOrigin, OriginResult, XlaModule};

impl Process {
    /// The origin of a thunk of a module. `fused`: other operators may be fused into it.
    pub(in crate::compiled) fn thunk(
        &mut self,
        time_ns: u64,
        module: XlaModule<'_>,
        thunk: &str,
        fused: bool,
    ) -> OriginResult {
        if self.dump.is_none() && self.cache.is_none() {
            return Err(NoOrigin::NoFiles);
        }
        let dumped = self.dumped_module(module);
        let dumped = dumped.and_then(|index| self.thunk_in(index, module, thunk, fused));
        if let Some(kernel) = dumped {
            return Ok(kernel);
        }
        if let Some(folder) = self.cache.take() {
            if self.start_scan(time_ns) {
                self.read_cache(&folder);
            }
            self.cache = Some(folder);
        }
        let of_cache: Vec<usize> =
            (0..self.modules.len()).filter(|index| self.modules[*index].prefix.is_empty()).collect();
        let kernels: Vec<Arc<KernelOrigin>> =
            of_cache.into_iter().filter_map(|index| self.thunk_in(index, module, thunk, fused)).collect();
        let origin = among(Compiler::Xla, &kernels)?;
        // All modules have the same name, so an origin that lists them would be useless.
        if origin.ops.is_empty() && kernels.iter().any(|kernel| !kernel.ops.is_empty()) {
            return Err(NoOrigin::Ambiguous);
        }
        Ok(origin)
    }

    fn thunk_in(
        &mut self,
        index: usize,
        module: XlaModule<'_>,
        thunk: &str,
        fused: bool,
    ) -> Option<Arc<KernelOrigin>> {
        let hlo = self.hlo(index)?;
        let is_same =
            if module.truncated { hlo.name.starts_with(module.name) } else { hlo.name == module.name };
        is_same.then(|| hlo.thunk(thunk, fused)).flatten().map(Arc::new)
    }

    /// The module with this number and name in the dump, if this process wrote it.
    fn dumped_module(&mut self, module: XlaModule<'_>) -> Option<usize> {
        let folder = self.dump.as_ref()?;
        let start = self.device.process_start?;
        let name_start = format!("module_{:04}.{}", module.number, module.name);
        let suffixes = || TEXTS[..1].iter().chain(&BINARIES);
        let is_own = |prefix: &str, suffix: &str| {
            folder.modified(&format!("{prefix}{suffix}")).is_some_and(|at| at >= start)
        };
        let prefix = if module.truncated {
            let names = folder.names();
            let mut of_module = names.iter().filter_map(|name| {
                let rest = name.strip_prefix(&name_start)?;
                suffixes()
                    .find_map(|suffix| rest.strip_suffix(suffix))
                    .map(|end| format!("{name_start}{end}"))
            });
            let first = of_module.next()?;
            of_module.all(|other| other == first).then_some(first)?
        } else {
            name_start
        };
        suffixes().any(|suffix| is_own(&prefix, suffix)).then(|| self.module(&prefix))?
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::module;
    use super::*;
    use crate::compiled::Settings;

    /// The operators of `dot.3` in module `number` of this name, and its line, with these files in the dump.
    #[track_caller]
    fn check(
        files: &[(&str, &str, u32)],
        number: u64,
        name: &str,
        truncated: bool,
        expect: Option<(&str, u32)>,
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (file, of, line) in files {
            let text = module(of, &[("dot.3", *line)]);
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        let settings = Settings { dump: Some(folder.path().to_owned()), ..Settings::default() };
        let mut process = Process::new(std::process::id(), &settings);
        let kernel = process.thunk(0, XlaModule { number, name, truncated }, "dot.3", false);
        let origin = kernel.as_ref().ok().map(|kernel| (&*kernel.unit, kernel.stack()[0].line));
        assert_eq!(origin, expect, "{number} {name}");
        assert!(process.thunk(0, XlaModule { number, name, truncated }, "dot.4", false).is_err());
    }

    #[test]
    fn thunks_are_matched_to_modules_by_number_and_name() {
        let (f, g) = (
            "module_0003.jit_f.cpu_after_optimizations.txt",
            "module_0012.jit_f.cpu_after_optimizations.txt",
        );
        let files = [(f, "jit_f", 3), (g, "jit_f", 7)];
        check(&files, 3, "jit_f", false, Some(("jit_f", 3)));
        check(&files, 12, "jit_f", false, Some(("jit_f", 7)));
        check(&files, 4, "jit_f", false, None);
        check(&files, 3, "jit_", false, None);
        // A truncated name.
        check(&files, 12, "jit_", true, Some(("jit_f", 7)));
        check(&files[..1], 12, "jit_", true, None);
        // A file that contains another module.
        check(&[(f, "jit_g", 3)], 3, "jit_f", false, None);
        check(&[], 3, "jit_f", false, None);
    }

    #[test]
    fn without_files_there_is_no_origin() {
        let mut process = Process::new(std::process::id(), &Settings::default());
        let module = XlaModule { number: 1, name: "jit_f", truncated: false };
        assert_eq!(process.thunk(0, module, "dot", false), Err(NoOrigin::NoFiles));
    }
}
