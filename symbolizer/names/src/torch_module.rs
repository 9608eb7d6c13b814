//! The source file of PyTorch that calls modules.
//!
//! Owns: recognizing it by its path. Because: functions of this file appear on the stack between the code of a module
//! and its caller, wherever PyTorch is installed. Does not: open files.

/// The file that holds `Module.__call__`.
const FILE: &str = "torch/nn/modules/module.py";

/// Whether this is the path of PyTorch's file that calls modules.
pub fn is_torch_module_file(path: &str) -> bool {
    path.strip_suffix(FILE).is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_recognised_wherever_it_is_installed() {
        let check = |path: &str, expect| assert_eq!(is_torch_module_file(path), expect, "{path}");
        check("/usr/lib/python3/dist-packages/torch/nn/modules/module.py", true);
        check("torch/nn/modules/module.py", true);
        check("/srv/a/mytorch/nn/modules/module.py", false);
        check("/srv/a/torch/nn/modules/linear.py", false);
        check("", false);
    }
}
