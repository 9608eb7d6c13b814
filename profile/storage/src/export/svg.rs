//! Flame graph pictures, drawn by `inferno`.
//!
//! Owns: title, unit and colors. Because: a picture that opens in any browser, with search and zoom, is what people
//! attach to a ticket. Does not: lay out boxes, or name them ([`ShortNames`]).

use std::io::{self, Write};

use inferno::flamegraph::color::{Color, PaletteMap};
use inferno::flamegraph::{self, Options, TextTruncateDirection};

use super::short_names::ShortNames;
use deepctx_profile::context::selection::Selection;
use deepctx_profile::frame::{FrameKind, layer_within};
use deepctx_profile::metric::{Metric, Unit};
use deepctx_profile::profile::Profile;
use deepctx_profile::view::fold::{Fold, FoldedTree};
use deepctx_profile::view::snapshot::FlameTree;
use deepctx_profile::view::{MergedTree, Resolution};

/// Largest folded text for one picture; `inferno` holds all of it in memory.
const FOLDED_BYTES_MAX: usize = 1 << 30;

/// Writes the flame graph of a selection as SVG, with uninformative frames folded if `folds` is set. Boxes too narrow
/// to be visible are omitted.
pub fn write(profile: &Profile, selection: &Selection, folds: bool, out: &mut dyn Write) -> io::Result<()> {
    let merged = MergedTree::by_text(*selection);
    let mut merged = if folds { merged.with_backward_apart().with_spinning_apart() } else { merged };
    merged.refresh(profile);
    check_sum(merged.exclusive.iter().copied())?;
    let flame = merged.flame(Resolution::default());
    let fold = Fold { from_root: false, ..Fold::default() };
    let folded = if folds { FoldedTree::of(&flame, fold, |_| false) } else { FoldedTree::nothing(&flame) };
    let tree = &folded.tree;

    let labels = || tree.nodes.iter().map(|node| (node.kind, node.label.as_str()));
    let (trunks, single): (Vec<_>, Vec<_>) =
        (0u32..).zip(&tree.nodes).partition(|(place, _)| folded.is_trunk(*place));
    // The names of a folded trunk are already short.
    let mut names = ShortNames::of(single.iter().map(|(_, node)| (node.kind, node.label.as_str())));
    for (label, short) in layers_within(tree) {
        names.shorten(label, short);
    }
    for (_, node) in trunks.iter().filter(|(_, node)| !node.detail.is_empty()) {
        names.explain(&node.label, &node.detail);
    }
    let mut palette = PaletteMap::default();
    for (kind, label) in labels() {
        palette.insert(names.short(label), colour(kind, label));
    }
    // The bottom box, which has no name.
    palette.insert("", colour(FrameKind::Root, ""));
    let mut options = options();
    options.title = title(profile, selection);
    options.palette_map = Some(&mut palette);
    let (unit, factor) = scale(selection.metric.unit(), merged.total());
    options.count_name = unit.to_owned();
    options.factor = factor;
    options.reverse_stack_order = false;

    let lines = lines(tree, &names)?;
    if lines.is_empty() {
        let metric = selection.metric;
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the profile has no values of {metric}"),
        ));
    }
    draw(&mut options, &lines, &names, out)
}

/// The names of layers without the prefix of their enclosing layer.
fn layers_within(tree: &FlameTree) -> Vec<(&str, String)> {
    let mut layers = Vec::new();
    // By node: the innermost layer that it is in, or that it is. Callers precede callees.
    let mut within: Vec<Option<&str>> = Vec::with_capacity(tree.nodes.len());
    for node in &tree.nodes {
        let outer = within.get(node.parent as usize).copied().flatten();
        let is_layer = node.kind == FrameKind::Layer;
        if let Some(short) = outer.filter(|_| is_layer).and_then(|outer| layer_within(&node.label, outer)) {
            layers.push((node.label.as_str(), short));
        }
        within.push(if is_layer { Some(&node.label) } else { outer });
    }
    layers
}

/// Options of all pictures. Names are cut at their ends, since their beginnings are more informative.
fn options<'o>() -> Options<'o> {
    let mut options = Options::default();
    options.name_type = "Frame:".to_owned();
    options.deterministic = true;
    options.text_truncate_direction = TextTruncateDirection::Right;
    options
}

/// A tree as folded text: a line for each box with an exclusive value.
fn lines(tree: &FlameTree, names: &ShortNames<'_>) -> io::Result<String> {
    let (mut folded, mut line) = (String::new(), String::new());
    // Each open box with the length of the line up to its caller.
    let mut open: Vec<(u32, usize)> = vec![(0, 0)];
    while let Some((at, end)) = open.pop() {
        let node = &tree.nodes[at as usize];
        line.truncate(end);
        if at > 0 {
            line.push_str(if end > 0 { ";" } else { "" });
            line.push_str(names.short(&node.label));
        }
        if node.exclusive > 0 {
            let whole = if at > 0 { line.as_str() } else { names.short(&node.label) };
            folded.push_str(&format!("{whole} {}\n", node.exclusive));
            if folded.len() > FOLDED_BYTES_MAX {
                let message = "the profile is too large for one picture";
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
            }
        }
        open.extend(node.children.iter().rev().map(|&child| (child, line.len())));
    }
    Ok(folded)
}

/// Draws folded text with short names.
fn draw(
    options: &mut Options<'_>,
    folded: &str,
    names: &ShortNames<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut picture = Vec::new();
    flamegraph::from_lines(options, folded.lines(), &mut picture)?;
    let picture = String::from_utf8(picture).map_err(io::Error::other)?;
    out.write_all(names.with_full_titles(&picture).as_bytes())?;
    out.flush()
}

/// A comparison of two profiles, to be drawn.
#[derive(Clone, Debug)]
pub struct Difference<'c> {
    /// The compared metric.
    pub metric: Metric,
    /// Totals before and after.
    pub totals: [u64; 2],
    /// Each context, outermost frame first, with its exclusive values before and after; sorted by frames.
    pub stacks: Vec<(Vec<&'c str>, [u64; 2])>,
    /// Kind and text of all frames.
    pub frames: Vec<(FrameKind, &'c str)>,
}

/// Writes the flame graph of the second profile of a comparison, red where it has more than the first and blue where it
/// has less, as shares of the totals. Contexts that only the first one has have no width, so they are invisible; the
/// text form lists them.
///
/// # Errors
/// Those of `out`, and `InvalidData` if the second profile has no values.
pub fn write_difference(difference: &Difference<'_>, out: &mut dyn Write) -> io::Result<()> {
    let metric = difference.metric;
    let [before, after] = difference.totals;
    if after == 0 {
        let message = format!("the profile to compare has no values of {metric}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let (unit, factor) = scale(metric.unit(), after);
    // Scaled here, since `inferno` would scale changes twice.
    let shown = |value: f64| (value * factor).round() as u64;
    // As if both had the same total: a longer run is not a difference.
    let ratio = if before == 0 { 0.0 } else { after as f64 / before as f64 };
    let values = difference.stacks.iter().map(|(_, [before, after])| [*before as f64 * ratio, *after as f64]);
    check_sum(values.flatten().map(shown))?;
    let names = ShortNames::of(difference.frames.iter().copied());
    let mut folded = String::new();
    for &(ref stack, [before, after]) in &difference.stacks {
        let start = folded.len();
        for (depth, text) in stack.iter().enumerate() {
            folded.push_str(if depth > 0 { ";" } else { "" });
            folded.push_str(&names.short(text).replace(';', ":"));
        }
        if matches!(folded[start..].rsplit_once(' '), Some((_, word)) if word.bytes().all(|b| b.is_ascii_digit()))
        {
            // Three trailing numbers would be parsed as two values of another name.
            folded.push('.');
        }
        folded.push_str(&format!(" {} {}\n", shown(before as f64 * ratio), shown(after as f64)));
        if folded.len() > FOLDED_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "the profiles are too large for one picture",
            ));
        }
    }
    let mut options = options();
    options.title = format!("{metric}: what grew (red) and what shrank (blue)");
    options.count_name = unit.to_owned();
    draw(&mut options, &folded, &names, out)
}

/// Rejects values whose sum would overflow in the image: a profile is untrusted input.
fn check_sum(values: impl Iterator<Item = u64>) -> io::Result<()> {
    let sum: u128 = values.map(u128::from).sum();
    if sum > i64::MAX as u128 {
        let message = "the values of the profile are larger than a picture can show";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(())
}

fn title(profile: &Profile, selection: &Selection) -> String {
    let metric = selection.metric;
    match profile.meta.target.as_str() {
        "" => metric.name().to_owned(),
        target => format!("{metric} of {}", deepctx_profile::frame::clean(target)),
    }
}

/// Unit of values in the picture, and its size in the metric's own units.
fn scale(unit: Unit, total: u64) -> (&'static str, f64) {
    match unit {
        Unit::Nanoseconds if total >= 10_000_000_000 => ("ms", 1e-6),
        Unit::Nanoseconds => ("µs", 1e-3),
        Unit::Count => ("times", 1.0),
        Unit::Bytes => ("bytes", 1.0),
    }
}

/// The hue shows the kind of frame, the shade distinguishes neighbors of one kind; equal texts have equal colors. Light
/// enough for black text.
fn colour(kind: FrameKind, text: &str) -> Color {
    let [r, g, b] = kind.color();
    let hash = text.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let shade = (hash % 24) as u8;
    let shaded = |part: u8| part.saturating_sub(shade);
    Color::new(shaded(r), shaded(g), shaded(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepctx_profile::testing::profile;

    fn draw(lines: &str) -> io::Result<String> {
        let mut out = Vec::new();
        write(&profile(lines), &Selection::of(Metric::CpuTime), true, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn svg_shows_the_target_and_a_box_per_frame() {
        let svg = draw("P a-1 / y t.py:f<int> & co / n g 3000000\n P a-1 / k h 2000000").unwrap();
        assert!(svg.contains("cpu-time of python train.py (pid 7)"));
        for title in [
            "a-1 (5,000 µs, 100.00%)",
            "t.py:f&lt;int&gt; &amp; co → g (3,000 µs, 60.00%)",
            "h (2,000 µs, 40.00%)",
        ] {
            assert!(svg.contains(title), "no box `{title}` in\n{svg}");
        }
    }

    #[test]
    fn hue_follows_frame_kind_and_equal_text_has_equal_colour() {
        let svg = draw("P a-1 / y t.py:f / n g 1\n P a-1 / n g 2").unwrap();
        let fill = |title: &str| {
            let at = svg.find(title).unwrap();
            let rest = &svg[at + svg[at..].find("fill=\"").unwrap() + 6..];
            rest[..rest.find('"').unwrap()].to_owned()
        };
        let Color { r, g, b } = colour(FrameKind::Native, "g");
        assert_eq!(fill("<title>g "), format!("rgb({r},{g},{b})"));
        assert_ne!(fill("<title>g "), fill("<title>t.py:f "));
    }

    #[test]
    fn a_picture_folds_and_cuts_names_at_their_ends() {
        let stack = "P a-1 / n _start / n main / n mid / n run / y /l/module.py:Module._call_impl";
        let profile = profile(&format!(
            "{stack} / l g.h.0 (Block) / l g.h.0.attn (Attention) 30\n {stack} / l g.h.1 (Block) / l g.h.1.attn (Attention) 10
             {stack} / n a_function_with_a_name_that_has_no_room 1"
        ));
        let draw = |folds| {
            let mut out = Vec::new();
            write(&profile, &Selection::of(Metric::CpuTime), folds, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let (folded, whole) = (draw(true), draw(false));
        for (name, in_folded, in_whole) in [
            (">a-1 → main → mid → run</text>", true, false),
            ("g.h.{0,1} (Block) ×2</text>", true, false),
            (">….attn (Attention) ×2</text>", true, false),
            ("<title>g.h.{0,1}.attn (Attention) ×2 (", true, false),
            ("module.py:Module._call_impl", false, true),
            ("_start", false, true),
            (">a_..</text>", true, true),
            ("..om</text>", false, false),
        ] {
            assert_eq!(
                [folded.contains(name), whole.contains(name)],
                [in_folded, in_whole],
                "{name} in\n{folded}"
            );
        }
    }

    #[test]
    fn threads_that_spin_stand_apart_unless_stacks_stay_whole() {
        const WORKER: &str = "P a-1 / n clone3 / u /l/libgomp.so.1+0x10";
        let profile = profile(&format!(
            "P a-1 / n clone / n gomp_thread_start / n gomp_barrier_wait_end 3000000
             {WORKER} / u /l/libgomp.so.1+0x20 2000000
             {WORKER} / n work 5000000"
        ));
        let draw = |folds| {
            let mut out = Vec::new();
            write(&profile, &Selection::of(Metric::CpuTime), folds, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let (folded, whole) = (draw(true), draw(false));
        assert!(folded.contains("<title>[spinning] (5,000 µs, 50.00%)"), "{folded}");
        assert!(!whole.contains("[spinning]"), "{whole}");
    }

    const FULL: &str = "std::vector<int, std::allocator<int> >::push_back(int const&)";

    #[test]
    fn boxes_have_short_names_and_titles_full_ones() {
        let svg = draw(&format!("P a-1 / n main / n {FULL} 3000000")).unwrap();
        let escaped =
            FULL.replace('<', "&lt;").replace('>', "&gt;").replace('&', "&amp;").replace("&amp;lt", "&lt");
        let escaped = escaped.replace("&amp;gt", "&gt");
        let short = "a-1 → main → std::vector::push_back";
        assert!(
            svg.contains(&format!(
                "<g data-name=\"{short}\"><title>a-1 → main → {escaped} (3,000 µs, 100.00%)"
            )),
            "{svg}"
        );
        assert!(svg.contains(&format!(">{short}</text>")), "{svg}");
        // Boxes redrawn when the picture is zoomed use the short name, too: at both places of the script.
        assert_eq!(svg.matches("e.getAttribute(\"data-name\") || find_child").count(), 2, "{svg}");
        assert_eq!(svg.matches("find_child(e, \"title\").textContent").count(), 2, "{svg}");
    }

    #[test]
    fn boxes_of_a_difference_have_short_names() {
        let stacks = vec![(vec!["a", FULL], [1_000_000, 6_000_000])];
        let frames = vec![(FrameKind::Process, "a"), (FrameKind::Native, FULL)];
        let difference =
            Difference { metric: Metric::CpuTime, totals: [1_000_000, 6_000_000], stacks, frames };
        let mut out = Vec::new();
        write_difference(&difference, &mut out).unwrap();
        let svg = String::from_utf8(out).unwrap();
        assert!(svg.contains("data-name=\"std::vector::push_back\"><title>std::vector&lt;int, "), "{svg}");
    }

    #[test]
    fn svg_of_a_difference_shows_the_change_per_box() {
        let stacks = vec![(vec!["a", "f"], [1_000_000, 6_000_000]), (vec!["a", "g"], [1_000_000, 2_000_000])];
        let (totals, frames) = ([2_000_000, 8_000_000], Vec::new());
        let difference = Difference { metric: Metric::CpuTime, totals, stacks, frames };
        let mut out = Vec::new();
        write_difference(&difference, &mut out).unwrap();
        let svg = String::from_utf8(out).unwrap();
        for title in ["f (6,000 µs, 75.00%; +25.00%)", "g (2,000 µs, 25.00%; -25.00%)"] {
            assert!(svg.contains(title), "no box `{title}` in\n{svg}");
        }
        let nothing = Difference { totals: [2_000_000, 0], ..difference };
        assert!(write_difference(&nothing, &mut Vec::new()).unwrap_err().to_string().contains("no values"));
    }

    #[test]
    fn nothing_to_draw_is_an_error_that_names_the_metric() {
        assert_eq!(draw("").unwrap_err().to_string(), "the profile has no values of cpu-time");
    }
}
