//! How fast unwind tables are built: `unwind_rows RUNS FILE…`, one line `rows seconds bytes file` per run.
//!
//! Owns: the timing of `UnwindTable::from_elf` on one core. Because: `cargo xtask bench unwind-rows` needs it in a
//! separate program, optimized and alone. Does not: count reading the file from disk.

use deepctx_symbolizer::unwind_rows::{Count, UnwindTable};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(runs) = arguments.next().and_then(|runs| runs.parse::<u32>().ok()) else {
        eprintln!("usage: unwind_rows RUNS FILE…");
        return ExitCode::from(2);
    };
    let Ok(one_core) = rayon::ThreadPoolBuilder::new().num_threads(1).build() else {
        eprintln!("unwind_rows: cannot start a thread");
        return ExitCode::from(2);
    };
    let mut failed = false;
    for file in arguments {
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) => {
                eprintln!("{file}: {error}");
                failed = true;
                continue;
            }
        };
        for _ in 0..runs {
            let start = Instant::now();
            match one_core.install(|| UnwindTable::from_elf(&bytes)) {
                Ok(table) => {
                    let seconds = start.elapsed().as_secs_f64();
                    let size =
                        size_of_val(table.blocks()) + size_of_val(table.pages()) + size_of_val(table.rules());
                    println!("{} {seconds} {size} {file}", table.stats().get(Count::FrameRows));
                }
                Err(reason) => {
                    eprintln!("{file}: {reason}");
                    failed = true;
                    break;
                }
            }
        }
    }
    ExitCode::from(u8::from(failed))
}
