//! Theme: what a kind of frame, a warning or a selection looks like.
//!
//! Owns: every colour, and every letter that replaces one. Because: the same screen must be readable in 16 million
//! colours, in 16, in none, and on a light or a dark background: boxes have a background of their own, everything
//! else keeps the terminal's. Does not: place anything.

use deepctx_profile::trace::EventClass;
use deepctx_profile::view::snapshot::FrameKind;
use ratatui::style::{Color, Modifier, Style};

/// How many colours a terminal has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Palette {
    /// None: letters and attributes replace colours.
    #[default]
    Plain,
    /// The 16 of ANSI.
    Sixteen,
    /// The 256 of xterm.
    Indexed,
    /// 24 bits.
    True,
}

impl Palette {
    /// Detects the palette from the environment: `NO_COLOR` (<https://no-color.org>), `COLORTERM`, `TERM`.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name| variable(name).unwrap_or_default();
        let (term, color_term) = (value("TERM"), value("COLORTERM"));
        if !value("NO_COLOR").is_empty()
            || term == "dumb"
            || term.ends_with("-mono")
            || term.starts_with("vt1")
        {
            Self::Plain
        } else if matches!(color_term.as_str(), "truecolor" | "24bit") || term.ends_with("-direct") {
            Self::True
        } else if term.contains("256color") {
            Self::Indexed
        } else {
            Self::Sixteen
        }
    }
}

/// Character set of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charset {
    /// All of Unicode.
    #[default]
    Unicode,
    /// Only ASCII.
    Ascii,
}

impl Charset {
    /// Detects the character set from the environment, as the C library finds its locale: `LC_ALL`, `LC_CTYPE`, `LANG`.
    /// The kernel's console (`TERM=linux`) has no glyphs for partial blocks.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name| variable(name).unwrap_or_default();
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(value).into_iter().find(|value| !value.is_empty());
        let locale = locale.unwrap_or_default().to_ascii_lowercase();
        let is_unicode = locale.contains("utf-8") || locale.contains("utf8");
        let can = !matches!(value("TERM").as_str(), "dumb" | "linux");
        if is_unicode && can { Self::Unicode } else { Self::Ascii }
    }
}

/// How a box stands out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Emphasis {
    /// Not at all.
    #[default]
    None,
    /// Matches the search.
    Match,
    /// Does not match, while others do; or is an ancestor of the zoomed box.
    Faded,
}

/// How a share changed; true for a large change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trend {
    /// It grew.
    More(bool),
    /// It shrank.
    Less(bool),
    /// No more than chance explains.
    Same,
}

/// Shades that boxes of one kind alternate between, by name, so that neighbours differ.
const SHADES: usize = 3;

/// Background of a box that matches the search.
const MATCH: [u8; 3] = [255, 110, 210];

/// Background of the selected box: dark, so that it stands out among the others and on a black terminal.
const SELECTED: [u8; 3] = [20, 50, 200];

/// All styles for one palette.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Theme {
    palette: Palette,
    ascii: bool,
}

impl Theme {
    /// The theme for a palette.
    #[must_use]
    pub fn new(palette: Palette) -> Self {
        Self { palette, ascii: false }
    }

    /// The theme with another character set.
    #[must_use]
    pub fn with(self, signs: Charset) -> Self {
        Self { ascii: signs == Charset::Ascii, ..self }
    }

    /// Whether only ASCII may be drawn.
    pub(crate) fn is_ascii(&self) -> bool {
        self.ascii
    }

    /// Whether letters replace colours.
    #[must_use]
    pub fn uses_letters(&self) -> bool {
        self.palette == Palette::Plain
    }

    /// Style of a box.
    pub(crate) fn frame(&self, kind: FrameKind, label: &str, emphasis: Emphasis, selected: bool) -> Style {
        let style = match self.palette {
            Palette::Plain => match emphasis {
                Emphasis::Match => Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
                Emphasis::Faded => Style::new().add_modifier(Modifier::DIM),
                Emphasis::None => Style::new(),
            },
            Palette::Sixteen => {
                let (background, foreground) = match emphasis {
                    Emphasis::Match => (Color::LightMagenta, Color::Black),
                    Emphasis::Faded => (Color::Gray, Color::Black),
                    Emphasis::None => sixteen(kind),
                };
                Style::new().bg(background).fg(foreground)
            }
            Palette::Indexed => {
                let background = match emphasis {
                    Emphasis::Match => 206,
                    Emphasis::Faded => indexed(kind).1,
                    Emphasis::None => indexed(kind).0[shade(label)],
                };
                Style::new().bg(Color::Indexed(background)).fg(Color::Indexed(16))
            }
            Palette::True => {
                let background = match emphasis {
                    Emphasis::Match => MATCH,
                    Emphasis::Faded => faded(darker(kind.color(), shade(label))),
                    Emphasis::None => darker(kind.color(), shade(label)),
                };
                Style::new().bg(rgb(background)).fg(rgb([16, 16, 16]))
            }
        };
        if !selected {
            return style;
        }
        let (background, foreground) = match self.palette {
            Palette::Plain => return style.add_modifier(Modifier::REVERSED | Modifier::BOLD),
            Palette::Sixteen => (Color::Blue, Color::White),
            Palette::Indexed => (Color::Indexed(20), Color::Indexed(231)),
            Palette::True => (rgb(SELECTED), rgb([255, 255, 255])),
        };
        style.bg(background).fg(foreground).add_modifier(Modifier::BOLD)
    }

    /// Style of a box by how its share changed.
    pub(crate) fn difference(&self, trend: Trend, emphasis: Emphasis, selected: bool) -> Style {
        let plain = self.frame(FrameKind::Root, "", emphasis, selected);
        if selected || emphasis != Emphasis::None {
            return plain;
        }
        match self.palette {
            // The text of the box shows it.
            Palette::Plain => plain,
            Palette::Sixteen => match trend {
                Trend::More(_) => plain.bg(Color::LightRed),
                Trend::Less(_) => plain.bg(Color::LightCyan),
                Trend::Same => plain,
            },
            Palette::Indexed => match trend {
                Trend::More(true) => plain.bg(Color::Indexed(209)),
                Trend::More(false) => plain.bg(Color::Indexed(223)),
                Trend::Less(true) => plain.bg(Color::Indexed(111)),
                Trend::Less(false) => plain.bg(Color::Indexed(153)),
                Trend::Same => plain,
            },
            Palette::True => match trend {
                Trend::More(true) => plain.bg(rgb([255, 140, 105])),
                Trend::More(false) => plain.bg(rgb([255, 205, 185])),
                Trend::Less(true) => plain.bg(rgb([120, 180, 255])),
                Trend::Less(false) => plain.bg(rgb([190, 218, 255])),
                Trend::Same => plain,
            },
        }
    }

    /// Style of figures by their share of the total, 0..=1: stronger for a larger share.
    pub(crate) fn heat(&self, share: f64) -> Style {
        match share {
            share if share >= 0.1 => match self.palette {
                Palette::Plain => self.strong(),
                _ => self.frame(FrameKind::Kernel, "", Emphasis::None, false),
            },
            share if share >= 0.01 => match self.palette {
                Palette::Plain => Style::new(),
                _ => self.frame(FrameKind::Native, "", Emphasis::None, false),
            },
            _ => Style::new(),
        }
    }

    /// Bars of the timeline and of the overview.
    pub(crate) fn bar(&self, kind: FrameKind, metric: &str) -> Style {
        // Between black and white, to be visible on both.
        let (of_sixteen, indexed) = match metric {
            "off-cpu-time" => (Color::Cyan, 244),
            "cpu-time" | "cycles" => match kind {
                FrameKind::Process => (Color::Magenta, 134),
                _ => (Color::Blue, 33),
            },
            _ => (Color::Green, 35),
        };
        match self.palette {
            Palette::Plain => Style::new(),
            Palette::Sixteen => Style::new().fg(of_sixteen),
            Palette::Indexed | Palette::True => Style::new().fg(Color::Indexed(indexed)),
        }
    }

    /// The line at the left of a box, on the box's style.
    pub(crate) fn edge(&self, style: Style) -> Style {
        match style.bg {
            Some(Color::Rgb(r, g, b)) => style.fg(Color::Rgb(r / 2, g / 2, b / 2)),
            Some(Color::Indexed(_)) => style.fg(Color::Indexed(240)),
            _ => style,
        }
    }

    /// Style of a kind's letter or name outside boxes: coloured if colours are readable on any background.
    pub(crate) fn mark(&self, kind: FrameKind) -> Style {
        self.frame(kind, "", Emphasis::None, false)
    }

    /// Bar or name of an event of a trace.
    pub(crate) fn event(&self, class: EventClass) -> Style {
        // Between black and white, to be visible on both.
        let (of_sixteen, indexed) = match class {
            EventClass::Compute => (Color::Green, 35),
            EventClass::Communication => (Color::Magenta, 134),
            EventClass::Memory => (Color::Yellow, 136),
            EventClass::Call => (Color::Red, 167),
            EventClass::Operator => (Color::Blue, 33),
            EventClass::Python => (Color::Cyan, 37),
            EventClass::Range | EventClass::Other => (Color::DarkGray, 244),
            EventClass::OffCpu => (Color::DarkGray, 246),
        };
        match self.palette {
            Palette::Plain => Style::new(),
            Palette::Sixteen => Style::new().fg(of_sixteen),
            Palette::Indexed | Palette::True => Style::new().fg(Color::Indexed(indexed)),
        }
    }

    /// The most important text of a line.
    pub(crate) fn strong(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The least important text.
    pub(crate) fn quiet(&self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// A problem: something was lost.
    pub(crate) fn alarm(&self) -> Style {
        let style = self.strong();
        match self.palette {
            Palette::Plain => style.add_modifier(Modifier::REVERSED),
            _ => style.fg(Color::White).bg(Color::Red),
        }
    }

    /// A notice for the user.
    pub(crate) fn notice(&self) -> Style {
        match self.palette {
            Palette::Plain => self.strong(),
            _ => self.strong().fg(Color::Magenta),
        }
    }

    /// A selected line, an open tab, a key in the hints.
    pub(crate) fn chosen(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A line that matches the search.
    pub(crate) fn found(&self) -> Style {
        match self.palette {
            Palette::Plain => Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            _ => self.frame(FrameKind::Root, "", Emphasis::Match, false),
        }
    }
}

/// Letter of a kind, for terminals without colour and for the table.
pub(crate) fn letter(kind: FrameKind) -> char {
    match kind {
        FrameKind::Root => '·',
        FrameKind::Process => '#',
        FrameKind::Thread => '~',
        FrameKind::Python => 'P',
        FrameKind::Operator => 'O',
        FrameKind::Layer => 'L',
        FrameKind::Native => 'N',
        FrameKind::Kernel => 'K',
        FrameKind::GpuApi => 'A',
        FrameKind::GpuKernel => 'G',
        FrameKind::Unresolved => '?',
    }
}

/// Name of a kind in the legend.
pub(crate) fn kind_name(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Root => "everything",
        FrameKind::Process => "process",
        FrameKind::Thread => "thread",
        FrameKind::Python => "Python function",
        FrameKind::Operator => "framework operator",
        FrameKind::Layer => "layer of a model",
        FrameKind::Native => "native code",
        FrameKind::Kernel => "Linux kernel",
        FrameKind::GpuApi => "GPU API call",
        FrameKind::GpuKernel => "GPU kernel",
        FrameKind::Unresolved => "unresolved: the name is the reason",
    }
}

/// Backgrounds in xterm's 256 colours, picked by eye: rounding the others to its cube turns red into brown. The shades,
/// and the faded one.
fn indexed(kind: FrameKind) -> ([u8; SHADES], u8) {
    match kind {
        FrameKind::Root => ([254, 253, 254], 250),
        FrameKind::Process => ([252, 251, 252], 249),
        FrameKind::Thread => ([250, 249, 248], 247),
        FrameKind::Python => ([153, 117, 146], 146),
        FrameKind::Operator => ([141, 140, 177], 182),
        FrameKind::Layer => ([228, 191, 192], 187),
        FrameKind::Native => ([178, 220, 208], 187),
        FrameKind::Kernel => ([217, 216, 180], 181),
        FrameKind::GpuApi => ([230, 231, 195], 187),
        FrameKind::GpuKernel => ([113, 149, 185], 151),
        FrameKind::Unresolved => ([246, 247, 245], 248),
    }
}

/// Background and text colour in 16 colours.
fn sixteen(kind: FrameKind) -> (Color, Color) {
    match kind {
        FrameKind::Root | FrameKind::Process | FrameKind::Thread => (Color::White, Color::Black),
        FrameKind::Python => (Color::LightBlue, Color::Black),
        FrameKind::Operator => (Color::Magenta, Color::Black),
        FrameKind::Layer => (Color::LightCyan, Color::Black),
        FrameKind::Native => (Color::Yellow, Color::Black),
        FrameKind::Kernel => (Color::LightRed, Color::Black),
        FrameKind::GpuApi => (Color::Cyan, Color::Black),
        FrameKind::GpuKernel => (Color::Green, Color::Black),
        FrameKind::Unresolved => (Color::Gray, Color::Black),
    }
}

/// The shade of a name.
fn shade(label: &str) -> usize {
    // FNV-1a over the beginning: a name always has the same shade, and long names cost no more than short ones.
    let hash = label.bytes().take(64).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) as usize % SHADES
}

fn darker(color: [u8; 3], steps: usize) -> [u8; 3] {
    color.map(|part| part - part / 14 * steps as u8)
}

fn faded(color: [u8; 3]) -> [u8; 3] {
    color.map(|part| ((u16::from(part) + 2 * 190) / 3) as u8)
}

fn rgb([r, g, b]: [u8; 3]) -> Color {
    Color::Rgb(r, g, b)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const PALETTES: [Palette; 4] = [Palette::Plain, Palette::Sixteen, Palette::Indexed, Palette::True];

    #[test]
    fn the_environment_decides_on_colours() {
        let check = |variables: &[(&str, &str)], expected: Palette| {
            let variable = |name: &str| {
                variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(Palette::detect(variable), expected, "{variables:?}");
        };
        check(&[("TERM", "xterm-256color")], Palette::Indexed);
        check(&[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")], Palette::True);
        check(&[("TERM", "xterm-256color"), ("COLORTERM", "truecolor"), ("NO_COLOR", "1")], Palette::Plain);
        check(&[("TERM", "xterm-256color"), ("NO_COLOR", "")], Palette::Indexed);
        check(&[("TERM", "linux")], Palette::Sixteen);
        check(&[("TERM", "vt100")], Palette::Plain);
        check(&[("TERM", "dumb")], Palette::Plain);
        check(&[], Palette::Sixteen);
    }

    #[test]
    fn the_locale_decides_on_signs() {
        let check = |variables: &[(&str, &str)], expected: Charset| {
            let variable = |name: &str| {
                variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(Charset::detect(variable), expected, "{variables:?}");
        };
        check(&[("LANG", "en_US.UTF-8")], Charset::Unicode);
        check(&[("LANG", "C.utf8"), ("TERM", "xterm")], Charset::Unicode);
        check(&[("LANG", "en_US.UTF-8"), ("LC_ALL", "C")], Charset::Ascii);
        check(&[("LC_ALL", ""), ("LC_CTYPE", "C.UTF-8"), ("LANG", "C")], Charset::Unicode);
        check(&[("LANG", "en_US.UTF-8"), ("TERM", "linux")], Charset::Ascii);
        check(&[("LANG", "en_US.UTF-8"), ("TERM", "dumb")], Charset::Ascii);
        check(&[("LANG", "C")], Charset::Ascii);
        check(&[], Charset::Ascii);
    }

    #[test]
    fn letters_of_kinds_are_distinct() {
        assert_eq!(FrameKind::ALL.map(letter).iter().collect::<HashSet<_>>().len(), FrameKind::ALL.len());
    }

    #[test]
    fn kinds_of_code_differ_in_every_palette_with_colours() {
        let code = &FrameKind::ALL[3..];
        for palette in [Palette::Sixteen, Palette::Indexed, Palette::True] {
            let theme = Theme::new(palette);
            // A label per shade, so that no shade of one kind is taken for another kind.
            let labels = ["a", "b", "c", "d", "e", "f", "g", "h"];
            let mut owner = std::collections::HashMap::new();
            for &kind in code {
                for label in labels {
                    let background = theme.frame(kind, label, Emphasis::None, false).bg;
                    assert_eq!(*owner.entry(background).or_insert(kind), kind, "{palette:?} {background:?}");
                }
            }
        }
    }

    /// As CIE 1976 L*a*b* from linear sRGB with a D65 white.
    fn lab(linear: [f64; 3]) -> [f64; 3] {
        let [r, g, b] = linear.map(|part| part.clamp(0.0, 1.0));
        let root = |t: f64| if t > 0.008_856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        let x = root((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.950_47);
        let y = root(0.2126 * r + 0.7152 * g + 0.0722 * b);
        let z = root((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.088_83);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// The three channels of a colour as xterm shows it, 0 to 255.
    fn channels(color: Color) -> [u8; 3] {
        match color {
            Color::Rgb(r, g, b) => [r, g, b],
            Color::Indexed(gray @ 232..) => [8 + 10 * (gray - 232); 3],
            Color::Indexed(cube @ 16..) => {
                [(cube - 16) / 36, (cube - 16) / 6 % 6, (cube - 16) % 6].map(|level| match level {
                    0 => 0,
                    level => 55 + 40 * level,
                })
            }
            other => panic!("{other:?} is the terminal's own"),
        }
    }

    /// Perceived linear sRGB: with normal vision, without red cones, without green ones (Machado, Oliveira and
    /// Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency", 2009, severity 1).
    const EYES: [[[f64; 3]; 3]; 3] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
    ];

    #[test]
    fn kinds_of_code_differ_for_who_is_colour_blind() {
        // A difference of 2 is just visible side by side; boxes of two kinds must differ clearly.
        const APART: f64 = 8.0;
        for palette in [Palette::Indexed, Palette::True] {
            let theme = Theme::new(palette);
            for eye in EYES {
                let seen = |color| {
                    let linear = channels(color).map(linear);
                    lab(eye.map(|row| row.iter().zip(linear).map(|(weight, part)| weight * part).sum()))
                };
                let shades = |kind| {
                    ["a", "b", "c", "d", "e", "f", "g", "h"]
                        .map(|label| seen(theme.frame(kind, label, Emphasis::None, false).bg.unwrap()))
                };
                for (place, &one) in FrameKind::ALL[3..].iter().enumerate() {
                    for &other in &FrameKind::ALL[place + 4..] {
                        for (a, b) in shades(one).iter().flat_map(|a| shades(other).map(|b| (*a, b))) {
                            let apart = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                            assert!(apart > APART, "{palette:?} {one:?} {other:?}: {apart}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_match_and_a_selection_stand_out_in_every_palette() {
        for palette in PALETTES {
            let theme = Theme::new(palette);
            for kind in FrameKind::ALL {
                let plain = theme.frame(kind, "x", Emphasis::None, false);
                assert_ne!(theme.frame(kind, "x", Emphasis::Match, false), plain, "{palette:?} {kind:?}");
                assert_ne!(theme.frame(kind, "x", Emphasis::None, true), plain, "{palette:?} {kind:?}");
            }
        }
    }

    /// A channel of sRGB without its gamma, 0 to 1.
    fn linear(channel: u8) -> f64 {
        let part = f64::from(channel) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    }

    /// Contrast as WCAG 2 defines it.
    fn contrast(a: Color, b: Color) -> f64 {
        let luminance = |color| {
            let [r, g, b] = channels(color).map(linear);
            0.2126 * r + 0.7152 * g + 0.0722 * b
        };
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_is_readable_on_every_background() {
        let theme = Theme::new(Palette::True);
        for kind in FrameKind::ALL {
            for label in ["a", "b", "c", "d", "e", "f"] {
                for trend in [Trend::More(true), Trend::More(false), Trend::Less(true), Trend::Less(false)] {
                    let style = theme.difference(trend, Emphasis::None, false);
                    assert!(contrast(style.fg.unwrap(), style.bg.unwrap()) >= 7.0, "{trend:?}");
                }
                for emphasis in [Emphasis::None, Emphasis::Match, Emphasis::Faded] {
                    for selected in [false, true] {
                        let style = theme.frame(kind, label, emphasis, selected);
                        let (foreground, background) = (style.fg.unwrap(), style.bg.unwrap());
                        assert!(contrast(foreground, background) >= 7.0, "{kind:?} {emphasis:?} {selected}");
                    }
                }
            }
        }
    }
}
