//! Pages of tasks whose programs use PyTorch.

use std::process::Command;

use crate::documented::Reader;
use crate::frameworks::{Target, with_torch};

/// Looks a little longer than the page: on a busy machine, probes take their time.
const LONGER: &[(&str, &str)] = &[("--duration 10s", "--duration 20s")];

fn followed(page: &str, mut command: Command) {
    let (target, folder) = (Target::start(&mut command), tempfile::tempdir().unwrap());
    Reader { folder: Some(folder.path()), pid: target.pid(), instead: LONGER, ..Reader::default() }
        .follows(page);
}

#[test]
fn the_page_on_slow_training_is_true() {
    let Some(command) = with_torch("torch_slow.py") else { return };
    followed("training-is-slow.md", command);
}

#[test]
fn the_page_on_memory_that_grows_is_true() {
    let Some(command) = with_torch("torch_growing.py") else { return };
    followed("memory-grows.md", command);
}
