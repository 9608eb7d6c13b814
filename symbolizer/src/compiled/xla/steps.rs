//! Steps of modules that run: what they were made from.
//!
//! Owns: finding the module by what its runtime calls it. Because: a step that calls a library has no code of its own by which it
//! could be found. Does not: choose between modules of the cache that have one name and mean different things by the step.

use std::sync::Arc;

use super::{BINARIES, Process, TEXTS};
use crate::compiled::device::among;
use crate::compiled::{Answer, Compiler, Kernel, NoKernel, Unit};

impl Process {
    /// What a step of a module was made from. `fused`: other operators may be fused into it.
    pub(in crate::compiled) fn step(
        &mut self,
        time_ns: u64,
        unit: Unit<'_>,
        step: &str,
        fused: bool,
    ) -> Answer {
        if self.dump.is_none() && self.cache.is_none() {
            return Err(NoKernel::NoFiles);
        }
        let dumped = self.dumped(unit).and_then(|number| self.made_from(number, unit, step, fused));
        if let Some(kernel) = dumped {
            return Ok(kernel);
        }
        if let Some(folder) = self.cache.take() {
            if self.may_look(time_ns) {
                self.read_cache(&folder);
            }
            self.cache = Some(folder);
        }
        let of_cache: Vec<usize> =
            (0..self.units.len()).filter(|number| self.units[*number].prefix.is_empty()).collect();
        let kernels: Vec<Arc<Kernel>> =
            of_cache.into_iter().filter_map(|number| self.made_from(number, unit, step, fused)).collect();
        let answer = among(Compiler::Xla, &kernels)?;
        // All have one name: which of them it is would not be told by that.
        if answer.ops.is_empty() && kernels.iter().any(|kernel| !kernel.ops.is_empty()) {
            return Err(NoKernel::Ambiguous);
        }
        Ok(answer)
    }

    fn made_from(&mut self, number: usize, unit: Unit<'_>, step: &str, fused: bool) -> Option<Arc<Kernel>> {
        let hlo = self.hlo(number)?;
        let is_it = if unit.cut { hlo.name.starts_with(unit.name) } else { hlo.name == unit.name };
        is_it.then(|| hlo.step(step, fused)).flatten().map(Arc::new)
    }

    /// The module of this number and name in the dump, if this process wrote it.
    fn dumped(&mut self, unit: Unit<'_>) -> Option<usize> {
        let folder = self.dump.as_ref()?;
        let began = self.device.began?;
        let begins = format!("module_{:04}.{}", unit.number, unit.name);
        let suffixes = || TEXTS[..1].iter().chain(&BINARIES);
        let is_own = |prefix: &str, suffix: &str| {
            folder.written(&format!("{prefix}{suffix}")).is_some_and(|at| at >= began)
        };
        let prefix = if unit.cut {
            let names = folder.names();
            let mut of_module = names.iter().filter_map(|name| {
                let rest = name.strip_prefix(&begins)?;
                suffixes().find_map(|suffix| rest.strip_suffix(suffix)).map(|end| format!("{begins}{end}"))
            });
            let first = of_module.next()?;
            of_module.all(|other| other == first).then_some(first)?
        } else {
            begins
        };
        suffixes().any(|suffix| is_own(&prefix, suffix)).then(|| self.unit(&prefix))?
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::module;
    use super::*;
    use crate::compiled::Settings;

    /// The operators of `dot.3` in module `number` of this name, and its line, with these files in the dump.
    #[track_caller]
    fn check(files: &[(&str, &str, u32)], number: u64, name: &str, cut: bool, expect: Option<(&str, u32)>) {
        let folder = tempfile::tempdir().unwrap();
        for (file, of, line) in files {
            let text = module(of, &[("dot.3", *line)]);
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        let settings = Settings { dump: Some(folder.path().to_owned()), ..Settings::default() };
        let mut process = Process::new(std::process::id(), &settings);
        let kernel = process.step(0, Unit { number, name, cut }, "dot.3", false);
        let told = kernel.as_ref().ok().map(|kernel| (&*kernel.unit, kernel.stack()[0].line));
        assert_eq!(told, expect, "{number} {name}");
        assert!(process.step(0, Unit { number, name, cut }, "dot.4", false).is_err());
    }

    #[test]
    fn a_step_is_that_of_the_module_of_its_number_and_name() {
        let (f, g) = (
            "module_0003.jit_f.cpu_after_optimizations.txt",
            "module_0012.jit_f.cpu_after_optimizations.txt",
        );
        let files = [(f, "jit_f", 3), (g, "jit_f", 7)];
        check(&files, 3, "jit_f", false, Some(("jit_f", 3)));
        check(&files, 12, "jit_f", false, Some(("jit_f", 7)));
        check(&files, 4, "jit_f", false, None);
        check(&files, 3, "jit_", false, None);
        // A name of which only the beginning was read.
        check(&files, 12, "jit_", true, Some(("jit_f", 7)));
        check(&files[..1], 12, "jit_", true, None);
        // A file that says to be of another module.
        check(&[(f, "jit_g", 3)], 3, "jit_f", false, None);
        check(&[], 3, "jit_f", false, None);
    }

    #[test]
    fn without_files_nothing_is_told() {
        let mut process = Process::new(std::process::id(), &Settings::default());
        let unit = Unit { number: 1, name: "jit_f", cut: false };
        assert_eq!(process.step(0, unit, "dot", false), Err(NoKernel::NoFiles));
    }
}
