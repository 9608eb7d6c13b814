//! Short names in a picture that `inferno` draws, with the full one in each box's title.
//!
//! Owns: [`ShortNames`]: which name a box has, and putting full names back into the finished picture. Because: boxes
//! are narrow, and template names begin alike; but hovering and searching need the full name, and `inferno` supports
//! only one name per box. Does not: shorten ([`short_labels`] does), or draw.
//!
//! The script of the picture takes the text of a box from its title whenever the picture is zoomed. It is changed to
//! take the short name, which the box has as an attribute.

use deepctx_profile::frame::{FrameKind, short_labels};
use rustc_hash::FxHashMap;

/// Begin of a box in the picture.
const BOX: &str = "<g><title>";
/// How the picture's script reads the text of a box.
const TEXT_OF_BOX: &str = r#"find_child(e, "title").textContent.replace(/\([^(]*\)$/,"")"#;
/// Replacement of [`TEXT_OF_BOX`].
const NAME_OF_BOX: &str =
    r#"(e.getAttribute("data-name") || find_child(e, "title").textContent.replace(/\([^(]*\)$/,""))"#;
/// Escapes of `quick_xml`, which writes the picture.
const ESCAPED: [(&str, &str); 5] =
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];

/// Names of boxes, short and full. Short names are unique.
#[derive(Debug, Default)]
pub(super) struct ShortNames<'n> {
    of_full: FxHashMap<&'n str, String>,
    of_short: FxHashMap<String, &'n str>,
}

impl<'n> ShortNames<'n> {
    /// Short names for all labels of a picture.
    pub(super) fn of(labels: impl Iterator<Item = (FrameKind, &'n str)> + Clone) -> Self {
        let mut names = Self::default();
        let short = short_labels(labels.clone());
        for ((_, full), short) in labels.zip(short) {
            // A number at the end would be read as a value.
            let ends_in_number = short
                .rsplit_once(' ')
                .is_some_and(|(_, last)| last.bytes().all(|byte| byte.is_ascii_digit()));
            if short != full && !ends_in_number && !short.contains(';') {
                names.of_short.insert(short.clone(), full);
                names.of_full.insert(full, short);
            }
        }
        names
    }

    /// Gives a label a unique short name.
    pub(super) fn shorten(&mut self, full: &'n str, short: String) {
        if !self.of_full.contains_key(full) && !self.of_short.contains_key(&short) {
            self.of_short.insert(short.clone(), full);
            self.of_full.insert(full, short);
        }
    }

    /// Sets the title of a box, in place of its name.
    pub(super) fn explain(&mut self, name: &str, full: &'n str) {
        self.of_short.insert(name.to_owned(), full);
    }

    /// The short name of a label; the label itself without one.
    pub(super) fn short<'a>(&'a self, full: &'a str) -> &'a str {
        self.of_full.get(full).map_or(full, String::as_str)
    }

    /// The image with full names as titles.
    pub(super) fn with_full_titles(&self, picture: &str) -> String {
        let mut out = String::with_capacity(picture.len() * 2);
        let mut rest = picture;
        while let Some(at) = rest.find(BOX) {
            let (before, from_box) = rest.split_at(at);
            out.push_str(&before.replace(TEXT_OF_BOX, NAME_OF_BOX));
            let title = from_box.get(BOX.len()..).unwrap_or_default();
            let end = title.find("</title>").unwrap_or(title.len());
            // The values follow in the last parentheses.
            let (name, figures) = title[..end].rsplit_once(" (").unwrap_or((&title[..end], ""));
            match self.of_short.get(&unescaped(name)) {
                Some(full) => {
                    out.push_str(&format!("<g data-name=\"{name}\"><title>{} ({figures}", escaped(full)));
                }
                None => out.push_str(&from_box[..BOX.len() + end]),
            }
            rest = &title[end..];
        }
        out.push_str(&rest.replace(TEXT_OF_BOX, NAME_OF_BOX));
        out
    }
}

fn unescaped(text: &str) -> String {
    ESCAPED.iter().fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

fn escaped(text: &str) -> String {
    ESCAPED.iter().rev().fold(text.to_owned(), |text, (escape, plain)| text.replace(plain, escape))
}
