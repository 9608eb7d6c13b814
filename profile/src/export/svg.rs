//! Flame graph pictures, drawn by `inferno`.
//!
//! Owns: title, unit and colours. Because: a picture that opens in any browser, with search and zoom, is what people
//! attach to a ticket. Does not: lay out boxes.

use std::io::{self, Write};

use inferno::flamegraph::color::{Color, PaletteMap};
use inferno::flamegraph::{self, Options};

use super::folded::each_line;
use crate::metric::Unit;
use crate::profile::Profile;
use crate::snapshot::FrameKind;
use crate::view::{Merged, SameBy, Selection};

/// Bytes of folded text that one picture may be drawn from; `inferno` holds all of it at once.
const FOLDED_BYTES_MAX: usize = 1 << 30;

/// Writes the flame graph of a selection as SVG. Boxes too narrow to be seen are left out of the picture.
pub fn write(profile: &Profile, selection: &Selection, out: &mut dyn Write) -> io::Result<()> {
    let mut merged = Merged::new(*selection, SameBy::Text);
    merged.refresh(profile, None);

    let mut palette = PaletteMap::default();
    for label in merged.labels() {
        palette.insert(&label.text, colour(label.kind, &label.text));
    }
    let mut options = Options::default();
    options.title = title(profile, selection);
    options.palette_map = Some(&mut palette);
    options.count_name = count_name(selection.metric.unit()).to_owned();
    options.factor = factor(selection.metric.unit());
    options.name_type = "Frame:".to_owned();
    options.reverse_stack_order = false;
    options.no_sort = true;
    options.deterministic = true;

    let mut folded = String::new();
    each_line(&merged, |line| {
        if folded.len() + line.len() > FOLDED_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the profile is too large for one picture"));
        }
        folded.push_str(line);
        Ok(())
    })?;
    if folded.is_empty() {
        let metric = selection.metric;
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the profile has no values of {metric}")));
    }
    flamegraph::from_lines(&mut options, folded.lines(), &mut *out)?;
    out.flush()
}
