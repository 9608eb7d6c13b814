//! Pages: the pages of text that can be scrolled, as lines without styles.
//!
//! Owns: the lines of the help and of the losses. Because: scrolling has to know how many lines there are, and
//! drawing what is in them. Does not: draw.

pub(crate) mod help;
pub(crate) mod losses;
