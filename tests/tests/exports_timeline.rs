//! The timeline of a page, in a real browser: its events, sums of a selection, keys, and malicious names. Needs
//! Chromium, and no privileges.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cli_support::browser::{self, browser};
use cli_support::expect_code;
use deepctx_profile::trace::{EventLanes, RangeRow};
use deepctx_profile::units::Nanos;
use serde_json::{Value, json};

/// Real traces with reference answers.
const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../analysis/tests/traces");

/// Opens the page's timeline; its events are `model`.
const OPEN: &str = "
    state.tab = 'timeline';
    draw();
    await Timeline.ready;
    await new Promise(requestAnimationFrame);
    const model = Timeline.model();";

/// The page of a trace.
fn page(trace: &Path, folder: &Path) -> PathBuf {
    let page = folder.join("page.html");
    let words =
        ["export", trace.to_str().unwrap(), "--format", "html", "--force", "-o", page.to_str().unwrap()];
    expect_code(0, &words);
    page
}

/// The result of a script in the page's timeline.
fn run(browser: &str, page: &Path, script: &str) -> Value {
    browser::run(browser, page, &format!("{OPEN}{script}"), &["--window-size=1280,900"])
}

fn lanes(trace: &Path) -> EventLanes {
    let job = deepctx_storage::open_traces(&[trace.to_owned()]).unwrap();
    let clocks = deepctx_analysis::over_time::JobClocks::of(&job);
    EventLanes::with_unaligned(Arc::new(job), |rank| clocks.offset_ns(rank), clocks.unaligned.clone())
}

#[test]
fn a_page_draws_every_event_of_its_trace() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    for name in ["alexnet-a100-sync.json.gz", "dlrm", "eventsync-a100.json.gz", "gpuonly-mi210.json.gz"] {
        let trace = Path::new(TRACES).join(name);
        let script = "
            const inRows = model.lanes.flatMap((lane) => lane.rows).reduce((sum, row) => sum + row.count, 0);
            const tab = document.querySelector('[aria-selected=true]').textContent;
            const first = document.querySelector('.timeline .lane').title;
            const time = model.duration.reduce((sum, each) => sum + each, 0);
            return { tab, first, inRows, time, shown: model.shown, total: model.total,
                caused: model.cause.filter((cause) => cause >= 0).length,
                lanes: model.lanes.map((lane) => lane.label + ' ' + lane.count) };";
        let found = run(browser, &page(&trace, folder.path()), script);
        let lanes = lanes(&trace);
        let counted: Vec<String> = lanes
            .lanes()
            .iter()
            .map(|lane| format!("{} {}", lane.label, lanes.events(lane).count()))
            .collect();
        let all = || lanes.lanes().iter().flat_map(|lane| lanes.events(lane));
        assert_eq!(found["lanes"], json!(counted), "{name}");
        for each in ["shown", "total", "inRows"] {
            assert_eq!(found[each], json!(all().count()), "{name}: {each}");
        }
        assert_eq!(found["caused"], json!(all().filter(|event| event.cause.is_some()).count()), "{name}");
        assert_eq!(found["time"], json!(all().map(|event| event.duration.0).sum::<u64>()), "{name}");
        assert_eq!(found["tab"], "Timeline");
        let first = found["first"].as_str().unwrap();
        let lane = &lanes.lanes()[0];
        let noun = if lanes.events(lane).count() == 1 { " event" } else { " events" };
        assert!(first.starts_with(&lane.label) && first.ends_with(noun), "{first}");
    }
}

/// Rows of a table by name: count and time.
fn rows(rows: &[RangeRow]) -> BTreeMap<String, (u64, u64)> {
    rows.iter().map(|row| (row.name.clone(), (row.count, row.time.0))).collect()
}

#[test]
fn a_selection_has_the_sums_of_the_terminal() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    for name in ["alexnet-a100-sync.json.gz", "dlrm", "gpuonly-mi210.json.gz"] {
        let trace = Path::new(TRACES).join(name);
        let lanes = lanes(&trace);
        let length = lanes.length().0;
        let ranges = [(0, length), (length / 3, length / 2), (length / 2, length / 2 + length / 50)];
        let script = format!(
            "return {}.map(([from, to]) => {{
                const {{ own, device, host }} = Ranges.sums(model, from, to);
                const drawn = Ranges.trees(model, own, from, to);
                Timeline.select(from, to);
                const listed = document.querySelectorAll('.timeline .tables tr').length;
                const table = (rows) => rows.map((row) => [row.name, row.count, row.own]);
                return {{ device: table(device), host: table(host), drawn: [drawn.device.all, drawn.host.all], listed }};
            }});",
            json!(ranges)
        );
        let found = run(browser, &page(&trace, folder.path()), &script);
        for (place, (from, to)) in ranges.into_iter().enumerate() {
            let tables = lanes.range(Nanos(from), Nanos(to));
            let found = &found[place];
            let read = |table: &str| -> BTreeMap<String, (u64, u64)> {
                serde_json::from_value::<Vec<(String, u64, u64)>>(found[table].clone())
                    .unwrap()
                    .into_iter()
                    .map(|(name, count, time)| (name, (count, time)))
                    .collect()
            };
            assert_eq!(read("device"), rows(&tables.device), "{name} from {from} to {to}");
            assert_eq!(read("host"), rows(&tables.host), "{name} from {from} to {to}");
            let sum = |rows: &[RangeRow]| rows.iter().map(|row| row.time.0).sum::<u64>();
            assert_eq!(found["drawn"], json!([sum(&tables.device), sum(&tables.host)]));
            let listed = tables.device.len().min(200) + tables.host.len().min(200) + 2;
            assert_eq!(found["listed"], json!(listed), "{name} from {from} to {to}");
        }
    }
}

#[test]
fn keys_zoom_select_and_follow_a_launch() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json");
    let text = r#"{"traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 1000},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 100, "dur": 10,
            "args": {"correlation": 5}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 300, "dur": 200,
            "args": {"correlation": 5, "device": 0, "stream": 7}}]}"#;
    fs::write(&trace, text).unwrap();
    let script = "
        const view = Timeline.view;
        const settled = async () => {
            for (let frame = 0; frame < 120; frame++) await new Promise(requestAnimationFrame);
            return Math.round(view.length);
        };
        const press = (key) => document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
        const described = () => document.querySelector('.timeline .event').innerText;
        const found = {};
        press('w');
        found.closer = await settled();
        press('0');
        found.everything = await settled();
        press('n');
        found.chosen = described();
        press('c');
        found.cause = described();
        press('c');
        press('Enter');
        found.fit = await settled();
        press('Home');
        await settled();
        press(' ');
        for (let step = 0; step < 50; step++) press('ArrowRight');
        press(' ');
        found.range = view.range;
        found.selected = document.querySelector('.timeline .range').innerText;
        press('Escape');
        found.dropped = [view.range, document.querySelector('.timeline .range').childElementCount];
        return found;";
    let found = run(browser, &page(&trace, folder.path()), script);
    assert_eq!(found["closer"], json!(500_000));
    assert_eq!(found["everything"], json!(1_000_000));
    let (chosen, cause) = (found["chosen"].as_str().unwrap(), found["cause"].as_str().unwrap());
    assert!(chosen.starts_with("gemm\n200 µs at 0.300"), "{chosen}");
    assert!(chosen.contains("correlation 5 · by cudaLaunchKernel on thread 1, 190 µs earlier"), "{chosen}");
    assert!(cause.starts_with("cudaLaunchKernel\n"), "{cause}");
    assert_eq!(found["fit"], json!(240_000));
    assert_eq!(found["range"], json!([0, 500_000]));
    let selected = found["selected"].as_str().unwrap();
    assert!(selected.contains("gpu0 busy 200 µs (40.00%)"), "{selected}");
    assert_eq!(found["dropped"], json!([null, 0]));
}

#[test]
fn names_that_want_to_do_harm_stay_text() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(10_000);
    let names = [
        "</script><script>document.title = 'broken'</script>",
        "<img src=x onerror=\"document.title = 'broken'\">",
        "\"'`${document.title = 'broken'}",
        "\u{202e}gnp.exe \u{2066}abc\u{0007}\u{2028}",
        "שלום עולם مرحبا 你好 🙂",
        "__proto__",
        &long,
    ];
    let events: Vec<Value> = (0u64..)
        .zip(names)
        .flat_map(|(place, name)| {
            let event = |cat, pid, tid| {
                json!({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": place * 1000, "dur": 900,
                    "args": {"device": 0, "stream": 7}})
            };
            [event("kernel", json!(0), json!(7)), event("cpu_op", json!(name), json!(name))]
        })
        .collect();
    let trace = folder.path().join("trace.json");
    fs::write(&trace, json!({ "traceEvents": events }).to_string()).unwrap();
    let script = "
        const title = document.title;
        Timeline.select(0, model.length);
        const lengths = [];
        for (let event = 0; event < model.shown; event++) { Timeline.choose(event); lengths.push(document.querySelector('.event').innerText.length); }
        const made = document.querySelectorAll('.timeline img, .timeline script').length;
        return { shown: model.shown, names: new Set(model.names).size, made, longest: Math.max(...lengths),
            kept: title === document.title, letters: Math.max(...model.names.map((name) => name.length)) };";
    let found = run(browser, &page(&trace, folder.path()), script);
    assert_eq!(found["shown"], json!(14));
    assert_eq!(found["names"], json!(7));
    assert_eq!(found["made"], json!(0));
    assert_eq!(found["kept"], json!(true));
    // An import truncates long names; the page has the rest.
    let lanes = lanes(&trace);
    let kept =
        lanes.lanes().iter().flat_map(|lane| lanes.events(lane)).map(|event| event.name.chars().count());
    assert_eq!(found["letters"], json!(kept.max().unwrap()));
    assert!(found["longest"].as_u64().unwrap() < 16_000, "{found}");
}
