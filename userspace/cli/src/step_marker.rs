//! Step marker: parses what ends a training step (`--step-marker`).
//!
//! Owns: distinguishing names of ranges from library functions, and refusing Python functions. Because: all of them
//! may contain a colon, and a Python function cannot be probed. Does not: match ranges (the pipeline does) or attach
//! probes.

use deepctx_uprobes::UserRow;

/// Parses the name of a range (`ProfilerStep#`) or a library function (`libmine.so*:train_step`).
pub(crate) fn parse(text: &str) -> Result<String, String> {
    match python_function(text) {
        Some(function) => Err(format!(
            "a Python function cannot mark training steps, but a range can: put \
             `with torch.profiler.record_function(\"{function}\"):` or an NVTX range around the training step, \
             and write `--step-marker {function}`"
        )),
        None => Ok(text.to_owned()),
    }
}

/// The function in `train.py:Trainer.step` or `__main__:step`.
fn python_function(text: &str) -> Option<&str> {
    let (module, function) = text.rsplit_once(':')?;
    let is_part = |part: &str| matches!(part, "<locals>" | "<lambda>") || is_identifier(part);
    let is_module = module.ends_with(".py") || module == "__main__";
    (is_module && function.split('.').all(is_part)).then_some(function)
}

fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || c == '_')
}

/// The probe for a function of a library that marks training steps, `LIBRARY:FUNCTION`; `None` for the name of a range.
pub(crate) fn library_function(marker: &str) -> Option<UserRow> {
    let (library, function) = marker.rsplit_once(':')?;
    (is_library(library) && !function.is_empty())
        .then(|| UserRow::step_marker(library.to_owned(), function.to_owned()))
}

/// The markers that are range names.
pub(crate) fn ranges(markers: &[String]) -> Vec<String> {
    markers.iter().filter(|marker| library_function(marker).is_none()).cloned().collect()
}

/// Whether this is a library name or a glob of such names: `libmine.so*`, `/opt/app`.
fn is_library(name: &str) -> bool {
    let ends = |at: usize| name[at..].chars().next().is_none_or(|next| matches!(next, '.' | '*' | '?' | '['));
    let shared = name.match_indices(".so").any(|(at, suffix)| ends(at + suffix.len()));
    (shared || name.contains('/')) && !name.ends_with(".py")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_told_apart_from_functions_of_libraries() {
        let check = |text: &str, of_library: bool| {
            assert_eq!(parse(text).as_deref(), Ok(text));
            assert_eq!(library_function(text).is_some(), of_library, "{text}");
        };
        for range in
            ["Optimizer.step#", "epoch: 3", "aten::add", ":step", "train:", "train:step", "my.solver:step"]
        {
            check(range, false);
        }
        for function in ["libmine.so:step", "libmine.so.1:step", "libmine.so*:train_step", "/opt/app:step"] {
            check(function, true);
        }
    }

    #[test]
    fn python_functions_are_refused_with_the_range_to_write() {
        for (text, range) in [
            ("train.py:step", "step"),
            ("/srv/my app/train.py:Trainer.step", "Trainer.step"),
            ("__main__:main.<locals>.step", "main.<locals>.step"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("record_function(\"{range}\")")), "{error}");
            assert!(error.ends_with(&format!("`--step-marker {range}`")), "{error}");
        }
    }
}
