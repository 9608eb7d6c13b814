//! The page in a real browser: every tab fits its window and is readable, and in print all tabs follow each other.
//! Needs Chromium, and no privileges.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cli_support::browser::{self, browser};
use cli_support::expect_code;
use deepctx_profile::metric::Metric;
use deepctx_profile::view::fold::{Fold, FoldedTree};
use deepctx_profile::view::{MergedTree, Resolution, Selection};
use serde_json::{Value, json};

/// Stored profiles and a real trace: together they cover most tabs.
const INPUTS: [&str; 3] =
    ["profiles/torch-layers.dctx", "profiles/stdlib-mix.dctx", "traces/alexnet-a100-sync.json.gz"];

/// Window size, and whether it is dark (0 is the browser's word for that).
const WINDOWS: [[&str; 2]; 4] = [
    ["--window-size=1280,900", "--blink-settings=preferredColorScheme=1"],
    ["--window-size=1280,900", "--blink-settings=preferredColorScheme=0"],
    ["--window-size=3840,2160", "--blink-settings=preferredColorScheme=1"],
    ["--window-size=3840,2160", "--blink-settings=preferredColorScheme=0"],
];

/// Functions that find unreadable parts: texts whose contrast with their background is below 4.5, WCAG's minimum for
/// plain text, and parts that are wider than their container.
const READER: &str = r#"
    const parts = (colour) => {
        const [red, green, blue, alpha] = colour.match(/[\d.]+/g).map(Number);
        return [red, green, blue, alpha === undefined ? 1 : alpha];
    };
    const over = (top, alpha, under) => under.map((value, at) => top[at] * alpha + value * (1 - alpha));
    const luminance = (colour) => colour
        .map((value) => value / 255)
        .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
        .reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
    const grounds = new Map([[null, [[255, 255, 255], 1]]]);
    const ground = (element) => {
        if (!grounds.has(element)) {
            const [under, opacity] = ground(element.parentElement);
            const style = getComputedStyle(element);
            const colour = parts(style.backgroundColor);
            const all = opacity * Number(style.opacity);
            grounds.set(element, [over(colour, colour[3] * all, under), all]);
        }
        return grounds.get(element);
    };
    const contrast = (element) => {
        const [behind, opacity] = ground(element);
        const ink = parts(getComputedStyle(element).color);
        const [a, b] = [luminance(over(ink, ink[3] * opacity, behind)), luminance(behind)];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    };
    const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== '');
    const name = (element) => element.tagName + '.' + element.className + ' ' + element.textContent.slice(0, 40);
    const faults = (where) => {
        grounds.clear();
        grounds.set(null, [[255, 255, 255], 1]);
        const found = [];
        for (const element of document.querySelectorAll('body *:not(script, option)')) {
            // What is not searched for is pale on purpose.
            if (!hasText(element) || !element.checkVisibility() || element.closest('.dim')) continue;
            const ratio = contrast(element);
            if (!(ratio >= 4.5)) found.push(where + ': contrast ' + ratio.toFixed(2) + ' of ' + name(element));
        }
        for (const element of [document.documentElement, document.body, document.getElementById('view')]) {
            const wide = element.scrollWidth - element.clientWidth;
            if (wide > 0) found.push(where + ': ' + name(element).slice(0, 9) + ' is ' + wide + ' pixels too wide');
        }
        return found.slice(0, 5);
    };"#;

fn page(input: &str, folder: &Path) -> PathBuf {
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../analysis/tests").join(input);
    let page = folder.join("page.html");
    let words =
        ["report", input.to_str().unwrap(), "--format", "html", "--force", "-o", page.to_str().unwrap()];
    expect_code(0, &words);
    page
}

#[test]
fn every_tab_fits_its_window_and_can_be_read() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    for input in INPUTS {
        let page = page(input, folder.path());
        for window in WINDOWS {
            let script = format!(
                "{READER}
                const found = [];
                const drawn = () => new Promise(requestAnimationFrame);
                for (const [tab] of TABS) {{
                    byId('tab-' + tab).click();
                    if (tab === 'timeline') await Timeline.ready;
                    await drawn();
                    found.push(...faults(tab));
                }}
                byId('tab-table').click();
                await drawn();
                const high = [...document.querySelectorAll('.functions tr')].filter((row) => row.offsetHeight > 40);
                found.push(...high.slice(0, 3).map((row) => row.offsetHeight + ' pixels high: ' + name(row)));
                const places = document.querySelector('.functions td.where');
                if (places && places.offsetWidth < 200) found.push('Where is ' + places.offsetWidth + ' pixels wide');
                byId('search').value = 'a';
                search();
                for (const tab of ['down', 'table']) {{ byId('tab-' + tab).click(); found.push(...faults('search in ' + tab)); }}
                const dark = matchMedia('(prefers-color-scheme: dark)').matches;
                const kinds = Object.keys(Object.fromEntries(data.frames.map((frame) => [frame[1], 0])));
                const legend = byId('legend').childElementCount;
                return {{ found, dark, width: innerWidth, tabs: TABS.length, legend, kinds: kinds.length }};"
            );
            let said = browser::run(browser, &page, &script, &window);
            assert_eq!(said["found"], json!([]), "{input} {window:?}");
            assert_eq!(said["dark"], json!(window[1].ends_with('0')));
            assert_eq!(said["width"], json!(if window[0].contains("3840") { 3840 } else { 1280 }));
            assert!(said["tabs"].as_u64().unwrap() >= 6, "{said}");
            assert!(said["legend"].as_u64().unwrap() > 0, "{said}");
        }
    }
}

#[test]
fn memory_over_time_is_drawn_as_curves() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = "
        byId('tab-memory-curves').click();
        const bars = [...document.querySelectorAll('#view td.curve div')];
        return bars.map((bar) => {
            const points = getComputedStyle(bar).clipPath.split(',').length;
            return { points, high: bar.offsetHeight, wide: bar.offsetWidth };
        });";
    let said = browser::run(browser, &page(INPUTS[0], folder.path()), script, &WINDOWS[0]);
    let curves = said.as_array().unwrap();
    assert!(!curves.is_empty(), "the recording has memory of tensors");
    for curve in curves {
        // Twenty seconds in windows of 100 ms, with two corners each.
        assert!(curve["points"].as_u64().unwrap() > 100, "{said}");
        assert!(curve["high"].as_u64().unwrap() >= 40 && curve["wide"].as_u64().unwrap() >= 160, "{said}");
    }
}

#[test]
fn keys_open_tabs_and_zoom_without_losing_the_focus() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = "
        const press = (key, more) => {
            document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, ...more }));
            return [state.tab, location.hash, document.activeElement.id];
        };
        const found = {};
        byId('tab-down').click();
        byId('tab-down').focus();
        found.right = press('ArrowRight');
        found.left = press('ArrowLeft');
        found.held = press('ArrowRight', { altKey: true });
        found.stops = [...document.querySelectorAll('[role=tab]')].filter((tab) => tab.tabIndex === 0).length;
        const [, box] = document.querySelectorAll('.box');
        box.focus();
        box.click();
        found.zoomed = document.activeElement.className.includes('zoomed');
        const folds = state.folds;
        press('z', { ctrlKey: true });
        found.kept = state.folds === folds;
        press('z');
        found.changed = state.folds !== folds;
        found.again = document.activeElement.className.includes('zoomed');
        return found;";
    let said = browser::run(browser, &page(INPUTS[1], folder.path()), script, &WINDOWS[0]);
    assert_eq!(said["right"], json!(["up", "#up", "tab-up"]), "{said}");
    for each in ["left", "held"] {
        assert_eq!(said[each], json!(["down", "#down", "tab-down"]), "{said}");
    }
    assert_eq!(said["stops"], json!(1));
    for each in ["zoomed", "kept", "changed", "again"] {
        assert_eq!(said[each], json!(true), "{each}: {said}");
    }
}

#[test]
fn arrows_move_between_boxes_with_details_beside_them() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = "
        const press = (key) => {
            document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
            return document.activeElement.title;
        };
        byId('tab-down').click();
        const [first] = document.querySelectorAll('.box');
        first.focus();
        const found = { first: first.title, down: press('ArrowDown') };
        found.name = byId('details').querySelector('h2').textContent;
        found.up = press('ArrowUp');
        found.left = press('ArrowLeft');
        const [view, details] = ['view', 'details'].map((id) => byId(id).getBoundingClientRect());
        found.beside = details.left >= view.right && details.width > 300;
        found.below = details.top >= view.bottom;
        byId('details').querySelector('li button').click();
        found.zoomed = document.activeElement.className.includes('zoomed');
        byId('tab-table').click();
        found.hidden = !byId('details').checkVisibility();
        return found;";
    for (window, is_wide) in [(WINDOWS[0], false), (WINDOWS[2], true)] {
        let said = browser::run(browser, &page(INPUTS[1], folder.path()), script, &window);
        let title = |of: &str| said[of].as_str().unwrap().to_owned();
        assert_eq!((title("up"), title("left")), (title("first"), title("first")), "{said}");
        assert!(title("down") != title("first") && title("down").starts_with(&title("name")), "{said}");
        assert_eq!((&said["beside"], &said["below"]), (&json!(is_wide), &json!(!is_wide)), "{said}");
        assert_eq!((&said["zoomed"], &said["hidden"]), (&json!(true), &json!(true)), "{said}");
    }
}

/// What a script sees of the page before and after printing.
const PRINTED: &str = "
    dispatchEvent(new Event('beforeprint'));
    const printed = byId('printed');
    printed.style.display = 'block';
    printed.style.width = '700px';
    const parts = [...printed.querySelectorAll('.printed')];
    const found = {
        titles: parts.map((part) => part.firstElementChild.textContent),
        tabs: TABS.map(([, title]) => title),
        empty: parts.filter((part) => part.children[1].textContent.trim() === '').map((part) => part.textContent),
        rows: Math.max(...[...printed.querySelectorAll('table')].map((table) => table.rows.length)),
        wide: [...printed.querySelectorAll('.box')].filter((box) => box.offsetLeft + box.offsetWidth > 701).length,
        ids: printed.querySelectorAll('[id]').length,
        tab: state.tab, first: TABS[0][0],
    };
    dispatchEvent(new Event('afterprint'));
    found.left = printed.childElementCount;
    return found;";

#[test]
fn a_printed_page_has_every_tab() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    for input in INPUTS {
        let page = page(input, folder.path());
        let said = browser::run(browser, &page, PRINTED, &WINDOWS[1]);
        assert_eq!(said["titles"], said["tabs"], "{input}");
        for each in ["empty", "wide", "ids", "left"] {
            assert!([json!([]), json!(0)].contains(&said[each]), "{input}: {each} {said}");
        }
        assert!(said["rows"].as_u64().unwrap() <= 61, "{said}");
        assert_eq!(said["tab"], said["first"]);
        let outline = outline(browser, &page);
        for title in titles(&said["tabs"]) {
            assert!(outline.contains(&title), "{input}: no {title} on paper: {outline:?}");
        }
    }
}

/// Boxes of the page, each with the full names of its callers: `a;b;c value`.
const BOXES: &str = "
    const name = (of) => of.detail || of.name || label(of);
    const list = (tab) => {
        const found = [];
        const open = [[boxes(tab).root, '']];
        while (open.length) {
            const [of, above] = open.pop();
            const path = above + name(of) + ';';
            found.push([path, of.all]);
            open.push(...of.children.map((child) => [child, path]));
        }
        return found;
    };
    const down = list('down');
    const up = boxes('up').root.children.map((of) => of.all);
    byId('tab-down').click();
    const shown = [...document.querySelectorAll('.box')].map((box) => box.title);
    const words = [...document.querySelectorAll('.box')].map((box) => box.textContent);
    byId('folds').click();
    const whole = list('down');
    return { down, whole, up, shown, words, metric: metric().name };";

/// The same of the terminal view's tree.
fn boxes_of_terminal(input: &str, folds: bool) -> BTreeMap<String, u64> {
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("../analysis/tests").join(input);
    let opened = deepctx_storage::open(&input).unwrap();
    let merged = MergedTree::by_text(Selection::of(Metric::CpuTime));
    let mut merged = if folds { merged.with_backward_apart().with_spinning_apart() } else { merged };
    merged.refresh(&opened.profile);
    let flame = merged.flame(Resolution::default());
    let folded =
        if folds { FoldedTree::of(&flame, Fold::default(), |_| false) } else { FoldedTree::nothing(&flame) };
    let mut boxes = BTreeMap::new();
    let mut paths: Vec<String> = Vec::new();
    for (place, node) in (0u32..).zip(&folded.tree.nodes) {
        let is_named = folded.is_trunk(place) && !node.detail.is_empty();
        let above = if paths.is_empty() { "" } else { paths[node.parent as usize].as_str() };
        let path = format!("{above}{};", if is_named { &node.detail } else { &node.label });
        *boxes.entry(path.clone()).or_default() += node.inclusive;
        paths.push(path);
    }
    boxes
}

#[test]
fn the_page_folds_what_the_terminal_folds() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut halves = 0;
    for input in ["profiles/torch-layers.dctx", "profiles/stdlib-mix.dctx", "profiles/torch-embedding.dctx"] {
        let said = browser::run(browser, &page(input, folder.path()), BOXES, &WINDOWS[1]);
        assert_eq!(said["metric"], "cpu-time");
        for (of, folds) in [("down", true), ("whole", false)] {
            let mut boxes: BTreeMap<String, u64> = BTreeMap::new();
            for row in said[of].as_array().unwrap() {
                *boxes.entry(row[0].as_str().unwrap().to_owned()).or_default() += row[1].as_u64().unwrap();
            }
            boxes.retain(|_, value| *value > 0);
            assert_eq!(boxes, boxes_of_terminal(input, folds), "{input}: {of}");
        }
        assert!(said["down"].as_array().unwrap().len() < said["whole"].as_array().unwrap().len(), "{input}");
        halves += usize::from(said["down"].to_string().contains(";[backward]"));
        let shown = said["shown"].to_string();
        assert!(shown.contains(" → ") && !shown.contains("Module._call_impl ("), "{input}: {shown}");
        let up = said["up"].as_array().unwrap().iter().map(|value| value.as_u64().unwrap());
        let up: Vec<u64> = up.collect();
        assert!(up.len() > 1 && up.is_sorted_by(|a, b| a >= b), "{input}: {up:?}");
        let words = said["words"].to_string();
        assert!(!input.contains("torch-layers") || words.contains("\"…."), "within its layer: {words}");
    }
    assert_eq!(halves, 1, "one of them was recorded with --probe backward");
}

#[test]
fn the_page_joins_trunks_without_their_native_beginning() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folded = folder.path().join("in.folded");
    let python = "threading.py:Thread._bootstrap;threading.py:Thread.run";
    let whole = format!("p-1;clone3;start_thread;{python}");
    let stacks = format!("p-1;{python};t.py:work 10\n{whole};t.py:work 60\n{whole};t.py:rest 30\n");
    fs::write(&folded, stacks).unwrap();
    // An absolute path stays as it is.
    let said = browser::run(browser, &page(folded.to_str().unwrap(), folder.path()), BOXES, &WINDOWS[1]);
    let [down, whole] = ["down", "whole"].map(|of| said[of].to_string().matches("t.py:work;").count());
    assert_eq!([down, whole], [1, 2], "{said}");
}

#[test]
fn the_page_sets_idle_workers_apart() {
    const WORKER: &str = "p-1;clone3;libgomp.so.1+0x10";
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folded = folder.path().join("in.folded");
    fs::write(&folded, format!("{WORKER};libgomp.so.1+0x20 60\n{WORKER};work 30\n")).unwrap();
    let said = browser::run(browser, &page(folded.to_str().unwrap(), folder.path()), BOXES, &WINDOWS[1]);
    let [down, whole] = ["down", "whole"].map(|of| said[of].to_string());
    assert!(down.contains(";[spinning] → libgomp.so.1+0x10 → libgomp.so.1+0x20;"), "{said}");
    assert!(down.contains("work;") && !whole.contains("[spinning]"), "{said}");
}

fn titles(tabs: &Value) -> Vec<String> {
    tabs.as_array().unwrap().iter().map(|title| title.as_str().unwrap().to_owned()).collect()
}

/// Headings in the PDF that the browser creates from a page.
fn outline(browser: &str, page: &Path) -> Vec<String> {
    let pdf = page.with_extension("pdf");
    let mut command = browser::command(browser, &page.with_extension("browser"));
    command.args(["--no-pdf-header-footer", "--generate-pdf-document-outline"]);
    command.arg(format!("--print-to-pdf={}", pdf.display())).arg(format!("file://{}", page.display()));
    let printed = command.output().unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let bytes = fs::read(&pdf).unwrap();
    let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
    let items = text.split("/Title (").skip(1).filter_map(|rest| rest.split_once(')'));
    items.map(|(title, _)| title.to_owned()).collect()
}
