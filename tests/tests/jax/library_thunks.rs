//! Thunks of jitted functions that call libraries, with the published jax, beside the code in them and XLA's dumps.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cli_support::expect_code;
use crate::cli_support::recording::record_until;
use crate::frameworks::{Samples, Target, line, with_jax};

const PROGRAM: &str = "jax_steps.py";
const OPTIONS: [&str; 4] = ["--probe", "operators", "-F", "499"];
/// Prefixes of module frames, and of a thunk's kind.
const UNIT: &str = "[xla ";
const KIND: &str = "xla::cpu::";

/// The innermost thunk of a stack: its kind, the frames from its module to it, and the frames below it.
struct ThunkStack<'a> {
    kind: &'a str,
    above: Vec<&'a str>,
    below: Vec<&'a str>,
}

fn thunk(stack: &str) -> Option<ThunkStack<'_>> {
    let frames: Vec<&str> = stack.split(';').collect();
    let is_kind = |frame: &&str| frame.starts_with(KIND) && frame.ends_with("Thunk");
    let at = frames.iter().rposition(is_kind)?;
    // Names have no parentheses after colons, but functions do.
    let name = frames[..at].iter().rposition(|frame| frame.starts_with(UNIT));
    let above = name.map_or(&[][..], |name| &frames[name..at]);
    let is_function = |frame: &&str| frame.contains("::") && frame.contains('(');
    let above = if above.iter().any(is_function) { Vec::new() } else { above.to_vec() };
    Some(ThunkStack { kind: frames[at], above, below: frames[at + 1..].to_vec() })
}

/// XLA's dumped line of each instruction, by module and name.
fn dumped(folder: &Path) -> BTreeMap<(String, String), String> {
    let mut instructions = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.ends_with(".cpu_after_optimizations.txt") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let module = text.strip_prefix("HloModule ").unwrap().split([',', ' ', '\n']).next().unwrap();
        for row in text.lines().map(str::trim_start) {
            let row = row.strip_prefix("ROOT ").unwrap_or(row);
            if let Some((instruction, what)) = row.strip_prefix('%').and_then(|row| row.split_once(" = ")) {
                instructions.insert((module.to_owned(), instruction.to_owned()), what.to_owned());
            }
        }
    }
    instructions
}

/// Whether an instruction of an optimized module fits a kind of thunk.
fn fits(kind: &str, instruction: &str) -> bool {
    let opcode = match kind.strip_prefix(KIND).unwrap() {
        "DotThunk" => " dot(",
        "SortThunk" => " sort(",
        "FftThunk" => " fft(",
        "ConvolutionThunk" => " convolution(",
        "CustomCallThunk" => " custom-call(",
        "WhileThunk" => " while(",
        _ => "(",
    };
    instruction.contains(opcode)
}

/// Samples in thunks, and those with a named thunk.
fn in_thunks(samples: &Samples) -> (u64, u64) {
    let (mut all, mut named) = (0, 0);
    for (stack, count) in samples.iter() {
        let Some(thunk) = thunk(stack) else { continue };
        all += count;
        named += if thunk.above.len() > 1 { count } else { 0 };
    }
    (all, named)
}

/// Most samples in thunks are named, and there are some of each verifiable kind: by then, samples from before the
/// probes are a small part.
fn is_long_enough(samples: &Samples) -> bool {
    let (all, named) = in_thunks(samples);
    let checked = ["TypedMatMul<int,", "TypedMatMul<std::complex<float>,", ";region_"];
    named * 100 >= all * 75 && checked.iter().all(|function| samples.with(&[UNIT, function]) > 30)
}

#[test]
fn each_thunk_matches_the_code_running_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut command) = with_jax(PROGRAM) else { return };
    let dump = folder.path().join("dump");
    command.current_dir(folder.path()).env("XLA_FLAGS", "--xla_dump_to=dump");
    let target = Target::start(&mut command);
    let (_folder, file) = record_until(&target.pid(), &OPTIONS, |file| is_long_enough(&Samples::of(file)));
    let samples = Samples::of(&file);
    let instructions = dumped(&dump);
    let (all, named) = in_thunks(&samples);
    let mut checked = BTreeMap::<&str, u64>::new();
    for (stack, count) in samples.iter() {
        let Some(ThunkStack { kind, above, below }) = thunk(stack) else { continue };
        let [unit, .., name] = above[..] else { continue };
        let module = unit.trim_start_matches(UNIT).trim_end_matches(']');
        let what = instructions.get(&(module.to_owned(), name.to_owned()));
        let what = what.unwrap_or_else(|| panic!("{module} has no {name}: {stack}"));
        assert!(fits(kind, what), "{name} is {what}: {stack}");
        // What runs below it: the function for its type, the comparison that it is given.
        let typed = [("TypedMatMul<int,", " s32["), ("TypedMatMul<std::complex<float>,", " c64[")];
        for (function, of_type) in typed {
            if below.iter().any(|frame| frame.contains(function)) {
                assert!(format!(" {what}").contains(of_type), "{what}: {stack}");
                *checked.entry(of_type).or_default() += count;
            }
        }
        if let Some(region) = below.iter().find(|frame| frame.starts_with("region_")) {
            let applies = format!("to_apply=%{region}");
            let is_it = what.match_indices(&applies).any(|(at, _)| {
                what[at + applies.len()..]
                    .chars()
                    .next()
                    .is_none_or(|c| !c.is_ascii_alphanumeric() && c != '.')
            });
            assert!(kind.ends_with("SortThunk") && is_it, "{what}: {stack}");
            *checked.entry("sort").or_default() += count;
        }
    }
    println!(
        "| {named} of {all} samples in thunks have module and name; checked by what runs in them: {checked:?}"
    );
    assert!(named * 100 >= all * 70, "{named} of {all}: {samples}");
    assert!(
        [" s32[", " c64[", "sort"].iter().all(|kind| checked.get(kind).is_some_and(|n| *n > 20)),
        "{checked:?}"
    );
    for mark in ["whole", "complex", "loop"] {
        let at = format!(":{};jit(", line(PROGRAM, mark));
        assert!(samples.with(&[";jax_steps.py:", &at]) > 0, "{mark}: {samples}");
    }
    let report = expect_code(0, &["report", &file, "--all"]);
    assert!(report.contains(&format!("jax_steps.py:{}", line(PROGRAM, "complex"))), "{report}");
}

#[test]
fn without_a_dump_thunks_have_their_module_and_name() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut command) = with_jax(PROGRAM) else { return };
    let target = Target::start(command.current_dir(folder.path()));
    let modules =
        [("jit_products", "DotThunk"), ("jit_sorts", "SortThunk"), ("jit_others", "CustomCallThunk")];
    let count = |samples: &Samples, (module, kind): (&str, &str)| {
        samples.with(&[&format!("{UNIT}{module}];"), &format!(";{KIND}{kind};")])
    };
    let (_folder, file) = record_until(&target.pid(), &OPTIONS, |file| {
        let samples = Samples::of(file);
        modules.iter().all(|thunk| count(&samples, *thunk) > 0)
    });
    let samples = Samples::of(&file);
    for (module, kind) in modules {
        let there = count(&samples, (module, kind));
        let all = samples.with(&[&format!(";{KIND}{kind};")]);
        println!("| {there} of {all} samples in {kind} are of {module}");
        assert!(there > 0, "{samples}");
    }
    assert_eq!(samples.with(&["jax_steps.py:products:"]), 0, "{samples}");
}
