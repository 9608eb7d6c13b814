//! A profile that is not one: a synthetic tree that grows, to look at the terminal view without a capture.
//!
//! `cargo run -p deepctx-tui --example growing` shows it live; `-- --once [WIDTH HEIGHT]` prints it.

use std::io;
use std::sync::Arc;

use deepctx_profile::metric::Metric;
use deepctx_profile::snapshot::Snapshot;
use deepctx_profile::view::Selection;
use deepctx_tui::{Options, Palette, Snapshots, Still, Tab, render_once, run, term};

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use synthetic::snapshot;

/// Makes the snapshots, one at each question.
struct Growing {
    turn: u64,
}

impl Snapshots for Growing {
    fn latest(&mut self, request: &Selection) -> Option<Arc<Snapshot>> {
        self.turn += 1;
        Some(Arc::new(snapshot(self.turn, request)))
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "--once") {
        let number = |at: usize, default| arguments.get(at).and_then(|it| it.parse().ok()).unwrap_or(default);
        let palette =
            if arguments.iter().any(|it| it == "--color") { Palette::Indexed } else { Palette::Plain };
        for tab in Tab::ALL {
            let still = Still { width: number(1, 100), height: number(2, 24), tab, palette };
            println!("{}", render_once(&snapshot(50, &Selection::of(Metric::CpuTime)), &still));
        }
        return Ok(());
    }
    let options = Options { can_save: true, ..Options::default() };
    let (guard, mut screen) = term::Guard::take()?;
    let outcome = run(&mut screen, &mut Growing { turn: 0 }, &options);
    drop(guard);
    println!("{:?}", outcome?);
    Ok(())
}
