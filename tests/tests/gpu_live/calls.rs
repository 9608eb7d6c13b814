//! Calls: each once, with its arguments, stack and result.

use deepctx_capture::config::{Bytes, Hertz, StackRate};
use deepctx_common::call::{call_flag, return_flag};
use deepctx_common::end::{Counter, WalkEnd};
use deepctx_events::Role;
use deepctx_symbolizer::Lookup;

use crate::scene::{RecordedCall, Scene};
use crate::support::{Names, can_capture};

fn argument(scene: &Scene, seen: &RecordedCall, symbol: &str, role: Role) -> u64 {
    let at = scene.reported.site(symbol).roles.iter().position(|other| *other == role).unwrap();
    seen.arguments[at]
}

#[test]
fn each_launch_is_recorded_once_with_arguments_and_full_stack() {
    if !can_capture() {
        return;
    }
    const LAUNCHES: usize = 1000;
    let mut scene = Scene::new(&["open DRIVER"], |_| {});
    scene.tell(&format!("launch {LAUNCHES}"));
    scene.until(|reported| reported.calls.len() >= LAUNCHES);
    scene.end();
    let pid = scene.target.pid();
    let calls = scene.reported.of("cuLaunchKernel");
    assert_eq!((calls.len(), scene.reported.count("cuLaunchKernel")), (LAUNCHES, LAUNCHES as u64));
    for (i, seen) in calls.iter().enumerate() {
        let get = |role| argument(&scene, seen, "cuLaunchKernel", role);
        assert_eq!(get(Role::Function), 0x5eed);
        assert_eq!([Role::GridX, Role::GridY, Role::GridZ].map(get), [i as u64, 2, 3]);
        assert_eq!([Role::BlockX, Role::BlockY, Role::BlockZ].map(get), [4, 5, 6]);
        assert_eq!([Role::SharedBytes, Role::Stream].map(get), [7, 0x99]);
        assert_eq!((seen.call.flags, seen.call.unread, seen.sample.fixed.pid), (0, 0, pid));
        assert_eq!(seen.sample.native_end(), WalkEnd::Complete, "{seen:?}");
    }
    let names = Names::of(pid).functions(&calls[LAUNCHES / 2].sample);
    assert_eq!(&names[..3], ["cuLaunchKernel", "train_step", "train"], "{names:?}");
    assert!(names.contains(&"main".to_owned()), "{names:?}");
    let mut numbers: Vec<u64> = calls.iter().map(|seen| seen.sample.fixed.period).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), LAUNCHES, "each call has a number of its own");
}

#[test]
fn what_a_call_gives_back_is_joined_by_its_number() {
    if !can_capture() {
        return;
    }
    let mut scene = Scene::new(&["open DRIVER"], |_| {});
    let handle = scene.tell("name a_kernel_of_mine");
    let address = scene.tell("alloc 4096");
    scene.tell("sync");
    scene.until(|reported| reported.returns.len() >= 3);
    scene.end();
    let reported = &scene.reported;
    let back = |symbol: &str| {
        let seen = reported.of(symbol)[0];
        let back = reported.returns.iter().find(|back| back.call == seen.sample.fixed.period).unwrap();
        assert_eq!((back.site, back.event, back.result), (seen.call.site, seen.call.event, 0), "{symbol}");
        (seen, back)
    };
    let (seen, named) = back("cuModuleGetFunction");
    assert_eq!(seen.text, "a_kernel_of_mine");
    assert_eq!(seen.call.flags, call_flag::STACK_UNWANTED);
    assert_eq!((named.flags, named.out), (return_flag::OUT, handle));
    let (seen, allocated) = back("cuMemAlloc_v2");
    assert_eq!(argument(&scene, seen, "cuMemAlloc_v2", Role::Bytes), 4096);
    assert_eq!((allocated.flags, allocated.out), (return_flag::OUT, address));
    let (_, waited) = back("cuStreamSynchronize");
    assert!(
        waited.header.time_ns - waited.entered_ns >= 1_000_000,
        "it sleeps for a millisecond: {waited:?}"
    );
}

/// Walks of samples while a function with a return probe is called.
#[derive(Debug, Default)]
struct Walks {
    whole: usize,
    /// Of those, walks within the function.
    inside: usize,
    /// Samples between two steps of the kernel. It writes its own return address before it saves the program's
    /// (`prepare_uretprobe`, kernel/events/uprobes.c), and discards the program's before restoring it (`sys_uretprobe`,
    /// arch/x86/kernel/uprobes.c).
    between: usize,
    /// All others, with names and end.
    cut: Vec<String>,
}

/// Walks of the process's samples while it calls `function`.
fn walks_while(commands: &[&str], function: &str, returns: usize) -> Walks {
    let mut scene = Scene::new(&["open DRIVER"], |options| options.frequency = Hertz(4999));
    let pid = scene.target.pid();
    for command in commands {
        scene.tell(command);
    }
    scene.until(|reported| reported.returns.len() >= returns);
    scene.end();
    let mut names = Names::of(pid);
    let mut walks = Walks::default();
    // The return address slot still holds the result, zero; or the program counter is restored before the stack
    // pointer.
    let half_put_back = |frames: &[(u64, Lookup)], names: &[String]| {
        frames[0].0 == 0 || (names.len() == 2 && names[0] == "main")
    };
    for sample in scene.reported.samples.iter().filter(|sample| sample.fixed.pid == pid) {
        let names = names.functions(sample);
        match sample.native_end() {
            WalkEnd::Complete => {
                assert!(names.iter().any(|name| name == "main" || name == "_start"), "{names:?}");
                walks.whole += 1;
                walks.inside += usize::from(names.iter().any(|name| name.contains(function)));
            }
            WalkEnd::NoMapping if names[0].contains(function) || half_put_back(&sample.native(), &names) => {
                walks.between += 1;
            }
            end => walks.cut.push(format!("{end:?}: {names:?} {:x?}", sample.native())),
        }
    }
    walks
}

#[test]
fn samples_below_a_function_whose_return_is_probed_are_whole() {
    if !can_capture() {
        return;
    }
    let walks = walks_while(&["sync"; 200], "cuStreamSynchronize", 200);
    assert!(walks.inside > 10 && walks.cut.is_empty(), "{walks:?}");
    assert!(walks.between * 20 < walks.inside, "{walks:?}");
}

#[test]
fn samples_in_the_kernels_return_code_are_whole() {
    if !can_capture() {
        return;
    }
    // Most of its time is in the probes, so samples fall on each of their steps.
    let walks = walks_while(&["alloc 4096 200000"], "cuMemAlloc_v2", 1);
    println!("{} whole, {} between, {} cut", walks.whole, walks.between, walks.cut.len());
    assert!(walks.whole > 200 && walks.cut.is_empty(), "{walks:?}");
    assert!(walks.between * 20 < walks.whole, "{walks:?}");
}

#[test]
fn libraries_loaded_later_and_child_processes_are_probed_too() {
    if !can_capture() {
        return;
    }
    let mut scene = Scene::new(&[], |_| {});
    scene.tell("open DRIVER");
    scene.until(|reported| reported.probes.probes > 0);
    scene.tell("launch 5");
    let child = scene.tell("fork 7");
    scene.until(|reported| reported.calls.len() >= 12);
    scene.end();
    let of = |pid: u32| scene.reported.calls.iter().filter(|seen| seen.sample.fixed.pid == pid).count();
    assert_eq!((of(scene.target.pid()), of(child as u32)), (5, 7));
}

#[test]
fn user_defined_probe_rows_record_calls_like_any_other() {
    if !can_capture() {
        return;
    }
    let rows = r#"
[[probe]]
library = "libcuda.so*"
symbol = "real_cuMemFree_v2"
event = "user"
arguments = [{ name = "what", type = "u64" }]

[[probe]]
library = "accelerated"
symbol = "train"
return = "returned"
arguments = [{ name = "count", type = "u32" }]
"#;
    let user = deepctx_uprobes::catalogue::user::parse(rows).unwrap();
    let mut scene = Scene::new(&["open DRIVER"], |options| {
        options.probe_rows = user;
    });
    scene.until(|reported| {
        reported.sites.iter().any(|site| site.symbol == "train") && reported.probes.files > 1
    });
    scene.tell("launch 3");
    scene.tell("free");
    scene.until(|reported| reported.calls.len() >= 6 && !reported.returns.is_empty());
    scene.end();
    assert_eq!(scene.reported.of("train")[0].arguments, [3]);
    assert_eq!(scene.reported.of("real_cuMemFree_v2")[0].arguments, [0x7000001000]);
    assert_eq!(scene.reported.returns[0].call, scene.reported.of("train")[0].sample.fixed.period);
}

#[test]
fn launches_are_all_counted_when_stacks_are_limited_or_off() {
    if !can_capture() {
        return;
    }
    const LAUNCHES: u64 = 20_000;
    for (limit, most) in [(StackRate::Off, 0), (StackRate::PerSecond(50), 200)] {
        let mut scene = Scene::new(&["open DRIVER"], |options| {
            options.launch_stacks = limit;
            options.ring = Some(Bytes(16 << 20));
        });
        scene.tell(&format!("launch {LAUNCHES}"));
        let reported = scene.end();
        assert_eq!(reported.count("cuLaunchKernel"), LAUNCHES);
        let stacks = reported.calls.iter().filter(|seen| !seen.sample.user.is_empty());
        assert!(stacks.clone().count() <= most, "{limit}: {}", stacks.count());
        let limited = reported.calls.iter().filter(|seen| seen.call.flags == call_flag::STACK_LIMITED);
        assert!(limited.count() as u64 >= LAUNCHES - most as u64 - reported.counter(Counter::DropRingFull));
    }
}
