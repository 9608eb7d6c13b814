//! Pages: the pages of text that can be scrolled, as lines without styles.
//!
//! Owns: the lines of the overview, the help, the health of the capture, and the menu of metrics. Because: scrolling
//! needs the number of lines, and drawing needs their contents. Does not: draw.

pub(crate) mod health;
pub(crate) mod help;
pub(crate) mod metrics;
pub(crate) mod overview;
