//! A synthetic profile that grows, to try the terminal view without a capture.
//!
//! `cargo run -p deepctx-tui --example growing` shows it live; `-- --once [WIDTH HEIGHT] [--color]` prints every tab.

use std::io;
use std::sync::Arc;

use deepctx_profile::view::snapshot::{Snapshot, Snapshots, SourcePlace, SourceText};
use deepctx_profile::view::{Request, TabRequest};
use deepctx_tui::{Charset, Options, Palette, RenderOptions, Tab, render_once, run, term};

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use synthetic::{Training, request, text};

/// Makes the snapshots, one at each request.
struct GrowingSource {
    training: Training,
}

impl Snapshots for GrowingSource {
    fn latest(&mut self, request: &Request) -> Option<Arc<Snapshot>> {
        self.training.go_on(1);
        Some(Arc::new(self.training.snapshot(request)))
    }

    fn text(&mut self, _: &SourcePlace) -> Option<Arc<SourceText>> {
        Some(text())
    }
}

/// The request of each tab.
fn part(tab: Tab) -> TabRequest {
    match tab {
        Tab::Overview => TabRequest::Overview,
        Tab::Flame | Tab::Health => TabRequest::Flame,
        Tab::Callers => TabRequest::Callers,
        Tab::Table => TabRequest::Table,
        Tab::Timeline => TabRequest::Timeline,
        Tab::Source => TabRequest::Source("/srv/train.py".into()),
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "--once") {
        let number = |at: usize, default| arguments.get(at).and_then(|it| it.parse().ok()).unwrap_or(default);
        let palette =
            if arguments.iter().any(|it| it == "--color") { Palette::Indexed } else { Palette::Plain };
        let mut training = Training::at(50);
        for tab in Tab::ALL {
            let request = Request { part: part(tab), ..request() };
            let snapshot = training.snapshot(&request);
            let (width, height) = (number(1, 100), number(2, 24));
            let still = RenderOptions {
                width,
                height,
                tab,
                request,
                text: Some(text()),
                palette,
                signs: Charset::Unicode,
            };
            println!("{}", render_once(&snapshot, &still));
        }
        return Ok(());
    }
    let options = Options { request: request(), can_save: true, ..Options::default() };
    let (guard, mut screen) = term::Guard::take()?;
    let outcome = run(&mut screen, &mut GrowingSource { training: Training::new() }, &options);
    drop(guard);
    println!("{:?}", outcome?);
    Ok(())
}
