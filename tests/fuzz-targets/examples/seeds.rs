//! Writes the seeds of a target into a folder for a fuzzer: `seeds TARGET FOLDER`.

use std::fs;
use std::path::PathBuf;

use deepctx_fuzz_targets::TARGETS;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (name, folder) = arguments.next().zip(arguments.next()).ok_or("seeds TARGET FOLDER")?;
    let target = TARGETS.iter().find(|target| target.name == name).ok_or("there is no such target")?;
    let folder = PathBuf::from(folder);
    for (n, seed) in target.seeds()?.iter().enumerate() {
        fs::write(folder.join(format!("seed-{n}")), seed)?;
    }
    Ok(())
}
