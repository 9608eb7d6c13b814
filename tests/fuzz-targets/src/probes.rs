//! Probe sites, from arbitrary bytes: an ELF file with the catalogue, a user's rows, the code of a function, probe
//! notes (USDT).
//!
//! The first byte selects the format of the rest. Beyond "no panic, no hang, bounded memory": a probe lies within the
//! file, a place is either found or has a reason, and an error in a user's file names an existing line.

use deepctx_uprobes::catalogue::user;
use deepctx_uprobes::locate::elf::Image;
use deepctx_uprobes::locate::instruction::choose;
use deepctx_uprobes::locate::resolve::{linked_runtime, resolve};
use deepctx_uprobes::locate::usdt;
use deepctx_uprobes::{Kernel, rows};

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let kernel = Kernel { version: (6, u32::from(*kind)) };
    match kind % 4 {
        0 => {
            let Ok(image) = Image::parse(data) else { return };
            linked_runtime(&image);
            usdt::probes(&image);
            for resolution in resolve(&image, rows(), kernel) {
                let Ok(functions) = resolution.functions else { continue };
                assert!(!functions.is_empty());
                assert!(functions.iter().all(|function| function.probe().0 < data.len() as u64));
            }
        }
        1 => {
            let Ok(text) = str::from_utf8(data) else { return };
            match user::parse(text) {
                Ok(rows) => rows.iter().for_each(|row| assert!(!row.row.names.is_empty())),
                Err(error) => assert!((1..=text.lines().count() + 1).contains(&error.line()), "{error}"),
            }
        }
        2 => {
            let probes = usdt::parse(data);
            // A note has a header of 12 bytes and a body of at least 27.
            assert!(probes.len() * 39 <= data.len() && probes.len() <= usdt::PROBES_MAX);
            if let Ok(text) = str::from_utf8(data) {
                usdt::argument(text);
            }
        }
        _ => {
            let row = &rows()[usize::from(data.len() as u16) % rows().len()];
            if let Ok(point) = choose(data, data.len() % 2 == 0, &row.arguments(), kernel) {
                assert!(usize::from(point.offset) < data.len().max(1));
            }
        }
    }
}
