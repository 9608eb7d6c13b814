//! Marks: functions of Python whose calls end steps of training.
//!
//! Owns: what a user calls such a function, recognising it among those that are named, and asking for it to be watched as long
//! as it is there. Because: it is a piece of data in the interpreter, which may go, and another take its place, any time.
//! Does not: watch (the capture does), or know of stacks.

use std::fs::File;
use std::io::Read as _;

use deepctx_symbolizer::python::{PythonFrame, PythonSymbols};
use rustc_hash::FxHashMap;

use crate::capture::watch::{Wanted, Watcher};

/// Functions of all processes that are watched or cannot be; at the bound no more are. As many as the kernel programs know.
const TOLD_MAX: usize = deepctx_common::watch::WATCHES_MAX as usize;
/// Most bytes of a command line or an environment that are read.
const PROC_BYTES_MAX: u64 = 1 << 16;

/// A function of Python as a user names it, `MODULE:FUNCTION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    module: Module,
    /// `step`, `Trainer.step`, `outer.<locals>.inner`.
    function: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Module {
    /// The end of its file's path.
    File(String),
    /// The end of its file's path without `.py` or `/__init__.py`.
    Dotted(String),
    /// `__main__`.
    Main,
}

impl Function {
    /// `train:step`, `my.pkg.loop:Trainer.step`, `src/train.py:step`, `__main__:step`; `None` of what can be no such name.
    pub fn parse(text: &str) -> Option<Self> {
        let (module, function) = text.rsplit_once(':').filter(|(module, _)| !is_library(module))?;
        let is_part = |part: &str| matches!(part, "<locals>" | "<lambda>") || is_identifier(part);
        if !function.split('.').all(is_part) {
            return None;
        }
        let module = match module {
            "__main__" => Module::Main,
            file if file.ends_with(".py") => Module::File(file.trim_start_matches("./").to_owned()),
            dotted if dotted.split('.').all(is_identifier) => Module::Dotted(dotted.replace('.', "/")),
            _ => return None,
        };
        Some(Self { module, function: function.to_owned() })
    }

    /// Whether it can be nothing but a function of Python: a range may be called `train:step`, too.
    pub fn is_certain(&self) -> bool {
        !matches!(self.module, Module::Dotted(_))
    }

    /// Whether this is its name. `qualified`: names say which class a function is of, as they do from 3.11 on.
    fn is_called(&self, name: &str, qualified: bool) -> bool {
        name == self.function || !qualified && self.function.rsplit('.').next() == Some(name)
    }

    /// Whether a function of this file is it, as far as that can be told by names alone.
    pub fn is_like(&self, file: &str, name: &str) -> bool {
        let is_main = matches!(self.module, Module::Main);
        self.is_called(name, false) && (is_main || self.is_in(file, || None))
    }

    /// Whether its module is in this file; `main`: what the process began with.
    fn is_in(&self, file: &str, main: impl FnOnce() -> Option<Main>) -> bool {
        match &self.module {
            Module::File(path) => is_end(path, file),
            Module::Dotted(path) => {
                let stem = file.strip_suffix("/__init__.py").or_else(|| file.strip_suffix(".py"));
                stem.is_some_and(|stem| is_end(path, stem))
            }
            Module::Main => main().is_some_and(|main| main.is(file)),
        }
    }
}

/// Whether what stands before a function is the name of a library, or a glob of such names: `libmine.so*`, `/opt/app`.
pub fn is_library(name: &str) -> bool {
    let ends = |at: usize| name[at..].chars().next().is_none_or(|next| matches!(next, '.' | '*' | '?' | '['));
    let shared = name.match_indices(".so").any(|(at, suffix)| ends(at + suffix.len()));
    (shared || name.contains('/')) && !name.ends_with(".py")
}

fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || c == '_')
}

/// Whether one path is the end of the other: interpreters have files by the path that led to them.
fn is_end(one: &str, other: &str) -> bool {
    let ends = |long: &str, short: &str| {
        long.strip_suffix(short).is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
    };
    let other = other.trim_start_matches("./");
    !one.is_empty() && !other.is_empty() && (ends(one, other) || ends(other, one))
}

/// What an interpreter was told to run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Main {
    Script(String),
    Module(String),
    /// `-c`, or what comes by standard input.
    Text,
}

impl Main {
    /// By the arguments of the command line, the program's name left out (`man python`).
    fn of<'a>(mut arguments: impl Iterator<Item = &'a str>) -> Self {
        while let Some(argument) = arguments.next() {
            let Some(letters) = argument.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
                return if argument == "-" { Self::Text } else { Self::Script(argument.to_owned()) };
            };
            if let Some(long) = letters.strip_prefix('-') {
                if long == "check-hash-based-pycs" {
                    arguments.next();
                }
                continue;
            }
            for (at, letter) in letters.char_indices() {
                // What follows the letter, or the next argument.
                let mut value = || match &letters[at + letter.len_utf8()..] {
                    "" => arguments.next().unwrap_or_default().to_owned(),
                    rest => rest.to_owned(),
                };
                match letter {
                    'c' => return Self::Text,
                    'm' => return Self::Module(value().replace('.', "/")),
                    'W' | 'X' => {
                        value();
                        break;
                    }
                    _ => {}
                }
            }
        }
        Self::Text
    }

    fn is(&self, file: &str) -> bool {
        match self {
            Self::Script(path) => {
                let path = path.trim_start_matches("./").trim_end_matches('/');
                is_end(path, file)
                    || file.strip_suffix("/__main__.py").is_some_and(|folder| is_end(path, folder))
            }
            Self::Module(path) => {
                let stem = file.strip_suffix("/__main__.py").or_else(|| file.strip_suffix(".py"));
                stem.is_some_and(|stem| is_end(path, stem))
            }
            Self::Text => matches!(file, "<string>" | "<stdin>"),
        }
    }

    fn of_process(pid: u32) -> Option<Self> {
        let arguments = read(&format!("/proc/{pid}/cmdline"))?;
        Some(Self::of(arguments.split('\0').skip(1).filter(|argument| !argument.is_empty())))
    }
}

/// Whether a process's interpreter was told to compile what runs often (`PYTHON_JIT`, 3.13 and later).
fn compiles(pid: u32) -> bool {
    let environment = read(&format!("/proc/{pid}/environ")).unwrap_or_default();
    let asked = environment.split('\0').find_map(|variable| variable.strip_prefix("PYTHON_JIT="));
    asked.is_some_and(|value| !matches!(value, "" | "0"))
}

fn read(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(PROC_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// What was asked for in which process.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    watcher: Option<Watcher>,
    functions: Vec<Function>,
    /// Checksums of functions, by process and address of the code object.
    told: FxHashMap<(u32, u64), u32>,
}

impl Marks {
    /// Asks `watcher`; without one, nothing is looked for.
    pub(crate) fn new(watcher: Option<Watcher>) -> Self {
        let functions = watcher.iter().flat_map(Watcher::functions).cloned().collect();
        Self { watcher, functions, told: FxHashMap::default() }
    }

    /// A function was named.
    pub(crate) fn named(
        &mut self,
        pid: u32,
        (code, checksum): (u64, u32),
        frame: &PythonFrame,
        python: &PythonSymbols,
    ) {
        let Some(watcher) = &self.watcher else { return };
        let qualified = python.has_qualified_names(pid);
        let is_it = |function: &Function| {
            function.is_called(&frame.qualname, qualified)
                && function.is_in(&frame.file, || Main::of_process(pid))
        };
        let Some(function) = self.functions.iter().position(is_it) else { return };
        let known = self.told.get(&(pid, code));
        if known == Some(&checksum) || known.is_none() && self.told.len() >= TOLD_MAX {
            return;
        }
        if known.is_some() {
            watcher.end(pid, code);
        }
        let wanted = match python.entry(pid, code) {
            Ok(_) if compiles(pid) => Err(deepctx_symbolizer::python::NoEntry::Compiled),
            entry => entry,
        };
        if watcher.watch(Wanted { pid, function, code, address: wanted }) {
            self.told.insert((pid, code), checksum);
        }
    }

    /// Compares what was told with the process: at the place of a function that is gone may be anything.
    pub(crate) fn compare(&mut self, python: &PythonSymbols) {
        let Some(watcher) = &self.watcher else { return };
        self.told.retain(|(pid, code), checksum| {
            let stays = python.is_there(*pid, *code, *checksum);
            if !stays {
                watcher.end(*pid, *code);
            }
            stays
        });
    }

    /// The process has ended, or has another program.
    pub(crate) fn forget(&mut self, pid: u32) {
        let Some(watcher) = &self.watcher else { return };
        self.told.retain(|(of, code), _| {
            if *of == pid {
                watcher.end(pid, *code);
            }
            *of != pid
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_from_ranges_and_libraries() {
        let check = |text: &str, expect: Option<bool>| {
            assert_eq!(Function::parse(text).map(|function| function.is_certain()), expect, "{text}");
        };
        check("train.py:step", Some(true));
        check("/srv/my app/train.py:Trainer.step", Some(true));
        check("__main__:step", Some(true));
        // What a range may be called, too.
        check("train:step", Some(false));
        check("my.pkg.loop:main.<locals>.step", Some(false));
        for text in [
            "Optimizer.step#",
            "ProfilerStep#",
            "epoch: 3",
            "epoch:3",
            "aten::add",
            ":step",
            "train:",
            "a b:c",
        ] {
            check(text, None);
        }
        for text in
            ["libmine.so:train_step", "libmine.so.1:train_step", "libmine.so*:train_step", "/opt/app:step"]
        {
            check(text, None);
            assert!(is_library(text.rsplit_once(':').unwrap().0), "{text}");
        }
        check("my.solver:step", Some(false));
    }

    #[test]
    fn a_function_is_known_by_the_end_of_its_path_and_its_whole_name() {
        let check = |marker: &str, file: &str, name: &str, expect: bool| {
            let function = Function::parse(marker).unwrap();
            let is_it = function.is_called(name, true) && function.is_in(file, || None);
            assert_eq!(is_it, expect, "{marker} {file} {name}");
        };
        check("train:step", "/srv/train.py", "step", true);
        check("train:step", "/srv/train/__init__.py", "step", true);
        check("train:step", "train.py", "step", true);
        check("train:step", "/srv/mytrain.py", "step", false);
        check("train:step", "/srv/train.py", "Trainer.step", false);
        check("pkg.train:Trainer.step", "/srv/pkg/train.py", "Trainer.step", true);
        check("pkg.train:Trainer.step", "/srv/other/train.py", "Trainer.step", false);
        check("./src/train.py:step", "/srv/src/train.py", "step", true);
        check("/srv/src/train.py:step", "./train.py", "step", true);
        check("src/train.py:step", "/srv/lib/train.py", "step", false);
        check("train:step", "", "step", false);
    }

    #[test]
    fn before_3_11_a_function_is_any_of_its_name_in_the_file() {
        let function = Function::parse("train:Trainer.step").unwrap();
        assert!(function.is_called("step", false) && !function.is_called("step", true));
        assert!(function.is_like("/srv/train.py", "step") && !function.is_like("/srv/other.py", "step"));
    }

    #[test]
    fn the_main_module_is_what_the_interpreter_was_told_to_run() {
        let check = |line: &str, file: &str, expect: bool| {
            assert_eq!(
                Main::of(line.split(' ').filter(|word| !word.is_empty())).is(file),
                expect,
                "{line} {file}"
            );
        };
        check("train.py --epochs 3", "/srv/train.py", true);
        check("-u -X dev ./src/train.py", "/srv/src/train.py", true);
        check("-Wignore -bb train.py", "train.py", true);
        check("train.py other.py", "/srv/other.py", false);
        check("-m pkg.train --fast", "/srv/pkg/train.py", true);
        check("-um pkg", "/srv/pkg/__main__.py", true);
        check("folder/", "/srv/folder/__main__.py", true);
        check("--check-hash-based-pycs never -c text", "<string>", true);
        check("-", "<stdin>", true);
        check("", "<stdin>", true);
        check("train.py", "<string>", false);
    }
}
