//! Times the steps that have targets, on a synthetic profile of a million contexts.
//!
//! `cargo run --release -p deepctx-profile --example figures [FOLDER]` keeps what it stored in `FOLDER/figures.dctx`
//! when a folder is given.

use std::hint::black_box;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use deepctx_profile::export::{folded, svg};
use deepctx_profile::frame::{Frame, Role};
use deepctx_profile::store::{Writer, open};
use deepctx_profile::view::{Grain, Screen};
use deepctx_profile::{FrameId, Limits, Meta, Metric, NodeId, Profile, Selection, StrId, Time};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    attribute();

    let mut profile = Profile::new(Meta::default(), Limits { nodes: 2_000_000, ..Limits::default() });
    time("grow to 1 M nodes", || grow(&mut profile, 1_000_000));
    println!("  {} nodes, {} frames", profile.tree.len(), profile.frames.len());
    let selection = Selection::of(Metric::CpuTime);
    let mut screen = Screen::new(selection);
    time("screen: first refresh", || screen.refresh(&profile, None));
    time("screen: refresh again", || screen.refresh(&profile, None));
    let boxes = time("screen: flame tree, all", || screen.flame(Grain::default())).nodes.len();
    println!("  {boxes} boxes");
    let grain = Grain { least_share: 1e-4, rows: 500 };
    let boxes = time("screen: flame tree, least share 1/10000", || screen.flame(grain)).nodes.len();
    println!("  {boxes} boxes");
    time("screen: table, 500 rows", || screen.table(grain));
    let mut text = Vec::new();
    time("folded", || folded::write(&profile, &selection, &mut text))?;
    println!("  {} MB", text.len() / 1_000_000);
    time("svg", || svg::write(&profile, &selection, &mut io::sink()))?;

    let keep = std::env::args_os().nth(1).map(PathBuf::from);
    let path = match &keep {
        Some(folder) => folder.join("figures.dctx"),
        None => std::env::temp_dir().join(format!("figures-{}.dctx", std::process::id())),
    };
    let mut writer = Writer::create(&path, &profile.meta)?;
    let delta = time("store: encode", || writer.delta(&profile, Time::from_nanos(1)))?;
    println!("  {} kB", delta.bytes() / 1000);
    time("store: commit", || writer.commit(delta, true))?;
    time("store: encode, nothing new", || writer.delta(&profile, Time::from_nanos(2)))?;
    time("store: open", || open(&path))?;
    if keep.is_none() {
        std::fs::remove_dir_all(&path)?;
    }
    Ok(())
}

fn time<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = black_box(run());
    println!("{what}: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    result
}

/// One stack of 60 frames after the other, all nodes existing, among 1000 different stacks.
fn attribute() {
    let mut profile = Profile::new(Meta::default(), Limits::default());
    let mut random = Random(1);
    let stacks: Vec<Vec<FrameId>> = (0..1000)
        .map(|_| {
            let shared = random.below(50) as u32;
            (0..60)
                .map(|depth| {
                    let tail = if depth < 30 { 0 } else { shared + random.below(2) as u32 };
                    native(&mut profile, depth * 1000 + tail)
                })
                .collect()
        })
        .collect();
    for stack in &stacks {
        profile.add(stack, Metric::CpuTime, 1);
    }
    let rounds = 200;
    let start = Instant::now();
    for _ in 0..rounds {
        for stack in &stacks {
            let node = profile.tree.path(NodeId::ROOT, stack.iter().copied());
            profile.tree.add(node, Metric::CpuTime, 10_000_000);
        }
    }
    let each = start.elapsed().as_secs_f64() / f64::from(rounds * 1000);
    println!(
        "attribute one stack of 60 frames ({} nodes in the tree): {:.0} ns",
        profile.tree.len(),
        each * 1e9
    );
}

fn grow(profile: &mut Profile, nodes: usize) {
    let mut random = Random(2);
    let frames: Vec<FrameId> = (0..20_000).map(|n| native(profile, n)).collect();
    while profile.tree.len() < nodes {
        let mut node = NodeId::ROOT;
        for depth in 0..20 + random.below(40) {
            // Few choices near the root, many near the leaves.
            let choices = 1 + depth * depth / 30;
            node =
                profile.tree.child(node, frames[((depth * 331 + random.below(choices)) % 20_000) as usize]);
        }
        profile.tree.add(node, Metric::CpuTime, 10_000_000);
    }
}

fn native(profile: &mut Profile, n: u32) -> FrameId {
    let symbol = profile.text(&format!("at::native::some_function_with_a_name_{n}(at::Tensor const&, long)"));
    let module = profile.text("/usr/lib/python3/site-packages/torch/lib/libtorch_cpu.so");
    profile.frame(Frame::Native {
        symbol,
        module,
        file: StrId::EMPTY,
        line: None,
        inlined: false,
        role: Role::Code,
    })
}

/// A small generator of repeatable numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
