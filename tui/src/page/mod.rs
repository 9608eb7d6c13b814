//! Pages: the pages of text that can be scrolled, as lines without styles.
//!
//! Owns: the lines of the overview, of the help, of the health of the capture, and of the menu of metrics. Because:
//! scrolling has to know how many lines there are, and drawing what is in them. Does not: draw.

pub(crate) mod health;
pub(crate) mod help;
pub(crate) mod metrics;
pub(crate) mod overview;
