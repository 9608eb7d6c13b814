//! The collector's library: where it is, and how a command loads it.
//!
//! Owns: finding the file, and the environment variable that names it to NVIDIA's driver. Because: device times are
//! only available inside the process, and the driver loads the library in this variable when it initializes. Does
//! not: attach to it; it is found in the process like any other library.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use deepctx_common::activity::RECORDER_VARIABLE;

use super::failure::Failure;

/// Variable that names the library the driver loads (CUPTI's documentation, "injection").
const VARIABLE: &str = "CUDA_INJECTION64_PATH";
/// File name of the collector.
const FILE: &str = "libdeepctx_collector.so";

/// Variables that make a command load the collector, and make the collector wait for this process.
///
/// # Errors
/// The collector was not found, or the variable is set already.
pub(crate) fn variables() -> Result<[(&'static str, OsString); 2], Failure> {
    if let Some(taken) = std::env::var_os(VARIABLE).filter(|taken| !taken.is_empty()) {
        return Err(Failure::new(format_args!(
            "--gpu-activity: {VARIABLE} is already set to {}",
            Path::new(&taken).display()
        ))
        .hint(format_args!("unset {VARIABLE}: only one library can be loaded that way")));
    }
    let program = std::env::current_exe().map_err(|error| Failure::io("this program's own path", &error))?;
    let places = places(&program);
    let found = places.iter().find(|path| path.is_file()).ok_or_else(|| {
        let places: Vec<_> = places.iter().map(|path| path.display().to_string()).collect();
        Failure::new(format_args!("--gpu-activity: cannot find {FILE}"))
            .hint(format_args!("searched: {}", places.join(", ")))
    })?;
    let recorder = std::process::id().to_string();
    Ok([(VARIABLE, found.clone().into_os_string()), (RECORDER_VARIABLE, recorder.into())])
}

/// Candidate paths: beside the program, as a build leaves it, or where packages put libraries.
fn places(program: &Path) -> Vec<PathBuf> {
    let folder = program.parent().unwrap_or(Path::new("/"));
    let beside = ["", "../lib/deepctx-bpf", "../lib"].map(|place| folder.join(place).join(FILE));
    beside.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_is_searched_beside_the_program_first() {
        let places = places(Path::new("/opt/bin/deepctx-bpf"));
        assert_eq!(places[0], Path::new("/opt/bin").join(FILE));
        assert!(places.iter().all(|place| place.ends_with(FILE)));
    }
}
