//! How fast a big tree is read: `tree_rate RUNS NODES FOLDER`, one line of eleven numbers per run; or, for inferno
//! alone on what perf recorded, `tree_rate collapse PERF_SCRIPT`.
//!
//! Owns: a synthetic profile, and the timing of a redraw, of folding to text, of writing to disk and reading it back,
//! and of inferno folding the same stacks. Because: `cargo xtask bench tree` needs them optimized and alone. Does
//! not: draw; a screen adds what its size costs.
//!
//! Numbers: nodes, seconds of a redraw, stacks, bytes of folded text, seconds of folding, bytes on disk, seconds of
//! writing, seconds of inferno, bytes of the stored rows before they are encoded, seconds of reading back, seconds of
//! writing that were spent on encoding.

use deepctx_profile::frame::{Frame, Role};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Limits, Meta, Profile};
use deepctx_profile::units::Time;
use deepctx_profile::view::{MergedTree, Resolution, Selection};
use deepctx_storage::export::folded;
use deepctx_storage::open;
use deepctx_storage::store::Writer;
use inferno::collapse::Collapse as _;
use inferno::collapse::perf::{Folder, Options};
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

/// Frames of each stack.
const DEPTH: u64 = 40;
/// Different functions.
const FUNCTIONS: u64 = 20_000;

/// A pseudo-random sequence (xorshift64*): the same tree on every machine.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

/// A profile with about `nodes` nodes, and its stacks by function number, leaf first.
fn profile(nodes: usize) -> (Profile, Vec<Vec<u64>>) {
    let mut profile =
        Profile::new(Meta::default(), Limits { nodes: nodes + DEPTH as usize, ..Limits::default() });
    let comm = profile.text("synthetic");
    let process = profile.frame(Frame::Process { comm, pid: 1 });
    let module = profile.text("/usr/lib/libsynthetic.so");
    let file = profile.text("");
    let functions: Vec<_> = (0..FUNCTIONS)
        .map(|n| {
            let symbol = profile.text(&format!("library::module_{}::function_{n}", n % 97));
            profile.frame(Frame::Native {
                symbol,
                module,
                file,
                line: None,
                inlined: false,
                role: Role::default(),
            })
        })
        .collect();
    let (mut numbers, mut stacks) = (Numbers(0x9e37_79b9_7f4a_7c15), Vec::new());
    let mut stack: Vec<u64> = (0..DEPTH).collect();
    while profile.tree.len() < nodes {
        // A stack keeps most of the one before it, as the stacks of a running program do.
        let keep = numbers.below(DEPTH) as usize;
        for place in &mut stack[keep..] {
            *place = numbers.below(FUNCTIONS);
        }
        let frames: Vec<_> =
            std::iter::once(process).chain(stack.iter().map(|&n| functions[n as usize])).collect();
        profile.add(&frames, Metric::CpuTime, 10_101_010);
        stacks.push(stack.iter().rev().copied().collect());
    }
    (profile, stacks)
}

/// The stacks as `perf script` prints them.
fn perf_script(stacks: &[Vec<u64>]) -> String {
    let mut text = String::new();
    for (number, stack) in stacks.iter().enumerate() {
        let _ = writeln!(text, "synthetic     1 {number}.000000:   10101010 cpu-clock:");
        for n in stack {
            let _ = writeln!(
                text,
                "\t{n:16x} library::module_{}::function_{n} (/usr/lib/libsynthetic.so)",
                n % 97
            );
        }
        text.push('\n');
    }
    text
}

/// What was written to a folder, bytes.
fn size(folder: &Path) -> std::io::Result<u64> {
    std::fs::read_dir(folder)?.map(|entry| entry?.metadata().map(|data| data.len())).sum()
}

/// Bytes of the rows that a store of this profile has, as numbers and texts without any encoding.
fn row_bytes(profile: &Profile) -> usize {
    let texts: usize =
        profile.frames.iter().map(|(_, frame)| frame.label(&profile.strings, false).len() * 2 + 64).sum();
    let values = profile.tree.cells(Metric::CpuTime).count();
    // A node is three numbers of four bytes; a value is one of four, six of eight, one of sixteen and a name.
    profile.tree.len() * 12 + values * (4 + 6 * 8 + 16 + Metric::CpuTime.name().len()) + texts
}

/// Prints how long inferno takes to fold what `perf script` printed.
fn inferno_alone(script: &Path) -> Result<(), Box<dyn Error>> {
    let script = std::fs::read(script)?;
    let (start, mut folded) = (Instant::now(), Vec::new());
    Folder::from(Options::default()).collapse(script.as_slice(), &mut folded)?;
    println!("{}", start.elapsed().as_secs_f64());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (runs, nodes, folder) = match arguments.as_slice() {
        [collapse, script] if collapse == "collapse" => return inferno_alone(Path::new(script)),
        [runs, nodes, folder] => (runs, nodes, folder),
        _ => return Err("usage: tree_rate RUNS NODES FOLDER, or tree_rate collapse PERF_SCRIPT".into()),
    };
    let (runs, nodes, folder): (u32, usize, _) = (runs.parse()?, nodes.parse()?, Path::new(folder));
    let (profile, stacks) = profile(nodes);
    let script = perf_script(&stacks);
    let selection = Selection::of(Metric::CpuTime);
    let mut tree = MergedTree::new(selection);
    tree.refresh(&profile);
    let rows = row_bytes(&profile);
    for run in 0..runs {
        let start = Instant::now();
        tree.refresh(&profile);
        // A box narrower than a column of a wide terminal is not drawn.
        std::hint::black_box(tree.flame(Resolution { least_share: 1.0 / 400.0, rows: 100 }));
        let redraw = start.elapsed().as_secs_f64();

        let (start, mut text) = (Instant::now(), Vec::new());
        folded::write(&profile, &selection, &mut text)?;
        let fold = start.elapsed().as_secs_f64();

        let (start, mut peer) = (Instant::now(), Vec::new());
        Folder::from(Options::default()).collapse(script.as_bytes(), &mut peer)?;
        let inferno = start.elapsed().as_secs_f64();

        let path = folder.join(format!("tree_rate_{run}.dctx"));
        let start = Instant::now();
        let mut writer = Writer::create(&path, &profile.meta)?;
        let encode = Instant::now();
        let delta = writer.delta(&profile, Time::from_nanos(1))?;
        let encode = encode.elapsed().as_secs_f64();
        writer.commit(delta, true)?;
        let store = start.elapsed().as_secs_f64();
        let bytes = size(&path)?;
        let start = Instant::now();
        std::hint::black_box(open(&path)?);
        let read = start.elapsed().as_secs_f64();
        std::fs::remove_dir_all(&path)?;

        let (nodes, stacks, text) = (profile.tree.len(), stacks.len(), text.len());
        println!("{nodes} {redraw} {stacks} {text} {fold} {bytes} {store} {inferno} {rows} {read} {encode}");
    }
    Ok(())
}
