//! How long a redraw takes on a tree of a million contexts: one line per tab with the milliseconds of making its
//! snapshot (on the pipeline's thread), of taking it in, and of drawing it (both on the screen's).
//!
//! `cargo run --release -p deepctx-tui --example redraw [NODES]`

use std::sync::Arc;
use std::time::Instant;

use deepctx_profile::frame::{Frame, Role};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Limits, Meta, Profile};
use deepctx_profile::view::snapshot::Header;
use deepctx_profile::view::{Request, Resolution, TabRequest, Viewer};
use deepctx_profile::{NodeId, StrId};
use deepctx_tui::{Message, Model, Palette, Setup, Tab, Theme, draw, update};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Frames of the deepest stack.
const DEPTH: u64 = 40;
/// Different functions.
const FUNCTIONS: u64 = 20_000;
/// The resolution of the live view.
const RESOLUTION: Resolution = Resolution { least_share: 1e-4, rows: 2_000 };
/// The screen.
const SIZE: (u16, u16) = (200, 60);
/// Each figure is the median of so many.
const RUNS: usize = 9;

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

/// A profile whose stacks share much near the root and little near the leaf, as those of programs do.
fn profile(nodes: usize) -> Profile {
    let limits = Limits { nodes: nodes + DEPTH as usize, ..Limits::default() };
    let mut profile = Profile::new(Meta::default(), limits);
    let module = profile.text("/usr/lib/libsynthetic.so");
    let functions: Vec<_> = (0..FUNCTIONS)
        .map(|n| {
            let symbol = profile.text(&format!("library::module_{}::function_{n}", n % 97));
            profile.frame(Frame::Native {
                symbol,
                module,
                file: StrId::EMPTY,
                line: None,
                inlined: false,
                role: Role::Code,
            })
        })
        .collect();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    while profile.tree.len() < nodes {
        let mut node = NodeId::ROOT;
        for depth in 0..DEPTH / 2 + numbers.below(DEPTH / 2) {
            let choices = 1 + depth * depth / 30;
            let function = (depth * 331 + numbers.below(choices)) % FUNCTIONS;
            node = profile.tree.child(node, functions[function as usize]);
        }
        profile.tree.add(node, Metric::CpuTime, 10_101_010);
    }
    profile
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let nodes = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(1_000_000);
    let profile = profile(nodes);
    let theme = Theme::new(Palette::True);
    for (tab, part) in [
        (Tab::Flame, TabRequest::Flame),
        (Tab::Callers, TabRequest::Callers),
        (Tab::Table, TabRequest::Table),
    ] {
        let request = Request { part, ..Request::of(Metric::CpuTime) };
        let (mut viewer, mut model) = (Viewer::new(), {
            let setup = Setup { request: request.clone(), tab, ..Setup::default() };
            Model::new(setup, SIZE.0, SIZE.1)
        });
        let (mut made, mut taken, mut drawn, mut boxes) = (Vec::new(), Vec::new(), Vec::new(), 0);
        // The first screen of a request is no redraw: it merges the whole profile.
        for run in 0..=RUNS {
            let header = Header { samples: run as u64, ..Header::default() };
            let start = Instant::now();
            let snapshot = Arc::new(viewer.snapshot(&profile, &request, header, RESOLUTION));
            let first = start.elapsed().as_secs_f64() * 1e3;
            boxes = snapshot.flame.nodes.len();
            let start = Instant::now();
            update(&mut model, Message::Snapshot(snapshot));
            let second = start.elapsed().as_secs_f64() * 1e3;
            let start = Instant::now();
            let mut buffer = Buffer::empty(Rect::new(0, 0, SIZE.0, SIZE.1));
            draw(&model, &theme, &mut buffer);
            let third = start.elapsed().as_secs_f64() * 1e3;
            if run == 0 {
                println!("{tab:?}: first screen {first:.1} ms");
                continue;
            }
            made.push(first);
            taken.push(second);
            drawn.push(third);
        }
        println!(
            "{tab:?}: {} nodes, {boxes} boxes: snapshot {:.1} ms, take in {:.2} ms, draw {:.2} ms",
            profile.tree.len(),
            median(made),
            median(taken),
            median(drawn)
        );
    }
}
