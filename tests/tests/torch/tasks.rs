//! Pages of tasks whose programs use PyTorch.

use crate::documented::Reader;
use crate::frameworks::{Target, can_capture_arguments, with_torch};

fn followed(page: &str, program: &str) {
    if !can_capture_arguments() {
        return;
    }
    let Some(mut command) = with_torch(program) else { return };
    let (target, folder) = (Target::start(&mut command), tempfile::tempdir().unwrap());
    Reader { folder: Some(folder.path()), pid: target.pid(), ..Reader::default() }.follows(page);
}

#[test]
fn the_page_on_slow_training_is_true() {
    followed("training-is-slow.md", "torch_slow.py");
}

#[test]
fn the_page_on_memory_that_grows_is_true() {
    followed("memory-grows.md", "torch_growing.py");
}
