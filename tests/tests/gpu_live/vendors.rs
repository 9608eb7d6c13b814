//! The vendors' own libraries, if a folder with them is named: checks that need no device.

use std::path::PathBuf;

use deepctx_common::Plain as _;
use deepctx_common::activity::probe;
use deepctx_uprobes::{Kernel, Layers, Library, Planner};

use crate::scene::Scene;
use crate::support::can_capture;

/// Libraries below the folder with this name prefix.
pub(crate) fn libraries(begins: &str) -> Vec<PathBuf> {
    let Some(folder) = std::env::var_os("DEEPCTX_VENDOR_LIBRARIES") else {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "the vendors' libraries are not named");
        println!("skipped: DEEPCTX_VENDOR_LIBRARIES names no folder with the vendors' libraries");
        return Vec::new();
    };
    let mut folders = vec![PathBuf::from(folder)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && entry.file_name().to_string_lossy().starts_with(begins) {
                found.push(entry.path());
            }
        }
    }
    assert!(!found.is_empty(), "no {begins} in the folder");
    found
}

#[test]
fn records_that_nvidias_own_cupti_hands_out_are_read() {
    if !can_capture() {
        return;
    }
    let cuptis = libraries("libcupti.so");
    let mut read = 0;
    for cupti in &cuptis {
        let path = cupti.display();
        let mut scene = Scene::new(&[&format!("records {path} 1")], |_| {});
        scene.until(|reported| reported.probes.files == 1);
        if scene.tell(&format!("records {path} 0")) == 0 {
            println!("{path}: reads no records without a driver");
            continue;
        }
        read += 1;
        scene.tell(&format!("records {path} 20"));
        scene.until(|reported| reported.said.len() >= 20);
        let reported = scene.end();
        assert_eq!(reported.said.len(), 20, "{path}");
        for (i, (said, bytes)) in reported.said.iter().enumerate() {
            assert_eq!((said.what, said.flags), (probe::BORROWED, 0), "{path}");
            let (record, name) = bytes.split_at(said.values[0] as usize);
            assert_eq!(u32::read_from(&record[92..]), Some(100 + i as u32), "{path}");
            assert_eq!(name, b"borrowed_kernel", "{path}");
        }
    }
    assert!(cuptis.is_empty() || read > 0, "{cuptis:?}");
}

#[test]
fn every_probe_of_vendor_libraries_is_accepted_by_the_kernel() {
    if !can_capture() {
        return;
    }
    for begins in ["libcuda.so", "libcudart.so", "libcupti.so", "libamdhip64.so"] {
        for library in libraries(begins) {
            let mut planner = Planner::new(Vec::new(), Layers::Lowest, Kernel { version: (6, 12) });
            planner.add_libraries(vec![Library::of_file(&library).unwrap()]);
            let planned = planner.planned()[0].sites.len() as u64;
            let mut scene = Scene::new(&[&format!("map {}", library.display())], |_| {});
            scene.until(|reported| reported.probes.files == 1);
            let reported = scene.end();
            assert!(planned >= 5, "{}: {planned}", library.display());
            let attached = (reported.probes.probes, reported.probes.refused, &reported.notices[..]);
            assert_eq!(attached, (planned, 0, &[][..]), "{}", library.display());
            println!("{}: {planned} probes", library.display());
        }
    }
}
