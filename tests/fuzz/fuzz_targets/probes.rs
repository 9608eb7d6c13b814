//! Where probes go, from arbitrary bytes: an ELF file with the catalogue, a user's rows, the code of a function, marks for
//! probes (USDT).
//!
//! The first byte says what the rest is. Beyond "no panic, no hang, bounded memory": a probe lies within the file, a
//! place is either found or has a reason, and an error of a user's file names a line that the file has.
#![no_main]

use deepctx_uprobes::catalogue::rows;
use deepctx_uprobes::entry::{Kernel, choose};
use deepctx_uprobes::image::Image;
use deepctx_uprobes::resolve::{resolve, runtime_inside};
use deepctx_uprobes::{usdt, user};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else { return };
    let kernel = Kernel { version: (6, u32::from(*kind)) };
    match kind % 4 {
        0 => {
            let Ok(image) = Image::parse(data) else { return };
            runtime_inside(&image);
            usdt::marks(&image);
            for resolution in resolve(&image, rows(), kernel) {
                let Ok(places) = resolution.places else { continue };
                assert!(!places.is_empty());
                assert!(places.iter().all(|place| place.probe().0 < data.len() as u64));
            }
        }
        1 => {
            let Ok(text) = str::from_utf8(data) else { return };
            match user::parse(text) {
                Ok(rows) => rows.iter().for_each(|row| assert!(!row.row.names.is_empty())),
                Err(error) => assert!((1..=text.lines().count() + 1).contains(&error.line), "{error}"),
            }
        }
        2 => {
            let marks = usdt::parse(data);
            // A note has a head of 12 bytes and a body of 27 at least.
            assert!(marks.len() * 39 <= data.len() && marks.len() <= usdt::PLACES_MAX);
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
});
