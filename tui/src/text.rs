//! Text: figures and foreign names as text for a cell grid.
//!
//! Owns: number formats and the cutting and cleaning of labels. Because: a symbol name comes from a foreign file and
//! must never reach a terminal raw. Does not: know styles or where on the screen a text goes.

use deepctx_profile::metric::Unit;
use deepctx_profile::units::{Bytes, Nanos, plural_ending};
use ratatui::text::Span;

/// Columns that `text` takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// A character that is safe to show: controls, escapes and characters that reorder or hide text become `·`.
fn clean(character: char) -> char {
    let hides = matches!(character,
        '\u{00ad}' | '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    if character.is_control() || hides { '·' } else { character }
}

/// `text` cleaned and cut to `columns`, with `…` if something was cut. Reads no more of it than fits.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    // For the ellipsis: the length of `out` and its columns while one column was still free.
    let mut ellipsis_at = 0;
    // Combining marks take no column: limited, so that a name of them cannot grow a cell without bound.
    for character in text.chars().take(columns.saturating_mul(4).saturating_add(8)) {
        let character = clean(character);
        let mut bytes = [0; 4];
        let wide = width(character.encode_utf8(&mut bytes));
        if used + wide > columns {
            out.truncate(ellipsis_at);
            if columns > 0 {
                out.push('…');
            }
            return out;
        }
        out.push(character);
        used += wide;
        if used < columns {
            ellipsis_at = out.len();
        }
    }
    out
}

/// Like [`cut`], but cuts the start: the end of a path matters most.
pub(crate) fn cut_left(text: &str, columns: usize) -> String {
    let most = columns.saturating_mul(4).saturating_add(8);
    let skipped = text.char_indices().rev().nth(most).map_or(0, |(at, _)| at);
    let cleaned: String = text[skipped..].chars().map(clean).collect();
    if skipped == 0 && width(&cleaned) <= columns {
        return cleaned;
    }
    let mut from = 0;
    while width(&cleaned[from..]) >= columns.max(1) && from < cleaned.len() {
        from += cleaned[from..].chars().next().map_or(1, char::len_utf8);
    }
    if columns == 0 { String::new() } else { format!("…{}", &cleaned[from..]) }
}

/// `text` in at most so many lines of `columns`, broken at spaces where it has some. What does not fit is cut from the
/// last line.
pub(crate) fn wrap(text: &str, columns: usize, lines_max: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text.trim_start_matches(' ');
    while !rest.is_empty() && columns > 0 && lines.len() < lines_max {
        let is_last = lines.len() + 1 == lines_max;
        let end = if is_last { rest.len() } else { line_end(rest, columns) };
        lines.push(cut(&rest[..end], columns));
        rest = rest[end..].trim_start_matches(' ');
    }
    lines
}

/// Where the first line of a text ends: at the last space within `columns`, or else within a word.
fn line_end(text: &str, columns: usize) -> usize {
    let first = text.chars().next().map_or(0, char::len_utf8);
    let (mut used, mut space) = (0, None);
    for (number, (at, character)) in text.char_indices().enumerate() {
        if character == ' ' {
            space = Some(at);
        }
        let mut bytes = [0; 4];
        used += width(clean(character).encode_utf8(&mut bytes));
        // Combining marks take no column.
        if used > columns || number > columns.saturating_mul(4) {
            return space.unwrap_or(at).max(first);
        }
    }
    text.len()
}

/// A line of text with its tabs expanded to multiples of four columns; reads no more of it than fits.
pub(crate) fn expand_tabs(line: &str, columns: usize) -> String {
    const TAB: usize = 4;
    let mut out = String::new();
    let mut at = 0;
    for character in line.chars().take(columns.saturating_add(1)) {
        if character == '\t' {
            let blanks = TAB - at % TAB;
            out.extend(std::iter::repeat_n(' ', blanks));
            at += blanks;
        } else {
            out.push(character);
            at += 1;
        }
    }
    out
}

/// Number of digits.
pub(crate) fn count_digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |digits| digits as usize + 1)
}

/// Display name of a metric: `cpu-time` is CPU time.
pub(crate) fn metric(name: &str) -> String {
    let word = |word: &str| match word {
        "cpu" | "gpu" => word.to_ascii_uppercase(),
        _ => word.to_owned(),
    };
    let words: Vec<String> = name.split('-').map(word).collect();
    words.join(" ")
}

/// A value of a metric, at most about seven columns wide.
pub(crate) fn value(unit: Unit, value: u64) -> String {
    match unit {
        Unit::Nanoseconds => duration(Nanos(value)),
        Unit::Count => count(value),
        Unit::Bytes => bytes(Bytes(value)),
    }
}

/// A duration with three significant digits.
pub(crate) fn duration(Nanos(nanoseconds): Nanos) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    match nanoseconds {
        0 => "0".to_owned(),
        1..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{} µs", three_digits(nanoseconds as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", three_digits(nanoseconds as f64 / 1e6)),
        _ if seconds < 600 => format!("{} s", three_digits(nanoseconds as f64 / 1e9)),
        _ if seconds < 36_000 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// A duration beside another one, where there is little room: without its unit if that is the other's, and then without
/// decimals from ten on.
pub(crate) fn duration_beside(time: Nanos, other: Nanos) -> String {
    let (text, other) = (duration(time), duration(other));
    let (Some((number, unit)), Some((_, same))) = (text.rsplit_once(' '), other.rsplit_once(' ')) else {
        return text;
    };
    match number.parse::<f64>() {
        Ok(value) if unit == same && value >= 10.0 => format!("{value:.0}"),
        Ok(_) if unit == same => number.to_owned(),
        // Another unit, or minutes and hours.
        _ => text,
    }
}

/// Time since the start, for a running clock: at least seconds.
pub(crate) fn clock(Nanos(nanoseconds): Nanos) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    match seconds {
        0..60 => format!("{}.{} s", seconds, nanoseconds / 100_000_000 % 10),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Bytes with a binary unit.
pub(crate) fn bytes(Bytes(bytes): Bytes) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(scaled), UNITS[unit])
}

/// A whole number with a comma at every thousand.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A whole number of things: `1 sample`, `1,234 samples`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), plural_ending(number))
}

/// `part` of `whole` in percent; a nonzero part never reads as 0, an incomplete one never as 100.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 || part == 0 {
        return "0%".to_owned();
    }
    if part >= whole {
        return "100%".to_owned();
    }
    share(part as f64 / whole as f64)
}

/// A share (0..=1) in percent, with the same care for the ends as [`percent`].
pub(crate) fn share(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        p if !p.is_finite() || p <= 0.0 => "0%".to_owned(),
        p if p < 0.1 => "<0.1%".to_owned(),
        p if p >= 100.0 => "100%".to_owned(),
        p if p >= 99.9 => format!("{:.2}%", (p * 100.0).floor() / 100.0),
        p => format!("{p:.1}%"),
    }
}

/// A bar whose length is a share (0..=1) of `columns`, to an eighth of a column.
pub(crate) fn bar(share: f64, columns: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * columns as f64 * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

/// A number below 1000 with three significant digits.
fn three_digits(number: f64) -> String {
    match number {
        n if n < 9.995 => format!("{n:.2}"),
        n if n < 99.95 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_label_is_cut_with_an_ellipsis_that_fits() {
        let check = |text: &str, columns: usize, expected: &str| assert_eq!(cut(text, columns), expected);
        check("train.py:main", 20, "train.py:main");
        check("train.py:main", 13, "train.py:main");
        check("train.py:main", 12, "train.py:ma…");
        check("train.py:main", 1, "…");
        check("train.py:main", 0, "");
        check("数据预处理", 10, "数据预处理");
        check("数据预处理", 9, "数据预处…");
        check("数据预处理", 4, "数…");
        check("a\x1b[31mb\u{202e}c", 20, "a·[31mb·c");
        check("", 5, "");
    }

    #[test]
    fn a_path_is_cut_at_its_beginning() {
        let check =
            |text: &str, columns: usize, expected: &str| assert_eq!(cut_left(text, columns), expected);
        check("/srv/app/model.py", 20, "/srv/app/model.py");
        check("/srv/app/model.py", 9, "…model.py");
        check("/srv/app/model.py", 1, "…");
        check("/srv/app/model.py", 0, "");
        check("/数据/预处理", 7, "…预处理");
        check("/数据/预处理", 6, "…处理");
        check("/a\x1b[2J", 20, "/a·[2J");
    }

    #[test]
    fn long_texts_are_broken_at_spaces() {
        let check = |text: &str, columns: usize, most: usize, expected: &[&str]| {
            assert_eq!(wrap(text, columns, most), expected, "{text} in {columns}");
        };
        check("one two three", 20, 3, &["one two three"]);
        check("one two three", 7, 3, &["one two", "three"]);
        check("one two three", 8, 3, &["one two", "three"]);
        check("one two three", 7, 1, &["one tw…"]);
        check("one two three four", 7, 2, &["one two", "three …"]);
        check("libtorch_cpu.so", 6, 2, &["libtor", "ch_cp…"]);
        check("数据 预处理", 5, 3, &["数据", "预处", "理"]);
        check("数", 1, 2, &["…"]);
        check("a\x1b b", 2, 3, &["a·", "b"]);
        check("a b", 0, 3, &[]);
        check("a b", 5, 0, &[]);
        let marks: String = std::iter::once('e').chain(std::iter::repeat_n('\u{301}', 100_000)).collect();
        assert!(wrap(&marks, 10, 3).iter().all(|line| line.len() < 200));
    }

    #[test]
    fn tabs_go_to_the_next_fourth_column() {
        let check = |text: &str, expected: &str| assert_eq!(expand_tabs(text, 20), expected);
        check("\tx", "    x");
        check("ab\tx\ty", "ab  x   y");
        check("no tab", "no tab");
    }

    #[test]
    fn combining_marks_in_a_cell_are_bounded() {
        let marks: String = std::iter::once('e').chain(std::iter::repeat_n('\u{301}', 100_000)).collect();
        assert!(cut(&marks, 10).len() < 200);
    }

    #[test]
    fn durations_have_three_digits() {
        let check = |nanoseconds: u64, expected: &str| assert_eq!(duration(Nanos(nanoseconds)), expected);
        check(0, "0");
        check(999, "999 ns");
        check(1_000, "1.00 µs");
        check(12_345, "12.3 µs");
        check(999_999, "1000 µs");
        check(412_000_000, "412 ms");
        check(1_240_000_000, "1.24 s");
        check(599_900_000_000, "600 s");
        check(600_000_000_000, "10m 00s");
        check(36_000_000_000_000, "10h 00m");
        check(u64::MAX, "5124095h 34m");
    }

    #[test]
    fn a_duration_beside_another_one_is_short() {
        let check = |time: u64, other: u64, expected: &str| {
            assert_eq!(duration_beside(Nanos(time), Nanos(other)), expected);
        };
        check(80_300_000, 81_400_000, "80");
        check(104_000_000, 81_400_000, "104");
        check(9_870_000, 12_000_000, "9.87");
        check(812_000, 1_200_000, "812 µs");
        check(1_240_000_000, 999_000_000, "1.24 s");
        check(700_000_000_000, 650_000_000_000, "11m 40s");
        check(0, 5, "0");
    }

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        let check = |share: f64, expected: &str| assert_eq!(bar(share, 4), expected);
        check(0.0, "");
        check(0.5, "██");
        check(0.4, "█▋");
        check(2.0, "████");
        check(f64::NAN, "");
    }

    #[test]
    fn a_metric_reads_as_words() {
        let check = |name: &str, expected: &str| assert_eq!(metric(name), expected);
        check("cpu-time", "CPU time");
        check("gpu-time", "GPU time");
        check("off-cpu-time", "off CPU time");
        check("launch-delay", "launch delay");
        check("stall:wait", "stall:wait");
        check("", "");
    }

    #[test]
    fn percentages_are_honest_at_their_ends() {
        let check = |part: u64, whole: u64, expected: &str| assert_eq!(percent(part, whole), expected);
        check(0, 0, "0%");
        check(5, 0, "0%");
        check(0, 5, "0%");
        check(1, 1_000_000, "<0.1%");
        check(1, 3, "33.3%");
        check(999_999, 1_000_000, "99.99%");
        check(9_993, 10_000, "99.93%");
        check(u64::MAX - 1, u64::MAX, "100%");
        check(7, 7, "100%");
        check(8, 7, "100%");
    }

    #[test]
    fn counts_and_bytes_are_readable() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"].map(str::to_owned)
        );
        assert_eq!([0, 1, 2].map(|n| counted(n, "row")), ["0 rows", "1 row", "2 rows"].map(str::to_owned));
        assert_eq!(
            [0, 1023, 1024, 43 << 20, 999 << 20, 1000 << 20, u64::MAX].map(|it| bytes(Bytes(it))),
            ["0 B", "1023 B", "1.00 KiB", "43.0 MiB", "999 MiB", "0.98 GiB", "16.0 EiB"].map(str::to_owned)
        );
    }

    proptest! {
        #[test]
        fn a_cut_text_fits_and_is_clean(text in "\\PC{0,40}|.{0,40}", columns in 0usize..50) {
            let cut = cut(&text, columns);
            prop_assert!(width(&cut) <= columns);
            prop_assert!(!cut.chars().any(char::is_control));
            let end = cut_left(&text, columns);
            prop_assert!(width(&end) <= columns);
            prop_assert!(!end.chars().any(char::is_control));
            let lines = wrap(&text, columns, 3);
            prop_assert!(lines.len() <= 3 && lines.iter().all(|line| width(line) <= columns));
        }

        #[test]
        fn a_value_fits_its_column(number: u64) {
            for unit in [Unit::Nanoseconds, Unit::Bytes] {
                prop_assert!(width(&value(unit, number)) <= 12);
            }
            prop_assert!(width(&percent(number, u64::MAX)) <= 6);
        }
    }
}
