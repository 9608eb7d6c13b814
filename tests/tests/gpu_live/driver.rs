//! The vendor's own driver library, if a folder with it is named: without a device, its functions return "not
//! initialized".
//!
//! Owns: counts and stacks of calls of the real code. Because: look-alikes only have the entry points that we expect.
//! Does not: run device code.

use std::collections::BTreeSet;
use std::path::Path;

use deepctx_common::end::{Counter, WalkEnd};
use deepctx_uprobes::{Kernel, Layers, Library, Planner};

use crate::gaps::adds_up;
use crate::scene::Scene;
use crate::support::{Names, can_capture};
use crate::vendors::libraries;

/// Launches of each thread by each way of obtaining the function.
const LAUNCHES: u64 = 2_500;
const THREADS: u64 = 4;
/// `CUDA_ERROR_NOT_INITIALIZED`.
const NOT_INITIALIZED: u64 = 3;

/// How a program obtains the function, which one it gets, and what it reports.
const ROADS: [(&str, &str, u64); 6] = [
    ("take cuLaunchKernel", "cuLaunchKernel", 0),
    ("take cuLaunchKernel_ptsz", "cuLaunchKernel_ptsz", 0),
    ("ask cuGetProcAddress 1", "cuLaunchKernel", 1),
    ("ask cuGetProcAddress 2", "cuLaunchKernel_ptsz", 2),
    ("ask cuGetProcAddress_v2 1", "cuLaunchKernel", 1),
    ("ask cuGetProcAddress_v2 2", "cuLaunchKernel_ptsz", 2),
];

/// A captured program with this driver.
fn scene(driver: &Path) -> Scene {
    Scene::new(&[&format!("open {}", driver.display())], |_| {})
}

/// All calls were counted, and each has a record unless the ring was full.
fn all_are_counted(scene: &Scene, calls: u64) {
    let reported = &scene.reported;
    assert_eq!(reported.counts.iter().sum::<u64>(), calls);
    let dropped = reported.counter(Counter::DropRingFull) + reported.counter(Counter::DropScratchBusy);
    let recorded = reported.calls.len() as u64;
    assert!(recorded <= calls && recorded + dropped >= calls, "{recorded} and {dropped} of {calls}");
    adds_up(reported);
}

#[test]
fn launches_of_the_real_driver_are_counted_by_every_road() {
    if !can_capture() {
        return;
    }
    for driver in libraries("libcuda.so.") {
        let mut scene = scene(&driver);
        for (road, symbol, is) in ROADS {
            assert_eq!(scene.tell(road), is, "{road} leads to {symbol}");
            let code = scene.tell(&format!("launch {LAUNCHES} {THREADS}"));
            assert_eq!(code, NOT_INITIALIZED, "{road}: there is no device, or it was not asked for");
        }
        scene.end();
        let pid = scene.target.pid();
        for symbol in ["cuLaunchKernel", "cuLaunchKernel_ptsz"] {
            let count = scene.reported.count(symbol);
            assert_eq!(count, 3 * LAUNCHES * THREADS, "{symbol} of {}", driver.display());
            let calls = scene.reported.of(symbol);
            let threads: BTreeSet<u32> = calls.iter().map(|seen| seen.sample.fixed.tid).collect();
            assert!(threads.len() > 1, "{symbol}: {threads:?}");
            for seen in &calls {
                assert_eq!(seen.sample.native_end(), WalkEnd::Complete, "{seen:?}");
            }
            let names = Names::of(pid).functions(&calls[calls.len() / 2].sample);
            assert_eq!(&names[..3], [symbol, "train_step", "train"], "{names:?}");
        }
        let asked = ROADS.iter().filter(|(road, ..)| road.starts_with("ask")).count() as u64;
        all_are_counted(&scene, 6 * LAUNCHES * THREADS + asked);
        let recorded = scene.reported.calls.len();
        println!("{}: {recorded} calls with a record", driver.display());
    }
}

#[test]
fn calls_are_counted_across_unloading_the_real_driver() {
    if !can_capture() {
        return;
    }
    const ROUNDS: u64 = 5;
    for driver in libraries("libcuda.so.") {
        let mut scene = scene(&driver);
        for round in 1..=ROUNDS {
            // The function by name, then by a pointer from the reloaded library.
            scene.tell("launch 100 2");
            scene.tell("ask cuGetProcAddress_v2 2");
            scene.tell("launch 100 2");
            scene.tell("close");
            scene.tell(&format!("open {}", driver.display()));
            scene.until(|reported| reported.calls.len() as u64 >= 401 * round);
        }
        scene.end();
        let count = |symbol| scene.reported.count(symbol);
        let path = driver.display();
        assert_eq!(
            [count("cuLaunchKernel"), count("cuLaunchKernel_ptsz"), count("cuGetProcAddress_v2")],
            [200 * ROUNDS, 200 * ROUNDS, ROUNDS],
            "{path}"
        );
        assert_eq!(scene.reported.probes.files, 1, "{path} has its probes once");
        all_are_counted(&scene, 401 * ROUNDS);
    }
}

#[test]
fn every_probed_function_of_the_real_driver_counts_its_calls() {
    if !can_capture() {
        return;
    }
    for driver in libraries("libcuda.so.") {
        let mut planner = Planner::new(Vec::new(), Layers::Lowest, Kernel { version: (6, 12) });
        planner.add_libraries(vec![Library::of_file(&driver).unwrap()]);
        let sites = &planner.planned()[0].sites;
        let mut scene = scene(&driver);
        let mut calls = 0;
        for site in sites {
            for symbol in std::iter::once(&site.symbol).chain(&site.aliases) {
                scene.tell(&format!("zeros {symbol} 3"));
                calls += 3;
            }
        }
        scene.end();
        assert!(sites.len() > 200, "{}: {}", driver.display(), sites.len());
        for site in sites {
            let expect = 3 * (1 + site.aliases.len() as u64);
            assert_eq!(scene.reported.count(&site.symbol), expect, "{} of {}", site.symbol, driver.display());
        }
        all_are_counted(&scene, calls);
    }
}
