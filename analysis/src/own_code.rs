//! Own code: which Python files are of libraries, and which are a program's own.
//!
//! Owns: [`is_of_library`] and [`is_of_torch`]. Because: findings and steps name the line that their reader wrote. Does
//! not: open files: a path is all that a profile of another machine has.

/// Folders of installed packages.
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];

/// What PyTorch's folder has. A checkout of its sources may be anywhere, and so may a user's folder named `torch`.
const TORCH: [&str; 20] = [
    "amp/",
    "ao/",
    "autograd/",
    "backends/",
    "cuda/",
    "distributed/",
    "functional.py",
    "fx/",
    "jit/",
    "nn/",
    "optim/",
    "overrides.py",
    "profiler/",
    "serialization.py",
    "utils/_",
    "utils/checkpoint.py",
    "utils/cpp_extension.py",
    "utils/data/",
    "utils/hooks.py",
    "utils/tensorboard/",
];

/// Whether a Python file is of an installed package, of the interpreter or of PyTorch.
pub(crate) fn is_of_library(file: &str) -> bool {
    // Built-in functions have no file; a trace may have paths relative to its libraries.
    const BEGINS: [&str; 3] = ["<built-in", "<frozen ", "torch/"];
    file.is_empty()
        || BEGINS.iter().any(|begin| file.starts_with(begin))
        || PACKAGES.iter().any(|folder| file.contains(folder))
        || is_of_standard_library(file)
        || is_of_torch(file)
}

/// Whether a Python file is of PyTorch.
pub(crate) fn is_of_torch(file: &str) -> bool {
    let is_installed = PACKAGES.iter().any(|folder| file.contains(folder));
    let is_part = |rest: &str| {
        // The checkout may be named like the package.
        let rest = rest.strip_prefix("torch/").unwrap_or(rest);
        let is_private = rest.starts_with('_') && !rest.starts_with("__");
        is_private || TORCH.iter().any(|part| rest.starts_with(part))
    };
    file.split("/torch/").skip(1).any(|rest| is_installed || is_part(rest))
}

/// `/usr/lib/python3.11/json/decoder.py`: the folder has the version of the interpreter.
fn is_of_standard_library(file: &str) -> bool {
    const FOLDERS: [&str; 4] = ["/lib/python", "/lib64/python", "/lib/pypy", "/lib64/pypy"];
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_version = |rest: &str| {
        let version = rest.split_once('/').and_then(|(version, _)| version.split_once('.'));
        // `3.13t` has no global lock.
        version.is_some_and(|(major, minor)| is_number(major) && is_number(minor.trim_end_matches('t')))
    };
    FOLDERS.iter().any(|folder| file.split(folder).skip(1).any(is_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_folders() {
        for file in [
            "",
            "<built-in method run_backward of torch._C._EngineBase object at 0x7f>",
            "<frozen importlib._bootstrap>",
            "torch/nn/modules/module.py",
            "/usr/lib/python3/dist-packages/numpy/__init__.py",
            "/v/lib/python3.11/site-packages/torch/hub.py",
            "/usr/lib/python3.11/json/decoder.py",
            "/usr/lib64/python3.13t/threading.py",
            "/opt/lib/pypy3.10/json/decoder.py",
            // A checkout, as an editable installation has it.
            "/srv/me/pytorch/torch/optim/adam.py",
            "/v/torch/_tensor.py",
            "/srv/torch/torch/nn/modules/module.py",
        ] {
            assert!(is_of_library(file), "{file}");
        }
        for file in [
            "train.py",
            "/srv/torch/train.py",
            "/srv/torch/__init__.py",
            "/srv/torch/utils/metrics.py",
            "/srv/mytorch/optim/adam.py",
            "/srv/me/lib/python/train.py",
            "/srv/me/lib/python-models/train.py",
            "<stdin>",
        ] {
            assert!(!is_of_library(file), "{file}");
        }
    }

    #[test]
    fn only_files_of_torch_are_of_torch() {
        assert!(is_of_torch("/v/lib/python3.11/site-packages/torch/hub.py"));
        assert!(!is_of_torch("/v/lib/python3.11/site-packages/transformers/trainer.py"));
        assert!(!is_of_torch("/srv/torch/train.py"));
    }
}
