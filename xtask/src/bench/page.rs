//! Frame rate of a browser on a page with a million single events.
//!
//! Owns: the figure `page`. Because: a timeline is useful only if it responds at once, which depends on the browser
//! that draws it. Does not: change the page except for a script at its end, which moves as keys do and logs the results
//! to the console.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Options;
use super::figure::{Figure, Target, median};
use crate::sh;

/// Events of the trace: the page's maximum.
const EVENTS: u64 = 1_000_000;
const THREADS: u64 = 8;
/// Launches per step.
const STEP: u64 = 500;
/// Window sizes in pixels.
const WINDOWS: [(u32, u32); 2] = [(1280, 900), (3840, 2160)];
/// Prefix of a result on the console.
const MARK: &str = "measured ";

/// Zooms from the whole run to one kernel, pans, and zooms out again, one move per frame.
const MOVES: &str = r#"<script>
(async () => {
  state.tab = "timeline";
  draw();
  await Timeline.ready;
  const loaded = performance.now();
  const events = Timeline.model().shown;
  const frames = [], scripts = [];
  const next = () => new Promise(requestAnimationFrame);
  await next();
  let before = await next();
  const whole = Timeline.view.length;
  const shown = async (from, length) => {
    Object.assign(Timeline.view, { from: Math.min(Math.max(from, 0), whole - length), length });
    const began = performance.now();
    Timeline.draw();
    scripts.push(performance.now() - began);
    const now = await next();
    frames.push(now - before);
    before = now;
  };
  const [middle, steps] = [whole * 0.37, 180];
  const length = (step) => whole * (20000 / whole) ** (step / steps);
  for (let step = 0; step <= steps; step++) await shown(middle - length(step) / 2, length(step));
  for (const zoomed of [0, steps / 3, steps / 2, steps]) {
    for (let step = 0; step < 90; step++) await shown(middle + (step - 45) * length(zoomed) / 60, length(zoomed));
  }
  for (let step = steps; step >= 0; step--) await shown(middle - length(step) / 2, length(step));
  const began = performance.now();
  Timeline.select(whole * 0.25, whole * 0.75);
  const selected = performance.now() - began;
  console.log("measured " + JSON.stringify({ events, loaded, selected, frames, scripts }));
})();
</script>
</body>"#;

/// One run in a browser; times in milliseconds.
struct BrowserRun {
    events: u64,
    loaded: f64,
    selected: f64,
    frames: Vec<f64>,
    scripts: Vec<f64>,
}

impl BrowserRun {
    fn of(said: &Value) -> Option<Self> {
        let number = |name: &str| said[name].as_f64();
        let numbers =
            |name: &str| said[name].as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>();
        Some(Self {
            events: said["events"].as_u64()?,
            loaded: number("loaded")?,
            selected: number("selected")?,
            frames: numbers("frames")?,
            scripts: numbers("scripts")?,
        })
    }
}

/// Measures the frame times of a page with a million events, its size, and its time to open.
pub(super) fn run(profiler: &Path, options: &Options) -> Result<()> {
    let folder = sh::target_dir().join("bench/page");
    std::fs::create_dir_all(&folder)?;
    let (trace, page, moved) =
        (folder.join("trace.json"), folder.join("page.html"), folder.join("moved.html"));
    write_trace(&trace)?;
    let began = Instant::now();
    let mut export = Command::new(profiler);
    export.arg("export").arg(&trace).args(["--format", "html", "--force", "-o"]).arg(&page);
    sh::output(&mut export)?;
    let wrote = began.elapsed().as_secs_f64();
    let text = std::fs::read_to_string(&page)?;
    std::fs::write(&moved, text.replace("</body>", MOVES))?;
    let bytes = page.metadata()?.len() as f64;
    Figure::new("page", "size of a page of 1 M events", "MiB", vec![bytes / (1024.0 * 1024.0)])
        .note("bytes_per_event", bytes / EVENTS as f64)
        .note("seconds_to_write", wrote)
        .print();
    for (width, height) in WINDOWS {
        let runs: Vec<BrowserRun> =
            (0..options.runs).map(|_| in_browser(&moved, width, height)).collect::<Result<_>>()?;
        if let Some(odd) = runs.iter().find(|run| run.events != EVENTS) {
            bail!("the page has {} events, not {EVENTS}", odd.events);
        }
        print(&runs, &format!("{width} × {height}"));
    }
    std::fs::remove_file(&trace)?;
    Ok(())
}

fn print(runs: &[BrowserRun], window: &str) {
    let each = |figure: &dyn Fn(&BrowserRun) -> f64| runs.iter().map(figure).collect::<Vec<f64>>();
    // A 60 Hz screen shows a frame every 16.7 ms.
    let frame = each(&|run| percentile(&run.frames, 50.0));
    Figure::new("page", format!("a frame while zooming and moving, {window}"), "ms", frame)
        .target(Target::AtMost(16.8))
        .note(
            "frames_per_s",
            median(&each(&|run| run.frames.len() as f64 * 1000.0 / run.frames.iter().sum::<f64>())),
        )
        .note("frame_ms_p95", median(&each(&|run| percentile(&run.frames, 95.0))))
        .note("frame_ms_max", median(&each(&|run| percentile(&run.frames, 100.0))))
        .note("script_ms_median", median(&each(&|run| percentile(&run.scripts, 50.0))))
        .note("script_ms_p95", median(&each(&|run| percentile(&run.scripts, 95.0))))
        .print();
    Figure::new("page", format!("until the events are drawn, {window}"), "ms", each(&|run| run.loaded))
        .note("half_selected_ms", median(&each(&|run| run.selected)))
        .print();
}

fn percentile(values: &[f64], percent: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let place = (values.len().saturating_sub(1)) as f64 * percent / 100.0;
    values.get(place as usize).copied().unwrap_or(f64::NAN)
}

/// Results of the page's script, with the browser's own clock: frames are limited by the screen's refresh rate.
fn in_browser(page: &Path, width: u32, height: u32) -> Result<BrowserRun> {
    let browser: PathBuf = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]
        .iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
        .context("there is no chromium")?;
    let folder = page.with_extension("browser");
    sh::remove(&folder)?;
    let mut command = Command::new(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--remote-debugging-port=0", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", folder.display()))
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("file://{}", page.display()));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let said = child.stderr.take().context("no standard error")?;
    let mut found = None;
    for line in BufReader::new(said).lines() {
        let line = line?;
        if let Some((_, rest)) = line.split_once(MARK) {
            // The console appends the location of the call.
            let end = rest.rfind('}').map_or(rest.len(), |end| end + 1);
            found = BrowserRun::of(&serde_json::from_str(&rest[..end])?);
            break;
        }
    }
    child.kill()?;
    child.wait()?;
    found.context("the page said nothing")
}

/// A trace being written to a file.
struct TraceDraft<W> {
    out: W,
    left: u64,
    /// State for variation of lengths; the same in every run.
    random: u64,
}

impl<W: Write> TraceDraft<W> {
    /// Between 0.5 and 1.5 of a length.
    fn about(&mut self, length: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        length / 2 + (self.random >> 33) % length
    }

    /// Adds a thread's event, with `args`.
    fn host(
        &mut self,
        kind: &str,
        name: &str,
        thread: u64,
        begin: u64,
        length: u64,
        args: &str,
    ) -> std::io::Result<()> {
        self.event(
            &format!("\"cat\":\"{kind}\",\"name\":\"{name}\",\"pid\":4711,\"tid\":{thread}"),
            begin,
            length,
            args,
        )
    }

    fn event(&mut self, what: &str, begin: u64, length: u64, args: &str) -> std::io::Result<()> {
        if self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        let (from, long) = (begin as f64 / 1000.0, length as f64 / 1000.0);
        writeln!(self.out, ",{{\"ph\":\"X\",{what},\"ts\":{from:.3},\"dur\":{long:.3},\"args\":{{{args}}}}}")
    }
}

/// Writes a trace of eight threads with Python functions, operators and launches, each with a stream.
fn write_trace(path: &Path) -> Result<()> {
    let mut made = TraceDraft { out: BufWriter::new(File::create(path)?), left: EVENTS, random: 1 };
    writeln!(made.out, "{{\"traceEvents\":[{{\"ph\":\"M\"}}")?;
    let (mut host, mut device) = ([1_000u64; THREADS as usize], [0u64; THREADS as usize]);
    let mut launch = 0;
    while made.left > 0 {
        launch += 1;
        let thread = launch % THREADS;
        let (at, place) = (thread as usize, launch / THREADS % 64);
        let begin = host[at];
        let (op, call, ran) = (made.about(12_000), made.about(4_000), made.about(10_000));
        if launch % STEP == 0 {
            let step = format!("ProfilerStep#{}", launch / STEP);
            made.host("user_annotation", &step, 0, host[0], STEP / THREADS * 14_000, "")?;
        }
        let function = format!("model.py({place}): forward");
        made.host("python_function", &function, thread, begin, op + 2_000 + call, "")?;
        made.host("cpu_op", &format!("aten::operator_{place}"), thread, begin + 500, op + call, "")?;
        let correlation = format!("\"correlation\":{launch}");
        made.host("cuda_runtime", "cudaLaunchKernel", thread, begin + 1_500, call, &correlation)?;
        device[at] = device[at].max(begin + 2_000 + call);
        let stream = 7 + thread;
        let name = format!("void at::native::kernel_{place}<float>(int)");
        made.event(
            &format!("\"cat\":\"kernel\",\"name\":\"{name}\",\"pid\":0,\"tid\":{stream}"),
            device[at],
            ran,
            &format!("\"device\":0,\"stream\":{stream},{correlation}"),
        )?;
        host[at] = begin + op + call + 2_000 + made.about(1_000);
        device[at] += ran;
    }
    writeln!(made.out, "]}}")?;
    Ok(made.out.flush()?)
}
